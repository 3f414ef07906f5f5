"""Softmax and norms of rows that are too long to be on chip: statistics of all pieces first, then piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ranvier import dtypes as dt
from ranvier.compiler.layout import Layout
from ranvier.compiler.lower.context import Lowering
from ranvier.compiler.lower.pointwise import Sink, operand, own_tile
from ranvier.compiler.lower.step import Chunk
from ranvier.graph.composite import LayerNorm, LogSoftmax, RmsNorm, Softmax
from ranvier.graph.core import Node, Value
from ranvier.kernels.matmul import spans
from ranvier.kernels.norm import inverse_root
from ranvier.kernels.sizes import STATISTICS_COLUMNS
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

WIDE = 8192
"""Rows of more elements than this are computed in pieces."""
PIECE = 4096

Finish = Callable[[Chunk, NkiTensor, NkiTensor], None]
"""Computes the result [b, n] of a chunk from its operand."""


def lower_wide_rows(ctx: Lowering, node: Node, layout: Layout) -> None:
    """`node` is a softmax, log-softmax, layer norm or RMS norm over the free axis of `layout`."""
    x = node.inputs[0]
    sink = Sink(ctx, node.output, layout)
    for b0, b in layout.chunks():
        chunks = [Chunk(b0, b, 0, 1, n0, n) for n0, n in spans(layout.c, PIECE)]
        finish = _statistics(ctx, node, layout, b, lambda chunks=chunks: _pieces(ctx, x, layout, chunks))
        for chunk, data in _pieces(ctx, x, layout, chunks):
            with sink.chunk(chunk) as dst:
                finish(chunk, dst.reshape((b, chunk.c)), data)
    sink.finish()


def _pieces(ctx: Lowering, x: Value, layout: Layout, chunks: list[Chunk]) -> Iterator[tuple[Chunk, NkiTensor]]:
    for chunk in chunks:
        yield chunk, own_tile(ctx, x, layout, chunk).reshape((chunk.b, chunk.c))


Pieces = Callable[[], Iterator[tuple[Chunk, NkiTensor]]]


def _statistics(ctx: Lowering, node: Node, layout: Layout, b: int, pieces: Pieces) -> Finish:
    match node.op:
        case Softmax():
            return _softmax(ctx, b, pieces)
        case LogSoftmax():
            return _log_softmax(ctx, b, pieces)
        case RmsNorm():
            return _rms_norm(ctx, node, layout, b, pieces)
    return _layer_norm(ctx, node, layout, b, pieces)


def _column(ctx: Lowering, b: int, columns: int = 1) -> NkiTensor:
    return ctx.sbuf((b, columns), dt.float32)


def _joined(ctx: Lowering, parts: list[NkiTensor], op: str) -> NkiTensor:
    """[b, 1] tiles reduced to one."""
    together, result = _column(ctx, parts[0].shape[0], len(parts)), _column(ctx, parts[0].shape[0])
    for i, part in enumerate(parts):
        nisa.tensor_copy(dst=together[:, i : i + 1], src=part)
    nisa.tensor_reduce(dst=result, op=op, data=together, axis=1)
    return result


def _exponentials(ctx: Lowering, b: int, pieces: Pieces) -> tuple[NkiTensor, NkiTensor]:
    """The negated maximum of each row, and the sum of the exponentials of what exceeds it."""
    parts = []
    for _, data in pieces():
        parts.append(_column(ctx, b))
        nisa.tensor_reduce(dst=parts[-1], op="maximum", data=data, axis=1, negate=True)
    negative_max, sums = _joined(ctx, parts, "minimum"), []
    for chunk, data in pieces():
        sums.append(_column(ctx, b))
        powers = ctx.sbuf((b, chunk.c), dt.float32)
        nisa.activation_reduce(
            dst=powers, op="exp", data=data, reduce_op="add", reduce_res=sums[-1], bias=negative_max
        )
    return negative_max, _joined(ctx, sums, "add")


def _softmax(ctx: Lowering, b: int, pieces: Pieces) -> Finish:
    negative_max, total = _exponentials(ctx, b, pieces)
    inverse = _column(ctx, b)
    nisa.reciprocal(dst=inverse, data=total)

    def finish(chunk: Chunk, dst: NkiTensor, data: NkiTensor) -> None:
        powers = ctx.sbuf((b, chunk.c), dt.float32)
        nisa.activation(dst=powers, op="exp", data=data, bias=negative_max)
        nisa.tensor_scalar(dst=dst, data=powers, op0="multiply", operand0=inverse)

    return finish


def _log_softmax(ctx: Lowering, b: int, pieces: Pieces) -> Finish:
    negative_max, total = _exponentials(ctx, b, pieces)
    logarithm = _column(ctx, b)
    nisa.activation(dst=logarithm, op="log", data=total)

    def finish(chunk: Chunk, dst: NkiTensor, data: NkiTensor) -> None:
        nisa.tensor_scalar(
            dst=dst, data=data, op0="add", operand0=negative_max, op1="subtract", operand1=logarithm
        )

    return finish


def _weighted(
    ctx: Lowering, node: Node, layout: Layout, chunk: Chunk, dst: NkiTensor, normal: NkiTensor, values: list
) -> None:
    """`normal` times weight plus bias, both one row for all; `values` are (operation, value)."""
    for i, (op, value) in enumerate(values):
        row = operand(ctx, value, node.output.shape, layout, chunk)
        assert isinstance(row, NkiTensor)
        result = dst if i == len(values) - 1 else ctx.sbuf(dst.shape, dt.float32)
        nisa.tensor_tensor(dst=result, data1=normal, data2=row.reshape(dst.shape), op=op)
        normal = result


def _rms_norm(ctx: Lowering, node: Node, layout: Layout, b: int, pieces: Pieces) -> Finish:
    assert isinstance(node.op, RmsNorm)
    sums = []
    for chunk, data in pieces():
        sums.append(_column(ctx, b))
        squares = ctx.sbuf((b, chunk.c), dt.float32)
        nisa.activation_reduce(
            dst=squares, op="square", data=data, reduce_op="add", reduce_res=sums[-1], scale=float(layout.c) ** -0.5
        )
    scale = _column(ctx, b)
    inverse_root(scale, _joined(ctx, sums, "add"), node.op.eps)
    values = [("multiply", v) for v in node.inputs[1:]]

    def finish(chunk: Chunk, dst: NkiTensor, data: NkiTensor) -> None:
        normal = ctx.sbuf(dst.shape, dt.float32) if values else dst
        nisa.tensor_scalar(dst=normal, data=data, op0="multiply", operand0=scale)
        _weighted(ctx, node, layout, chunk, dst, normal, values)

    return finish


def _layer_norm(ctx: Lowering, node: Node, layout: Layout, b: int, pieces: Pieces) -> Finish:
    op = node.op
    assert isinstance(op, LayerNorm)
    groups = [part for _, n in spans(layout.c, PIECE) for part in spans(n, STATISTICS_COLUMNS)]
    statistics, moments, index = ctx.sbuf((b, len(groups), 6), dt.float32), _column(ctx, b, 2), 0
    for chunk, data in pieces():
        for start, n in spans(chunk.c, STATISTICS_COLUMNS):
            nisa.bn_stats(dst=statistics[:, index, :], data=data[:, start : start + n])
            index += 1
    nisa.bn_aggr(dst=moments, data=statistics)
    scale = _column(ctx, b)
    inverse_root(scale, moments[:, 1:2], op.eps)
    names = [name for name, has in (("multiply", op.has_weight), ("add", op.has_bias)) if has]
    values = list(zip(names, node.inputs[1:], strict=True))

    def finish(chunk: Chunk, dst: NkiTensor, data: NkiTensor) -> None:
        normal = ctx.sbuf(dst.shape, dt.float32) if values else dst
        nisa.tensor_scalar(
            dst=normal, data=data, op0="subtract", operand0=moments[:, 0:1], op1="multiply", operand1=scale
        )
        _weighted(ctx, node, layout, chunk, dst, normal, values)

    return finish
