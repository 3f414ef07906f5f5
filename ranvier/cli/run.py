"""`ranvier run`: a compiled model on arrays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ranvier.cli.output import print_json
from ranvier.errors import error


def run(
    program: Annotated[Path, typer.Argument(help="a file that `ranvier compile` wrote")],
    input: Annotated[Path, typer.Option(help="an .npz file with one array for each input, by name")],
    output: Annotated[Path | None, typer.Option(help="an .npz file for the outputs")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Run a compiled model on the arrays of an .npz file."""
    import zipfile

    import numpy as np

    from ranvier.files import replaced_file
    from ranvier.runtime.calling import ArrayCalling, checked_array
    from ranvier.runtime.executable import load

    exe = load(program)
    assert isinstance(exe.calling, ArrayCalling)
    try:
        with open(input, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise error("E0804", f"{input} is no .npz file", fix="write one with numpy.savez(path, name=array)")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                given = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as cause:
        raise error("E0804", f"{input} cannot be read as an .npz file: {cause}") from cause
    leaves = exe.calling.inputs()
    wanted = [leaf["path"] for leaf in leaves]
    if set(given) != set(wanted):
        raise error("E0603", f"{input} has the arrays {', '.join(given) or 'none'}; {program} takes "
                    f"{', '.join(wanted)}")
    arrays = [checked_array(given[x["path"]], x["path"], tuple(x["shape"]), x["dtype"]) for x in leaves]
    start = time.perf_counter()
    outputs = {f"output{i}": array for i, array in enumerate(exe.run_arrays(arrays))}
    seconds = time.perf_counter() - start
    # .npz knows numpy's own types only.
    plain = {name: a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for name, a in outputs.items()}
    if output is not None:
        with replaced_file(output) as file:
            np.savez(file, allow_pickle=False, **plain)
    if json:
        rows = [{"name": name, "shape": list(a.shape), "dtype": a.dtype.name, "written_as": plain[name].dtype.name}
                for name, a in outputs.items()]
        print_json({"run_s": seconds, "outputs": rows})
        return
    for name, array in outputs.items():
        flat = ", ".join(f"{float(v):.5g}" for v in array.reshape(-1)[:6])
        more = ", ..." if array.size > 6 else ""
        cast = f", written as {plain[name].dtype}" if plain[name] is not array and output is not None else ""
        typer.echo(f"{name}: {array.dtype}{list(array.shape)} = [{flat}{more}]{cast}")
    typer.echo(f"ran on a simulated {exe.target.title} core in {seconds:.2f} s of this machine")
