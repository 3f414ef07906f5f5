"""What the timing model found: one event per instruction, DMA transfer and table load, stored as columns."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ranvier.ir.program import Slot
from ranvier.target.spec import Engine


class Kind(enum.IntEnum):
    """What an event is."""

    INSTRUCTION = 0
    TRIGGER = 1  # an engine hands a transfer to a DMA queue
    TABLE_LOAD = 2  # the scalar engine loads an activation table
    TRANSFER = 3  # data moves


class Reason(enum.IntEnum):
    """What an event's start had to wait for last."""

    START = 0  # nothing: it starts with the program
    ENGINE = 1  # the engine was busy with the event before it
    SEMAPHORE = 2  # another engine or a DMA queue had to signal
    DEPENDENCY = 3  # an earlier instruction of the same engine had not finished writing what this one reads
    PORT = 4  # another engine used a memory port or PSUM bank that both need
    LAUNCH = 5  # (transfer) the trigger, and the time to get going
    DMA_ENGINE = 6  # (transfer) the DMA engines were busy with other transfers
    HBM = 7  # (transfer) HBM bandwidth was used up


@dataclass(frozen=True, slots=True)
class Event:
    """One event. It occupies its track from `start_ns` to `end_ns`; its result is visible at `done_ns` (of a trigger:
    the transfer is launched).

    `ready_ns` is when its track could have started it, so ``start_ns - ready_ns`` is a stall; `reason` and `cause`
    (index of another event, -1 for none) say what ended the stall. `slot` is an index into `Timeline.slots`.
    """

    index: int
    track: str
    kind: Kind
    start_ns: float
    end_ns: float
    done_ns: float
    ready_ns: float
    reason: Reason
    cause: int
    slot: int
    hbm_bytes: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Events as parallel lists; the meaning of each is that of the field of `Event`.

    `begin_ns` is when the part of an event began that decided its end: for a transfer its slowest DMA engine's share,
    for all others the start. `estimated_ns` is how much of start to end rests on estimated facts, `estimated_tail_ns`
    how much of end to done.
    """

    track: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    start_ns: list[float] = field(default_factory=list)
    begin_ns: list[float] = field(default_factory=list)
    end_ns: list[float] = field(default_factory=list)
    done_ns: list[float] = field(default_factory=list)
    ready_ns: list[float] = field(default_factory=list)
    reason: list[int] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    hbm_bytes: list[int] = field(default_factory=list)
    estimated_ns: list[float] = field(default_factory=list)
    estimated_tail_ns: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start_ns)

    def add(
        self, track: int, kind: Kind, start: float, begin: float, end: float, done: float, ready: float, reason: Reason,
        cause: int, slot: int, hbm_bytes: int, estimated: float, tail: float,
    ) -> None:
        """Append an event, its values in the order of the fields."""
        self.track.append(track)
        self.kind.append(kind)
        self.start_ns.append(start)
        self.begin_ns.append(begin)
        self.end_ns.append(end)
        self.done_ns.append(done)
        self.ready_ns.append(ready)
        self.reason.append(reason)
        self.cause.append(cause)
        self.slot.append(slot)
        self.hbm_bytes.append(hbm_bytes)
        self.estimated_ns.append(estimated)
        self.estimated_tail_ns.append(tail)


@dataclass(frozen=True)
class Timeline:
    """Result of `simulate`. `tracks` are names of engines, then of DMA queues; `slots` all slots, stream by stream.

    `dma_busy_ns` is the time each DMA engine moved data.
    """

    program: str
    target: str
    tracks: tuple[str, ...]
    slots: tuple[tuple[Engine, Slot], ...]
    columns: Columns
    dma_busy_ns: tuple[float, ...]
    semaphore_hop_ns: float
    hop_is_estimated: bool

    def __len__(self) -> int:
        return len(self.columns)

    def event(self, index: int) -> Event:
        c = self.columns
        return Event(
            index, self.tracks[c.track[index]], Kind(c.kind[index]), c.start_ns[index], c.end_ns[index],
            c.done_ns[index], c.ready_ns[index], Reason(c.reason[index]), c.cause[index], c.slot[index],
            c.hbm_bytes[index],
        )  # fmt: skip

    def events(self) -> Iterator[Event]:
        return map(self.event, range(len(self)))

    @cached_property
    def total_ns(self) -> float:
        """From the start of the first instruction until the last result is visible."""
        return max(self.columns.done_ns, default=0.0)

    @cached_property
    def busy_ns(self) -> dict[str, float]:
        """Time that each engine, by name, was occupied; table loads and triggers included."""
        busy = dict.fromkeys(self.tracks, 0.0)
        c = self.columns
        for track, kind, start, end in zip(c.track, c.kind, c.start_ns, c.end_ns, strict=True):
            if kind != Kind.TRANSFER:
                busy[self.tracks[track]] += end - start
        return {name: busy[name] for name in self.engine_tracks}

    @property
    def engine_tracks(self) -> tuple[str, ...]:
        names = {engine.name.lower() for engine, _ in self.slots}
        return tuple(track for track in self.tracks if track in names)
