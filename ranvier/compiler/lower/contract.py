"""Matrix products: linear layers and batched matmul, with the element-wise operations that follow fused behind PSUM."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, columns
from ranvier.compiler.lower.context import FREE_BYTES, Lowering
from ranvier.compiler.lower.pointwise import Sink, operand, own_tile
from ranvier.compiler.lower.select_instructions import TileEmitter
from ranvier.compiler.lower.step import Chunk, Operand
from ranvier.errors import error
from ranvier.graph.composite import Linear
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary
from ranvier.graph.movement import Transpose
from ranvier.kernels.matmul import accumulate, spans
from ranvier.kernels.sizes import MOVING_COLUMNS, PARTITIONS
from ranvier.nki.tensor import NkiTensor

WEIGHT_BLOCK_BYTES = 24 * 1024
"""Bytes per partition that the weights of one block of result columns take on chip."""


def finish(
    ctx: Lowering,
    group: Group,
    layout: Layout,
    chunk: Chunk,
    product: NkiTensor,
    dst: NkiTensor,
    bias: Operand | None = None,
) -> None:
    """Take a product out of PSUM into `dst`, applying the bias and the group's element-wise nodes on the way."""
    anchor = group.anchor
    assert anchor is not None
    shape = group.last.outputs[0].shape
    product = product.reshape(chunk.shape)

    def get(value: Value) -> Operand:
        return product if value is anchor.output else operand(ctx, value, shape, layout, chunk)

    emitter = TileEmitter(ctx, chunk, get)
    if bias is not None:
        emitter.values[anchor.output] = emitter.plus(product, bias)
    if group.pointwise:
        emitter.run(group.pointwise, dst)
    else:
        emitter.flush(emitter.values.get(anchor.output, product), dst)


COLUMNS_BYTES = 96 * 1024
"""Bytes per partition that the columns of the left operand take; larger operands come a block of rows at a time."""


def lower_linear(ctx: Lowering, group: Group) -> None:
    """x [.., K] times weight [N, K] transposed, plus bias [N]. Either side of the product can lie on partitions."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Linear)
    x, weight = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    layout = ctx.layout_of(group.last.output)
    n_size, k_size = weight.shape
    total = math.prod(x.shape[:-1])
    rows = layout.a == 1 and layout.b * layout.c == total * n_size and layout.c == n_size
    sink = Sink(ctx, group.last.output, layout)
    blocks = _row_blocks(ctx, layout, x) if rows else spans(total, _rows_together(ctx, x))
    columns_of_result = spans(n_size, _block_columns(k_size, weight.dtype))
    weights = _weight_block(ctx, weight, 0, n_size) if len(columns_of_result) == 1 else None
    for r0, r in blocks:
        moving = ctx.column_block(x, r0, r)
        for n0, n in columns_of_result:
            part = _Part(r0, r, n0, n, moving, weights if weights is not None else _weight_block(ctx, weight, n0, n))
            (_rows_product if rows else _columns_product)(ctx, group, layout, sink, part, bias)
    sink.finish()


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows [r0, r0 + r) and columns [n0, n0 + n) of a product, with both operands' tiles, 128 of K each."""

    r0: int
    r: int
    n0: int
    n: int
    moving: list[NkiTensor]
    weights: list[NkiTensor]


def _rows_together(ctx: Lowering, x: Value) -> int:
    """How many rows of x are on chip as columns at a time: all, if they fit."""
    total, itemsize = math.prod(x.shape[:-1]), x.dtype.itemsize
    tiles = math.ceil(x.shape[-1] / PARTITIONS)
    if ctx.fits(columns(x.shape), x.dtype) and tiles * total * itemsize <= COLUMNS_BYTES:
        return total
    return max(PARTITIONS, min(FREE_BYTES, COLUMNS_BYTES // tiles) // itemsize // MOVING_COLUMNS * MOVING_COLUMNS)


def _row_blocks(ctx: Lowering, layout: Layout, x: Value) -> list[tuple[int, int]]:
    """Blocks of rows that begin and end where tiles of the result do."""
    limit, found = _rows_together(ctx, x), [(0, 0)]
    for start, size in layout.chunks():
        first, have = found[-1]
        if have + size <= limit:
            found[-1] = (first, have + size)
        else:
            found.append((start, size))
    return found


def _block_columns(k_size: int, dtype: dt.DType) -> int:
    tiles = math.ceil(k_size / PARTITIONS)
    fit = WEIGHT_BLOCK_BYTES // (tiles * dtype.itemsize)
    return max(PARTITIONS, fit // MOVING_COLUMNS * MOVING_COLUMNS or fit // PARTITIONS * PARTITIONS)


def _weight_block(ctx: Lowering, weight: Value, n0: int, n: int) -> list[NkiTensor]:
    """Columns [n0, n0 + n) of the transposed weight, [K tile, n] each."""
    n_size, k_size = weight.shape
    base = ctx.root(weight)
    producer = ctx.producers.get(weight)
    if producer is not None and isinstance(producer.op, Transpose):  # not a parameter: its rows are what is wanted
        source = Layout(1, k_size, n_size)
        parts = [Chunk(k0, k, 0, 1, n0, n) for k0, k in source.chunks()]
        return [own_tile(ctx, producer.inputs[0], source, part).reshape((part.b, n)) for part in parts]
    if base in ctx.params:
        view = ctx.param_view(base, (n_size, k_size), (1, 0)).slice((0, n0), (k_size, n0 + n), (1, 1))
        found = []
        for k0, k in spans(k_size, PARTITIONS):
            tile = ctx.sbuf((k, 1, n), weight.dtype)
            ctx.load(tile, view, Layout(1, k_size, n), k0, k)
            found.append(tile.reshape((k, n)))
        return found
    return ctx.column_block(weight, n0, n)


def _rows_product(
    ctx: Lowering, group: Group, layout: Layout, sink: Sink, part: _Part, bias: Value | None
) -> None:
    """Rows of x on partitions of the result: x^T is stationary, the weights move."""
    shape = group.anchor.output.shape  # type: ignore[union-attr]
    bias_row = _bias_row(ctx, group, bias)
    for b0, b in layout.chunks():
        if not part.r0 <= b0 < part.r0 + part.r:
            continue
        for c0, c in spans(part.n, MOVING_COLUMNS):
            product, first = ctx.psum((b, c)), b0 - part.r0
            stationary = [x[:, first : first + b] for x in part.moving]
            columns_of = [w[:, c0 : c0 + c] for w in part.weights]
            start = part.n0 + c0
            if bias_row is not None:
                stationary.insert(0, ctx.ones(PARTITIONS, bias_row.dtype)[:, :b])
                columns_of.insert(0, bias_row[:, start : start + c])
            accumulate(product, stationary, columns_of)
            chunk = Chunk(b0, b, 0, 1, start, c)
            added = None if bias is None or bias_row is not None else operand(ctx, bias, shape, layout, chunk)
            with sink.chunk(chunk) as dst:
                finish(ctx, group, layout, chunk, product, dst, added)


def _bias_row(ctx: Lowering, group: Group, bias: Value | None) -> NkiTensor | None:
    """The bias as a [1, N] row whose product with ones joins the sum in PSUM, or None where it is better added later.

    The copy out of PSUM adds one tensor at no cost. Where that is something else already, such as a residual, the
    tensor engine adds the bias; not in float32, where each of its passes takes four times as long.
    """
    if bias is None or bias.dtype.itemsize > 2 or not any(_adds_tensor(node, group) for node in group.pointwise):
        return None
    return ctx.replica(bias, bias.shape, 1)


def _adds_tensor(node: Node, group: Group) -> bool:
    inside = {n.output for n in group.nodes}
    return isinstance(node.op, Binary) and any(v not in inside and v.shape == node.output.shape for v in node.inputs)


def _columns_product(
    ctx: Lowering, group: Group, layout: Layout, sink: Sink, part: _Part, bias: Value | None
) -> None:
    """Columns of the result on partitions: the weights are stationary, x^T moves."""
    shape = group.anchor.output.shape  # type: ignore[union-attr]
    for b0, b in layout.chunks():
        for start, size in _within(b0, b, part.n0, part.n):
            first = start - part.n0
            for a0, a in spans(part.r, MOVING_COLUMNS):
                product = ctx.psum((size, a))
                stationary = [w[:, first : first + size] for w in part.weights]
                accumulate(product, stationary, [x[:, a0 : a0 + a] for x in part.moving])
                chunk = Chunk(start, size, part.r0 + a0, a, 0, 1)
                added = None if bias is None else operand(ctx, bias, shape, layout, chunk)
                with sink.chunk(chunk) as dst:
                    finish(ctx, group, layout, chunk, product, dst, added)


def _within(b0: int, b: int, n0: int, n: int) -> list[tuple[int, int]]:
    """The part of [b0, b0 + b) that lies in [n0, n0 + n), if any."""
    start, end = max(b0, n0), min(b0 + b, n0 + n)
    return [(start, end - start)] if start < end else []


def lower_matmul(ctx: Lowering, group: Group) -> None:
    """Batched product [.., M, K] x [.., K, N]; leading dimensions are equal or broadcast."""
    node = group.anchor
    assert node is not None
    left, right = node.inputs
    if left.dtype.is_integer:
        raise error(
            "E0604", f"matmul of {left.type} and {right.type}: the tensor engine multiplies floats", where=node.loc,
            fix="cast to float32 before",
        )  # fmt: skip
    result = group.last.output
    batch = node.output.shape[:-2]
    m_size, k_size = left.shape[-2:]
    n_size = right.shape[-1]
    left_at, right_at = _batch_index(left, batch), _batch_index(right, batch)
    layout = ctx.layout_of(result)
    sink = Sink(ctx, result, layout)
    turned = not (layout.a == 1 and layout.c == n_size)
    matrices = Layout(math.prod(right.shape[:-2]), k_size, n_size)
    for i in range(math.prod(batch)):
        lhs = ctx.column_block(left, left_at(i) * m_size, m_size)
        parts = [Chunk(k0, k, right_at(i), 1, 0, n_size) for k0, k in matrices.chunks()]
        tiles = [own_tile(ctx, right, matrices, part) for part in parts]
        rhs = [t.reshape((t.shape[0], n_size)) for t in tiles]
        if turned:
            _matmul_block(ctx, group, layout, sink, rhs, lhs, i, turned)
        else:
            _matmul_block(ctx, group, layout, sink, lhs, rhs, i, turned)
    sink.finish()


def _matmul_block(
    ctx: Lowering,
    group: Group,
    layout: Layout,
    sink: Sink,
    stationary: list[NkiTensor],
    moving: list[NkiTensor],
    index: int,
    turned: bool,
) -> None:
    """One product of the batch, with the stationary side's columns on partitions of the result."""
    on_partitions, free = stationary[0].shape[1], moving[0].shape[1]
    base = 0 if turned else index * on_partitions
    for b0, b in layout.chunks():
        for start, size in _within(b0, b, base, on_partitions):
            for f0, f in spans(free, MOVING_COLUMNS):
                product = ctx.psum((size, f))
                accumulate(
                    product,
                    [s[:, start - base : start - base + size] for s in stationary],
                    [m[:, f0 : f0 + f] for m in moving],
                )
                chunk = Chunk(start, size, index * free + f0, f, 0, 1) if turned else Chunk(start, size, 0, 1, f0, f)
                with sink.chunk(chunk) as dst:
                    finish(ctx, group, layout, chunk, product, dst)


def _batch_index(value: Value, batch: tuple[int, ...]) -> Callable[[int], int]:
    """From the index of a product to the index of the operand's own matrix."""
    own = (1,) * (len(batch) - len(value.shape) + 2) + value.shape[:-2]

    def index(i: int) -> int:
        position, step = 0, 1
        for size, have in zip(reversed(batch), reversed(own), strict=True):
            i, digit = divmod(i, size)
            position += digit * step if have != 1 else 0
            step *= have
        return position

    return index
