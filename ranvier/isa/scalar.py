"""Instructions of the scalar engine: activation functions, with scale, bias and a running reduction."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Space
from ranvier.isa.act import ActFn, act
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.engine_time import scalar_time
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.examples import example
from ranvier.isa.record import PSUM, SBUF, Cost, Instruction, Rule, attr, instruction, src, state
from ranvier.isa.record import dst as output
from ranvier.target.spec import Engine, Target

_ENGINES = (Engine.SCALAR,)
_COST_SOURCE = "one element per cycle and lane (architecture guides); overheads from public instruction traces"
_BIAS_DTYPES = (
    dt.float32, dt.bfloat16, dt.float16, dt.float8_e4m3, dt.float8_e4m3fn, dt.float8_e5m2, dt.int8, dt.int16, dt.int32,
    dt.uint8, dt.uint16, dt.uint32,
)  # fmt: skip


def activation_cost(
    target: Target, fn: ActFn, data: AccessPattern, dst: AccessPattern, reduces: bool, reads_registers: bool
) -> Cost:
    """Time of one pass of `data` through `fn`, with or without a reduction, and of reading the registers out."""
    s = target.scalar
    if fn.name == "copy":
        overhead = s.copy_overhead_cycles
    elif data.space is Space.PSUM:
        overhead = s.activation_overhead_psum_cycles
    else:
        overhead = s.activation_overhead_sbuf_cycles
    rate = s.accumulate_cycles_per_element if reduces else s.cycles_per_element
    extra = (s.read_accumulator_cycles,) if reads_registers else ()
    return scalar_time(target, (data, dst), dst.free_elements, rate, overhead, extra=extra, table=fn.table)


def activate(fn: ActFn, data: np.ndarray, bias: np.ndarray | float | None, scale: np.ndarray | float) -> np.ndarray:
    """fn(data * scale + bias) in float32; multiplying by one and adding nothing are left out."""
    with np.errstate(all="ignore"):
        if isinstance(scale, np.ndarray):
            data = data * scale
        elif scale != 1.0:
            data = data * np.float32(scale)
        if bias is not None:
            data = data + (bias if isinstance(bias, np.ndarray) else np.float32(bias))
        return fn.fn(data)


_IDENTITIES = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0, "abs_min": np.inf}


def reduce_free(op: AluOp, values: np.ndarray) -> np.ndarray:
    """The reduction of all free axes, [P, 1]. abs_max and abs_min keep the sign of the element that they pick."""
    flat = values.reshape(values.shape[0], -1)
    if op.name in ("abs_max", "abs_min"):
        pick = np.argmax if op.name == "abs_max" else np.argmin
        return np.take_along_axis(flat, pick(np.abs(flat), axis=1)[:, None], axis=1)
    return op.reduce(flat, (1,))


def outputs(inst: Activation | ActivationReduce | Activate2, result: np.ndarray, registers: np.ndarray | None):
    """The outputs of an activation in field order: dst, reduce_res if asked for, the registers if touched."""
    if registers is None:
        return result
    op = inst.reduce_op or alu("add")
    held = registers
    if inst.reduce_cmd in (ReduceCmd.reset, ReduceCmd.reset_reduce):
        held = np.full_like(registers, _IDENTITIES[op.name])
    if inst.reduce_cmd.reduces:
        held = op(held, reduce_free(op, result))
    return (result, held, held) if inst.reduce_res is not None else (result, held)


def _check_bias(inst: Activation | ActivationReduce, target: Target, number_rule: str, reciprocal_rule: str) -> None:
    """What older cores do not add: a number, and anything before a reciprocal."""
    if inst.bias is None or target.has("activation_bias_constant"):
        return
    inst.require(
        isinstance(inst.bias, AccessPattern), number_rule, f"bias is {inst.bias} on {target.title}", argument="bias",
        fix="put the number into a [P, 1] tile with memset",
    )
    message = f"op is reciprocal, with a bias, on {target.title}"
    inst.require(inst.op.name != "reciprocal", reciprocal_rule, message, argument="bias")


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.activation", cost_source=_COST_SOURCE, elementwise=True)
class Activation(Instruction):
    """dst = op(data * scale + bias) element by element, in float32; `dst` and `data` have any dtype.

    `scale` is a number or one float32 per partition, `bias` one value per partition or, where the core takes it, a number.
    The engine has one reduce register per partition: `reduce_cmd` resets it, adds the sum of this instruction's results over
    the free axes to it, or both; `reduce_res` takes what it then holds. The function's table is loaded first if it is not
    the resident one. Inputs outside the domain of `op` give results that mean nothing (see the table of functions).
    """

    dst: AccessPattern = output(SBUF, PSUM, doc="result, shape of data")
    op: ActFn = attr(ActFn, doc="activation function")
    data: AccessPattern = src(SBUF, PSUM)
    bias: AccessPattern | float | None = src(SBUF, PSUM, dtypes=_BIAS_DTYPES, vector=True, scalar=True, optional=True, doc="added after the scale")
    scale: AccessPattern | float = src(SBUF, PSUM, dtypes=(dt.float32,), vector=True, scalar=True, default=1.0, doc="multiplied first")
    reduce_op: AluOp | None = attr(AluOp, default=None, doc="add")
    reduce_res: AccessPattern | None = output(SBUF, PSUM, vector=True, optional=True, doc="[P, 1], takes the reduce registers")
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.idle, doc="what happens to the reduce registers")
    registers: None = state("scalar.reduce", doc="one float32 per partition")

    RULES = {
        "ACT-1": Rule("E0307", "bias is one value per partition; a number from the generation with feature activation_bias_constant on"),
        "ACT-2": Rule("E0309", "reduce_op is add, and given when reduce_cmd reduces"),
        "ACT-3": Rule("E0309", "reduce_cmd is idle, reset, reduce or reset_reduce"),
        "ACT-4": Rule("E0307", "reciprocal takes a bias from the generation with feature activation_bias_constant on"),
        "ACT-5": Rule("E0309", "op takes no parameter (activate2 has relu_param for those that do)"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", op=act("exp"), data="psum 128x512 f32", bias="sbuf 128x1 f32", scale=0.125),
        example(
            dst="sbuf 64x96 f32", op=act("square"), data="sbuf 64x96 bf16", scale="sbuf 64x1 f32", reduce_op=alu("add"),
            reduce_res="sbuf 64x1 f32", reduce_cmd=ReduceCmd.reset_reduce,
        ),
        example(
            dst="sbuf 32x8 i32", op=act("relu"), data="sbuf 32x8 f16", bias=-1.0, feature="activation_bias_constant",
        ),
        example(dst="sbuf 8x8 f32", op=act("relu"), data="sbuf 8x8 f32", bias=1.0, rule="ACT-1"),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", reduce_op=alu("maximum"),
            reduce_cmd=ReduceCmd.reset_reduce, rule="ACT-2",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", reduce_op=alu("add"),
            reduce_cmd=ReduceCmd.load_reduce, rule="ACT-3",
        ),
        example(dst="sbuf 8x8 f32", op=act("reciprocal"), data="sbuf 8x8 f32", bias="sbuf 8x1 f32", rule="ACT-4"),
        example(dst="sbuf 8x8 f32", op=act("prelu"), data="sbuf 8x8 f32", rule="ACT-5"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        _check_bias(self, target, "ACT-1", "ACT-4")
        legal = self.reduce_op is not None or not self.reduce_cmd.reduces
        self.require(legal and (self.reduce_op is None or self.reduce_op.name == "add"), "ACT-2", f"reduce_op is {self.reduce_op} and reduce_cmd {self.reduce_cmd.name}", argument="reduce_op")
        self.require(self.reduce_cmd is not ReduceCmd.load_reduce, "ACT-3", f"reduce_cmd is {self.reduce_cmd.name}", argument="reduce_cmd")
        self.require(not self.op.parametric, "ACT-5", f"op is {self.op}", argument="op")

    def uses_state(self) -> bool:
        return self.reduce_cmd is not ReduceCmd.idle or self.reduce_res is not None

    def semantics(self, data, bias, scale, registers):
        return outputs(self, activate(self.op, data, bias, scale), registers)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return activation_cost(target, self.op, self.data, self.dst, self.reduce_cmd.reduces, self.reduce_res is not None)


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.activation_reduce", cost_source=_COST_SOURCE, elementwise=True)
class ActivationReduce(Instruction):
    """`activation` that resets the reduce registers, sums its results over the free axes into them, and writes the sum to
    `reduce_res` ([P, 1]; None leaves it in the registers)."""

    dst: AccessPattern = output(SBUF, PSUM, doc="result, shape of data")
    op: ActFn = attr(ActFn, doc="activation function")
    data: AccessPattern = src(SBUF, PSUM)
    reduce_op: AluOp = attr(AluOp, doc="add")
    reduce_res: AccessPattern | None = output(SBUF, PSUM, vector=True, optional=True, explicit=True, doc="[P, 1], the sum")
    bias: AccessPattern | float | None = src(SBUF, PSUM, dtypes=_BIAS_DTYPES, vector=True, scalar=True, optional=True)
    scale: AccessPattern | float = src(SBUF, PSUM, dtypes=(dt.float32,), vector=True, scalar=True, default=1.0)
    registers: None = state("scalar.reduce", doc="one float32 per partition")

    RULES = {
        "ACR-1": Activation.RULES["ACT-1"],
        "ACR-2": Rule("E0309", "reduce_op is add"),
        "ACR-3": Activation.RULES["ACT-4"],
        "ACR-4": Activation.RULES["ACT-5"],
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x300 bf16", op=act("exp"), data="sbuf 128x300 f32", reduce_op=alu("add"),
            reduce_res="sbuf 128x1 f32",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("tanh"), data="sbuf 8x8 f32", reduce_op=alu("add"), reduce_res="sbuf 8x1 f32",
            bias=0.5, rule="ACR-1",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("tanh"), data="sbuf 8x8 f32", reduce_op=alu("maximum"),
            reduce_res="sbuf 8x1 f32", rule="ACR-2",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("reciprocal"), data="sbuf 8x8 f32", reduce_op=alu("add"),
            reduce_res="sbuf 8x1 f32", bias="sbuf 8x1 f32", rule="ACR-3",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("prelu"), data="sbuf 8x8 f32", reduce_op=alu("add"), reduce_res="sbuf 8x1 f32",
            rule="ACR-4",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        _check_bias(self, target, "ACR-1", "ACR-3")
        self.require(self.reduce_op.name == "add", "ACR-2", f"reduce_op is {self.reduce_op}", argument="reduce_op")
        self.require(not self.op.parametric, "ACR-4", f"op is {self.op}", argument="op")

    @property
    def reduce_cmd(self) -> ReduceCmd:
        return ReduceCmd.reset_reduce

    def uses_state(self) -> bool:
        return True

    def semantics(self, data, bias, scale, registers):
        return outputs(self, activate(self.op, data, bias, scale), registers)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return activation_cost(target, self.op, self.data, self.dst, True, self.reduce_res is not None)


_STAGES = (
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"),
    ("bypass", "bypass"),
)  # fmt: skip


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.activate2", cost_source="assumption: as activation", feature="activate2", elementwise=True)
class Activate2(Instruction):
    """dst = op((data op0 imm0) op1 imm1) element by element, in float32, with more reductions than `activation`.

    `imm0` and `imm1` are numbers or one value per partition; `reverse0` and `reverse1` exchange the operands of op0 and op1.
    `relu_param` is the slope that prelu applies to negative values. The reduce registers are those of `activation`;
    `reduce_op` is add, maximum, minimum, abs_max or abs_min.
    """

    dst: AccessPattern = output(SBUF, PSUM, doc="result, shape of data")
    op: ActFn = attr(ActFn, doc="activation function")
    data: AccessPattern = src(SBUF, PSUM)
    imm0: AccessPattern | float = src(SBUF, PSUM, vector=True, scalar=True)
    imm1: AccessPattern | float = src(SBUF, PSUM, vector=True, scalar=True)
    op0: AluOp = attr(AluOp, doc="multiply, add, subtract or bypass")
    op1: AluOp = attr(AluOp, doc="add, subtract or bypass")
    relu_param: AccessPattern | float = src(SBUF, PSUM, vector=True, scalar=True, default=0.0, doc="parameter of op")
    reverse0: bool = attr(bool, default=False, doc="imm0 op0 data")
    reverse1: bool = attr(bool, default=False, doc="imm1 op1 result of op0")
    reduce_op: AluOp | None = attr(AluOp, default=None)
    reduce_res: AccessPattern | None = output(SBUF, PSUM, vector=True, optional=True, doc="[P, 1], takes the reduce registers")
    reduce_cmd: ReduceCmd = attr(ReduceCmd, default=ReduceCmd.idle, doc="what happens to the reduce registers")
    registers: None = state("scalar.reduce", doc="one float32 per partition")

    RULES = {
        "AC2-1": Rule("E0309", "(op0, op1) is (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), (subtract, bypass) or (bypass, bypass)"),
        "AC2-2": Rule("E0305", "imm0 and imm1 have the same dtype when both are tensors"),
        "AC2-3": Rule("E0309", "reduce_op is add, maximum, minimum, abs_max or abs_min, and given when reduce_cmd reduces or resets"),
        "AC2-4": Rule("E0309", "reduce_cmd is idle, reset, reduce or reset_reduce"),
        "AC2-5": Rule("E0309", "an operation that is reversed is not bypass"),
    }
    EXAMPLES = (
        example(
            dst="sbuf 128x96 f32", op=act("gelu"), data="sbuf 128x96 bf16", imm0=2.0, imm1="sbuf 128x1 f32",
            op0=alu("multiply"), op1=alu("add"),
        ),
        example(
            dst="sbuf 64x40 bf16", op=act("prelu"), data="psum 64x40 f32", imm0=1.0, imm1=0.0, op0=alu("subtract"),
            op1=alu("bypass"), relu_param=0.25, reverse0=True, reduce_op=alu("abs_max"), reduce_res="sbuf 64x1 f32",
            reduce_cmd=ReduceCmd.reset_reduce,
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", imm0=1.0, imm1=1.0, op0=alu("add"),
            op1=alu("multiply"), rule="AC2-1",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", imm0="sbuf 8x1 f32", imm1="sbuf 8x1 bf16",
            op0=alu("multiply"), op1=alu("add"), rule="AC2-2",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", imm0=1.0, imm1=1.0, op0=alu("multiply"),
            op1=alu("add"), reduce_op=alu("multiply"), reduce_cmd=ReduceCmd.reduce, rule="AC2-3",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", imm0=1.0, imm1=1.0, op0=alu("multiply"),
            op1=alu("add"), reduce_op=alu("add"), reduce_cmd=ReduceCmd.load_reduce, rule="AC2-4",
        ),
        example(
            dst="sbuf 8x8 f32", op=act("exp"), data="sbuf 8x8 f32", imm0=1.0, imm1=1.0, op0=alu("multiply"),
            op1=alu("bypass"), reverse1=True, rule="AC2-5",
        ),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        self.require((self.op0.name, self.op1.name) in _STAGES, "AC2-1", f"op0 is {self.op0}, op1 is {self.op1}", argument="op0")
        dtypes = {ap.dtype.name for ap in (self.imm0, self.imm1) if isinstance(ap, AccessPattern)}
        self.require(len(dtypes) < 2, "AC2-2", f"imm0 and imm1 are {' and '.join(sorted(dtypes))}", argument="imm1")
        needed = self.reduce_cmd is not ReduceCmd.idle
        legal = self.reduce_op.name in _IDENTITIES if self.reduce_op is not None else not needed
        self.require(legal, "AC2-3", f"reduce_op is {self.reduce_op} and reduce_cmd {self.reduce_cmd.name}", argument="reduce_op")
        self.require(self.reduce_cmd is not ReduceCmd.load_reduce, "AC2-4", f"reduce_cmd is {self.reduce_cmd.name}", argument="reduce_cmd")
        bypassed = (self.reverse0 and self.op0.name == "bypass") or (self.reverse1 and self.op1.name == "bypass")
        self.require(not bypassed, "AC2-5", f"op0 is {self.op0} (reverse0={self.reverse0}), op1 is {self.op1} (reverse1={self.reverse1})", argument="reverse0")

    def uses_state(self) -> bool:
        return self.reduce_cmd is not ReduceCmd.idle or self.reduce_res is not None

    def semantics(self, data, imm0, imm1, relu_param, registers):
        imm0, imm1, relu_param = (v if isinstance(v, np.ndarray) else np.float32(v) for v in (imm0, imm1, relu_param))
        value = self.op1.apply(self.op0.apply(data, imm0, self.reverse0), imm1, self.reverse1)
        with np.errstate(all="ignore"):
            result = self.op.fn(value, relu_param) if self.op.parametric else self.op.fn(value)
        return outputs(self, result, registers)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return activation_cost(target, self.op, self.data, self.dst, self.reduce_cmd.reduces, self.reduce_res is not None)
