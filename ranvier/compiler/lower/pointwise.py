"""Element-wise operations: instruction selection for one tile, and the loop over the tiles of a group."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, dims_of
from ranvier.compiler.lower.context import Lowering, Tiles, device_dtype
from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.graph.composite import Gelu, Silu
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Cast, Clamp, Compare, Select, Unary
from ranvier.kernels.matmul import spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

Operand = NkiTensor | float
"""A tile [P, ...], one value per partition [P, 1], or a number."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a group's result: rows [b0, b0 + b) of axis b, [a0, a0 + a) of a, [c0, c0 + c) of c."""

    b0: int
    b: int
    a0: int
    a: int
    c0: int
    c: int

    def of(self, tile: NkiTensor) -> NkiTensor:
        """This chunk of a [b, a, c] tile that holds the chunk's rows."""
        whole = tile.shape[1:] == (self.a, self.c)
        return tile if whole else tile[:, self.a0 : self.a0 + self.a, self.c0 : self.c0 + self.c]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.b, self.a, self.c


# -- operands -------------------------------------------------------------------------------------------------------------


def operand(ctx: Lowering, value: Value, shape: tuple[int, ...], layout: Layout, chunk: Chunk) -> Operand:
    """`value`, broadcast to `shape` in `layout`, for one chunk."""
    number = ctx.number(value)
    if number is not None:
        return number
    if math.prod(value.shape) == math.prod(shape):
        return _full(ctx, value, layout, chunk)
    aligned = (1,) * (len(shape) - len(value.shape)) + value.shape
    groups = dims_of(layout, shape)
    if groups is None:
        return _expanded(ctx, value, shape, layout, chunk)
    a_dims, b_dims, c_dims = groups
    a, b, c = (tuple(aligned[i] for i in dims) for dims in groups)
    whole = tuple(tuple(shape[i] for i in dims) for dims in groups)
    plain_free = all(g in (w, (1,) * len(w)) for g, w in ((a, whole[0]), (c, whole[2])))
    if b == whole[1] and plain_free:
        own = Layout(math.prod(a), layout.b, math.prod(c), layout.segment)
        if own.free == 1 and layout.free > 1:
            return ctx.vector(value, own, chunk.b0, chunk.b)
        tile = ctx.tiles(value, own).rows(chunk.b0, chunk.b)
        return _spread(tile, chunk, math.prod(a) != layout.a, math.prod(c) != layout.c)
    if all(n == 1 for n in b) and plain_free:
        free = (*a, *c)
        tile = ctx.replica(value, free, chunk.b).reshape((chunk.b, math.prod(a), math.prod(c)))
        return _spread(tile, chunk, math.prod(a) != layout.a, math.prod(c) != layout.c)
    return _expanded(ctx, value, shape, layout, chunk)


def _spread(tile: NkiTensor, chunk: Chunk, a_broadcast: bool, c_broadcast: bool) -> NkiTensor:
    """A [b, a or 1, c or 1] tile for the chunk, broadcast along the free axes."""
    a = slice(0, 1) if a_broadcast else slice(chunk.a0, chunk.a0 + chunk.a)
    c = slice(0, 1) if c_broadcast else slice(chunk.c0, chunk.c0 + chunk.c)
    part = tile[:, a, c]
    if part.shape[1] != chunk.a:
        part = part.broadcast(1, chunk.a)
    if part.shape[2] != chunk.c:
        part = part.broadcast(2, chunk.c)
    return part


def _full(ctx: Lowering, value: Value, layout: Layout, chunk: Chunk) -> NkiTensor:
    if ctx.fits(layout, value.dtype) or layout in ctx.has_tiles(value):
        return chunk.of(ctx.tiles(value, layout).rows(chunk.b0, chunk.b))
    return _streamed(ctx, ctx._view_for(value, layout), layout, chunk)


def _streamed(ctx: Lowering, view, layout: Layout, chunk: Chunk) -> NkiTensor:
    """Load just the chunk from HBM. The view's free axes are cut by slicing it as [a, b, c]."""
    box = view.reshape((layout.a, layout.b, layout.c))
    if box is None:
        tile = ctx.sbuf((chunk.b, layout.a, layout.c), view.dtype)
        ctx.load(tile, view, layout, chunk.b0, chunk.b)
        return chunk.of(tile)
    starts = (chunk.a0, chunk.b0, chunk.c0)
    limits = (chunk.a0 + chunk.a, chunk.b0 + chunk.b, chunk.c0 + chunk.c)
    part = box.slice(starts, limits, (1, 1, 1))
    tile = ctx.sbuf(chunk.shape, view.dtype)
    ctx.load(tile, part, Layout(chunk.a, chunk.b, chunk.c), 0, chunk.b)
    return tile


def _expanded(ctx: Lowering, value: Value, shape: tuple[int, ...], layout: Layout, chunk: Chunk) -> NkiTensor:
    """A broadcast that crosses the layout's borders: expanded while it is loaded from HBM."""
    view = ctx.view(value).broadcast(shape)
    if view.regroup((layout.a, layout.b, layout.c)) is None:
        copy = ctx.scratch(shape, value.dtype)
        ctx.copy_view(copy, view)
        view = copy
    return _streamed(ctx, view, layout, chunk)


# -- instruction selection ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One pending instruction. `kind`: "scalar" (tensor_scalar with one or two operations), "tensor", "act"."""

    kind: str
    data: Operand
    operations: tuple[tuple[str, Operand, bool], ...] = ()
    function: str = ""
    scale: Operand = 1.0
    bias: Operand | None = None


def is_vector(x: Operand, chunk: Chunk) -> bool:
    """One value per partition where the chunk has more than one."""
    return isinstance(x, NkiTensor) and x.shape == (chunk.b, 1)


_REVERSED = {"subtract": "subtract", "greater": "less", "less": "greater", "greater_equal": "less_equal", "less_equal": "greater_equal"}
_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum", "minimum": "minimum",
           "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
           "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
           "left_shift": "left_shift", "right_shift": "right_shift"}  # fmt: skip
_COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_ACT = {"exp": "exp", "log": "log", "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf", "sqrt": "sqrt", "rsqrt": "rsqrt",
        "abs": "abs", "sign": "sign", "square": "square"}  # fmt: skip


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
        if isinstance(bias, float) or is_vector(bias, self.chunk):
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
                return self._scalars(node.inputs[0], [(name, float(v)) for name, v in bounds if v is not None])
            case Gelu():
                return self._act("gelu_apprx_tanh" if op.approximate == "tanh" else "gelu", node.inputs[0])
            case Silu():
                return self._act("silu", node.inputs[0])
        raise error("E0604", f"no lowering for {op} as part of an element-wise group", where=node.loc)

    def _scalars(self, value: Value, operations: list[tuple[str, float]]) -> Step:
        return Step("scalar", self.tile(value), tuple((name, number, False) for name, number in operations))

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
                if fused.scale != 1.0 or fused.bias is not None:
                    return fused
            return self._chain(value, ("maximum", 0.0, False))
        if kind == "logical_not":
            return self._chain(value, ("equal", 0.0, False))
        if kind in _ACT:
            return self._act(_ACT[kind], value)
        x = self.tile(value)
        if isinstance(x, float):
            raise error("E0901", f"{kind} of a number should have been folded")
        if kind == "reciprocal":
            return self._reciprocal(x)
        if kind in ("sin", "cos"):
            return self._sine(x, math.pi / 2 if kind == "cos" else 0.0)
        if kind in ("floor", "ceil", "round", "trunc"):
            return self._rounded(kind, x)
        if kind == "isnan":
            return Step("tensor", x, (("not_equal", x, False),))
        raise error("E0604", f"no lowering for the element-wise function {kind}")

    def _reciprocal(self, x: NkiTensor) -> NkiTensor:
        result = self.temp()
        nisa.reciprocal(dst=result, data=x)
        return result

    def _integer_part(self, x: NkiTensor) -> NkiTensor:
        """x rounded to the nearest integer (to even), as float32."""
        whole, back = self.temp(dt.int32), self.temp()
        nisa.tensor_copy(dst=whole, src=x)
        nisa.tensor_copy(dst=back, src=whole)
        return back

    def _rounded(self, kind: str, x: NkiTensor) -> Operand | Step:
        nearest = self._integer_part(x)
        if kind == "round":
            return nearest
        result, excess = self.temp(), self.temp()
        if kind == "trunc":
            # toward zero: |x| rounded down, with x's sign
            size, sign = self.temp(), self.temp()
            nisa.activation(dst=size, op="abs", data=x)
            nisa.activation(dst=sign, op="sign", data=x)
            down, above = self._integer_part(size), self.temp()
            nisa.tensor_tensor(dst=above, data1=down, data2=size, op="greater")
            nisa.tensor_tensor(dst=result, data1=down, data2=above, op="subtract")
            return Step("tensor", result, (("multiply", sign, False),))
        nisa.tensor_tensor(dst=excess, data1=nearest, data2=x, op="greater" if kind == "floor" else "less")
        return Step("tensor", nearest, (("subtract" if kind == "floor" else "add", excess, False),))

    def _sine(self, x: NkiTensor, shift: float) -> Step:
        """sin(x + shift) with the argument brought to [-pi, pi], where the scalar engine's sine is valid."""
        turns, shifted = self.temp(), x
        if shift:
            shifted = self.temp()
            nisa.tensor_scalar(dst=shifted, data=x, op0="add", operand0=shift)
        nisa.tensor_scalar(dst=turns, data=shifted, op0="multiply", operand0=1.0 / (2.0 * math.pi))
        whole = self._integer_part(turns)
        reduced = self.temp()
        nisa.scalar_tensor_tensor(
            dst=reduced, data=whole, op0="multiply", operand0=-2.0 * math.pi, op1="add", operand1=shifted
        )
        bounded = self.temp()
        limit = math.nextafter(math.pi, 0.0) - 3e-7
        nisa.tensor_scalar(dst=bounded, data=reduced, op0="maximum", operand0=-limit, op1="minimum", operand1=limit)
        return Step("act", bounded, function="sin")

    # -- two operands
    def _binary(self, node: Node, kind: str, left: Value, right: Value) -> Operand | Step:
        if kind in _BINARY:
            return self._pair(_BINARY[kind], left, right)
        if kind == "div":
            return self._divide(left, right)
        if kind == "pow":
            return self._power(left, right)
        raise error("E0604", f"no lowering for the element-wise operation {kind}", where=node.loc)

    def _divide(self, left: Value, right: Value) -> Operand | Step:
        divisor = self.tile(right)
        if isinstance(divisor, float):
            return self._chain(left, ("multiply", 1.0 / divisor, False))
        if is_vector(divisor, self.chunk):
            inverse: Operand = self.ctx.sbuf((self.chunk.b, 1), dt.float32)
            nisa.reciprocal(dst=inverse, data=divisor)
            return self._chain(left, ("multiply", inverse, False))
        inverse = self._reciprocal(divisor)
        above = self.tile(left)
        if isinstance(above, float) or is_vector(above, self.chunk):
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
            x = self.tile(left)
            square, result = self.temp(), self.temp()
            nisa.tensor_tensor(dst=square, data1=x, data2=x, op="multiply")
            nisa.tensor_tensor(dst=result, data1=square, data2=square if exponent == 4 else x, op="multiply")
            return result
        base, power = (self._in_sbuf(self._as_tile(self.tile(v), dt.float32)) for v in (left, right))
        return Step("tensor", base, (("power", power, False),))  # on gpsimd, which alone has powers and reads SBUF only

    def _in_sbuf(self, x: Operand) -> Operand:
        if isinstance(x, NkiTensor) and x.access.space.value == "psum":
            copy = self.temp()
            nisa.tensor_copy(dst=copy, src=x)
            return copy
        return x

    def _pair(self, name: str, left: Value, right: Value) -> Operand | Step:
        """A binary ALU operation: with a number or vector it can join a pending scalar operation."""
        l_known, r_known = self._simple(left), self._simple(right)
        if r_known is not None and l_known is None:
            return self._chain(left, (name, r_known, False))
        if l_known is not None and r_known is None:
            if name in ("add", "multiply", "maximum", "minimum", "equal", "not_equal") or name not in _REVERSED:
                return self._chain(right, (name, l_known, False))
            if name == "subtract":
                return self._chain(right, (name, l_known, True))
            return self._chain(right, (_REVERSED[name], l_known, False))
        return self._tensors(name, left, right)

    def _tensors(self, name: str, left: Value, right: Value) -> Step:
        before = self.pending(left)
        if before is not None and before.kind == "scalar" and len(before.operations) == 1 and name in ("add", "subtract", "multiply", "maximum", "minimum"):
            other = self._as_tile(self.tile(right), left.dtype)
            if not self._both_psum(before.data, other):
                return Step("fused", before.data, (*before.operations, (name, other, False)))
        before = self.pending(right)
        if before is not None and before.kind == "scalar" and len(before.operations) == 1 and name in ("add", "subtract", "multiply", "maximum", "minimum"):
            other = self._as_tile(self.tile(left), right.dtype)
            if not self._both_psum(before.data, other):
                return Step("fused", before.data, (*before.operations, (name, other, name == "subtract")))
        x, y = self._as_tile(self.tile(left), left.dtype), self._as_tile(self.tile(right), right.dtype)
        if self._both_psum(x, y):
            x = self._in_sbuf(x)
        return Step("tensor", x, ((name, y, False),))

    def _both_psum(self, x: Operand, y: Operand) -> bool:
        return all(isinstance(t, NkiTensor) and t.access.space.value == "psum" for t in (x, y))

    def _as_tile(self, x: Operand, dtype: DType) -> NkiTensor:
        """A full tile: numbers and vectors are spread."""
        if isinstance(x, float):
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
        return x if isinstance(x, float) or is_vector(x, self.chunk) else None

    def _chain(self, value: Value, operation: tuple[str, Operand, bool]) -> Step:
        """`operation` on `value`, as the second operation of a pending tensor_scalar where that is possible."""
        before = self.pending(value)
        if before is not None and before.kind == "scalar" and len(before.operations) == 1:
            if not _bitwise(before.operations[0][0], operation[0]):
                return replace(before, operations=(*before.operations, operation))
        data = self.tile(value)
        if isinstance(data, float) or is_vector(data, self.chunk):
            data = self._as_tile(data, value.dtype)
        return Step("scalar", data, (operation,))

    def _cast(self, node: Node) -> Operand | Step:
        value = node.inputs[0]
        to = node.op.dtype  # type: ignore[attr-defined]
        if to is dt.bool_:
            return self._chain(value, ("not_equal", 0.0, False))
        before = self.pending(value)
        # Between floats the result's own rounding is the cast; a narrower type in between would have rounded first.
        if before is not None and value.dtype.is_float and to.is_float and to.itemsize <= value.dtype.itemsize:
            return before
        x = self.tile(value)
        if to.is_integer and value.dtype.is_float:
            return Step("tensor", self._toward_zero(x), (("bypass", x, False),))
        return Step("tensor", x, (("bypass", x, False),))

    def _toward_zero(self, x: Operand) -> NkiTensor:
        tile = self._as_tile(x, dt.float32)
        step = self._rounded("trunc", tile)
        result = self.temp()
        self.flush(step, result)
        return result

    def _select(self, node: Node) -> NkiTensor:
        condition, on_true, on_false = (self.tile(v) for v in node.inputs)
        result = self.temp(node.output.dtype)
        predicate = self._in_sbuf_as(self._as_tile(condition, dt.uint8), dt.uint8)
        if isinstance(on_false, float):
            nisa.memset(dst=result, value=_literal(on_false, node.output.dtype))
        else:
            nisa.tensor_copy(dst=result, src=self._as_tile(on_false, node.output.dtype))
        source: Operand = on_true
        if isinstance(on_true, NkiTensor):
            source = self._in_sbuf_as(self._as_tile(on_true, node.output.dtype), device_dtype(node.output.dtype))
        nisa.tensor_copy_predicated(dst=result, src=source, predicate=predicate)
        return result

    def _in_sbuf_as(self, x: NkiTensor, dtype: DType) -> NkiTensor:
        if x.dtype is dtype and x.access.space.value == "sbuf":
            return x
        copy = self.temp(dtype)
        nisa.tensor_copy(dst=copy, src=x)
        return copy

    # -- emission
    def flush(self, step: Operand | Step, dst: NkiTensor) -> None:
        """Emit what is pending, into `dst`."""
        if isinstance(step, float):
            nisa.memset(dst=dst, value=step)
            return
        if isinstance(step, NkiTensor):
            nisa.tensor_copy(dst=dst, src=self._as_tile(step, dst.dtype))
            return
        data = self._as_tile(step.data, dt.float32)
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


def _bitwise(*names: str) -> bool:
    return any(n.startswith("bitwise") or n.endswith("shift") for n in names)


def _literal(number: float, dtype: DType) -> float | int:
    return int(number) if dtype.is_integer or dtype is dt.bool_ else number


# -- groups -----------------------------------------------------------------------------------------------------------------

CHUNK_ELEMENTS = 2048
"""Free elements that one instruction of a stand-alone element-wise group covers."""


def chunks(layout: Layout, limit: int = CHUNK_ELEMENTS) -> list[Chunk]:
    """The chunks that cover a layout, each with at most `limit` free elements (more only if a row is longer than that)."""
    found = []
    for b0, b in layout.chunks():
        for a0, a in spans(layout.a, max(1, limit // layout.c)):
            for c0, c in spans(layout.c, limit):
                found.append(Chunk(b0, b, a0, a, c0, c))
    return found


def lower_pointwise(ctx: Lowering, group: Group) -> None:
    """A group of element-wise nodes only."""
    result = group.last.output
    shape = result.shape
    layout = ctx.layout_of(result)
    inside = {n.output for n in group.nodes}
    sink = Sink(ctx, result, layout)
    for chunk in chunks(layout):
        def get(value: Value, chunk: Chunk = chunk) -> Operand:
            assert value not in inside
            return operand(ctx, value, shape, layout, chunk)

        with sink.chunk(chunk) as dst:
            TileEmitter(ctx, chunk, get).run(group.nodes, dst)
    sink.finish()


class Sink:
    """Where a group's result goes: tiles on chip, or chunk by chunk to HBM where it is too large for that."""

    def __init__(self, ctx: Lowering, value: Value, layout: Layout):
        self.ctx, self.value, self.layout = ctx, value, layout
        self.on_chip = ctx.fits(layout, value.dtype)
        self.tiles = ctx.new_tiles(layout, value.dtype) if self.on_chip else None
        self.view = None if self.on_chip else ctx.scratch((layout.a, layout.b, layout.c), value.dtype)

    def chunk(self, chunk: Chunk) -> _SinkChunk:
        return _SinkChunk(self, chunk)

    def finish(self) -> None:
        if self.tiles is not None:
            self.ctx.put_tiles(self.value, self.tiles)
        else:
            assert self.view is not None
            self.ctx.put_view(self.value, self.view.reshape(self.value.shape) or self.view)


class _SinkChunk:
    """`with sink.chunk(c) as dst:` gives the tile to write; when it ends the tile is stored if the result is in HBM."""

    def __init__(self, sink: Sink, chunk: Chunk):
        self.sink, self.at = sink, chunk

    def __enter__(self) -> NkiTensor:
        if self.sink.tiles is not None:
            self.dst = self.at.of(self.sink.tiles.rows(self.at.b0, self.at.b))
        else:
            self.dst = self.sink.ctx.sbuf(self.at.shape, self.sink.value.dtype)
        return self.dst

    def __exit__(self, kind, problem, trace) -> None:
        if kind is None and self.sink.view is not None:
            c = self.at
            part = self.sink.view.slice((c.a0, c.b0, c.c0), (c.a0 + c.a, c.b0 + c.b, c.c0 + c.c), (1, 1, 1))
            self.sink.ctx.store(Tiles(Layout(c.a, c.b, c.c), (self.dst,)), part)
