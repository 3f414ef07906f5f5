"""Tools of the instruction tests: operands, and running one instruction on a machine of its own."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.isa.record import Instruction, verify
from ranvier.sim.machine import Memory, bind, check_written
from ranvier.target import get

TRN1, TRN2, TRN3 = get("trn1"), get("trn2"), get("trn3")
ALL = (TRN1, TRN2, TRN3)


class Tiles:
    """Makes operands of distinct buffers, and remembers what each holds at the start."""

    def __init__(self):
        self.values: dict[str, np.ndarray] = {}
        self.count = 0

    def __call__(self, space: str, shape, dtype: str, columns: slice | None = None, partitions: slice | None = None):
        self.count += 1
        ap = Buffer(f"t{self.count}", Space(space), tuple(shape), dt.dtype(dtype)).all
        if columns is None and partitions is None:
            return ap
        (_, rows), (_, cols) = ap.pattern
        first, last, _ = (partitions or slice(None)).indices(rows)
        start, stop, step = (columns or slice(None)).indices(cols)
        picked = ((1, last - first), (step, len(range(start, stop, step))))
        return AccessPattern(ap.buffer, start, picked, ap.dtype, first)

    def holding(self, array: np.ndarray, space: str = "sbuf") -> AccessPattern:
        """An operand that holds `array`."""
        ap = self(space, array.shape, dt.dtype(array.dtype).name)
        self.values[ap.buffer.name] = array
        return ap


def fill(memory: Memory, inst: Instruction, values: dict[str, np.ndarray], seed: int = 0) -> None:
    """Give every buffer that `inst` reads its value, or small random numbers."""
    rng = np.random.default_rng(seed)
    for ap in inst.reads():
        buffer = ap.buffer
        array = values.get(buffer.name)
        if array is None:
            array = dt.cast(rng.uniform(1, 9, buffer.shape).astype(np.float32), buffer.dtype)
        memory.set(buffer, array)


def run(inst: Instruction, tiles: Tiles | None = None, on=TRN2, memory: Memory | None = None) -> np.ndarray:
    """Verify and execute `inst`, and return what its first destination holds then."""
    memory = memory or Memory({})
    verify(inst, on)
    fill(memory, inst, tiles.values if tiles else {})
    check_written(inst, memory)
    bind(inst, memory, on)()
    written = inst.writes()
    return memory.view(written[0]).copy() if written else np.empty(0)


def read(memory: Memory, ap: AccessPattern) -> np.ndarray:
    return memory.view(ap).copy()
