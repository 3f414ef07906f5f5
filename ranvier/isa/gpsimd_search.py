"""Searches on gpsimd: bounds of segments, indices of non-zero elements."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.engine_time import gpsimd_time
from ranvier.isa.examples import example
from ranvier.isa.record import SBUF, Cost, Instruction, Rule, attr, dst, instruction, src
from ranvier.isa.vector_common import flat
from ranvier.target.spec import Engine, Target

_WORDS = (dt.float32, dt.int32)
_COST = "assumption: as tensor_partition_reduce; no public number"


@instruction(engines=(Engine.GPSIMD,), source="NKI 0.6, nki.isa.sequence_bounds", cost_source=_COST)
class SequenceBounds(Instruction):
    """Bounds of the segment that each element belongs to, where a segment is a run of equal ids.

    `segment_ids` is [1, n]; `dst` is [1, 2, n] with the first index of the segment, then the index after its last. Id 0
    marks padding: start n, end -1.
    """

    dst: AccessPattern = dst(SBUF, dtypes=_WORDS)
    segment_ids: AccessPattern = src(SBUF, dtypes=_WORDS)

    RULES = {"SEQ-1": Rule("E0304", "segment_ids has one partition, and dst twice its elements")}
    EXAMPLES = (
        example(dst="sbuf 1x2x512 f32", segment_ids="sbuf 1x512 f32"),
        example(dst="sbuf 1x2x64 i32", segment_ids="sbuf 1x64 i32"),
        example(dst="sbuf 1x64 i32", segment_ids="sbuf 1x64 i32", rule="SEQ-1"),
        example(dst="sbuf 2x2x64 i32", segment_ids="sbuf 2x64 i32", rule="SEQ-1"),
        example(dst="sbuf 1x2x64 i32", segment_ids="sbuf 1x64 i16", rule="ISA-4"),
    )

    def check(self, target: Target) -> None:
        one = self.dst.partitions == 1 and self.segment_ids.partitions == 1
        fits = one and self.dst.free_elements == 2 * self.segment_ids.free_elements
        message = f"dst has shape {self.dst.shape}, segment_ids has shape {self.segment_ids.shape}"
        self.require(fits, "SEQ-1", message, argument="dst")

    def semantics(self, segment_ids: np.ndarray) -> np.ndarray:
        ids = segment_ids.reshape(-1)
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        lengths = np.diff(np.append(first, ids.size))
        start, end = np.repeat(first, lengths), np.repeat(first + lengths, lengths)
        padding = ids == 0
        return np.stack([np.where(padding, ids.size, start), np.where(padding, -1, end)])[None]

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.segment_ids.free_elements, target.gpsimd.partition_reduce_cycles_per_element)


@instruction(
    engines=(Engine.GPSIMD,),
    source="NKI 0.6, nki.isa.nonzero_with_count",
    cost_source=_COST,
    feature="nonzero_with_count",
)
class NonzeroWithCount(Instruction):
    """Indices of the non-zero elements of every sixteenth partition, then padding, then their number.

    dst has one element more than src: the indices plus `index_offset`, `padding_val` for the rest, and the count last.
    Only partitions 0, 16, 32, ... are read and written. The others of dst keep what they hold, so dst must be initialized
    when it has others.
    """

    dst: AccessPattern = dst(SBUF, dtypes=(dt.int32,))
    src: AccessPattern = src(SBUF, dtypes=_WORDS)
    index_offset: int = attr(int, default=0)
    padding_val: int = attr(int, default=-1)

    RULES = {"NZC-1": Rule("E0304", "dst has src's partitions, and one more element in each")}
    EXAMPLES = (
        example(dst="sbuf 128x65 i32", src="sbuf 128x64 f32"),
        example(dst="sbuf 1x65 i32", src="sbuf 1x64 i32", index_offset=64, padding_val=0),
        example(dst="sbuf 1x64 i32", src="sbuf 1x64 i32", rule="NZC-1"),
    )

    def check(self, target: Target) -> None:
        message = f"dst has shape {self.dst.shape}, src has shape {self.src.shape}"
        fits = self.dst.partitions == self.src.partitions and self.dst.free_elements == self.src.free_elements + 1
        self.require(fits, "NZC-1", message, argument="dst")

    @property
    def arithmetic(self) -> str:
        return "raw"

    @property
    def reads_dst(self) -> bool:
        return self.dst.partitions > 1

    def semantics_on(self, target: Target):
        step = int(target.gpsimd.partitions_per_processor.value)
        return lambda *operands: self._search(step, *operands)

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        return self._search(self.dst.partitions, *operands)

    def _search(self, step: int, *operands: np.ndarray) -> np.ndarray:
        values = flat(operands[-1])[::step]
        nonzero = values != 0
        count = nonzero.sum(axis=1)
        # Stable order by "is zero" puts the indices of non-zero elements first, ascending.
        index = np.argsort(~nonzero, axis=1, kind="stable") + self.index_offset
        filled = np.where(np.arange(values.shape[1]) < count[:, None], index, self.padding_val)
        result = np.empty((self.dst.partitions, values.shape[1] + 1), np.int32)
        if self.reads_dst:
            result[...] = flat(operands[0])
        result[::step] = np.concatenate([filled, count[:, None]], axis=1)
        return result

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.src.free_elements, target.gpsimd.partition_reduce_cycles_per_element)
