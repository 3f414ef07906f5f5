"""`ranvier profile`: where the time of a compiled model or kernel goes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ranvier.cli.output import console, print_json
from ranvier.cli.spec import is_artifact, load_attribute
from ranvier.errors import error

if TYPE_CHECKING:
    from ranvier.profile import Profile


def profile(
    program: Annotated[str, typer.Argument(help="a file that `ranvier compile` wrote, or kernel.py:function")],
    target: Annotated[str | None, typer.Option(help="for a kernel: a target that `ranvier targets` lists")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page with the timeline, to be opened offline")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="write a trace for ui.perfetto.dev")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the predicted time, its bound, and what each engine waits for.

    A kernel is named by a function without parameters that returns the kernel and a tuple of its arguments.
    """
    if is_artifact(program):
        from ranvier.runtime.executable import load

        if target is not None:
            raise error("E0802", f"--target is {target!r}, and {program} is compiled for one already",
                        fix="compile the model again for the other target")
        found = load(program).profile()
    else:
        found = _of_kernel(program, target)
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


def _of_kernel(text: str, target: str | None) -> Profile:
    from ranvier.runtime.benchmark import benchmark

    made = load_attribute(text)
    if inspect.isfunction(made) and not inspect.signature(made).parameters:
        made = made()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]) or not isinstance(made[1], tuple | list):
        raise error("E0804", f"{text} gives a {type(made).__name__}, not (kernel, arguments)",
                    fix="name a function without parameters that returns a kernel and a tuple of its arguments")
    kernel, arguments = made
    return benchmark(kernel, target=target, show=False)(*arguments).profile
