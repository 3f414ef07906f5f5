"""`ranvier explain`: the page of an error code."""

from __future__ import annotations

from typing import Annotated

import typer

from ranvier.errors import CODES, error


def explain(
    code: Annotated[str | None, typer.Argument(help="a code such as E0304; leave it out for the list")] = None,
) -> None:
    """Print what an error code means, whose fault it is, and what to do."""
    if code is None:
        for spec in CODES.values():
            typer.echo(f"{spec.code}  {spec.title}")
        return
    spec = CODES.get(code.upper())
    if spec is None:
        raise error("E0802", f"no error has the code {code!r}", fix="`ranvier explain` lists all codes")
    typer.echo(f"{spec.code}: {spec.title}\n")
    typer.echo(spec.page + "\n")
    typer.echo(f"Whose fault: {spec.kind.value} ({spec.kind.name.lower()})")
    if spec.fix:
        typer.echo(f"What to do: {spec.fix}")
