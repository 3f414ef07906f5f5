"""What commands share in their output: errors, JSON, progress, sizes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from ranvier.errors import Kind, RanvierError

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def print_error(failure: RanvierError) -> None:
    """The error on standard error: its text, whose fault it is, and where more stands."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    first, *rest = str(failure).split("\n")
    errors.print(Text(f"error {first}", style="bold red"))
    for line in rest:
        errors.print(Text(line))
    if failure.kind is not Kind.USER:
        errors.print(Text(f"  kind: {failure.kind.value}"))
    errors.print(Text(f"  more: ranvier explain {failure.code}", style="dim"))


def print_json(content: Any) -> None:
    """`content` as JSON on standard output."""
    typer.echo(json.dumps(content, indent=2))


def size(count: float) -> str:
    """A number of bytes for people: "1.5 MiB"."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} bytes"


def duration(ns: float) -> str:
    """A time in ns for people: "12.3 us"."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.4g} {name}"
    return f"{ns:.4g} ns"


@contextlib.contextmanager
def progress(title: str, quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """Shows that something is going on, on standard error; the function given takes the stage that was just finished.

    Without a terminal, or with `quiet`, nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda stage, seconds: None
        return
    console = Console(stderr=True)
    with console.status(title) as status:
        yield lambda stage, seconds: status.update(f"{title}: {stage} took {seconds:.2f} s")
