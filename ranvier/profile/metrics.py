"""What a profile says about a program, and the forms in which it can be had."""

from __future__ import annotations

import io
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ranvier.files import replaced_file
from ranvier.ir.program import Program
from ranvier.profile.critical_path import Segment
from ranvier.sim.trace import Timeline
from ranvier.target.spec import Target

if TYPE_CHECKING:
    from ranvier.profile.report import Report


@dataclass(frozen=True, slots=True)
class EngineUse:
    """How one engine (or the DMA engines together, as "dma") spends the time of the program."""

    engine: str
    busy_ns: float
    busy_share: float
    instructions: int
    stall_ns: float
    idle_ns: float  # after its last instruction


@dataclass(frozen=True, slots=True)
class Stall:
    """Time that `engine` waited, `count` times, for `reason` ("semaphore", ...) by `on` (an engine, a queue, or "")."""

    engine: str
    reason: str
    on: str
    ns: float
    count: int


@dataclass(frozen=True, slots=True)
class Layer:
    """Cost of one part of the model: `scope` is its path, in which "*" stands for the numbers of `copies` equal parts.

    `critical_ns` of all layers add up to the program's time, and so do those of all parts.
    """

    scope: str
    copies: int
    instructions: int
    busy_ns: dict[str, float]
    transfer_ns: float
    hbm_bytes: int
    flops: int
    critical_ns: float


@dataclass(frozen=True, slots=True)
class Hot:
    """All instructions of one kind that come from one source line."""

    instruction: str
    engine: str
    place: str
    source: str
    count: int
    busy_ns: float
    critical_ns: float


@dataclass(frozen=True)
class Profile:
    """Predicted time of one program and where it goes.

    `latency_ns` runs from the first instruction to the last visible result; a profile of the hardware adds `head_ns`
    and `tail_ns`, a measurement on the host `host_launch_ns` as well. `bound_ns` is the larger of `compute_bound_ns`
    (matmuls at the peak of the tensor engine) and `memory_bound_ns` (inputs, weights and outputs across HBM once), and
    `bound` says which. `mfu` is `flops` per time as a share of `peak_flops` (that of `flops_dtype`), `mbu` the
    `once_bytes` per time as a share of `hbm_bytes_per_ns`. `estimated_share` is the part of the critical path that
    rests on facts that are only estimated.
    """

    name: str
    target: str
    latency_ns: float
    head_ns: float
    tail_ns: float
    host_launch_ns: float
    bound: str
    bound_ns: float
    compute_bound_ns: float
    memory_bound_ns: float
    flops: int
    flops_dtype: str
    peak_flops: float
    hbm_bytes_per_ns: float
    once_bytes: int
    moved_bytes: dict[str, int]
    mfu: float
    mbu: float
    estimated_share: float
    engines: tuple[EngineUse, ...]
    stalls: tuple[Stall, ...]
    transfer_wait_ns: float  # of a transfer, on average, until a DMA engine begins with it
    layers: tuple[Layer, ...]
    parts: tuple[Layer, ...]  # the same, repeated layers as one
    hot: tuple[Hot, ...]
    critical_shares: dict[str, float]
    verdict: str
    path: tuple[Segment, ...]
    timeline: Timeline
    program: Program
    hardware: Target  # with the facts that the times rest on; `target` is its name

    @property
    def times_bound(self) -> float:
        """How many times longer than its bound the program takes."""
        return self.latency_ns / self.bound_ns if self.bound_ns else float("inf")

    @property
    def hbm_bytes(self) -> int:
        """All bytes that cross the HBM port."""
        return sum(self.moved_bytes.values())

    def report(self, *, rows: int = 12) -> Report:
        """Tables as wide as the terminal (a `rich` renderable), at most `rows` lines each; `str` gives them as text."""
        from ranvier.profile.report import Report

        return Report(self, rows)

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=118, color_system=None).print(self.report())
        return text.getvalue()

    def __repr__(self) -> str:
        return f"Profile({self.name} on {self.target}: {self.latency_ns / 1e3:.1f} us)"

    def to_dict(self) -> dict[str, Any]:
        """All measures, ready for `json.dumps`; the timeline and the program are left out."""
        skipped = ("timeline", "program", "path", "hardware")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in skipped}
        for name in ("engines", "stalls", "layers", "parts", "hot"):
            fields[name] = [asdict(row) for row in fields[name]]
        bound_free = self.bound_ns == 0
        return fields | {"times_bound": None if bound_free else self.times_bound, "hbm_bytes": self.hbm_bytes}

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write one page that needs nothing else: measures, timeline, roofline, memory. Raises E0804 if it cannot."""
        from ranvier.profile.html import page

        _write(path, page(self))

    def save_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing. Raises E0804 if it cannot."""
        from ranvier.profile.perfetto import trace_text

        _write(path, trace_text(self))

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per event, times in ns. Raises E0804 if it cannot."""
        from ranvier.profile.table import csv_text

        _write(path, csv_text(self))


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replaced_file(path) as file:
        file.write(text.encode())
