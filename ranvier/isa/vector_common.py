"""What the records of the vector engine share: rules about ALU operations, fast modes, accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Space
from ranvier.isa.alu import AluOp
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.record import Instruction
from ranvier.target.spec import Engine, Fact, Target


def shown(operand: Any) -> str:
    return f"a {operand.dtype} tensor of shape {operand.shape}" if isinstance(operand, AccessPattern) else repr(operand)


def in_psum(*operands: Any) -> bool:
    return any(isinstance(ap, AccessPattern) and ap.space is Space.PSUM for ap in operands)


def engines_of(ops: Sequence[AluOp | None]) -> set[Engine]:
    """The engines that have all of `ops`."""
    found = {Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD}
    for op in ops:
        if op is not None:
            found &= {Engine[name.upper()] for name in op.engines}
    return found


def require_ops(inst: Instruction, target: Target, *ops: AluOp | None) -> None:
    """ISA-6: the generation has the ALU operations."""
    for op in ops:
        if op is not None and op.feature is not None:
            inst.require(target.has(op.feature), "ISA-6", f"{target.title} ({target.generation}) lacks the operation {op}")


def require_reducing(inst: Instruction, rule: str, op: AluOp, names: Sequence[str], argument: str) -> None:
    inst.require(op.name in names, rule, f"{argument} is {op}; it can be {', '.join(names)}", argument=argument)


def first_not_integer(inst: Instruction) -> tuple[str, AccessPattern] | None:
    """Name and pattern of the first operand that holds no integers."""
    for role in ("dst", "src"):
        for spec, ap in inst.operands(role):
            if not ap.dtype.is_integer:
                return spec.name, ap
    return None


def require_integers(inst: Instruction, rule: str, *ops: AluOp | None) -> None:
    """Bitwise operations take integers, and integer numbers."""
    if not any(op is not None and op.is_bitwise for op in ops):
        return
    found = first_not_integer(inst)
    if found is not None:
        name, ap = found
        inst.require(False, rule, f"{name} is {ap.dtype}; bitwise operations take integers", argument=name)
    for spec in inst.SPECS:
        value = getattr(inst, spec.name)
        if spec.scalar and isinstance(value, float):
            inst.require(False, rule, f"{spec.name} is {value!r}; bitwise operations take integers", argument=spec.name)


def is_16bit(target: Target, *operands: AccessPattern) -> bool:
    """Whether all operands are of the dtypes that the fast modes count as 16-bit: float8 as well from some generation on."""
    with_fp8 = target.has("vector_fast_modes_fp8")
    return all(ap.dtype.is_float and (ap.dtype.itemsize == 2 or (with_fp8 and ap.dtype.itemsize == 1)) for ap in operands)


def innermost_contiguous(*operands: AccessPattern) -> bool:
    return all(ap.inner_stride in (1, None) for ap in operands)


def copy_speedup(target: Target, dst: AccessPattern, data: AccessPattern) -> Fact | None:
    """The fast mode in which the vector engine runs tensor_copy and tensor_scalar, if any.

    16-bit floats: the highest rate from SBUF to SBUF contiguous; half of it when either one of these fails. Other dtypes
    have a fast mode only from SBUF to SBUF, contiguous.
    """
    v, contiguous = target.vector, innermost_contiguous(dst, data)
    psum_sides = in_psum(dst) + in_psum(data)
    if is_16bit(target, dst, data):
        if psum_sides == 0:
            return v.copy_16bit_contiguous_speedup if contiguous else v.copy_16bit_speedup
        return v.copy_16bit_speedup if psum_sides == 1 and contiguous else None
    return v.copy_fp32_speedup if psum_sides == 0 and contiguous else None


def two_input_time_facts(target: Target, data1: AccessPattern, data2: AccessPattern, fast: bool) -> tuple[Fact, Fact | None]:
    """Cycles per element of an instruction with two tensor inputs, and its speedup when `fast`: with one input in PSUM the
    two are read at once, with both in SBUF one after the other."""
    if in_psum(data1, data2):
        return target.vector.two_input_mixed_cycles_per_element, None
    return target.vector.two_input_cycles_per_element, target.vector.two_input_16bit_speedup if fast else None


REDUCE_STATE = "vector.reduce"
"""The accumulators of the vector engine: instructions that reduce share them, one float32 per partition."""


def flat(values: np.ndarray) -> np.ndarray:
    """All free elements of each partition in a row."""
    return values.reshape(values.shape[0], -1)


def accumulated(cmd: ReduceCmd, op: AluOp, registers: np.ndarray, values: np.ndarray, start: Any = None) -> np.ndarray:
    """What the accumulators hold after `cmd` with the results `values`. `idle` may change them, so they become NaN."""
    if not cmd.reduces:
        return np.full_like(registers, np.nan if cmd is ReduceCmd.idle else op.identity)
    partial = op.reduce(flat(values), (1,))
    if cmd is ReduceCmd.reset_reduce:
        return partial
    return op(registers if cmd is ReduceCmd.reduce else start, partial)


def require_accumulation(
    inst: Instruction, rule: str, cmd: ReduceCmd, result: AccessPattern | None, start: Any = None,
    commands: Sequence[ReduceCmd] = tuple(ReduceCmd),
) -> None:
    """The command is one of `commands`, a start value comes with load_reduce only, and nothing reads idle accumulators."""
    known = ", ".join(c.name for c in commands)
    inst.require(cmd in commands, rule, f"reduce_cmd is {cmd.name}; it can be {known}", argument="reduce_cmd")
    legal = result is None or cmd is not ReduceCmd.idle
    inst.require(legal, rule, "reduce_res is written although reduce_cmd is idle", argument="reduce_res")
    if ReduceCmd.load_reduce in commands:
        legal = (cmd is ReduceCmd.load_reduce) == (start is not None)
        inst.require(legal, rule, f"reduce_cmd is {cmd.name} and the start value is {shown(start)}", argument="reduce_cmd")


def require_float32(inst: Instruction, rule: str, *names: str) -> None:
    """Operands with one value per partition are float32."""
    for name in names:
        operand = getattr(inst, name)
        legal = not isinstance(operand, AccessPattern) or operand.dtype is dt.float32
        inst.require(legal, rule, f"{name} is {shown(operand)}", argument=name)


def require_binary(inst: Instruction, rule: str, **ops: AluOp) -> None:
    """Operations are arithmetic of the vector engine, with two operands."""
    for name, op in ops.items():
        legal = not op.unary and not op.is_bitwise and "vector" in op.engines
        inst.require(legal, rule, f"{name} is {op}", argument=name)
