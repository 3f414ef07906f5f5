"""`ranvier check`: every stage of the compiler beside its reference."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ranvier.cli.output import print_error, print_json, progress
from ranvier.cli.spec import load_model
from ranvier.console import console
from ranvier.errors import RanvierError


def check(
    model: Annotated[str, typer.Argument(help="path/to/file.py:attribute (a model or a kernel), or minilm")],
    target: Annotated[str | None, typer.Option(help="a target that `ranvier targets` lists")] = None,
    dtype: Annotated[str | None, typer.Option(help="what is computed in: bfloat16 or float32")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Run the reference beside every stage, on the example inputs. If one differs, the exit code is 1."""
    from ranvier.frontends.compile import check as check_model

    spec = load_model(model)
    with progress(f"checking {spec.name}", quiet=json):
        report = check_model(spec.model, spec.args, spec.kwargs, target=target, dtype=dtype)
    if json:
        print_json({**dataclasses.asdict(dataclasses.replace(report, divergence=None)), "passed": report.passed,
                    "divergence": None if report.divergence is None else _plain(report.divergence)})
    else:
        table = Table(title=f"{spec.name}: each stage and its reference")
        for column in ("stage", "compared with", "difference", "allowed", "seconds", ""):
            table.add_column(column, justify="right" if column in ("difference", "allowed", "seconds") else "left")
        for s in report.stages:
            verdict = "[green]ok[/]" if s.passed else "[red]differs[/]"
            table.add_row(escape(s.name), s.reference, f"{s.difference:.2g}", f"{s.tolerance:.2g}", f"{s.seconds:.2f}",
                          verdict)
        console().print(table)
    try:
        report.raise_if_failed()
    except RanvierError as failure:
        print_error(failure)
        raise typer.Exit(1) from None


def _plain(divergence) -> dict:
    return {**dataclasses.asdict(divergence), "loc": None if divergence.loc is None else str(divergence.loc)}
