"""`ranvier inspect`: what is in a compiled file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ranvier.cli.output import duration, print_json, size
from ranvier.console import console


def inspect(
    program: Annotated[Path, typer.Argument(help="a file that `ranvier compile` wrote")],
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show provenance, instruction mix, memory map and cost per layer of a compiled file."""
    from ranvier.runtime.executable import load

    exe = load(program)
    found = exe.inspect()
    if json:
        print_json({**found.to_dict(), "file_bytes": program.stat().st_size})
        return
    terminal = console()
    provenance = _table(f"{program} ({size(program.stat().st_size)})", "from", "")
    for key, value in found.manifest.items():
        provenance.add_row(key, ", ".join(value) if isinstance(value, list) else str(value))
    terminal.print(provenance)
    mix = _table("Instructions", "engine", "instruction", "count")
    for row in found.instructions:
        mix.add_row(row.engine, row.instruction, str(row.count))
    terminal.print(mix)
    memory = _table("Memory (on chip: of one partition)", "memory", "buffers", "in use at once", "extent", "capacity")
    for use in found.memories:
        memory.add_row(use.memory, str(use.buffers), size(use.peak_bytes), size(use.extent_bytes),
                       size(use.capacity_bytes))
    for kind, count in found.hbm_bytes.items():
        memory.add_row(f"  hbm, {kind}", "", size(count))
    for name, space, count in found.largest[:5]:
        memory.add_row(f"  {space}, {name}", "", size(count))
    terminal.print(memory)
    layers = _table("Cost of each layer", "layer", "instructions", "on the critical path", "HBM bytes", "MFLOP")
    for layer in found.layers:
        layers.add_row(layer.scope or "(no layer)", str(layer.instructions), duration(layer.critical_ns),
                       size(layer.hbm_bytes), f"{layer.flops / 1e6:.1f}")
    terminal.print(layers)
    terminal.print(f"{found.semaphores} semaphores; DMA queues: {', '.join(found.queues) or 'none'}")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right", overflow="fold")
    return table
