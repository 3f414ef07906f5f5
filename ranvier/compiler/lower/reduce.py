"""Reductions over neighbouring axes, which lie in the free dimension of the chosen layout."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ranvier import dtypes as dt
from ranvier.compiler.graph.assign_layouts import reduction_layout
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout
from ranvier.compiler.lower import integers
from ranvier.compiler.lower.context import Lowering
from ranvier.compiler.lower.pointwise import Sink, own_tile
from ranvier.compiler.lower.ranges import EXACT
from ranvier.compiler.lower.select_instructions import TileEmitter
from ranvier.compiler.lower.step import Chunk
from ranvier.errors import error
from ranvier.graph.core import Value
from ranvier.graph.reduce import Reduce
from ranvier.kernels.matmul import spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

PIECE = 8192
"""Elements per partition that are reduced at once."""
WORDS_PIECE = 4096
"""The same for 32-bit integers: 12 bits of so many add up to less than 2^24."""
_ALU = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum", "any": "maximum", "all": "minimum",
        "prod": "multiply"}  # fmt: skip


def lower_reduce(ctx: Lowering, group: Group) -> None:
    """Each group of neighbouring elements in the free dimension becomes one, pieces of it first if it is large."""
    node = group.nodes[0]
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Reduce)
    layout = reduction_layout(x.shape, op.axes) if op.axes else None
    if layout is None:
        raise error("E0901", f"reduction over axes {op.axes} of {x.type} should have been rewritten", where=node.loc)
    count = math.prod(x.shape[i] for i in op.axes)
    words = x.dtype.is_integer and not (x.dtype.itemsize == 4 and ctx.magnitude(node.output) <= EXACT)
    kind = _Words(ctx, op.kind, x) if words else _Floats(ctx, op.kind, count)
    rows = _Rows(ctx, x, layout, count)
    sink = Sink(ctx, node.output, Layout(rows.groups if layout.c == 1 else layout.a, layout.b, 1))
    piece = WORDS_PIECE if words else PIECE
    for b0, b in layout.chunks():
        for g0, g in spans(rows.groups, max(1, piece // count)):
            parts = [kind.part(rows.elements(b0, b, g0, g, n0, n)) for n0, n in spans(count, piece)]
            with sink.chunk(Chunk(b0, b, g0, g, 0, 1)) as dst:
                kind.finish(dst.reshape((b, g)), parts)
    sink.finish()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The operand as groups of `count` elements that reduce to one, in the free dimension of `layout`."""

    ctx: Lowering
    x: Value
    layout: Layout
    count: int

    @property
    def groups(self) -> int:
        return self.layout.free // self.count

    def elements(self, b0: int, b: int, g0: int, g: int, n0: int, n: int) -> NkiTensor:
        """[b, g, n]: elements [n0, n0 + n) of each group in [g0, g0 + g); of one group only, or all elements."""
        if self.layout.c == 1:
            chunk = Chunk(b0, b, g0 * self.count + n0, (g - 1) * self.count + n, 0, 1)
        else:
            chunk = Chunk(b0, b, g0, g, n0, n)
        return own_tile(self.ctx, self.x, self.layout, chunk).reshape((b, g, n))


@dataclass(frozen=True, slots=True)
class _Floats:
    """Reduction in float32."""

    ctx: Lowering
    kind: str
    count: int

    def part(self, data: NkiTensor) -> NkiTensor:
        return data

    def finish(self, dst: NkiTensor, parts: list[NkiTensor]) -> None:
        data = parts[0]
        if len(parts) > 1:
            data = self.ctx.sbuf((*dst.shape, len(parts)), dt.float32)
            for i, part in enumerate(parts):
                nisa.tensor_reduce(dst=data[:, :, i], op=_ALU[self.kind], data=part, axis=2)
        total = self.ctx.sbuf(dst.shape, dt.float32) if self.kind == "mean" else dst
        nisa.tensor_reduce(dst=total, op=_ALU[self.kind], data=data, axis=2)
        if self.kind == "mean":
            nisa.tensor_scalar(dst=dst, data=total, op0="multiply", operand0=1.0 / self.count)


@dataclass(frozen=True, slots=True)
class _Words:
    """Reduction of integers that float32 does not hold, or whose sums wrap around, on 32-bit tiles."""

    ctx: Lowering
    kind: str
    x: Value

    def part(self, data: NkiTensor) -> NkiTensor:
        """[b, g] 32-bit integers from [b, g, n]."""
        e = self._emitter(data.shape)
        words = e.in_sbuf_as(data, integers.word(self.x.dtype))
        if self.kind == "sum":
            return self._sum(e, words)
        if self.kind == "prod":
            return self._product(words)
        return self._extreme(e, words)

    def finish(self, dst: NkiTensor, parts: list[NkiTensor]) -> None:
        b, g = dst.shape
        e = self._emitter((b, g, 1))
        total = parts[0].reshape((b, g, 1))
        for part in parts[1:]:
            name = {"sum": "add", "prod": "multiply"}.get(self.kind, _ALU[self.kind])
            total = integers.apply(e, name, total, part.reshape((b, g, 1)))
        e.flush(integers.narrowed(e, total, self.x.dtype), dst.reshape((b, g, 1)))

    def _emitter(self, shape: tuple[int, ...]) -> TileEmitter:
        b, g, n = shape
        return TileEmitter(self.ctx, Chunk(0, b, 0, g, 0, n), lambda value: 0.0)

    def _reduced(self, op: str, data: NkiTensor, dtype: dt.DType) -> NkiTensor:
        result = self.ctx.sbuf((*data.shape[:2], 1), dtype)
        nisa.tensor_reduce(dst=result, op=op, data=data, axis=2)
        return result

    def _sum(self, e: TileEmitter, words: NkiTensor) -> NkiTensor:
        """12 bits at a time, whose sums are exact."""
        small, total = self._emitter((*words.shape[:2], 1)), None
        for low in range(0, 32, 12):
            digits = integers.bits(e, words, ("right_shift", low), ("bitwise_and", 0xFFF))
            summed = self._reduced("add", digits, words.dtype)
            placed = integers.bits(small, summed, ("left_shift", low)) if low else summed
            total = placed if total is None else integers.apply(small, "add", total, placed)
        assert total is not None
        return total

    def _product(self, words: NkiTensor) -> NkiTensor:
        """The first half times the second, until one element is left."""
        while words.shape[2] > 1:
            half = words.shape[2] // 2
            product = self.ctx.sbuf((*words.shape[:2], half + words.shape[2] % 2), words.dtype)
            first, second = words[:, :, :half], words[:, :, half : 2 * half]
            nisa.tensor_tensor(dst=product[:, :, :half], data1=first, data2=second, op="multiply")
            if words.shape[2] % 2:
                nisa.tensor_copy(dst=product[:, :, half:], src=words[:, :, 2 * half :])
            words = product
        return words

    def _extreme(self, e: TileEmitter, words: NkiTensor) -> NkiTensor:
        """The largest upper half, and the largest lower half beside it; for a minimum, of the complements."""
        small, n = self._emitter((*words.shape[:2], 1)), words.shape[2]
        sign = 0 if words.dtype is dt.uint32 else 1 << 15
        if self.kind == "min":
            words = integers.bits(e, words, ("bitwise_xor", -1))
        upper = integers.bits(e, words, ("right_shift", 16), ("bitwise_xor", sign))
        lower = integers.bits(e, words, ("bitwise_and", 0xFFFF))
        top = self._reduced("maximum", upper, words.dtype)
        here, counted = e.temp(), e.temp()
        nisa.tensor_tensor(dst=here, data1=upper, data2=top.broadcast(2, n), op="equal")
        nisa.scalar_tensor_tensor(dst=counted, data=lower, op0="add", operand0=1.0, op1="multiply", operand1=here)
        best, rest = self._reduced("maximum", counted, dt.float32), small.temp(words.dtype)
        nisa.tensor_scalar(dst=rest, data=best, op0="subtract", operand0=1.0)
        joined = integers.bits(small, top, ("bitwise_xor", sign), ("left_shift", 16))
        joined = integers.apply(small, "bitwise_or", joined, rest)
        return integers.bits(small, joined, ("bitwise_xor", -1)) if self.kind == "min" else joined
