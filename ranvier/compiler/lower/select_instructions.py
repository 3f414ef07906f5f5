"""Instruction selection for the element-wise operations on one tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ranvier import dtypes as dt
from ranvier.compiler.lower import functions, integers
from ranvier.compiler.lower.context import Lowering, device_dtype
from ranvier.compiler.lower.ranges import EXACT
from ranvier.compiler.lower.step import Chunk, Operand, Step, is_vector
from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.graph.composite import Gelu, Silu
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Cast, Clamp, Compare, Select, Unary
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

_SYMMETRIC = ("add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
              "bitwise_and", "bitwise_or", "bitwise_xor")  # fmt: skip
_TURNED = {"greater": "less", "less": "greater", "greater_equal": "less_equal", "less_equal": "greater_equal",
           **{name: name for name in _SYMMETRIC}}  # fmt: skip
"""The operation that gives the same with its operands exchanged; the others are reversed by the instruction."""
_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum", "minimum": "minimum",
           "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
           "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
           "left_shift": "left_shift", "right_shift": "right_shift"}  # fmt: skip
_COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_ACT = {name: name for name in ("exp", "log", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "abs", "sign", "square")}


_FUSIBLE = ("add", "subtract", "multiply", "maximum", "minimum")
"""Operations that scalar_tensor_tensor can do after a scalar one."""


class TileEmitter:
    """Emits the element-wise nodes of a group for one chunk.

    A node's instruction is held back until its result is needed, so that the next one can absorb it: two scalar
    operations become one tensor_scalar, a scale and a bias go into the activation that follows.
    """

    def __init__(self, ctx: Lowering, chunk: Chunk, get: Callable[[Value], Operand]):
        self.ctx, self.chunk, self.get = ctx, chunk, get
        self.values: dict[Value, Operand | Step] = {}
        self.uses: dict[Value, int] = {}

    def run(self, nodes: tuple[Node, ...], dst: NkiTensor) -> None:
        """Emit `nodes`; the last one's result goes to `dst`."""
        for node in nodes:
            for value in node.inputs:
                self.uses[value] = self.uses.get(value, 0) + 1
        for node in nodes[:-1]:
            self.values[node.output] = self.step(node)
        final = self.step(nodes[-1])
        self.flush(final, dst)

    def plus(self, data: NkiTensor, bias: Operand) -> Operand | Step:
        """`data` + `bias`, pending."""
        if isinstance(bias, (int, float)) or is_vector(bias, self.chunk):
            return Step("scalar", data, (("add", bias, False),))
        return Step("tensor", data, (("add", bias, False),))

    # -- operands
    def tile(self, value: Value) -> Operand:
        """The value as an operand, computed into a tile of its own if it is still pending."""
        known = self.values.get(value)
        if isinstance(known, Step):
            temp = self.ctx.sbuf(self.chunk.shape, value.dtype)
            self.flush(known, temp)
            self.values[value] = known = temp
        if known is None:
            known = self.values[value] = self.get(value)
        return known

    def pending(self, value: Value) -> Step | None:
        """The held-back instruction of a value that nobody else uses."""
        known = self.values.get(value)
        return known if isinstance(known, Step) and self.uses.get(value) == 1 else None

    def temp(self, dtype: DType = dt.float32) -> NkiTensor:
        return self.ctx.sbuf(self.chunk.shape, dtype)

    # -- one node
    def step(self, node: Node) -> Operand | Step:
        if node.inputs[0].dtype.is_integer:
            exact = integers.step(self, node)
            if exact is not None:
                return exact
        op = node.op
        match op:
            case Unary():
                return self._unary(op.kind, node.inputs[0])
            case Binary():
                return self._binary(node, op.kind, *node.inputs)
            case Compare():
                return self._pair(_COMPARE[op.kind], *node.inputs)
            case Select():
                return self._select(node)
            case Cast():
                return self._cast(node)
            case Clamp():
                bounds = [("maximum", op.min), ("minimum", op.max)]
                return self.scalars(node.inputs[0], [(name, float(v)) for name, v in bounds if v is not None])
            case Gelu():
                return self._act("gelu_apprx_tanh" if op.approximate == "tanh" else "gelu", node.inputs[0])
            case Silu():
                return self._act("silu", node.inputs[0])
        raise error("E0604", f"no lowering for {op} as part of an element-wise group", where=node.loc)

    def scalars(self, value: Value, operations: Sequence[tuple[str, float]]) -> Step:
        """One or two operations with numbers, pending."""
        data = self.as_tile(self.tile(value), value.dtype)
        return Step("scalar", data, tuple((name, number, False) for name, number in operations))

    def _act(self, function: str, value: Value) -> Step:
        """An activation, with the scale and bias of a pending multiplication and addition."""
        before = self.pending(value)
        if before is not None and before.kind == "scalar" and value.dtype.is_float:
            names = [(name, rev) for name, _, rev in before.operations]
            operands = [x for _, x, _ in before.operations]
            if names == [("multiply", False)]:
                return Step("act", before.data, function=function, scale=operands[0])
            if names == [("add", False)] and isinstance(operands[0], NkiTensor):
                return Step("act", before.data, function=function, bias=operands[0])
            if names == [("multiply", False), ("add", False)] and isinstance(operands[1], NkiTensor):
                return Step("act", before.data, function=function, scale=operands[0], bias=operands[1])
        return Step("act", self.tile(value), function=function)

    def _unary(self, kind: str, value: Value) -> Operand | Step:
        if kind == "neg":
            return self._chain(value, ("multiply", -1.0, False))
        if kind == "relu":
            before = self.pending(value)
            if before is not None and before.kind == "scalar" and len(before.operations) == 2:
                fused = self._act("relu", value)
                if isinstance(fused.scale, NkiTensor) or fused.scale != 1.0 or fused.bias is not None:
                    return fused
            return self._chain(value, ("maximum", 0.0, False))
        if kind == "logical_not" or (kind == "bitwise_not" and value.dtype is dt.bool_):
            return self._chain(value, ("equal", 0.0, False))
        if kind in _ACT:
            return self._act(_ACT[kind], value)
        return functions.UNARY[kind](self, self.as_tile(self.tile(value), value.dtype))

    # -- two operands
    def _binary(self, node: Node, kind: str, left: Value, right: Value) -> Operand | Step:
        if kind in _BINARY:
            return self._pair(_BINARY[kind], left, right)
        if kind == "div":
            return self._divide(left, right)
        if kind == "pow":
            return self._power(left, right)
        x, y = (self.in_sbuf_as(self.as_tile(self.tile(v), dt.float32), dt.float32) for v in (left, right))
        if kind == "atan2":
            return functions.arc_tangent(self, x, y)
        if kind in functions.REMAINDERS:
            return functions.REMAINDERS[kind](self, x, y)
        raise error("E0604", f"no lowering for the element-wise operation {kind}", where=node.loc)

    def _divide(self, left: Value, right: Value) -> Operand | Step:
        divisor = self.tile(right)
        if isinstance(divisor, (int, float)):
            inverse = 1.0 / divisor if divisor else math.copysign(math.inf, divisor)
            return self._chain(left, ("multiply", inverse, False))
        if is_vector(divisor, self.chunk):
            inverse: Operand = self.ctx.sbuf((self.chunk.b, 1), dt.float32)
            nisa.reciprocal(dst=inverse, data=divisor)
            return self._chain(left, ("multiply", inverse, False))
        inverse = functions.reciprocal(self, divisor)
        above = self.tile(left)
        if isinstance(above, (int, float)) or is_vector(above, self.chunk):
            return Step("scalar", inverse, (("multiply", above, False),))
        return Step("tensor", above, (("multiply", inverse, False),))

    def _power(self, left: Value, right: Value) -> Operand | Step:
        exponent = self.ctx.number(right)
        if exponent == 2.0:
            return self._act("square", left)
        if exponent == 0.5:
            return self._act("sqrt", left)
        if exponent == -0.5:
            return self._act("rsqrt", left)
        if exponent is not None and exponent == int(exponent) and 3 <= exponent <= 4:
            x = self.in_sbuf(self.as_tile(self.tile(left), left.dtype))
            square, result = self.temp(), self.temp()
            nisa.tensor_tensor(dst=square, data1=x, data2=x, op="multiply")
            nisa.tensor_tensor(dst=result, data1=square, data2=square if exponent == 4 else x, op="multiply")
            return result
        base, power = (self.in_sbuf(self.as_tile(self.tile(v), dt.float32)) for v in (left, right))
        return Step("tensor", base, (("power", power, False),))  # on gpsimd, which alone has powers and reads SBUF only

    def in_sbuf(self, x: NkiTensor) -> NkiTensor:
        """`x` itself, or a copy if it lies in PSUM."""
        if x.access.space.value == "psum":
            copy = self.temp(x.dtype)
            nisa.tensor_copy(dst=copy, src=x)
            return copy
        return x

    def _pair(self, name: str, left: Value, right: Value) -> Operand | Step:
        """A binary ALU operation: with a number or vector it can join a pending scalar operation."""
        l_known, r_known = self._simple(left), self._simple(right)
        if r_known is not None and l_known is None:
            return self._chain(left, (name, r_known, False))
        if l_known is not None and r_known is None:
            if name in _TURNED:
                return self._chain(right, (_TURNED[name], l_known, False))
            return self._chain(right, (name, l_known, True))
        return self._tensors(name, left, right)

    def _tensors(self, name: str, left: Value, right: Value) -> Step:
        for held, rest, swapped in ((left, right, False), (right, left, True)):
            before = self.pending(held)
            if name in _FUSIBLE and before is not None and _is_single(before):
                other = self.as_tile(self.tile(rest), held.dtype)
                if not self._both_psum(before.data, other):
                    second = (name, other, swapped and name == "subtract")
                    return Step("fused", before.data, (*before.operations, second))
        x, y = self.as_tile(self.tile(left), left.dtype), self.as_tile(self.tile(right), right.dtype)
        if self._both_psum(x, y):
            x = self.in_sbuf(x)
        return Step("tensor", x, ((name, y, False),))

    def _both_psum(self, x: Operand, y: Operand) -> bool:
        return all(isinstance(t, NkiTensor) and t.access.space.value == "psum" for t in (x, y))

    def as_tile(self, x: Operand, dtype: DType) -> NkiTensor:
        """A full tile: numbers and vectors are spread."""
        if isinstance(x, (int, float)):
            tile = self.temp(dtype)
            nisa.memset(dst=tile, value=x)
            return tile
        if is_vector(x, self.chunk):
            return x.reshape((self.chunk.b, 1, 1)).broadcast(1, self.chunk.a).broadcast(2, self.chunk.c)
        return x

    def _simple(self, value: Value) -> Operand | None:
        """The value if it is a number or one value per partition."""
        if isinstance(self.values.get(value), Step):
            return None
        x = self.tile(value)
        return x if isinstance(x, (int, float)) or is_vector(x, self.chunk) else None

    def _chain(self, value: Value, operation: tuple[str, Operand, bool]) -> Step:
        """`operation` on `value`, as the second operation of a pending tensor_scalar where that is possible."""
        before = self.pending(value)
        if before is not None and _is_single(before) and not _bitwise(operation[0]):
            return replace(before, operations=(*before.operations, operation))
        data = self.tile(value)
        if isinstance(data, (int, float)) or is_vector(data, self.chunk):
            data = self.as_tile(data, value.dtype)
        return Step("scalar", data, (operation,))

    def _cast(self, node: Node) -> Operand | Step:
        value = node.inputs[0]
        to = node.op.dtype  # type: ignore[attr-defined]
        if to is dt.bool_:
            return self._chain(value, ("not_equal", 0.0, False))
        before = self.pending(value)
        # Between floats the result's own rounding is the cast; a narrower type in between would have rounded first.
        narrower = value.dtype.is_float and to.is_float and to.itemsize <= value.dtype.itemsize
        flag = value.dtype is dt.bool_ and before is not None and before.kind != "act"
        if before is not None and (narrower or (flag and not any(_bitwise(name) for name, *_ in before.operations))):
            return before
        return Step("tensor", self.tile(value), (("bypass", 0.0, False),))

    def _select(self, node: Node) -> NkiTensor:
        condition, on_true, on_false = (self.tile(v) for v in node.inputs)
        result = self.temp(node.output.dtype)
        predicate = self.in_sbuf_as(self.as_tile(condition, dt.uint8), dt.uint8)
        if isinstance(on_false, (int, float)):
            nisa.memset(dst=result, value=_literal(on_false, node.output.dtype))
        else:
            nisa.tensor_copy(dst=result, src=self.as_tile(on_false, node.output.dtype))
        source: Operand = on_true
        if isinstance(on_true, NkiTensor) or (abs(on_true) > EXACT and node.output.dtype.is_integer):
            source = self.in_sbuf_as(self.as_tile(on_true, node.output.dtype), device_dtype(node.output.dtype))
        nisa.tensor_copy_predicated(dst=result, src=source, predicate=predicate)
        return result

    def in_sbuf_as(self, x: NkiTensor, dtype: DType) -> NkiTensor:
        """`x` itself if it lies in SBUF in `dtype`, else a copy that does."""
        if x.dtype is dtype and x.access.space.value == "sbuf":
            return x
        copy = self.temp(dtype)
        nisa.tensor_copy(dst=copy, src=x)
        return copy

    # -- emission
    def flush(self, step: Operand | Step, dst: NkiTensor) -> None:
        """Emit what is pending, into `dst`."""
        if isinstance(step, (int, float)):
            nisa.memset(dst=dst, value=step)
            return
        if isinstance(step, NkiTensor):
            nisa.tensor_copy(dst=dst, src=self.as_tile(step, dst.dtype))
            return
        data = self.as_tile(step.data, dt.float32)
        if step.kind == "act":
            nisa.activation(dst=dst, op=step.function, data=data, bias=step.bias, scale=step.scale)
            return
        if step.kind == "scalar":
            first, second = step.operations[0], step.operations[1] if len(step.operations) == 2 else (None, None, False)
            nisa.tensor_scalar(
                dst=dst, data=data, op0=first[0], operand0=first[1], reverse0=first[2],
                op1=second[0], operand1=second[1], reverse1=second[2],
            )  # fmt: skip
            return
        if step.kind == "fused":
            (op0, operand0, reverse0), (op1, operand1, reverse1) = step.operations
            nisa.scalar_tensor_tensor(
                dst=dst, data=data, op0=op0, operand0=operand0, op1=op1, operand1=operand1,
                reverse0=reverse0, reverse1=reverse1,
            )  # fmt: skip
            return
        name, other, _ = step.operations[0]
        if name == "bypass":
            nisa.tensor_copy(dst=dst, src=data)
        else:
            nisa.tensor_tensor(dst=dst, data1=data, data2=other, op=name)


def _bitwise(name: str) -> bool:
    return name.startswith("bitwise") or name.endswith("shift")


def _is_single(step: Step) -> bool:
    """One arithmetic operation with a number or vector, to which another can be added."""
    return step.kind == "scalar" and len(step.operations) == 1 and not _bitwise(step.operations[0][0])


def _literal(number: float, dtype: DType) -> float | int:
    return int(number) if dtype.is_integer or dtype is dt.bool_ else number
