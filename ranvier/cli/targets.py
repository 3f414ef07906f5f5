"""`ranvier targets`: the hardware generations and every number known about them."""

from __future__ import annotations

import itertools
import json as json_format
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ranvier import target as registry
from ranvier.target import Confidence, Fact, Target
from ranvier.target.features import FEATURES

_STYLES = {Confidence.DOCUMENTED: "green", Confidence.MEASURED: "cyan", Confidence.ESTIMATED: "yellow"}
_BINARY_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def targets(
    name: Annotated[str | None, typer.Argument(help="a target, such as trn2; leave it out for the list")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the targets, or every fact of one: value, unit, how well it is known, and where it comes from."""
    chosen = [registry.get(each) for each in ([name] if name else registry.names())]
    if json:
        content = chosen[0].to_json() if name else {target.name: target.to_json() for target in chosen}
        typer.echo(json_format.dumps(content, indent=2))
        return
    console = Console()
    console.print(_facts_table(chosen[0]) if name else _names_table(chosen))
    if name:
        console.print(_features_table(chosen[0]))


def _names_table(chosen: list[Target]) -> Table:
    table = Table(title="Targets")
    for column in ("name", "chip", "generation"):
        table.add_column(column)
    for column in ("cores", "SBUF", "PSUM", "HBM of a core", "HBM GB/s", "bf16 TFLOP/s", "fp8 TFLOP/s", "estimated"):
        table.add_column(column, justify="right")
    for target in chosen:
        facts = [fact for _, fact in target.facts()]
        estimated = sum(fact.confidence is Confidence.ESTIMATED for fact in facts)
        table.add_row(
            target.name, target.title, target.generation, str(target.chip.cores.value),
            _bytes(target.sbuf.bytes), _bytes(target.psum.bytes), _bytes(int(target.hbm.bytes.value)),
            f"{target.hbm.bytes_per_ns.value:.0f}", f"{target.peak_flops('bfloat16') / 1e12:.1f}",
            f"{target.peak_flops('float8_e5m2') / 1e12:.1f}", f"{estimated} of {len(facts)} facts",
        )
    return table


def _facts_table(target: Target) -> Table:
    table = Table(title=f"{target.title} ({target.name}, {target.generation}); engines, memories and DMA of one core")
    table.add_column("fact", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("known", no_wrap=True)
    table.add_column("source", overflow="fold")
    for _, group in itertools.groupby(target.facts(), key=lambda item: item[0].split(".")[0]):
        for path, fact in group:
            value, unit = _value(fact)
            known = f"[{_STYLES[fact.confidence]}]{fact.confidence.value}[/]"
            table.add_row(path, value, unit, known, escape(fact.source))
        table.add_section()
    return table


def _features_table(target: Target) -> Table:
    table = Table(title=f"Features of {target.name}")
    for column in ("feature", "", "means", "source"):
        table.add_column(column)
    for name, feature in FEATURES.items():
        table.add_row(name, "yes" if target.has(name) else "-", escape(feature.title), escape(feature.source))
    return table


def _value(fact: Fact) -> tuple[str, str]:
    if fact.unit == "bytes" and fact.value >= 1 << 10:
        value, unit = _bytes(int(fact.value)).split()
        return value, unit
    return f"{fact.value:.6g}", "" if fact.unit == "1" else fact.unit


def _bytes(count: int) -> str:
    for size, unit in _BINARY_UNITS:
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
