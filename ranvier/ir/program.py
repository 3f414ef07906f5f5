"""The program level: one instruction stream per engine, addresses, DMA queues, semaphores.

An engine runs its stream in order. A slot starts when all its waits hold; when its instruction is complete (for a DMA:
when the data has arrived) it adds to its semaphores. Nothing else orders two engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ranvier.ir.kernel import Constant, ParamSource
from ranvier.isa.access import Buffer
from ranvier.isa.record import Instruction
from ranvier.target.spec import Engine


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lies: first partition and byte within the partition (on chip), or byte within the core's HBM."""

    partition: int
    byte: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The slot starts only when `semaphore` has reached `value`."""

    semaphore: str
    value: int


@dataclass(frozen=True, slots=True)
class Signal:
    """On completion of the slot `semaphore` grows by `amount`."""

    semaphore: str
    amount: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a stream. `queue` names the DMA queue of a data movement, `order` its place in kernel order."""

    instruction: Instruction
    waits: tuple[Wait, ...] = ()
    signals: tuple[Signal, ...] = ()
    queue: str | None = None
    order: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """The instruction stream of one engine."""

    engine: Engine
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Program:
    """A scheduled program for one core. `semaphores` start at 0; names of buffers are unique."""

    name: str
    target: str
    buffers: tuple[Buffer, ...]
    placements: tuple[tuple[str, Placement], ...]
    streams: tuple[Stream, ...]
    semaphores: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: tuple[tuple[str, ParamSource], ...] = ()
    constants: tuple[tuple[str, Constant], ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def placed(self) -> dict[str, Placement]:
        return dict(self.placements)

    def slots(self) -> Iterator[tuple[Engine, Slot]]:
        for stream in self.streams:
            for slot in stream.slots:
                yield stream.engine, slot

    def in_kernel_order(self) -> list[Slot]:
        """All slots in the order that their instructions had in the kernel."""
        return sorted((slot for _, slot in self.slots()), key=lambda slot: slot.order)
