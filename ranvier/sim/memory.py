"""The memories of a core with all buffers of a program at their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.ir.kernel import accesses
from ranvier.ir.program import Placement, Program
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.record import Instruction
from ranvier.sim.machine import Memory, Storage, storage_of
from ranvier.sim.shadow import Shadow
from ranvier.target.spec import Target

# Rows whose distance is a multiple of a page fall into the same cache sets; this much more spreads them.
_PAGE_BYTES, _SKEW_BYTES = 4096, 192


class CoreMemory:
    """One SBUF and one PSUM array, and HBM, for a placed program.

    `memory` is what instructions run on. Buffers that share bytes share them here too, so an ordering or placement
    mistake shows as a wrong value. Inputs are copied in by `set_input`; parameters and constants are the caller's own
    arrays, never written. Raises E0501, E0502 for what exceeds the target's memories, E0901 for a buffer without place.
    """

    def __init__(self, program: Program, target: Target, params: Mapping[str, np.ndarray]):
        self._arenas: list[np.ndarray] = []
        storages: dict[str, Storage] = {}
        for space in (Space.SBUF, Space.PSUM):
            storages |= self._on_chip(program, target, space)
        storages |= self._hbm(program, target, params)
        self.memory = Memory(storages, closed=True)

    def poison(self) -> None:
        """Fill everything that a program writes with poison, hidden state included."""
        for arena in self._arenas:
            arena.fill(dt.POISON_BYTE)
        for state in self.memory.states.values():
            state.fill(np.nan)

    def _on_chip(self, program: Program, target: Target, space: Space) -> dict[str, Storage]:
        if space is Space.SBUF:
            rows, limit = int(target.sbuf.partitions.value), target.sbuf.usable_bytes_per_partition
        else:
            rows, limit = int(target.psum.partitions.value), target.psum.bytes_per_partition
        placed = [(b, _placement(program, b)) for b in program.buffers if b.space is space]
        used = max((place.byte + b.bytes_per_partition for b, place in placed), default=0)
        for buffer, place in placed:
            last_row, last_byte = place.partition + buffer.partitions, place.byte + buffer.bytes_per_partition
            if last_row > rows or last_byte > limit or min(place.partition, place.byte) < 0:
                raise error(
                    "E0501",
                    f"{buffer.name} lies in partitions {place.partition} to {last_row} and bytes {place.byte} to "
                    f"{last_byte}; {space.value} has {rows} partitions of {limit} bytes",
                    where=buffer.loc,
                )
        pitch = -(-used // _PAGE_BYTES) * _PAGE_BYTES + _SKEW_BYTES
        base = self._arena(rows, pitch)
        return {b.name: Storage(base, place.partition, place.byte, Shadow(b)) for b, place in placed}

    def _hbm(self, program: Program, target: Target, params: Mapping[str, np.ndarray]) -> dict[str, Storage]:
        constants = {name: constant.array() for name, constant in program.constants}
        found: dict[str, Storage] = {}
        written: list[tuple[Buffer, Placement]] = []
        for buffer in program.buffers:
            if buffer.space.on_chip:
                continue
            match buffer.kind:
                case BufferKind.PARAM:
                    found[buffer.name] = storage_of(buffer, _of(params, buffer))
                case BufferKind.CONSTANT:
                    found[buffer.name] = storage_of(buffer, _of(constants, buffer))
                case BufferKind.INPUT:
                    found[buffer.name] = storage_of(buffer, np.zeros(buffer.shape, buffer.dtype.np))
                case _:
                    written.append((buffer, _placement(program, buffer)))
        total = sum(b.size_bytes for b in program.buffers if b.kind.preset)
        low = min((place.byte for _, place in written), default=0)
        high = max((place.byte + b.size_bytes for b, place in written), default=0)
        limit = target.hbm.usable_bytes
        if total + high - low > limit:
            raise error("E0502", f"{program.name} takes {total + high - low} bytes of HBM; the core has {limit}")
        base = self._arena(1, high - low)
        return found | {b.name: Storage(base, 0, place.byte - low, Shadow(b)) for b, place in written}

    def _arena(self, rows: int, pitch: int) -> np.ndarray:
        arena = np.full((rows, max(1, pitch)), dt.POISON_BYTE, np.uint8)
        self._arenas.append(arena)
        return arena


def check_bounds(instructions: Iterable[Instruction]) -> None:
    """Raise E0901 where an instruction reaches outside a buffer it names, which would be another buffer's memory."""
    for inst in instructions:
        for ap in accesses(inst):
            if not ap.is_within_buffer:
                low, high = ap.extent
                raise error(
                    "E0901",
                    f"{inst.MNEMONIC} touches bytes {low} to {high} and {ap.partitions} partitions from {ap.partition} "
                    f"on of {ap.buffer.name}, of shape {ap.buffer.shape} and dtype {ap.buffer.dtype}",
                    where=inst.loc,
                )


def _placement(program: Program, buffer: Buffer) -> Placement:
    place = program.placed.get(buffer.name)
    if place is None:
        raise error("E0901", f"{buffer.space.value} tensor {buffer.name} has no place in memory", where=buffer.loc)
    return place


def _of(arrays: Mapping[str, np.ndarray], buffer: Buffer) -> np.ndarray:
    if buffer.name not in arrays:
        raise error("E0603", f"the {buffer.kind.value} {buffer.name} was not given", fix="give the whole state")
    return arrays[buffer.name]
