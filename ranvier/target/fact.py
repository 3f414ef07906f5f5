"""One number with its unit, where it comes from, and how well it is known."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from ranvier.errors import error


class Confidence(enum.Enum):
    """How well a number is known."""

    DOCUMENTED = "documented"  # the vendor states it for this generation
    MEASURED = "measured"  # published profiles or probes of this generation show it
    ESTIMATED = "estimated"  # carried over from another generation, or assumed


@dataclass(frozen=True, slots=True)
class Fact:
    """One number. `unit` is "1" for counts and ratios; `source` says in public terms where it comes from."""

    value: float | int
    unit: str
    source: str
    confidence: Confidence

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def documented(value: float | int, unit: str, source: str) -> Fact:
    return Fact(value, unit, source, Confidence.DOCUMENTED)


def measured(value: float | int, unit: str, source: str) -> Fact:
    return Fact(value, unit, source, Confidence.MEASURED)


def estimated(value: float | int, unit: str, source: str) -> Fact:
    return Fact(value, unit, source, Confidence.ESTIMATED)


def carry_over(record, assumption: str, **changes):
    """`record` for another generation: every fact in it becomes estimated, with `assumption` before its source, except
    for the fields in `changes`, which are facts (or records) of their own."""
    fields = {}
    for field in dataclasses.fields(record):
        known = field.name in changes
        fields[field.name] = changes.pop(field.name) if known else _carried(getattr(record, field.name), assumption)
    if changes:
        raise error("E0805", f"{type(record).__name__} has no fields {', '.join(changes)}")
    return type(record)(**fields)


def _carried(value, assumption: str):
    if isinstance(value, Fact):
        carried = value.source.startswith("assumption")
        return estimated(value.value, value.unit, value.source if carried else f"{assumption} ({value.source})")
    return carry_over(value, assumption) if dataclasses.is_dataclass(value) else value
