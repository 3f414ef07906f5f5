"""Instructions of gpsimd: patterns, masks, gathers, reductions across partitions. It reaches SBUF only."""

from __future__ import annotations

import functools
import math

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.isa.access import AccessPattern
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.engine_time import gpsimd_time
from ranvier.isa.examples import example
from ranvier.isa.record import SBUF, Cost, Instruction, Rule, attr, dst, instruction, ns, src
from ranvier.target.spec import Engine, Target

_ENGINES = (Engine.GPSIMD,)
_COST_SOURCE = "NKI documentation v2.26.1: start of the program plus one element per cycle"
Pattern = tuple[tuple[int, int], ...]


def as_pattern(pattern) -> Pattern:
    """[[step, count], ...] as nested tuples of integers."""
    return tuple((int(step), int(count)) for step, count in pattern)


@functools.lru_cache(maxsize=64)
def affine_values(pattern: Pattern, offset: int, channel_multiplier: int, partitions: int) -> np.ndarray:
    """offset + partition * channel_multiplier + sum of index * step, int32 (wrapping), [partitions, product of counts]."""
    values = np.array([offset], np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count, dtype=np.int64)).reshape(-1)
    rows = channel_multiplier * np.arange(partitions, dtype=np.int64)
    result = (rows[:, None] + values).astype(np.int32)
    result.setflags(write=False)
    return result


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.iota", cost_source=_COST_SOURCE)
class Iota(Instruction):
    """dst[p, i, j, ...] = offset + p * channel_multiplier + i * step0 + j * step1 + ..., p counted from dst's first partition.

    `pattern` is up to four [step, count] pairs, outermost first, whose counts multiply to the elements per partition of
    `dst`. Values are int32 and are converted to the dtype of `dst`, which may be any.
    """

    dst: AccessPattern = dst(SBUF, doc="any dtype")
    pattern: Pattern = attr(tuple, doc="[[step, count], ...], outermost first")
    offset: int = attr(int, default=0)
    channel_multiplier: int = attr(int, default=0, doc="step from one partition to the next")

    RULES = {
        "IO-1": Rule("E0304", "the counts of pattern multiply to the elements per partition of dst"),
        "IO-2": Rule("E0309", "pattern has one to four pairs"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x512 i32", pattern=[[1, 512]], offset=3, channel_multiplier=512),
        example(dst="sbuf 96x60 f32", pattern=[[-4, 3], [0, 4], [7, 5]], channel_multiplier=-1),
        example(dst="sbuf 128x512 i32", pattern=[[1, 256]], rule="IO-1"),
        example(dst="sbuf 8x32 i32", pattern=[[1, 2]] * 5, rule="IO-2"),
    )  # fmt: skip

    def __post_init__(self):
        object.__setattr__(self, "pattern", as_pattern(self.pattern))

    def check(self, target: Target) -> None:
        _check_pattern(self, "IO-1", "IO-2", target)

    @property
    def arithmetic(self) -> str:
        return "raw"

    def semantics(self) -> np.ndarray:
        return affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.dst.free_elements, target.gpsimd.cycles_per_element)


def _check_pattern(inst: Iota | AffineSelect, elements: str, dims: str, target: Target) -> None:
    limit = int(target.limits.access_dims_max.value)
    inst.require(1 <= len(inst.pattern) <= limit, dims, f"pattern has {len(inst.pattern)} pairs; it can have 1 to {limit}", argument="pattern")
    count = math.prod(n for _, n in inst.pattern)
    inst.require(count == inst.dst.free_elements, elements, f"pattern has {count} elements, dst has {inst.dst.free_elements} per partition", argument="pattern")


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.affine_select", cost_source=_COST_SOURCE, elementwise=True)
class AffineSelect(Instruction):
    """dst = on_true_tile where cmp_op(affine value, 0) holds, else on_false_value.

    The affine value is that of `iota`: offset + p * channel_multiplier + sum of index * step over `pattern`. Elements that
    are selected keep their bits when the dtypes are equal and are cast through float32 otherwise.
    """

    dst: AccessPattern = dst(SBUF, doc="any dtype")
    pattern: Pattern = attr(tuple, doc="[[step, count], ...], outermost first")
    channel_multiplier: int = attr(int, doc="step from one partition to the next")
    on_true_tile: AccessPattern = src(SBUF, doc="any dtype")
    on_false_value: float = attr(float, doc="float32")
    cmp_op: AluOp = attr(AluOp, default=alu("equal"), doc="a comparison")
    offset: int = attr(int, default=0)

    RULES = {
        "AS-1": Rule("E0304", "the counts of pattern multiply to the elements per partition of dst"),
        "AS-2": Rule("E0309", "pattern has one to four pairs"),
        "AS-3": Rule("E0309", "cmp_op is a comparison"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x512 f32", pattern=[[-1, 512]], channel_multiplier=1, on_true_tile="sbuf 128x512 f32",
            on_false_value=-1e9, cmp_op=alu("greater_equal"), note="a causal mask",
        ),
        example(
            dst="sbuf 32x24 f32", pattern=[[1, 4], [-2, 6]], channel_multiplier=0, on_true_tile="sbuf 32x24 bf16",
            on_false_value=0.0, offset=-1,
        ),
        example(
            dst="sbuf 8x8 f32", pattern=[[1, 4]], channel_multiplier=0, on_true_tile="sbuf 8x8 f32", on_false_value=0.0,
            rule="AS-1",
        ),
        example(
            dst="sbuf 8x1 f32", pattern=[], channel_multiplier=0, on_true_tile="sbuf 8x1 f32", on_false_value=0.0,
            rule="AS-2",
        ),
        example(
            dst="sbuf 8x8 f32", pattern=[[1, 8]], channel_multiplier=0, on_true_tile="sbuf 8x8 f32", on_false_value=0.0,
            cmp_op=alu("add"), rule="AS-3",
        ),
    )  # fmt: skip

    def __post_init__(self):
        object.__setattr__(self, "pattern", as_pattern(self.pattern))

    def check(self, target: Target) -> None:
        _check_pattern(self, "AS-1", "AS-2", target)
        self.require(self.cmp_op.kind == "compare", "AS-3", f"cmp_op is {self.cmp_op}", argument="cmp_op")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.dst.dtype is self.on_true_tile.dtype else "float32"

    def semantics(self, on_true_tile: np.ndarray) -> np.ndarray:
        values = affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)
        keep = self.cmp_op.fn(values, np.int32(0)) != 0
        fill = np.array(self.on_false_value, np.float32)
        if on_true_tile.dtype != np.float32:
            fill = dt.cast(fill, self.dst.dtype)
        return np.where(keep.reshape(on_true_tile.shape), on_true_tile, fill)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.dst.free_elements, target.gpsimd.cycles_per_element)


# Reduction across partitions --------------------------------------------------------------------------------------------

_PARTITION_REDUCERS = ("add", "maximum", "bitwise_or", "bitwise_and")


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.tensor_partition_reduce", cost_source="assumption: two cycles per element")
class TensorPartitionReduce(Instruction):
    """dst[0, f] = op over all partitions p of data[p, f]; `op` is add, maximum, bitwise_or or bitwise_and.

    Arithmetic is float32; bitwise operations take integers of one dtype as they are. To average, multiply the sum.
    """

    dst: AccessPattern = dst(SBUF, doc="one partition, elements per partition of data")
    op: AluOp = attr(AluOp, doc="add, maximum, bitwise_or, bitwise_and")
    data: AccessPattern = src(SBUF)

    RULES = {
        "PR-1": Rule("E0304", "dst has one partition and as many elements in it as data has in each"),
        "PR-2": Rule("E0309", "op is add, maximum, bitwise_or or bitwise_and"),
        "PR-3": Rule("E0305", "bitwise operations take integers, and dst has the dtype of data"),
    }
    EXAMPLES = (
        example(dst="sbuf 1x200 f32", op=alu("add"), data="sbuf 128x200 bf16"),
        example(dst="sbuf 1x24 i16", op=alu("bitwise_or"), data="sbuf 16x24 i16"),
        example(dst="sbuf 2x24 f32", op=alu("add"), data="sbuf 16x24 f32", rule="PR-1"),
        example(dst="sbuf 1x24 f32", op=alu("multiply"), data="sbuf 16x24 f32", rule="PR-2"),
        example(dst="sbuf 1x24 f32", op=alu("bitwise_or"), data="sbuf 16x24 f32", rule="PR-3"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        self.require(self.dst.partitions == 1 and self.dst.free_elements == self.data.free_elements, "PR-1", f"data has shape {self.data.shape}, dst has {self.dst.shape}", argument="dst")
        self.require(self.op.name in _PARTITION_REDUCERS, "PR-2", f"op is {self.op}", argument="op")
        legal = not self.op.is_bitwise or (self.data.dtype.is_integer and self.dst.dtype is self.data.dtype)
        self.require(legal, "PR-3", f"op is {self.op}, data is {self.data.dtype}, dst is {self.dst.dtype}", argument="op")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.op.is_bitwise else "float32"

    def semantics(self, data: np.ndarray) -> np.ndarray:
        return self.op.reduce(data, (0,))

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.data.free_elements, target.gpsimd.partition_reduce_cycles_per_element)


# Gathers ----------------------------------------------------------------------------------------------------------------


def _in_bounds(inst: Instruction, indices: np.ndarray, bound: int) -> np.ndarray:
    """`indices` as int64. Raises E0403 for those outside 0 to bound - 1."""
    wide = indices.astype(np.int64)
    bad = (wide < 0) | (wide >= bound)
    if bad.any():
        raise error("E0403", f"{inst.MNEMONIC}: index {wide[bad][0]} is outside the {bound} elements of a partition", where=inst.loc)
    return wide


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.nc_n_gather", cost_source="NKI documentation: one group of instructions per 512 elements; two cycles per element is an assumption")
class NcNGather(Instruction):
    """dst[p, i] = data[p, indices[p, i]] within each partition; the free axes of `data` count as one. Bits do not change."""

    MNEMONIC = "nc_n_gather"

    dst: AccessPattern = dst(SBUF, doc="shape of indices, dtype of data")
    data: AccessPattern = src(SBUF, doc="any dtype")
    indices: AccessPattern = src(SBUF, dtypes=(dt.uint32,), doc="flat positions within a partition")

    RULES = {
        "NG-1": Rule("E0304", "dst, data and indices have the same partitions, dst and indices the same elements in each"),
        "NG-2": Rule("E0305", "dst has the dtype of data"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x700 bf16", data="sbuf 128x64 bf16", indices="sbuf 128x700 u32"),
        example(dst="sbuf 8x4 i32", data="sbuf 8x3x5 i32", indices="sbuf 8x4 u32"),
        example(dst="sbuf 8x4 i32", data="sbuf 8x16 i32", indices="sbuf 8x5 u32", rule="NG-1"),
        example(dst="sbuf 8x4 f32", data="sbuf 8x16 i32", indices="sbuf 8x4 u32", rule="NG-2"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        same = self.dst.partitions == self.data.partitions == self.indices.partitions
        self.require(same and self.dst.free_elements == self.indices.free_elements, "NG-1", f"dst has shape {self.dst.shape}, data {self.data.shape}, indices {self.indices.shape}", argument="dst")
        self.require(self.dst.dtype is self.data.dtype, "NG-2", f"dst is {self.dst.dtype}, data is {self.data.dtype}", argument="dst")

    @property
    def arithmetic(self) -> str:
        return "raw"

    def semantics(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        flat = data.reshape(data.shape[0], -1)
        return np.take_along_axis(flat, _in_bounds(self, indices.reshape(flat.shape[0], -1), flat.shape[1]), axis=1)

    def cost(self, target: Target, engine: Engine) -> Cost:
        g, count = target.gpsimd, self.dst.free_elements
        groups = math.ceil(count / g.gather_group_elements.value)
        busy = ns(groups, g.start_cycles, clock=g.clock_ghz) + ns(count, g.two_input_cycles_per_element, clock=g.clock_ghz)
        return Cost(busy, busy + ns(1, g.latency_ns))


_GROUP = 16
_ELEMENTS_PER_INDEX = (1, 2, 4, 8, 16, 32)


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.local_gather", cost_source=_COST_SOURCE)
class LocalGather(Instruction):
    """Gather with one list of indices for each group of 16 partitions (one processor).

    The list is the group's part of `index`, column by column, of which the first `num_valid_indices` count (None: all).
    Each index i brings `num_elem_per_idx` elements from i on of every partition of the group. Bits do not change.
    """

    dst: AccessPattern = dst(SBUF, doc="num_valid_indices x num_elem_per_idx elements per partition, dtype of src_buffer")
    src_buffer: AccessPattern = src(SBUF, doc="any dtype")
    index: AccessPattern = src(SBUF, dtypes=(dt.uint16,), doc="positions within a partition, in elements")
    num_elem_per_idx: int = attr(int, default=1, doc="1, 2, 4, 8, 16 or 32")
    num_valid_indices: int | None = attr(int, default=None, doc="indices of each group that count")

    RULES = {
        "LG-1": Rule("E0304", "dst, src_buffer and index have the same partitions, a multiple of 16"),
        "LG-2": Rule("E0309", "num_elem_per_idx is 1, 2, 4, 8, 16 or 32"),
        "LG-3": Rule("E0309", "num_valid_indices is at least 1, at most what index holds for a group and at most 4096"),
        "LG-4": Rule("E0304", "dst has num_valid_indices x num_elem_per_idx elements per partition"),
        "LG-5": Rule("E0305", "dst has the dtype of src_buffer"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x256 f32", src_buffer="sbuf 128x512x4 f32", index="sbuf 128x4 u16", num_elem_per_idx=4,
            num_valid_indices=64,
        ),
        example(dst="sbuf 32x21 bf16", src_buffer="sbuf 32x64 bf16", index="sbuf 32x2 u16", num_valid_indices=21),
        example(dst="sbuf 8x8 f32", src_buffer="sbuf 8x64 f32", index="sbuf 8x1 u16", rule="LG-1"),
        example(
            dst="sbuf 16x48 f32", src_buffer="sbuf 16x64 f32", index="sbuf 16x1 u16", num_elem_per_idx=3, rule="LG-2",
        ),
        example(
            dst="sbuf 16x17 f32", src_buffer="sbuf 16x64 f32", index="sbuf 16x1 u16", num_valid_indices=17, rule="LG-3",
        ),
        example(dst="sbuf 16x8 f32", src_buffer="sbuf 16x64 f32", index="sbuf 16x1 u16", rule="LG-4"),
        example(dst="sbuf 16x16 f32", src_buffer="sbuf 16x64 i32", index="sbuf 16x1 u16", rule="LG-5"),
    )  # fmt: skip

    @property
    def count(self) -> int:
        """Indices of each group that count."""
        return self.index.free_elements * _GROUP if self.num_valid_indices is None else self.num_valid_indices

    def check(self, target: Target) -> None:
        partitions = self.src_buffer.partitions
        same = self.dst.partitions == partitions == self.index.partitions and partitions % _GROUP == 0
        self.require(same, "LG-1", f"dst has {self.dst.partitions} partitions, src_buffer {partitions}, index {self.index.partitions}", argument="index")
        self.require(self.num_elem_per_idx in _ELEMENTS_PER_INDEX, "LG-2", f"num_elem_per_idx is {self.num_elem_per_idx}", argument="num_elem_per_idx")
        held = self.index.free_elements * _GROUP
        limit = min(held, int(target.limits.local_gather_indices_max.value))
        self.require(1 <= self.count <= limit, "LG-3", f"{self.count} indices count, {held} are there for a group, {limit} can count", argument="num_valid_indices")
        wanted = self.count * self.num_elem_per_idx
        self.require(self.dst.free_elements == wanted, "LG-4", f"dst has {self.dst.free_elements} elements per partition, {wanted} are gathered", argument="dst")
        self.require(self.dst.dtype is self.src_buffer.dtype, "LG-5", f"dst is {self.dst.dtype}, src_buffer is {self.src_buffer.dtype}", argument="dst")

    @property
    def arithmetic(self) -> str:
        return "raw"

    def semantics(self, src_buffer: np.ndarray, index: np.ndarray) -> np.ndarray:
        groups = index.shape[0] // _GROUP
        lists = index.reshape(groups, _GROUP, -1).transpose(0, 2, 1).reshape(groups, -1)[:, : self.count].astype(np.int64)
        columns = (lists[:, :, None] + np.arange(self.num_elem_per_idx)).reshape(groups, 1, -1)
        flat = src_buffer.reshape(groups, _GROUP, -1)
        return np.take_along_axis(flat, _in_bounds(self, columns, flat.shape[2]), axis=2).reshape(groups * _GROUP, -1)

    def cost(self, target: Target, engine: Engine) -> Cost:
        g, each = target.gpsimd, self.num_elem_per_idx
        at_once = min(g.local_gather_word_bytes.value / self.dst.dtype.itemsize, each)
        busy = ns(self.count * each / at_once, g.cycles_per_element, clock=g.clock_ghz)
        busy += ns(self.count / at_once, g.local_gather_index_cycles, clock=g.clock_ghz) + ns(1, g.start_cycles, clock=g.clock_ghz)
        return Cost(busy, busy + ns(1, g.latency_ns))
