"""`ranvier ops`: the operators of a framework that are supported."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ranvier.cli.output import print_json
from ranvier.cli.spec import need_torch
from ranvier.console import console
from ranvier.errors import error


def ops(
    framework: Annotated[str, typer.Argument(help="torch")] = "torch",
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the operators that are imported, and what they become."""
    if framework != "torch":
        raise error("E0802", f"no front end is called {framework!r}; there is torch")
    need_torch("the list of operators")
    from ranvier.frontends.torch.table import supported_ops

    rows = supported_ops()
    if json:
        print_json([{"name": r.name, "family": r.family, "graph_ops": list(r.graph_ops), "note": r.note} for r in rows])
        return
    table = Table(title=f"{len(rows)} operators of {framework}; others are decomposed into these where torch knows how")
    for column in ("operator", "family", "becomes", "note"):
        table.add_column(column, overflow="fold")
    for r in rows:
        table.add_row(r.name, r.family, ", ".join(r.graph_ops), r.note)
    console().print(table)
