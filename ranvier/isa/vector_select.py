"""Selection, search and partition shuffles on the vector engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.alu import ALU, AluOp
from ranvier.isa.engine_time import vector_time
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.examples import example
from ranvier.isa.record import PSUM, SBUF, Cost, Instruction, Rule, attr, instruction, state
from ranvier.isa.record import dst as output
from ranvier.isa.record import src as operand
from ranvier.isa.vector_common import (
    REDUCE_STATE,
    accumulated,
    flat,
    in_psum,
    require_accumulation,
    require_float32,
    shown,
    two_input_time_facts,
)
from ranvier.target.spec import Engine, Target

_COST = "NKI 0.1 cost tables"
_MAX = ALU["maximum"]
_LESS, _GREATER_EQUAL = ALU["less"], ALU["greater_equal"]
_RANGE_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
_BYTES_AND_HALVES = (dt.int8, dt.uint8, dt.int16, dt.uint16)
FP32_MIN = float(np.finfo(np.float32).min)
"""The most negative float32: what range_select fills with."""
_ACCUMULATION_COMMANDS = (ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reduce, ReduceCmd.reset_reduce)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.tensor_copy_predicated",
    cost_source=_COST,
    elementwise=True,
)
class TensorCopyPredicated(Instruction):
    """Copy src to dst where the predicate is not zero (with `reverse_pred`: where it is), and leave the rest of dst.

    `predicate` holds unsigned integers; `src` is a tensor of dst's dtype, whose bits are kept, or a number.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    src: AccessPattern | float = operand(SBUF, PSUM, scalar=True)
    predicate: AccessPattern = operand(SBUF, PSUM, dtypes=(dt.uint8, dt.uint16, dt.uint32))
    reverse_pred: bool = attr(bool, default=False)

    RULES = {
        "TCP-1": Rule("E0305", "src has dst's dtype"),
        "TCP-2": Rule("E0301", "src and predicate are not both in PSUM"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 bf16", src="sbuf 128x64 bf16", predicate="sbuf 128x64 u8"),
        example(dst="sbuf 64x64 f32", src=-1.0, predicate="psum 64x8x8 u32", reverse_pred=True),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 bf16", predicate="sbuf 8x64 u8", rule="TCP-1"),
        example(dst="sbuf 8x64 f32", src="psum 8x64 f32", predicate="psum 8x64 u32", rule="TCP-2"),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 f32", predicate="sbuf 8x64 i32", rule="ISA-4"),
    )

    def check(self, target: Target) -> None:
        if isinstance(self.src, AccessPattern):
            message = f"src is {self.src.dtype}, dst is {self.dst.dtype}"
            self.require(self.src.dtype is self.dst.dtype, "TCP-1", message, argument="src")
        both = in_psum(self.src) and in_psum(self.predicate)
        self.require(not both, "TCP-2", "src and predicate are in psum", argument="predicate")

    @property
    def arithmetic(self) -> str:
        return "raw"

    @property
    def reads_dst(self) -> bool:
        return True

    def semantics(self, dst: np.ndarray, src: Any, predicate: np.ndarray) -> np.ndarray:
        if not isinstance(src, np.ndarray):
            src = dt.cast(np.asarray(src, np.float32), self.dst.dtype)
        chosen = np.equal(predicate, 0) if self.reverse_pred else np.not_equal(predicate, 0)
        return np.where(chosen, src, dst)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        if isinstance(self.src, AccessPattern):
            rate, _ = two_input_time_facts(target, self.src, self.predicate, False)
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.select_reduce",
    cost_source="assumption: as tensor_copy_predicated; no public number",
    elementwise=True,
)
class SelectReduce(Instruction):
    """dst = on_true where the predicate is not zero, else on_false; optionally the accumulators take the row maximum.

    `on_false` is a number or [P, 1] float32; `reverse_pred` exchanges the two. `reduce_res` ([P, 1]) receives the
    accumulators after `reduce_cmd`.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    predicate: AccessPattern = operand(SBUF, PSUM, dtypes=_BYTES_AND_HALVES)
    on_true: AccessPattern = operand(SBUF, PSUM)
    on_false: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True)
    reduce_res: AccessPattern | None = output(SBUF, PSUM, optional=True, vector=True)
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.idle)
    reduce_op: AluOp = attr(AluOp, default=_MAX)
    reverse_pred: bool = attr(bool, default=False)
    registers: None = state(REDUCE_STATE)

    RULES = {
        "SR-1": Rule("E0305", "on_true is not int32 or uint32, on_false from memory is float32, reduce_res a float"),
        "SR-2": Rule("E0301", "predicate and on_true are not both in PSUM"),
        "SR-3": Rule("E0309", "reduce_op is maximum"),
        "SR-4": Rule("E0309", "reduce_cmd is not load_reduce, and reduce_res is not written with idle"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 f32", predicate="sbuf 128x64 u8", on_true="sbuf 128x64 f32", on_false=-9984.0),
        example(
            dst="sbuf 64x64 bf16", predicate="sbuf 64x64 i16", on_true="psum 64x64 f32", on_false="sbuf 64x1 f32",
            reduce_res="sbuf 64x1 f32", reduce_cmd=ReduceCmd.reset_reduce, reverse_pred=True,
        ),
        example(dst="sbuf 8x64 f32", predicate="sbuf 8x64 u8", on_true="sbuf 8x64 i32", on_false=0.0, rule="SR-1"),
        example(dst="sbuf 8x64 f32", predicate="psum 8x64 u16", on_true="psum 8x64 f32", on_false=0.0, rule="SR-2"),
        example(
            dst="sbuf 8x64 f32", predicate="sbuf 8x64 u8", on_true="sbuf 8x64 f32", on_false=0.0, reduce_op=ALU["add"],
            rule="SR-3",
        ),
        example(
            dst="sbuf 8x64 f32", predicate="sbuf 8x64 u8", on_true="sbuf 8x64 f32", on_false=0.0,
            reduce_res="sbuf 8x1 f32", rule="SR-4",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        message = f"on_true is {self.on_true.dtype}"
        self.require(self.on_true.dtype not in (dt.int32, dt.uint32), "SR-1", message, argument="on_true")
        require_float32(self, "SR-1", "on_false")
        is_float = self.reduce_res is None or self.reduce_res.dtype.is_float
        self.require(is_float, "SR-1", f"reduce_res is {shown(self.reduce_res)}", argument="reduce_res")
        both = in_psum(self.predicate) and in_psum(self.on_true)
        self.require(not both, "SR-2", "predicate and on_true are in psum", argument="on_true")
        self.require(self.reduce_op is _MAX, "SR-3", f"reduce_op is {self.reduce_op}", argument="reduce_op")
        require_accumulation(self, "SR-4", self.reduce_cmd, self.reduce_res, None, _ACCUMULATION_COMMANDS)

    def uses_state(self) -> bool:
        return True

    def semantics(self, predicate: np.ndarray, on_true: np.ndarray, on_false: Any, registers: np.ndarray) -> Any:
        chosen = np.equal(predicate, 0) if self.reverse_pred else np.not_equal(predicate, 0)
        result = np.where(chosen, on_true, np.asarray(on_false, np.float32))
        total = accumulated(self.reduce_cmd, self.reduce_op, registers, result)
        return (result, total) if self.reduce_res is None else (result, total, total)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate, _ = two_input_time_facts(target, self.predicate, self.on_true, False)
        extra = () if self.reduce_res is None else (target.vector.read_accumulator_cycles,)
        return vector_time(target, self.reads(), self.writes(), self.dst.free_elements, rate, extra=extra)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.range_select",
    cost_source=_COST,
    feature="range_select",
    elementwise=True,
)
class RangeSelect(Instruction):
    """Keep the elements whose index lies in a range that each partition names, fill the others with the least float32:
    dst[p, j] = on_true_tile[p, j] where (range_start + j) comp_op0 bound0[p] and (range_start + j) comp_op1 bound1[p].

    The accumulators take the row maximum as `reduce_cmd` says; `reduce_res` ([P, 1]) receives them. In a dst of less than
    32 bits the fill becomes -infinity. Indices stay below 2**24.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    on_true_tile: AccessPattern = operand(SBUF, PSUM)
    comp_op0: AluOp = attr(AluOp)
    comp_op1: AluOp = attr(AluOp)
    bound0: AccessPattern = operand(SBUF, PSUM, dtypes=(dt.float32,), vector=True)
    bound1: AccessPattern = operand(SBUF, PSUM, dtypes=(dt.float32,), vector=True)
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.reset_reduce)
    reduce_res: AccessPattern | None = output(SBUF, PSUM, optional=True, vector=True)
    reduce_op: AluOp = attr(AluOp, default=_MAX)
    range_start: int = attr(int, default=0)
    on_false_value: float = attr(float, default=FP32_MIN)
    registers: None = state(REDUCE_STATE)

    RULES = {
        "RS-1": Rule("E0305", "dst and on_true_tile are floats"),
        "RS-2": Rule("E0309", "comp_op0 and comp_op1 are equal, less, less_equal, greater or greater_equal"),
        "RS-3": Rule("E0309", "on_false_value is the least float32, reduce_op is maximum"),
        "RS-4": Rule("E0308", "indices lie in 0 ... 2**24"),
        "RS-5": Rule("E0309", "reduce_cmd is not load_reduce, and reduce_res is not written with idle"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x64 f32", on_true_tile="sbuf 128x64 f32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 128x1 f32", bound1="sbuf 128x1 f32", reduce_res="sbuf 128x1 f32",
        ),
        example(
            dst="sbuf 64x64 bf16", on_true_tile="psum 64x64 f32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 64x1 f32", bound1="sbuf 64x1 f32", range_start=512, reduce_cmd=ReduceCmd.idle,
        ),
        example(
            dst="sbuf 8x64 f32", on_true_tile="sbuf 8x64 i32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 8x1 f32", bound1="sbuf 8x1 f32", rule="RS-1",
        ),
        example(
            dst="sbuf 8x64 f32", on_true_tile="sbuf 8x64 f32", comp_op0=ALU["add"], comp_op1=_LESS,
            bound0="sbuf 8x1 f32", bound1="sbuf 8x1 f32", rule="RS-2",
        ),
        example(
            dst="sbuf 8x64 f32", on_true_tile="sbuf 8x64 f32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 8x1 f32", bound1="sbuf 8x1 f32", on_false_value=0.0, rule="RS-3",
        ),
        example(
            dst="sbuf 8x64 f32", on_true_tile="sbuf 8x64 f32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 8x1 f32", bound1="sbuf 8x1 f32", range_start=1 << 24, rule="RS-4",
        ),
        example(
            dst="sbuf 8x64 f32", on_true_tile="sbuf 8x64 f32", comp_op0=_GREATER_EQUAL, comp_op1=_LESS,
            bound0="sbuf 8x1 f32", bound1="sbuf 8x1 f32", reduce_cmd=ReduceCmd.load_reduce, rule="RS-5",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        for name, ap in (("dst", self.dst), ("on_true_tile", self.on_true_tile)):
            self.require(ap.dtype.is_float, "RS-1", f"{name} is {ap.dtype}", argument=name)
        for name, op in (("comp_op0", self.comp_op0), ("comp_op1", self.comp_op1)):
            self.require(op.name in _RANGE_COMPARISONS, "RS-2", f"{name} is {op}", argument=name)
        fill = f"on_false_value is {self.on_false_value!r}"
        self.require(float(np.float32(self.on_false_value)) == FP32_MIN, "RS-3", fill, argument="on_false_value")
        self.require(self.reduce_op is _MAX, "RS-3", f"reduce_op is {self.reduce_op}", argument="reduce_op")
        end = self.range_start + self.dst.free_elements
        message = f"indices go from {self.range_start} to {end}"
        self.require(self.range_start >= 0 and end <= 1 << 24, "RS-4", message, argument="range_start")
        require_accumulation(self, "RS-5", self.reduce_cmd, self.reduce_res, None, _ACCUMULATION_COMMANDS)

    def uses_state(self) -> bool:
        return True

    def semantics(self, on_true_tile: np.ndarray, bound0: np.ndarray, bound1: np.ndarray, registers: np.ndarray) -> Any:
        values = flat(on_true_tile)
        index = self.range_start + np.arange(values.shape[1], dtype=np.float32)
        keep = (self.comp_op0(index, flat(bound0)) != 0) & (self.comp_op1(index, flat(bound1)) != 0)
        result = np.where(keep, values, np.float32(FP32_MIN))
        total = accumulated(self.reduce_cmd, self.reduce_op, registers, result)
        if self.dst.dtype.itemsize < 4:
            result = np.where(keep, values, np.float32(-np.inf))
        return (result, total) if self.reduce_res is None else (result, total, total)

    def cost(self, target: Target, engine: Engine) -> Cost:
        v = target.vector
        extra = () if self.reduce_res is None else (v.read_accumulator_cycles,)
        return vector_time(target, self.reads(), self.writes(), self.dst.free_elements, v.cycles_per_element, extra=extra)


def _check_search(inst: Any, target: Target, rule: str, data_name: str, data: AccessPattern) -> None:
    """The limits that max8 and the searches share: dimensions and elements per partition."""
    low, high = target.limits.max8_elements_min.value, target.limits.max8_elements_max.value
    fits = low <= data.free_elements <= high and len(data.shape) <= 3
    message = f"{data_name} has shape {data.shape}; {low} to {high} elements per partition in at most 3 dimensions fit"
    inst.require(fits, rule, message, argument=data_name)


def _check_eight(inst: Any, rule: str, data: AccessPattern, *names: str) -> None:
    for name in names:
        ap = getattr(inst, name)
        if ap is not None:
            fits = ap.partitions == data.partitions and ap.free_elements == 8
            message = f"{name} has shape {ap.shape}; it must be ({data.partitions}, 8)"
            inst.require(fits, rule, message, argument=name)


@instruction(engines=(Engine.VECTOR,), source="NKI 0.6, nki.isa.max8", cost_source=_COST)
class Max8(Instruction):
    """The eight largest values of each partition, in descending order, compared as float32. NaN counts as the largest."""

    dst: AccessPattern = output(SBUF, PSUM)
    src: AccessPattern = operand(SBUF, PSUM)

    RULES = {
        "MX8-1": Rule("E0308", "src has 8 to 16384 elements per partition in at most three dimensions"),
        "MX8-2": Rule("E0304", "dst has src's partitions and eight elements in each"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x8 f32", src="sbuf 128x512 f32"),
        example(dst="sbuf 32x8 bf16", src="psum 32x4x8 f32"),
        example(dst="sbuf 128x8 f32", src="sbuf 128x7 f32", rule="MX8-1"),
        example(dst="sbuf 128x4 f32", src="sbuf 128x16 f32", rule="MX8-2"),
    )

    def check(self, target: Target) -> None:
        _check_search(self, target, "MX8-1", "src", self.src)
        _check_eight(self, "MX8-2", self.src, "dst")

    def semantics(self, src: np.ndarray) -> np.ndarray:
        values = flat(src)
        largest = np.partition(values, values.shape[1] - 8, axis=1)[:, -8:]
        return np.sort(largest, axis=1)[:, ::-1]

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, [self.src], [self.dst], self.src.free_elements, rate)


def _first_matches(data: np.ndarray, value: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per partition, the first index at which `data` equals `value` and nothing is `taken`, and whether there is one."""
    matches = (data == value) & ~taken
    first = np.argmax(matches, axis=1)
    return first, matches[np.arange(len(first)), first]


@instruction(engines=(Engine.VECTOR,), source="NKI 0.6, nki.isa.nc_find_index8", cost_source=_COST)
class NcFindIndex8(Instruction):
    """For each of eight values per partition, the index of its first match in `data` (compared as float32).

    A value that occurs several times in `vals` finds successive matches in ascending order. What is not found gives all
    ones.
    """

    dst: AccessPattern = output(SBUF, PSUM, dtypes=(dt.uint16, dt.uint32))
    data: AccessPattern = operand(SBUF, PSUM)
    vals: AccessPattern = operand(SBUF, PSUM)

    RULES = {
        "FI8-1": Rule("E0308", "data has 8 to 16384 elements per partition in at most three dimensions"),
        "FI8-2": Rule("E0304", "dst and vals have data's partitions and eight elements in each"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x8 u32", data="sbuf 128x512 f32", vals="sbuf 128x8 f32"),
        example(dst="sbuf 32x8 u16", data="psum 32x64 f32", vals="sbuf 32x8 f32"),
        example(dst="sbuf 128x8 u32", data="sbuf 128x4 f32", vals="sbuf 128x8 f32", rule="FI8-1"),
        example(dst="sbuf 128x8 u32", data="sbuf 128x64 f32", vals="sbuf 128x4 f32", rule="FI8-2"),
        example(dst="sbuf 128x8 i32", data="sbuf 128x64 f32", vals="sbuf 128x8 f32", rule="ISA-4"),
    )

    def check(self, target: Target) -> None:
        _check_search(self, target, "FI8-1", "data", self.data)
        _check_eight(self, "FI8-2", self.data, "dst", "vals")

    def semantics(self, data: np.ndarray, vals: np.ndarray) -> np.ndarray:
        values, wanted = flat(data), flat(vals)
        result = np.full(wanted.shape, np.iinfo(self.dst.dtype.np).max, np.int64)
        taken = np.zeros(values.shape, np.bool_)
        rows = np.arange(len(values))
        for k in range(8):
            first, found = _first_matches(values, wanted[:, k : k + 1], taken)
            result[found, k] = first[found]
            taken[rows[found], first[found]] = True
        return result

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, self.reads(), [self.dst], self.data.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.nc_match_replace8",
    cost_source=_COST + ", which print the least of 64 and N where the greatest is meant",
)
class NcMatchReplace8(Instruction):
    """Copy `data` to dst with the first match of each of eight values per partition replaced by `imm`.

    Values are handled from the last to the first, each takes an element that none before it took. `dst_idx` ([P, 8])
    receives the index of each, all ones where there is no match.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    data: AccessPattern = operand(SBUF, PSUM)
    vals: AccessPattern = operand(SBUF, PSUM)
    imm: float = attr(float)
    dst_idx: AccessPattern | None = output(SBUF, PSUM, dtypes=(dt.uint16, dt.uint32), optional=True)

    RULES = {
        "MR8-1": Rule("E0308", "data has 8 to 16384 elements per partition in at most three dimensions"),
        "MR8-2": Rule("E0304", "vals and dst_idx have data's partitions and eight elements in each"),
        "MR8-3": Rule("E0304", "dst has data's partitions and elements per partition"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 f32", vals="sbuf 128x8 f32", imm=-1.0),
        example(dst="sbuf 32x64 f32", data="psum 32x64 f32", vals="sbuf 32x8 f32", imm=0.0, dst_idx="sbuf 32x8 u32"),
        example(dst="sbuf 8x4 f32", data="sbuf 8x4 f32", vals="sbuf 8x8 f32", imm=0.0, rule="MR8-1"),
        example(dst="sbuf 8x64 f32", data="sbuf 8x64 f32", vals="sbuf 8x4 f32", imm=0.0, rule="MR8-2"),
        example(dst="sbuf 8x32 f32", data="sbuf 8x64 f32", vals="sbuf 8x8 f32", imm=0.0, rule="MR8-3"),
    )

    def check(self, target: Target) -> None:
        _check_search(self, target, "MR8-1", "data", self.data)
        _check_eight(self, "MR8-2", self.data, "vals", "dst_idx")
        shapes = (self.dst.partitions, self.dst.free_elements), (self.data.partitions, self.data.free_elements)
        message = f"dst has shape {self.dst.shape}, data has shape {self.data.shape}"
        self.require(shapes[0] == shapes[1], "MR8-3", message, argument="dst")

    def semantics(self, data: np.ndarray, vals: np.ndarray) -> Any:
        values, wanted = flat(data), flat(vals)
        taken = np.zeros(values.shape, np.bool_)
        rows = np.arange(len(values))
        index = np.full(wanted.shape, -1, np.int64)
        for k in reversed(range(8)):
            first, found = _first_matches(values, wanted[:, k : k + 1], taken)
            index[found, k] = first[found]
            taken[rows[found], first[found]] = True
        result = np.where(taken, np.float32(self.imm), values)
        if self.dst_idx is None:
            return result
        return result, np.where(index < 0, np.iinfo(self.dst_idx.dtype.np).max, index)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, self.reads(), self.writes(), self.data.free_elements, rate)


QUADRANT = 32
UNCHANGED = 255


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.nc_stream_shuffle",
    cost_source=_COST,
)
class NcStreamShuffle(Instruction):
    """Move partitions within each group of 32: partition 32q + i of dst gets partition 32q + shuffle_mask[i] of src.

    The mask has 32 entries of 0 ... 31, or 255 to leave a partition of dst as it is. Bits are kept. src and dst cover as
    many groups; a partition that the mask names lies in src.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    src: AccessPattern = operand(SBUF, PSUM)
    shuffle_mask: tuple[int, ...] = attr(tuple)

    RULES = {
        "SSH-1": Rule("E0309", "shuffle_mask has 32 entries of 0 ... 31 or 255"),
        "SSH-2": Rule("E0305", "src has dst's dtype"),
        "SSH-3": Rule("E0304", "src and dst cover as many groups of 32 partitions, and elements per partition"),
        "SSH-4": Rule("E0304", "the mask moves partitions that src covers"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 bf16", src="sbuf 128x64 bf16", shuffle_mask=tuple(reversed(range(32)))),
        example(dst="sbuf 32x64 f32", src="sbuf 1x64 f32", shuffle_mask=(0,) * 32, note="broadcast of a partition"),
        example(dst="sbuf 64x64 f32", src="psum 64x64 f32", shuffle_mask=(31, *([255] * 31))),
        example(dst="sbuf 32x64 f32", src="sbuf 32x64 f32", shuffle_mask=(0, 32, *([255] * 30)), rule="SSH-1"),
        example(dst="sbuf 32x64 f32", src="sbuf 32x64 bf16", shuffle_mask=(0,) * 32, rule="SSH-2"),
        example(dst="sbuf 64x64 f32", src="sbuf 32x64 f32", shuffle_mask=(0,) * 32, rule="SSH-3"),
        example(dst="sbuf 32x64 f32", src="sbuf 4x64 f32", shuffle_mask=(4,) * 32, rule="SSH-4"),
    )

    def check(self, target: Target) -> None:
        known = len(self.shuffle_mask) == QUADRANT and all(0 <= m < QUADRANT or m == UNCHANGED for m in self.shuffle_mask)
        self.require(known, "SSH-1", f"shuffle_mask is {list(self.shuffle_mask)}", argument="shuffle_mask")
        dtypes = f"src is {self.src.dtype}, dst is {self.dst.dtype}"
        self.require(self.src.dtype is self.dst.dtype, "SSH-2", dtypes, argument="src")
        shapes = f"src has shape {self.src.shape}, dst has shape {self.dst.shape}"
        groups = math.ceil(self.src.partitions / QUADRANT) == math.ceil(self.dst.partitions / QUADRANT)
        self.require(groups and self.src.free_elements == self.dst.free_elements, "SSH-3", shapes, argument="src")
        _, of = self._moves()
        self.require(bool((of < self.src.partitions).all()), "SSH-4", f"partitions {of} of src move", argument="shuffle_mask")

    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Partitions of dst that are written, and the partition of src that each gets."""
        partition = np.arange(self.dst.partitions)
        mask = np.asarray(self.shuffle_mask)[partition % QUADRANT]
        source = partition // QUADRANT * QUADRANT + mask
        return partition[mask != UNCHANGED], source[mask != UNCHANGED]

    @property
    def arithmetic(self) -> str:
        return "raw"

    @property
    def reads_dst(self) -> bool:
        return UNCHANGED in self.shuffle_mask

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        src = flat(operands[-1])
        to, of = self._moves()
        if not self.reads_dst:
            return src[of]
        result = flat(operands[0]).copy()
        result[to] = src[of]
        return result

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, [self.src], [self.dst], self.dst.free_elements, rate)
