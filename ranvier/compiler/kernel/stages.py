"""What the passes between a kernel and a program hand to each other."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Placement, Signal, Wait
from ranvier.target.spec import Engine


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel whose buffers all have a place. Spills are instructions of it like any other."""

    kernel: Kernel
    placements: dict[str, Placement]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """For each instruction, by its position in the body, the earlier instructions that it comes after.

    `data` are those whose results it reads; `order` those that merely must be done with the memory (it overwrites what
    they read or wrote), and matmuls whose sum it continues: the tensor engine does not wait for the latency of those.
    """

    data: list[list[int]]
    order: list[list[int]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of the instructions per engine, as positions in the body.

    `sequence` is one order of all of them that respects dependencies and streams, `queues` the DMA queue of each data
    movement, `start_ns` when the scheduler expects each to start and `end_ns` when it expects the last result.
    """

    streams: dict[Engine, list[int]]
    sequence: list[int]
    queues: dict[int, str]
    start_ns: list[float]
    end_ns: float


@dataclass(frozen=True, slots=True)
class Synchronization:
    """Waits and signals by position in the body, for those that have any."""

    waits: dict[int, tuple[Wait, ...]]
    signals: dict[int, tuple[Signal, ...]]
    semaphores: tuple[str, ...]
