"""`ranvier targets`: the hardware generations and every number known about them."""

from __future__ import annotations

import itertools
import json as json_format
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ranvier import target as registry
from ranvier.console import console
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
    terminal = console()
    if name is None:
        terminal.print(_names_table(chosen))
        return
    sources = {source: str(i + 1) for i, source in enumerate(dict.fromkeys(f.source for _, f in chosen[0].facts()))}
    terminal.print(_facts_table(chosen[0], sources))
    terminal.print(_sources_table(sources))
    terminal.print(_features_table(chosen[0]))


def _names_table(chosen: list[Target]) -> Table:
    """One column for each target, so that it fits in a narrow terminal."""
    table = _plain_table("Targets")
    table.add_column("")
    for target in chosen:
        table.add_column(target.name, justify="right")
    rows: dict[str, Callable[[Target], str]] = {
        "chip": lambda t: t.title,
        "generation": lambda t: t.generation,
        "cores": lambda t: str(t.chip.cores.value),
        "SBUF of a core": lambda t: _bytes(t.sbuf.bytes),
        "PSUM of a core": lambda t: _bytes(t.psum.bytes),
        "HBM of a core": lambda t: _bytes(int(t.hbm.bytes.value)),
        "HBM GB/s": lambda t: f"{t.hbm.bytes_per_ns.value:.0f}",
        "bf16 TFLOP/s": lambda t: f"{t.peak_flops('bfloat16') / 1e12:.1f}",
        "fp8 TFLOP/s": lambda t: f"{t.peak_flops('float8_e5m2') / 1e12:.1f}",
        "estimated facts": _estimated,
    }
    for title, show in rows.items():
        table.add_row(title, *(show(target) for target in chosen))
    return table


def _estimated(target: Target) -> str:
    facts = [fact for _, fact in target.facts()]
    return f"{sum(fact.confidence is Confidence.ESTIMATED for fact in facts)} of {len(facts)}"


def _facts_table(target: Target, sources: dict[str, str]) -> Table:
    """Every fact; sources are long, so each has a number and is listed once."""
    table = _plain_table(f"{target.title} ({target.name}, {target.generation}); engines, memories and DMA of one core")
    table.padding = (0, 1, 0, 0)
    table.add_column("fact", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("known", no_wrap=True)
    table.add_column("#", justify="right", no_wrap=True)
    for _, group in itertools.groupby(target.facts(), key=lambda item: item[0].split(".")[0]):
        for path, fact in group:
            known = f"[{_STYLES[fact.confidence]}]{fact.confidence.value}[/]"
            table.add_row(path, *_value(fact), known, sources[fact.source])
        table.add_section()
    return table


def _sources_table(sources: dict[str, str]) -> Table:
    table = _plain_table("\nSources")
    table.add_column("#", justify="right")
    table.add_column("")
    for source, number in sources.items():
        table.add_row(number, escape(source))
    return table


def _features_table(target: Target) -> Table:
    table = _plain_table(f"\nFeatures of {target.name}")
    table.add_column("feature", no_wrap=True)
    for column in ("", "means", "source"):
        table.add_column(column)
    for name, feature in FEATURES.items():
        table.add_row(name, "yes" if target.has(name) else "-", escape(feature.title), escape(feature.source))
    return table


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _value(fact: Fact) -> tuple[str, str]:
    if fact.unit == "bytes" and fact.value >= 1 << 10:
        value, unit = _bytes(int(fact.value)).split()
        return value, unit
    text = f"{fact.value:.5g}" if fact.value < 1e5 else f"{fact.value:.0f}"
    return text, "" if fact.unit == "1" else fact.unit


def _bytes(count: int) -> str:
    for size, unit in _BINARY_UNITS:
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
