"""Hand-made programs: buffers at given places, slots with given waits and signals."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.ir.program import Placement, Program, Signal, Slot, Stream, Wait
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.target import get

ENGINE_ORDER = ("TENSOR", "SCALAR", "GPSIMD", "VECTOR", "SYNC")


class Builder:
    """Collects slots in kernel order and makes a `Program` of them.

    `put(engine, inst, waits={"x": 1}, signals={"y": 1}, queue="q")` appends to the engine's stream.
    """

    def __init__(self, name: str = "handmade", target: str = "trn2"):
        self.name, self.target = name, get(target)
        self.buffers: dict[str, Buffer] = {}
        self.placements: dict[str, Placement] = {}
        self.streams: dict = {}
        self.count = 0
        self.semaphores: dict[str, None] = {}

    def buffer(self, name, space, shape, dtype="float32", kind=BufferKind.TEMP, byte=None, partition=0):
        made = Buffer(name, Space(space), tuple(shape), dt.dtype(dtype), kind)
        self.buffers[name] = made
        if byte is None:
            others = [b for b in self.buffers.values() if b.space is made.space and b.name in self.placements]
            byte = max((self.placements[b.name].byte + b.bytes_per_partition for b in others), default=0)
            byte = -(-byte // 64) * 64
        self.placements[name] = Placement(partition, byte)
        return made

    def put(self, engine, inst, waits=(), signals=(), queue=None):
        waits, signals = dict(waits), dict(signals)
        self.semaphores |= dict.fromkeys((*waits, *signals))
        waited = tuple(Wait(name, value) for name, value in waits.items())
        signalled = tuple(Signal(name, amount) for name, amount in signals.items())
        slot = Slot(inst, waited, signalled, queue, self.count)
        self.streams.setdefault(engine, []).append(slot)
        self.count += 1
        return slot

    def program(self) -> Program:
        named = {kind: tuple(b.name for b in self.buffers.values() if b.kind is kind) for kind in BufferKind}
        streams = sorted(self.streams.items(), key=lambda item: ENGINE_ORDER.index(item[0].name))
        return Program(
            self.name, self.target.name, tuple(self.buffers.values()), tuple(self.placements.items()),
            tuple(Stream(engine, tuple(slots)) for engine, slots in streams), tuple(self.semaphores),
            named[BufferKind.INPUT], named[BufferKind.OUTPUT],
        )  # fmt: skip


def random_array(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return dt.cast(rng.standard_normal(shape, dtype=np.float32), dt.dtype(dtype))
