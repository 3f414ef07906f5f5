"""What the passes between a kernel and a program hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Placement, Signal, Wait
from ranvier.target.spec import Engine


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel whose buffers all have a place. Spills are instructions of it like any other.

    `floating` are PSUM buffers that the scheduler places anew: it knows when a bank is free. They are given in the
    order of their first use; each fits in one bank, and `banks_needed` of them are live at once in program order.
    """

    kernel: Kernel
    placements: dict[str, Placement]
    floating: tuple[str, ...] = ()
    banks_needed: int = 0


@dataclass(frozen=True, slots=True)
class Dependencies:
    """For each instruction, by its position in the body, the earlier instructions that it comes after.

    `data` are those whose results it reads; `order` those that merely must be done with the memory (it overwrites what
    they read or wrote), matmuls whose sum it continues and users of the same hidden state: an engine does not wait for
    the latency of those.
    """

    data: list[list[int]]
    order: list[list[int]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of the instructions per engine, as positions in the body.

    `sequence` is one order of all of them that respects dependencies and streams, `queues` the DMA queue of each data
    movement, `start_ns` when the scheduler expects each to start and `end_ns` when it expects the last result.
    `placements` are those of floating PSUM buffers, and `reuse` what comes before an instruction for their sake.
    """

    streams: dict[Engine, list[int]]
    sequence: list[int]
    queues: dict[int, str]
    start_ns: list[float]
    end_ns: float
    placements: dict[str, Placement] = field(default_factory=dict)
    reuse: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synchronization:
    """Waits and signals by position in the body, for those that have any."""

    waits: dict[int, tuple[Wait, ...]]
    signals: dict[int, tuple[Signal, ...]]
    semaphores: tuple[str, ...]
