"""`ranvier profile`: where the time of a compiled model or kernel goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ranvier.cli.output import print_json
from ranvier.cli.spec import is_artifact, load_model
from ranvier.console import console
from ranvier.errors import error

if TYPE_CHECKING:
    from ranvier.profile import Profile


def profile(
    program: Annotated[str, typer.Argument(help="a file of `ranvier compile`, path/to/file.py:attribute, or minilm")],
    target: Annotated[str | None, typer.Option(help="for code: a target that `ranvier targets` lists")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page with the timeline, to be opened offline")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="write a trace for ui.perfetto.dev")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the predicted time, its bound, and what each engine waits for.

    A model or a kernel is named by a function without parameters that returns it and a tuple of its arguments.
    """
    if is_artifact(program):
        from ranvier.runtime.executable import load

        if target is not None:
            raise error("E0802", f"--target is {target!r}, and {program} is compiled for one already",
                        fix="compile the model again for the other target")
        found = load(program).profile()
    else:
        found = _of_code(program, target)
    if html is not None:
        found.save_html(html)
    if perfetto is not None:
        found.save_perfetto(perfetto)
    if json:
        print_json(found.to_dict())
        return
    console().print(found.report())
    for path in (html, perfetto):
        if path is not None:
            typer.echo(f"written: {path}")


def _of_code(text: str, target: str | None) -> Profile:
    spec = load_model(text)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(spec.model, torch.nn.Module):
        from ranvier.frontends.compile import compile

        return compile(spec.model, spec.args, spec.kwargs, target=target).profile()
    from ranvier.runtime.benchmark import benchmark

    return benchmark(spec.model, target=target, show=False)(*spec.args, **spec.kwargs).profile
