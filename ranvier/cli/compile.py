"""`ranvier compile`: a model to one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ranvier.cli.output import print_json, progress, size
from ranvier.cli.spec import load_model


def compile(
    model: Annotated[str, typer.Argument(help="path/to/file.py:attribute, or minilm")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write the program")] = None,
    target: Annotated[str | None, typer.Option(help="a target that `ranvier targets` lists")] = None,
    dtype: Annotated[str | None, typer.Option(help="what is computed in: bfloat16 or float32")] = None,
    dump: Annotated[Path | None, typer.Option(help="folder for a snapshot after each pass")] = None,
    cache: Annotated[bool, typer.Option(help="use the compile cache")] = True,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compile a model, with its weights, to one file."""
    from ranvier.frontends.compile import compile as compile_model

    spec = load_model(model)
    start = time.perf_counter()
    with progress(f"compiling {spec.name}", quiet=json) as report:
        exe = compile_model(spec.model, spec.args, spec.kwargs, target=target, dtype=dtype, cache=cache, dump=dump,
                            progress=report)
    seconds = time.perf_counter() - start
    output = output or Path(f"{spec.name}.rvx")
    exe.save(output)
    count = sum(len(stream.slots) for stream in exe.program.streams)
    if json:
        print_json({"output": str(output), "bytes": output.stat().st_size, "instructions": count, "compile_s": seconds,
                    "target": exe.target.name, "dtype": exe.dtype, "from_cache": not exe.stages,
                    "stages": [{"name": name, "seconds": s} for name, s in exe.stages]})
        return
    origin = "from the cache" if not exe.stages else "compiled"
    typer.echo(f"{spec.name} for {exe.target.name} in {exe.dtype}: {count} instructions, {origin} in {seconds:.2f} s")
    typer.echo(f"written: {output} ({size(output.stat().st_size)})")
