"""Element-wise instructions of the vector engine, some of which the scalar engine and gpsimd run as well."""

from __future__ import annotations

from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.alu import ALU, AluOp
from ranvier.isa.engine_time import gpsimd_time, scalar_time, vector_time
from ranvier.isa.examples import example
from ranvier.isa.record import PSUM, SBUF, Cost, Instruction, Rule, attr, dst, instruction, src
from ranvier.isa.vector_common import (
    copy_speedup,
    engines_of,
    in_psum,
    innermost_contiguous,
    is_16bit,
    require_binary,
    require_float32,
    require_integers,
    require_ops,
    shown,
    two_input_time_facts,
)
from ranvier.target.spec import Engine, Target

_COST = "architecture guides: elements per cycle and fast modes; NKI 0.1 cost tables; public instruction traces"
_WORDS = (dt.int32, dt.uint32)
_ADD, _SUB, _MUL, _MAX = ALU["add"], ALU["subtract"], ALU["multiply"], ALU["maximum"]


def _as_bits(values: np.ndarray, like: AccessPattern) -> np.ndarray:
    """Results; integers among them keep their bits when `like` has the same width (the machine's cast would saturate)."""
    as_they_are = values.dtype.kind in "iu" and values.dtype.itemsize == like.dtype.itemsize
    return values.view(like.dtype.np) if as_they_are else values


@instruction(
    engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.tensor_copy; architecture guides, engines",
    cost_source=_COST,
    elementwise=True,
)
class TensorCopy(Instruction):
    """Copy within on-chip memory: dst = src, element by element in row-major order of each.

    Equal dtypes keep their bits; others convert through float32. The scalar engine copies from the generation with feature
    native_scalar_copy on; gpsimd reaches SBUF only.
    """

    dst: AccessPattern = dst(SBUF, PSUM)
    src: AccessPattern = src(SBUF, PSUM)
    engine: Engine = attr(Engine, default=Engine.UNKNOWN)

    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", src="sbuf 128x512 bf16"),
        example(dst="sbuf 64x512 bf16", src="psum 64x512 f32", note="cast while leaving PSUM"),
        example(dst="sbuf 128x64 i32", src="sbuf 128x8x8 f32", engine=Engine.GPSIMD),
        example(dst="sbuf 128x64 f32", src="sbuf 128x64 f32", engine=Engine.SCALAR, feature="native_scalar_copy"),
        example(dst="sbuf 128x64 f32", src="sbuf 128x32 f32", rule="ISA-9"),
        example(dst="psum 128x64 f32", src="sbuf 128x64 f32", engine=Engine.GPSIMD, rule="ISA-8"),
        example(dst="sbuf 128x64 f32", src="sbuf 128x64 f32", engine=Engine.TENSOR, rule="ISA-5"),
    )

    @property
    def arithmetic(self) -> str:
        return "raw" if self.dst.dtype is self.src.dtype else "float32"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        scalar = (Engine.SCALAR,) if target.has("native_scalar_copy") else ()
        gpsimd = () if in_psum(self.dst, self.src) else (Engine.GPSIMD,)
        return (Engine.VECTOR, *scalar, *gpsimd)

    def semantics(self, src: np.ndarray) -> np.ndarray:
        return src

    def cost(self, target: Target, engine: Engine) -> Cost:
        count, v, s = self.dst.free_elements, target.vector, target.scalar
        if engine is Engine.GPSIMD:
            return gpsimd_time(target, count, target.gpsimd.cycles_per_element)
        if engine is Engine.SCALAR:
            speedup = s.copy_16bit_speedup if is_16bit(target, self.dst, self.src) else None
            operands = (self.dst, self.src)
            return scalar_time(target, operands, count, s.cycles_per_element, s.copy_overhead_cycles, speedup=speedup)
        speedup = copy_speedup(target, self.dst, self.src)
        return vector_time(target, [self.src], [self.dst], count, v.cycles_per_element, speedup=speedup)


@instruction(
    engines=(Engine.VECTOR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.tensor_tensor",
    cost_source=_COST,
    elementwise=True,
)
class TensorTensor(Instruction):
    """Element-wise dst = data1 op data2 on tiles of as many partitions and elements per partition; nothing is broadcast.

    Arithmetic is float32. When all three are int32 or uint32 the operation goes to gpsimd, whose integer arithmetic is
    exact and wraps, unless an operand is in PSUM or the vector engine is asked for: there integers pass through float32
    (exact to 2**24). Bitwise operations take integers and run on the vector engine; `power` runs on gpsimd.
    """

    dst: AccessPattern = dst(SBUF, PSUM)
    data1: AccessPattern = src(SBUF, PSUM)
    data2: AccessPattern = src(SBUF, PSUM)
    op: AluOp = attr(AluOp)
    engine: Engine = attr(Engine, default=Engine.UNKNOWN)

    RULES = {
        "TT-1": Rule("E0301", "data1 and data2 are not both in PSUM"),
        "TT-2": Rule("E0305", "bitwise operations take integers"),
        "TT-3": Rule("E0309", "op has two operands"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", data1="sbuf 128x512 bf16", data2="sbuf 128x512 bf16", op=_MUL),
        example(dst="psum 96x256 f32", data1="psum 96x256 f32", data2="sbuf 96x256 f32", op=_ADD),
        example(dst="sbuf 128x64 i32", data1="sbuf 128x64 i32", data2="sbuf 128x64 i32", op=_MUL, note="on gpsimd"),
        example(dst="sbuf 128x64 u8", data1="sbuf 128x64 u8", data2="sbuf 128x64 u8", op=ALU["bitwise_xor"]),
        example(dst="sbuf 128x64 f32", data1="sbuf 128x64 f32", data2="sbuf 128x64 f32", op=ALU["power"]),
        example(dst="sbuf 128x64 f32", data1="psum 128x64 f32", data2="psum 128x64 f32", op=_ADD, rule="TT-1"),
        example(dst="sbuf 128x64 u8", data1="sbuf 128x64 u8", data2="sbuf 128x64 f32", op=ALU["bitwise_or"], rule="TT-2"),
        example(dst="sbuf 128x64 f32", data1="sbuf 128x64 f32", data2="sbuf 128x64 f32", op=ALU["abs"], rule="TT-3"),
        example(dst="sbuf 128x64 f32", data1="sbuf 128x64 f32", data2="sbuf 128x1 f32", op=_ADD, rule="ISA-9"),
        example(
            dst="sbuf 128x64 f32", data1="sbuf 128x64 f32", data2="sbuf 128x64 f32", op=_SUB, engine=Engine.GPSIMD,
            rule="ISA-5",
        ),
        example(dst="sbuf 128x64 f32", data1="psum 128x64 f32", data2="sbuf 128x64 f32", op=ALU["power"], rule="ISA-8"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op)
        self.require(not self.op.unary, "TT-3", f"{self.op} has one operand", argument="op", fix="use tensor_scalar")
        both = in_psum(self.data1) and in_psum(self.data2)
        self.require(not both, "TT-1", "data1 and data2 are in psum", argument="data2", fix="copy one to sbuf")
        require_integers(self, "TT-2", self.op)

    @property
    def _all_words(self) -> bool:
        return all(ap.dtype in _WORDS for ap in (self.dst, self.data1, self.data2))

    @property
    def _is_native_integer(self) -> bool:
        """Runs on gpsimd's integer arithmetic."""
        if not self._all_words or self.op.is_bitwise or self.engine is Engine.VECTOR:
            return False
        return self.engine is Engine.GPSIMD or not in_psum(self.dst, self.data1, self.data2)

    @property
    def arithmetic(self) -> str:
        return "raw" if self.op.is_bitwise or self._is_native_integer else "float32"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        having = engines_of([self.op])
        if self._all_words and not self.op.is_bitwise:
            having.add(Engine.GPSIMD)
        if in_psum(self.dst, self.data1, self.data2):
            having.discard(Engine.GPSIMD)
        if self._is_native_integer:  # the vector engine would round to float32: whoever wants that asks for it
            return (Engine.GPSIMD,)
        return tuple(e for e in (Engine.VECTOR, Engine.GPSIMD) if e in having)

    def semantics(self, data1: np.ndarray, data2: np.ndarray) -> np.ndarray:
        if self.arithmetic == "float32":
            return self.op(data1, data2)
        wide = data1.dtype if data1.dtype.itemsize >= data2.dtype.itemsize else data2.dtype
        if self.op.name == "power":
            return self.op(data1.astype(np.float64), data2.astype(np.float64))
        return _as_bits(self.op(data1.astype(wide, copy=False), data2.astype(wide, copy=False)), self.dst)

    def _is_fast(self, target: Target) -> bool:
        operands = (self.dst, self.data1, self.data2)
        if target.has("vector_fast_modes"):
            return is_16bit(target, *operands)
        simple = self.op in (_ADD, _SUB, _MUL) and innermost_contiguous(*operands)
        return simple and all(ap.dtype is dt.bfloat16 for ap in operands)

    def cost(self, target: Target, engine: Engine) -> Cost:
        count = self.dst.free_elements
        if engine is Engine.GPSIMD:
            return gpsimd_time(target, count, target.gpsimd.two_input_cycles_per_element)
        rate, speedup = two_input_time_facts(target, self.data1, self.data2, self._is_fast(target))
        return vector_time(target, [self.data1, self.data2], [self.dst], count, rate, speedup=speedup)


def _unused(operand: Any) -> bool:
    return operand is None or (isinstance(operand, (int, float)) and operand == 0)


_SCALAR_ENGINE_PAIRS = ((_MUL, _ADD), (_MUL, None), (_ADD, None))


@instruction(
    engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.tensor_scalar",
    cost_source=_COST,
    elementwise=True,
)
class TensorScalar(Instruction):
    """dst = (data op0 operand0) op1 operand1, where each operand is a number or one value per partition ([P, 1]).

    `reverse0` and `reverse1` swap the sides of their operation. Arithmetic is float32 and takes float32 operands; bitwise
    operations take integers throughout, cannot be mixed with arithmetic ones, and run on the vector engine. An operation
    with one operand (abs, rsqrt, ...) leaves operand0 out. The scalar engine has multiply-add, multiply and add from
    feature scalar_tensor_scalar on, all of arithmetic with scalar_tensor_scalar_any; gpsimd runs it for rsqrt only.
    """

    dst: AccessPattern = dst(SBUF, PSUM)
    data: AccessPattern = src(SBUF, PSUM)
    op0: AluOp = attr(AluOp)
    operand0: AccessPattern | float | None = src(SBUF, PSUM, optional=True, explicit=True, vector=True, scalar=True)
    reverse0: bool = attr(bool, default=False)
    op1: AluOp | None = attr(AluOp, default=None)
    operand1: AccessPattern | float | None = src(SBUF, PSUM, optional=True, vector=True, scalar=True)
    reverse1: bool = attr(bool, default=False)
    engine: Engine = attr(Engine, default=Engine.UNKNOWN)

    RULES = {
        "TS-1": Rule("E0309", "operations with two operands have theirs, the others have none (or 0)"),
        "TS-2": Rule("E0309", "op0 and op1 are both bitwise or both arithmetic"),
        "TS-3": Rule("E0305", "bitwise operations take integers"),
        "TS-4": Rule("E0305", "operands of arithmetic from memory are float32"),
        "TS-5": Rule("E0309", "square and relu can only be op0"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", data="sbuf 128x512 bf16", op0=_MUL, operand0=0.5),
        example(
            dst="sbuf 128x512 f32", data="psum 128x512 f32", op0=_SUB, operand0="sbuf 128x1 f32", op1=_MUL,
            operand1="sbuf 128x1 f32", reverse0=True,
        ),
        example(dst="sbuf 64x32 u8", data="sbuf 64x32 u8", op0=ALU["right_shift"], operand0=4, op1=ALU["bitwise_and"], operand1=3),
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 f32", op0=_ADD, operand0=1.0, op1=ALU["rsqrt"]),
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 i16", op0=ALU["less"], operand0=7.0),
        example(dst="sbuf 8x8 f32", data="sbuf 8x8 f32", op0=_MUL, operand0=2.0, engine=Engine.SCALAR, feature="scalar_tensor_scalar"),
        example(dst="sbuf 8x8 f32", data="sbuf 8x8 f32", op0=ALU["square"], op1=_ADD, operand1=1.0, feature="unary_tensor_scalar"),
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 f32", op0=_MUL, rule="TS-1"),
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 f32", op0=ALU["abs"], operand0=2.0, rule="TS-1"),
        example(dst="sbuf 64x32 u8", data="sbuf 64x32 u8", op0=_ADD, operand0=4.0, op1=ALU["bitwise_and"], operand1=3, rule="TS-2"),
        example(dst="sbuf 64x32 f32", data="sbuf 64x32 u8", op0=ALU["bitwise_and"], operand0=3, rule="TS-3"),
        example(dst="sbuf 64x32 f32", data="sbuf 64x32 f32", op0=_ADD, operand0="sbuf 64x1 bf16", rule="TS-4"),
        example(
            dst="sbuf 8x8 f32", data="sbuf 8x8 f32", op0=_ADD, operand0=1.0, op1=ALU["relu"], rule="TS-5",
            feature="unary_tensor_scalar",
        ),
        example(dst="sbuf 64x32 f32", data="sbuf 64x32 f32", op0=_ADD, operand0="sbuf 64x2 f32", rule="ISA-7"),
        example(dst="sbuf 8x8 f32", data="sbuf 8x8 f32", op0=_SUB, operand0=2.0, engine=Engine.GPSIMD, rule="ISA-5"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op0, self.op1)
        pairs = (("op0", self.op0, "operand0", self.operand0), ("op1", self.op1, "operand1", self.operand1))
        for op_name, op, name, operand in pairs:
            complete = operand is not None if op is not None and not op.unary else _unused(operand)
            self.require(complete, "TS-1", f"{op_name} is {op} and {name} is {shown(operand)}", argument=name)
        if self.op1 is not None:
            mixed = self.op0.is_bitwise != self.op1.is_bitwise
            self.require(not mixed, "TS-2", f"op0 is {self.op0}, op1 is {self.op1}", argument="op1")
            first_only = self.op1.feature == "unary_tensor_scalar"
            self.require(not first_only, "TS-5", f"op1 is {self.op1}", argument="op1")
        require_integers(self, "TS-3", self.op0, self.op1)
        if not self.op0.is_bitwise:
            require_float32(self, "TS-4", "operand0", "operand1")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.op0.is_bitwise else "float32"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        ops = [op for op in (self.op0, self.op1) if op is not None]
        having, found = engines_of(ops), []
        if Engine.VECTOR in having:
            found.append(Engine.VECTOR)
        everything = target.has("scalar_tensor_scalar_any") and not self.op0.is_bitwise and ALU["power"] not in ops
        pair = target.has("scalar_tensor_scalar") and (self.op0, self.op1) in _SCALAR_ENGINE_PAIRS
        if everything or pair:
            found.append(Engine.SCALAR)
        if Engine.GPSIMD in having and ALU["rsqrt"] in ops and not in_psum(self.dst, self.data, self.operand0, self.operand1):
            found.append(Engine.GPSIMD)
        return tuple(found)

    def semantics(self, data: np.ndarray, operand0: Any, operand1: Any) -> np.ndarray:
        result = self.op0.apply(data, operand0, self.reverse0)
        if self.op1 is not None:
            result = self.op1.apply(result, operand1, self.reverse1)
        return _as_bits(result, self.dst) if self.op0.is_bitwise else result

    def cost(self, target: Target, engine: Engine) -> Cost:
        count, v, s, g = self.dst.free_elements, target.vector, target.scalar, target.gpsimd
        if engine is Engine.GPSIMD:
            return gpsimd_time(target, count, g.rsqrt_cycles_per_element)
        if engine is Engine.SCALAR:
            speedup = s.copy_16bit_speedup if is_16bit(target, self.dst, self.data) else None
            return scalar_time(
                target, (*self.reads(), self.dst), count, s.cycles_per_element, s.copy_overhead_cycles, speedup=speedup
            )
        from_memory = any(isinstance(operand, AccessPattern) for operand in (self.operand0, self.operand1))
        extra = (v.scalar_operand_overhead_cycles,) if from_memory else ()
        speedup = copy_speedup(target, self.dst, self.data)
        return vector_time(target, self.reads(), [self.dst], count, v.cycles_per_element, speedup=speedup, extra=extra)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.scalar_tensor_tensor",
    cost_source=_COST,
    elementwise=True,
)
class ScalarTensorTensor(Instruction):
    """dst = (data op0 operand0) op1 operand1: operand0 is a number or [P, 1], operand1 a tensor of data's size.

    Arithmetic only, in float32. `reverse0` and `reverse1` swap the sides of their operation.
    """

    dst: AccessPattern = dst(SBUF, PSUM)
    data: AccessPattern = src(SBUF, PSUM)
    op0: AluOp = attr(AluOp)
    operand0: AccessPattern | float = src(SBUF, PSUM, vector=True, scalar=True)
    op1: AluOp = attr(AluOp)
    operand1: AccessPattern = src(SBUF, PSUM)
    reverse0: bool = attr(bool, default=False)
    reverse1: bool = attr(bool, default=False)

    RULES = {
        "STT-1": Rule("E0301", "data and operand1 are not both in PSUM"),
        "STT-2": Rule("E0309", "op0 and op1 are arithmetic operations of the vector engine with two operands"),
        "STT-3": Rule("E0305", "operand0 from memory is float32"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x512 bf16", data="sbuf 128x512 bf16", op0=_MUL, operand0="sbuf 128x1 f32", op1=_ADD,
            operand1="sbuf 128x512 bf16",
        ),
        example(
            dst="sbuf 128x512 f32", data="psum 128x512 f32", op0=_SUB, operand0=1.5, op1=_MUL,
            operand1="sbuf 128x512 f32", reverse0=True,
        ),
        example(
            dst="sbuf 8x8 f32", data="psum 8x8 f32", op0=_SUB, operand0=1.0, op1=_MUL, operand1="psum 8x8 f32", rule="STT-1",
        ),
        example(
            dst="sbuf 8x8 u8", data="sbuf 8x8 u8", op0=ALU["bitwise_and"], operand0=1, op1=_MUL, operand1="sbuf 8x8 u8",
            rule="STT-2",
        ),
        example(
            dst="sbuf 8x8 f32", data="sbuf 8x8 f32", op0=_SUB, operand0="sbuf 8x1 bf16", op1=_MUL, operand1="sbuf 8x8 f32",
            rule="STT-3",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        require_ops(self, target, self.op0, self.op1)
        both = in_psum(self.data) and in_psum(self.operand1)
        self.require(not both, "STT-1", "data and operand1 are in psum", argument="operand1")
        require_binary(self, "STT-2", op0=self.op0, op1=self.op1)
        require_float32(self, "STT-3", "operand0")

    def semantics(self, data: np.ndarray, operand0: Any, operand1: np.ndarray) -> np.ndarray:
        return self.op1.apply(self.op0.apply(data, operand0, self.reverse0), operand1, self.reverse1)

    def cost(self, target: Target, engine: Engine) -> Cost:
        bf16 = self.data.dtype is dt.bfloat16 and self.operand1.dtype is dt.bfloat16
        fast = bf16 and (self.op0, self.op1) == (_SUB, _MUL) and self.dst.free_elements % 2 == 0
        rate, speedup = two_input_time_facts(target, self.data, self.operand1, fast)
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate, speedup=speedup)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.reciprocal",
    cost_source="NKI 0.6: 8 cycles per element on the vector engine",
    elementwise=True,
)
class Reciprocal(Instruction):
    """dst = 1 / data in float32, more precise and slower than the scalar engine's function. 1/0 is infinity."""

    dst: AccessPattern = dst(SBUF, PSUM)
    data: AccessPattern = src(SBUF, PSUM)

    EXAMPLES = (
        example(dst="sbuf 128x64 f32", data="sbuf 128x64 f32"),
        example(dst="sbuf 32x1 bf16", data="psum 32x1 f32"),
        example(dst="sbuf 128x64 f32", data="sbuf 128x1 f32", rule="ISA-9"),
    )

    def semantics(self, data: np.ndarray) -> np.ndarray:
        return ALU["reciprocal"](data)

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.reciprocal_cycles_per_element
        return vector_time(target, [self.data], [self.dst], self.dst.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.memset",
    cost_source=_COST,
)
class Memset(Instruction):
    """Fill dst with `value`, a number of dst's kind: integers for integer dtypes, in their range."""

    dst: AccessPattern = dst(SBUF, PSUM)
    value: float = attr(float)
    engine: Engine = attr(Engine, default=Engine.UNKNOWN)

    RULES = {"MS-1": Rule("E0309", "value is a number that dst's dtype can hold")}
    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", value=0.0),
        example(dst="psum 128x512 f32", value=-1.5),
        example(dst="sbuf 128x16 i32", value=-7, engine=Engine.GPSIMD),
        example(dst="sbuf 128x16 u8", value=-7, rule="MS-1"),
        example(dst="sbuf 128x16 u8", value=0.5, rule="MS-1"),
        example(dst="psum 128x16 f32", value=0.0, engine=Engine.GPSIMD, rule="ISA-8"),
    )

    def check(self, target: Target) -> None:
        fits = isinstance(self.value, (int, float, np.number))
        if fits and self.dst.dtype.is_integer:
            info = np.iinfo(self.dst.dtype.np)
            fits = isinstance(self.value, (int, np.integer)) and info.min <= self.value <= info.max
        self.require(fits, "MS-1", f"value is {self.value!r}, dst is {self.dst.dtype}", argument="value")

    @property
    def arithmetic(self) -> str:
        return "raw"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        return (Engine.VECTOR,) if in_psum(self.dst) else (Engine.VECTOR, Engine.GPSIMD)

    def semantics(self) -> np.ndarray:
        kind = self.dst.dtype.np if self.dst.dtype.is_integer else np.float32
        return np.broadcast_to(dt.cast(np.asarray(self.value, kind), self.dst.dtype), self.dst.shape)

    def cost(self, target: Target, engine: Engine) -> Cost:
        count = self.dst.free_elements
        if engine is Engine.GPSIMD:
            return gpsimd_time(target, count, target.gpsimd.cycles_per_element)
        fast = self.value == 0 and self.dst.dtype.itemsize == 2
        speedup = target.vector.memset_16bit_speedup if fast else None
        return vector_time(target, [], [self.dst], count, target.vector.cycles_per_element, speedup=speedup)
