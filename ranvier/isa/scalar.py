"""Instructions of the scalar engine: activation functions, with scale, bias and a running reduction."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Space
from ranvier.isa.act import ActFn, act
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.engine_time import scalar_time
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.record import PSUM, SBUF, Cost, Example, Instruction, Rule, attr, instruction, src, state
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


def start_registers(registers: np.ndarray, cmd: ReduceCmd, op: AluOp) -> np.ndarray:
    """The reduce registers as `cmd` leaves them before anything is reduced into them."""
    if cmd in (ReduceCmd.reset, ReduceCmd.reset_reduce):
        return np.full_like(registers, op.identity)
    return registers


def free_axes(values: np.ndarray) -> tuple[int, ...]:
    return tuple(range(1, values.ndim))


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
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "bfloat16"), op=act("exp"), data=t("psum", (128, 512), "float32"), bias=t("sbuf", (128, 1), "float32"), scale=0.125)),
        Example(lambda t: dict(dst=t("sbuf", (64, 96), "float32"), op=act("square"), data=t("sbuf", (64, 96), "bfloat16"), scale=t("sbuf", (64, 1), "float32"), reduce_op=alu("add"), reduce_res=t("sbuf", (64, 1), "float32"), reduce_cmd=ReduceCmd.reset_reduce)),
        Example(lambda t: dict(dst=t("sbuf", (32, 8), "int32"), op=act("relu"), data=t("sbuf", (32, 8), "float16"), bias=-1.0), feature="activation_bias_constant"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("relu"), data=t("sbuf", (8, 8), "float32"), bias=1.0), rule="ACT-1"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("exp"), data=t("sbuf", (8, 8), "float32"), reduce_op=alu("maximum"), reduce_cmd=ReduceCmd.reset_reduce), rule="ACT-2"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("exp"), data=t("sbuf", (8, 8), "float32"), reduce_op=alu("add"), reduce_cmd=ReduceCmd.load_reduce), rule="ACT-3"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("reciprocal"), data=t("sbuf", (8, 8), "float32"), bias=t("sbuf", (8, 1), "float32")), rule="ACT-4"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        constants = target.has("activation_bias_constant")
        constant = self.bias is not None and not isinstance(self.bias, AccessPattern)
        self.require(constants or not constant, "ACT-1", f"bias is {self.bias} on {target.title}", argument="bias", fix="put the number into a [P, 1] tile with memset")
        legal = self.reduce_op is not None or not self.reduce_cmd.reduces
        self.require(legal and (self.reduce_op is None or self.reduce_op.name == "add"), "ACT-2", f"reduce_op is {self.reduce_op} and reduce_cmd {self.reduce_cmd.name}", argument="reduce_op")
        self.require(self.reduce_cmd is not ReduceCmd.load_reduce, "ACT-3", f"reduce_cmd is {self.reduce_cmd.name}", argument="reduce_cmd")
        self.require(constants or self.bias is None or self.op.name != "reciprocal", "ACT-4", f"op is reciprocal, with a bias, on {target.title}", argument="bias")

    def uses_state(self) -> bool:
        return self.reduce_cmd is not ReduceCmd.idle or self.reduce_res is not None

    def semantics(self, data, bias, scale, registers):
        return _reduced(self, activate(self.op, data, bias, scale), registers)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return activation_cost(target, self.op, self.data, self.dst, self.reduce_cmd.reduces, self.reduce_res is not None)


def _reduced(inst: Activation | ActivationReduce, result: np.ndarray, registers: np.ndarray | None):
    """The outputs of an activation in field order: dst, reduce_res if asked for, the registers if touched."""
    if registers is None:
        return result
    op = inst.reduce_op or alu("add")
    held = start_registers(registers, inst.reduce_cmd, op)
    if inst.reduce_cmd.reduces:
        held = op.fn(held, op.reduce(result, free_axes(result)).reshape(held.shape))
    return (result, held, held) if inst.reduce_res is not None else (result, held)


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.activation_reduce", cost_source=_COST_SOURCE, elementwise=True)
class ActivationReduce(Instruction):
    """`activation` that resets the reduce registers, sums its results over the free axes into them, and writes the sum to
    `reduce_res` ([P, 1]; None leaves it in the registers)."""

    dst: AccessPattern = output(SBUF, PSUM, doc="result, shape of data")
    op: ActFn = attr(ActFn, doc="activation function")
    data: AccessPattern = src(SBUF, PSUM)
    reduce_op: AluOp = attr(AluOp, doc="add")
    reduce_res: AccessPattern | None = output(SBUF, PSUM, vector=True, optional=True, doc="[P, 1], the sum")
    bias: AccessPattern | float | None = src(SBUF, PSUM, dtypes=_BIAS_DTYPES, vector=True, scalar=True, optional=True)
    scale: AccessPattern | float = src(SBUF, PSUM, dtypes=(dt.float32,), vector=True, scalar=True, default=1.0)
    registers: None = state("scalar.reduce", doc="one float32 per partition")

    RULES = {
        "ACR-1": Activation.RULES["ACT-1"],
        "ACR-2": Rule("E0309", "reduce_op is add"),
        "ACR-3": Activation.RULES["ACT-4"],
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("sbuf", (128, 300), "bfloat16"), op=act("exp"), data=t("sbuf", (128, 300), "float32"), reduce_op=alu("add"), reduce_res=t("sbuf", (128, 1), "float32"))),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("tanh"), data=t("sbuf", (8, 8), "float32"), reduce_op=alu("add"), reduce_res=t("sbuf", (8, 1), "float32"), bias=0.5), rule="ACR-1"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("tanh"), data=t("sbuf", (8, 8), "float32"), reduce_op=alu("maximum"), reduce_res=t("sbuf", (8, 1), "float32")), rule="ACR-2"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), op=act("reciprocal"), data=t("sbuf", (8, 8), "float32"), reduce_op=alu("add"), reduce_res=t("sbuf", (8, 1), "float32"), bias=t("sbuf", (8, 1), "float32")), rule="ACR-3"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        constants = target.has("activation_bias_constant")
        constant = self.bias is not None and not isinstance(self.bias, AccessPattern)
        self.require(constants or not constant, "ACR-1", f"bias is {self.bias} on {target.title}", argument="bias", fix="put the number into a [P, 1] tile with memset")
        self.require(self.reduce_op.name == "add", "ACR-2", f"reduce_op is {self.reduce_op}", argument="reduce_op")
        self.require(constants or self.bias is None or self.op.name != "reciprocal", "ACR-3", f"op is reciprocal, with a bias, on {target.title}", argument="bias")

    @property
    def reduce_cmd(self) -> ReduceCmd:
        return ReduceCmd.reset_reduce

    def uses_state(self) -> bool:
        return True

    def semantics(self, data, bias, scale, registers):
        return _reduced(self, activate(self.op, data, bias, scale), registers)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return activation_cost(target, self.op, self.data, self.dst, True, self.reduce_res is not None)
