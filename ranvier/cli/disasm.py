"""`ranvier disasm`: the instruction streams of a compiled file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ranvier.errors import error
from ranvier.target import Engine


def disasm(
    program: Annotated[Path, typer.Argument(help="a file that `ranvier compile` wrote")],
    engine: Annotated[str | None, typer.Option(help="print the stream of one engine only")] = None,
    locations: Annotated[bool, typer.Option(help="print the source line of each instruction")] = False,
) -> None:
    """Print the instruction streams: waits, signals, instructions on placed buffers."""
    from ranvier.ir.text import print_program
    from ranvier.runtime.executable import load

    code = load(program).program
    if engine is not None:
        names = [stream.engine.name.lower() for stream in code.streams]
        if engine.upper() not in Engine.__members__ or engine.lower() not in names:
            raise error("E0802", f"the program has no stream of an engine {engine!r}; it has {', '.join(names)}")
        code = dataclasses.replace(code, streams=tuple(s for s in code.streams if s.engine.name == engine.upper()))
    typer.echo(print_program(code, locations=locations))
