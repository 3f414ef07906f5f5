"""Reductions, scans and statistics along the free axis, on the vector engine."""

from __future__ import annotations

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
    require_binary,
    require_float32,
    require_integers,
    require_ops,
    require_reducing,
)
from ranvier.target.spec import Engine, Target

_COST = "NKI 0.1 cost tables; public instruction traces"
_ADD, _SUB, _MUL, _MAX, _MIN = (ALU[n] for n in ("add", "subtract", "multiply", "maximum", "minimum"))
_ACCUMULATING = ("add", "multiply", "maximum", "minimum")


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.tensor_reduce",
    cost_source=_COST + "; 16-bit add and max at twice the rate on Trainium1, not seen on Trainium2",
)
class TensorReduce(Instruction):
    """Reduce the last free axes of `data` with `op`: dst = op over `axis`, one element per remaining index.

    `axis` is one axis or several, the last of data's shape (axis 0 is the partitions). Arithmetic operations compute in
    float32 and can be negated; bitwise ones take integers. `subtract` takes all others from the first element (the
    documentation does not say). `keepdims` only says how dst is shaped.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    op: AluOp = attr(AluOp)
    data: AccessPattern = operand(SBUF, PSUM)
    axis: int | tuple[int, ...] = attr(tuple)
    negate: bool = attr(bool, default=False)
    keepdims: bool = attr(bool, default=False)

    RULES = {
        "TR-1": Rule("E0309", "op can reduce"),
        "TR-2": Rule("E0309", "axis names the last free axes of data"),
        "TR-3": Rule("E0304", "dst has data's partitions and one element for each index of the axes that stay"),
        "TR-4": Rule("E0305", "bitwise operations take integers"),
        "TR-5": Rule("E0309", "only arithmetic operations can be negated"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x1 f32", op=_ADD, data="sbuf 128x512 bf16", axis=1),
        example(dst="sbuf 64x8 f32", op=_MAX, data="psum 64x8x32 f32", axis=(2,), negate=True),
        example(dst="sbuf 64x1x1 bf16", op=_MAX, data="sbuf 64x8x32 bf16", axis=(1, 2), keepdims=True),
        example(dst="sbuf 128x1 i32", op=ALU["bitwise_or"], data="sbuf 128x64 i32", axis=-1),
        example(dst="sbuf 128x1 f32", op=ALU["less"], data="sbuf 128x64 f32", axis=1, rule="TR-1"),
        example(dst="sbuf 64x32 f32", op=_ADD, data="sbuf 64x8x32 f32", axis=1, rule="TR-2"),
        example(dst="sbuf 64x32 f32", op=_ADD, data="sbuf 64x32 f32", axis=0, rule="TR-2"),
        example(dst="sbuf 64x4 f32", op=_ADD, data="sbuf 64x8x32 f32", axis=2, rule="TR-3"),
        example(dst="sbuf 64x1 f32", op=ALU["bitwise_or"], data="sbuf 64x32 i32", axis=1, rule="TR-4"),
        example(dst="sbuf 64x1 i32", op=ALU["bitwise_or"], data="sbuf 64x32 i32", axis=1, negate=True, rule="TR-5"),
    )

    def _axes(self) -> tuple[int, ...]:
        """`axis` as sorted non-negative axes."""
        given = (self.axis,) if isinstance(self.axis, int) else tuple(self.axis)
        rank = len(self.data.shape)
        return tuple(sorted(a + rank if a < 0 else a for a in given))

    def check(self, target: Target) -> None:
        self.require(self.op.reduces and "vector" in self.op.engines, "TR-1", f"op is {self.op}", argument="op")
        axes, rank = self._axes(), len(self.data.shape)
        last = bool(axes) and axes[0] >= 1 and axes == tuple(range(axes[0], rank))
        self.require(last, "TR-2", f"axis is {self.axis}, data has shape {self.data.shape}", argument="axis")
        left = self.data.free_elements // int(np.prod([self.data.shape[a] for a in axes]))
        fits = (self.dst.partitions, self.dst.free_elements) == (self.data.partitions, left)
        message = f"dst has shape {self.dst.shape}; axes {axes} of {self.data.shape} leave {left} elements in each partition"
        self.require(fits, "TR-3", message, argument="dst")
        require_integers(self, "TR-4", self.op)
        self.require(not (self.negate and self.op.is_bitwise), "TR-5", f"op is {self.op}", argument="negate")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.op.is_bitwise else "float32"

    def semantics(self, data: np.ndarray) -> np.ndarray:
        kept = data.shape[: self._axes()[0]]
        result = self.op.reduce(data.reshape(*kept, -1), (len(kept),))
        return -result if self.negate else result

    def cost(self, target: Target, engine: Engine) -> Cost:
        bf16 = self.data.dtype is dt.bfloat16 and self.dst.dtype is dt.bfloat16
        speedup = target.vector.reduce_16bit_speedup if bf16 and self.op in (_ADD, _MAX) else None
        count, rate = self.data.free_elements, target.vector.cycles_per_element
        return vector_time(target, [self.data], [self.dst], count, rate, speedup=speedup)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.bn_stats",
    cost_source=_COST,
)
class BnStats(Instruction):
    """Statistics of each partition: dst = (count, mean, variance * count) of the even elements, then of the odd ones.

    `data` has at most 512 elements per partition, `dst` six. Merge several with bn_aggr.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    data: AccessPattern = operand(SBUF, PSUM)

    RULES = {
        "BNS-1": Rule("E0308", "data has at most 512 elements per partition"),
        "BNS-2": Rule("E0304", "dst has data's partitions and six elements in each"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x6 f32", data="sbuf 128x512 bf16"),
        example(dst="sbuf 64x6 f32", data="psum 64x17 f32"),
        example(dst="sbuf 128x6 f32", data="sbuf 128x513 f32", rule="BNS-1"),
        example(dst="sbuf 128x3 f32", data="sbuf 128x512 f32", rule="BNS-2"),
    )

    def check(self, target: Target) -> None:
        count, most = self.data.free_elements, target.limits.bn_stats_fmax.value
        self.require(count <= most, "BNS-1", f"data has {count} elements per partition", argument="data")
        fits = self.dst.partitions == self.data.partitions and self.dst.free_elements == 6
        self.require(fits, "BNS-2", f"dst has shape {self.dst.shape}, data has shape {self.data.shape}", argument="dst")

    def semantics(self, data: np.ndarray) -> np.ndarray:
        values = flat(data)
        result = np.zeros((values.shape[0], 6), np.float32)
        for column, part in ((0, values[:, 0::2]), (3, values[:, 1::2])):
            if part.shape[1]:
                mean = part.mean(axis=1, dtype=np.float32)
                result[:, column], result[:, column + 1] = part.shape[1], mean
                result[:, column + 2] = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
        return result

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, [self.data], [self.dst], self.data.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.bn_aggr",
    cost_source=_COST + ": 13 cycles for each three elements",
)
class BnAggr(Instruction):
    """Merge statistics: dst = (mean, variance) of all that the (count, mean, variance * count) triples of `data` describe.

    The variance is that of the population (divided by the count). With a total count of 0 both are NaN.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    data: AccessPattern = operand(SBUF, PSUM)

    RULES = {
        "BNA-1": Rule("E0304", "data has a multiple of three elements per partition"),
        "BNA-2": Rule("E0304", "dst has data's partitions and two elements in each"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x2 f32", data="sbuf 128x6 f32"),
        example(dst="sbuf 128x2 f32", data="sbuf 128x4x6 f32"),
        example(dst="sbuf 128x2 f32", data="sbuf 128x8 f32", rule="BNA-1"),
        example(dst="sbuf 128x1 f32", data="sbuf 128x6 f32", rule="BNA-2"),
    )

    def check(self, target: Target) -> None:
        shapes = f"dst has shape {self.dst.shape}, data has shape {self.data.shape}"
        self.require(self.data.free_elements % 3 == 0, "BNA-1", shapes, argument="data")
        fits = self.dst.partitions == self.data.partitions and self.dst.free_elements == 2
        self.require(fits, "BNA-2", shapes, argument="dst")

    def semantics(self, data: np.ndarray) -> np.ndarray:
        counts, means, squares = np.moveaxis(data.reshape(data.shape[0], -1, 3), -1, 0)
        with np.errstate(all="ignore"):
            total = counts.sum(axis=1)
            mean = (counts * means).sum(axis=1) / total
            spread = squares + counts * np.square(means - mean[:, None])
            return np.stack([mean, spread.sum(axis=1) / total], axis=1)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.bn_aggr_cycles_per_element
        return vector_time(target, [self.data], [self.dst], self.data.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.tensor_tensor_scan",
    cost_source=_COST,
    elementwise=True,
)
class TensorTensorScan(Instruction):
    """Recurrence along the free axis: r[i] = (data0[i] op0 r[i-1]) op1 data1[i], every r[i] stored, r[-1] = initial.

    Arithmetic operations in float32. `initial` is a number or [P, 1] float32. `reverse0` and `reverse1` swap the sides of
    their operation.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    data0: AccessPattern = operand(SBUF, PSUM)
    data1: AccessPattern = operand(SBUF, PSUM)
    initial: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True)
    op0: AluOp = attr(AluOp)
    op1: AluOp = attr(AluOp)
    reverse0: bool = attr(bool, default=False)
    reverse1: bool = attr(bool, default=False)

    RULES = {
        "TTS-1": Rule("E0301", "data0 and data1 are not both in PSUM"),
        "TTS-2": Rule("E0309", "op0 and op1 are arithmetic operations of the vector engine with two operands"),
        "TTS-3": Rule("E0305", "initial from memory is float32"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x64 f32", data0="sbuf 128x64 f32", data1="sbuf 128x64 f32", initial=0.0, op0=_MUL, op1=_ADD,
        ),
        example(
            dst="sbuf 16x64 bf16", data0="psum 16x64 f32", data1="sbuf 16x64 bf16", initial="sbuf 16x1 f32", op0=_SUB,
            op1=_MAX, reverse0=True,
        ),
        example(
            dst="sbuf 8x64 f32", data0="psum 8x64 f32", data1="psum 8x64 f32", initial=0.0, op0=_MUL, op1=_ADD,
            rule="TTS-1",
        ),
        example(
            dst="sbuf 8x64 i32", data0="sbuf 8x64 i32", data1="sbuf 8x64 i32", initial=0, op0=ALU["bitwise_and"], op1=_ADD,
            rule="TTS-2",
        ),
        example(
            dst="sbuf 8x64 f32", data0="sbuf 8x64 f32", data1="sbuf 8x64 f32", initial="sbuf 8x1 bf16", op0=_MUL, op1=_ADD,
            rule="TTS-3",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op0, self.op1)
        both = in_psum(self.data0) and in_psum(self.data1)
        self.require(not both, "TTS-1", "data0 and data1 are in psum", argument="data1")
        require_binary(self, "TTS-2", op0=self.op0, op1=self.op1)
        require_float32(self, "TTS-3", "initial")

    def semantics(self, data0: np.ndarray, data1: np.ndarray, initial: Any) -> np.ndarray:
        # One step per column of all partitions: columns are made contiguous first.
        first, second = np.ascontiguousarray(flat(data0).T), np.ascontiguousarray(flat(data1).T)
        result = np.empty_like(first)
        before = np.broadcast_to(np.asarray(initial, np.float32).reshape(-1), first.shape[1:])
        op0, op1 = self.op0.fn, self.op1.fn
        with np.errstate(all="ignore"):
            for a, b, out in zip(first, second, result, strict=True):
                inner = op0(before, a) if self.reverse0 else op0(a, before)
                out[...] = op1(b, inner) if self.reverse1 else op1(inner, b)
                before = out
        return result.T.reshape(data0.shape)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.two_input_cycles_per_element
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.tensor_scalar_reduce",
    cost_source=_COST,
    elementwise=True,
)
class TensorScalarReduce(Instruction):
    """dst = data op0 operand0, and the accumulators reduce dst along the free axis with `reduce_op`.

    Arithmetic in float32. `reduce_cmd` says what becomes of the accumulators; `reduce_init` is their start for
    load_reduce. `reduce_res` ([P, 1]) receives them afterwards, negated with `reduce_res_negate`. `reverse0` is not
    supported.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    data: AccessPattern = operand(SBUF, PSUM)
    op0: AluOp = attr(AluOp)
    operand0: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True)
    reduce_op: AluOp = attr(AluOp)
    reduce_res: AccessPattern | None = output(SBUF, PSUM, optional=True, vector=True)
    reverse0: bool = attr(bool, default=False)
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.reset_reduce)
    reduce_init: AccessPattern | float | None = operand(SBUF, PSUM, optional=True, vector=True, scalar=True)
    reduce_res_negate: bool = attr(bool, default=False)
    registers: None = state(REDUCE_STATE)

    RULES = {
        "TSR-1": Rule("E0309", "op0 is an arithmetic operation of the vector engine with two operands"),
        "TSR-2": Rule("E0309", "reduce_op is add, multiply, maximum or minimum"),
        "TSR-3": Rule("E0305", "operand0 and reduce_init from memory are float32"),
        "TSR-4": Rule("E0309", "reduce_init comes with load_reduce and only with it, reduce_res not with idle"),
        "TSR-5": Rule("E0309", "reverse0 is not supported"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x64 f32", data="sbuf 128x64 f32", op0=_MUL, operand0=0.5, reduce_op=_ADD,
            reduce_res="sbuf 128x1 f32",
        ),
        example(
            dst="sbuf 64x64 bf16", data="psum 64x64 f32", op0=_SUB, operand0="sbuf 64x1 f32", reduce_op=_MAX,
            reduce_res="sbuf 64x1 f32", reduce_cmd=ReduceCmd.load_reduce, reduce_init=0.0, reduce_res_negate=True,
        ),
        example(
            dst="sbuf 8x64 u8", data="sbuf 8x64 u8", op0=ALU["bitwise_or"], operand0=1, reduce_op=_ADD, rule="TSR-1",
        ),
        example(dst="sbuf 8x64 f32", data="sbuf 8x64 f32", op0=_MUL, operand0=1.0, reduce_op=_SUB, rule="TSR-2"),
        example(
            dst="sbuf 8x64 f32", data="sbuf 8x64 f32", op0=_MUL, operand0="sbuf 8x1 bf16", reduce_op=_ADD, rule="TSR-3",
        ),
        example(
            dst="sbuf 8x64 f32", data="sbuf 8x64 f32", op0=_MUL, operand0=1.0, reduce_op=_ADD, reduce_init=1.0,
            rule="TSR-4",
        ),
        example(
            dst="sbuf 8x64 f32", data="sbuf 8x64 f32", op0=_SUB, operand0=1.0, reduce_op=_ADD, reverse0=True, rule="TSR-5",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op0)
        require_binary(self, "TSR-1", op0=self.op0)
        require_reducing(self, "TSR-2", self.reduce_op, _ACCUMULATING, "reduce_op")
        require_float32(self, "TSR-3", "operand0", "reduce_init")
        require_accumulation(self, "TSR-4", self.reduce_cmd, self.reduce_res, self.reduce_init)
        self.require(not self.reverse0, "TSR-5", "reverse0 is set", argument="reverse0", fix="use tensor_scalar")

    def uses_state(self) -> bool:
        return True

    def semantics(self, data: np.ndarray, operand0: Any, reduce_init: Any, registers: np.ndarray) -> Any:
        result = self.op0.apply(data, operand0)
        start = reduce_init if not isinstance(reduce_init, np.ndarray) else flat(reduce_init)
        total = accumulated(self.reduce_cmd, self.reduce_op, registers, result, start)
        if self.reduce_res is None:
            return result, total
        return result, -total if self.reduce_res_negate else total, total

    def cost(self, target: Target, engine: Engine) -> Cost:
        v = target.vector
        extra = () if self.reduce_res is None else (v.read_accumulator_cycles,)
        return vector_time(target, self.reads(), self.writes(), self.dst.free_elements, v.cycles_per_element, extra=extra)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.tensor_scalar_cumulative",
    cost_source="assumption: as tensor_scalar without fast modes; no public number",
    elementwise=True,
)
class TensorScalarCumulative(Instruction):
    """Running reduction along the free axis: acc = (src[i] op0 imm0) op1 acc, every acc stored in dst[i].

    Arithmetic in float32, no 32-bit integers. acc starts from the identity of op1 (reset_reduce), from what the
    accumulators hold (reduce) or from `imm1` (load_reduce); its last value stays in the accumulators.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    src: AccessPattern = operand(SBUF, PSUM)
    op0: AluOp = attr(AluOp)
    op1: AluOp = attr(AluOp)
    imm0: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True)
    imm1: AccessPattern | float | None = operand(SBUF, PSUM, optional=True, vector=True, scalar=True)
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.reset_reduce)
    registers: None = state(REDUCE_STATE)

    RULES = {
        "TSC-1": Rule("E0309", "op0 is an arithmetic operation of the vector engine with two operands"),
        "TSC-2": Rule("E0309", "op1 is add, subtract, multiply, maximum or minimum"),
        "TSC-3": Rule("E0305", "imm0 and imm1 from memory are float32; src and dst are not 32-bit integers"),
        "TSC-4": Rule("E0309", "reduce_cmd is reduce, reset_reduce or load_reduce; imm1 comes with load_reduce only"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 f32", src="sbuf 128x64 f32", op0=_MUL, op1=_ADD, imm0=1.0),
        example(
            dst="sbuf 64x64 f32", src="psum 64x64 f32", op0=_ADD, op1=_MAX, imm0="sbuf 64x1 f32", imm1=0.0,
            reduce_cmd=ReduceCmd.load_reduce,
        ),
        example(dst="sbuf 8x64 u8", src="sbuf 8x64 u8", op0=ALU["bitwise_or"], op1=_ADD, imm0=1, rule="TSC-1"),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 f32", op0=_MUL, op1=ALU["less"], imm0=1.0, rule="TSC-2"),
        example(dst="sbuf 8x64 i32", src="sbuf 8x64 f32", op0=_MUL, op1=_ADD, imm0=1.0, rule="TSC-3"),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 f32", op0=_MUL, op1=_ADD, imm0=1.0, imm1=2.0, rule="TSC-4"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op0)
        require_binary(self, "TSC-1", op0=self.op0)
        require_reducing(self, "TSC-2", self.op1, ("subtract", *_ACCUMULATING), "op1")
        require_float32(self, "TSC-3", "imm0", "imm1")
        for name, ap in (("dst", self.dst), ("src", self.src)):
            legal = not (ap.dtype.is_integer and ap.dtype.itemsize == 4)
            self.require(legal, "TSC-3", f"{name} is {ap.dtype}", argument=name)
        commands = (ReduceCmd.reduce, ReduceCmd.reset_reduce, ReduceCmd.load_reduce)
        require_accumulation(self, "TSC-4", self.reduce_cmd, None, self.imm1, commands)

    def uses_state(self) -> bool:
        return True

    def semantics(self, src: np.ndarray, imm0: Any, imm1: Any, registers: np.ndarray) -> Any:
        values = flat(self.op0.apply(src, imm0))
        start: Any = registers
        if self.reduce_cmd is not ReduceCmd.reduce:
            start = self.op1.identity if self.reduce_cmd is ReduceCmd.reset_reduce else imm1
        first = np.empty((values.shape[0], values.shape[1] + 1), np.float32)
        first[:, :1], first[:, 1:] = np.reshape(start, (-1, 1)), values
        result = self.op1.accumulate(first, 1)[:, 1:]
        return result.reshape(src.shape), result[:, -1:]

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.exponential; Trainium3 architecture guide",
    cost_source="Trainium3 architecture guide: four times the scalar engine's rate",
    feature="exponential",
    elementwise=True,
)
class Exponential(Instruction):
    """dst = exp(src - max_value) in float32, and the accumulators sum dst along the free axis as `reduce_cmd` says.

    `max_value` and `reduce_init` (the start for load_reduce) are numbers or [P, 1] float32. `reduce_res` ([P, 1]) receives
    the accumulators afterwards.
    """

    dst: AccessPattern = output(SBUF, PSUM)
    src: AccessPattern = operand(SBUF, PSUM)
    max_value: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True, default=0.0)
    reduce_res: AccessPattern | None = output(SBUF, PSUM, optional=True, vector=True)
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.idle)
    reduce_init: AccessPattern | float = operand(SBUF, PSUM, vector=True, scalar=True, default=0.0)
    registers: None = state(REDUCE_STATE)

    RULES = {
        "EXP-1": Rule("E0305", "dst is not uint32"),
        "EXP-2": Rule("E0305", "max_value and reduce_init from memory are float32"),
        "EXP-3": Rule("E0309", "reduce_res is not written with idle"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 bf16", src="sbuf 128x64 f32", max_value="sbuf 128x1 f32"),
        example(
            dst="sbuf 64x64 f32", src="psum 64x64 f32", reduce_res="sbuf 64x1 f32", reduce_cmd=ReduceCmd.reset_reduce,
        ),
        example(dst="sbuf 8x64 u32", src="sbuf 8x64 f32", rule="EXP-1"),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 f32", max_value="sbuf 8x1 bf16", rule="EXP-2"),
        example(dst="sbuf 8x64 f32", src="sbuf 8x64 f32", reduce_res="sbuf 8x1 f32", rule="EXP-3"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        self.require(self.dst.dtype is not dt.uint32, "EXP-1", "dst is uint32", argument="dst")
        require_float32(self, "EXP-2", "max_value", "reduce_init")
        legal = self.reduce_res is None or self.reduce_cmd is not ReduceCmd.idle
        self.require(legal, "EXP-3", "reduce_res is written although reduce_cmd is idle", argument="reduce_res")

    def uses_state(self) -> bool:
        return True

    def semantics(self, src: np.ndarray, max_value: Any, reduce_init: Any, registers: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            result = np.exp(src - max_value)
        start = reduce_init if not isinstance(reduce_init, np.ndarray) else flat(reduce_init)
        total = accumulated(self.reduce_cmd, _ADD, registers, result, start)
        return (result, total) if self.reduce_res is None else (result, total, total)

    def cost(self, target: Target, engine: Engine) -> Cost:
        v = target.vector
        assert v.exponential_cycles_per_element is not None
        extra = () if self.reduce_res is None else (v.read_accumulator_cycles,)
        rate = v.exponential_cycles_per_element
        return vector_time(target, self.reads(), self.writes(), self.dst.free_elements, rate, extra=extra)
