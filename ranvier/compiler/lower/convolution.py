"""Convolution and pooling on images with channels on partitions.

A convolution is a sum of matrix products, one for each tap of the window: the taps' weights [channels in, channels out]
are stationary, and the moving operand is the padded image seen through the tap, a strided view that costs no copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, channels
from ranvier.compiler.lower.context import Lowering
from ranvier.compiler.lower.contract import finish
from ranvier.compiler.lower.pointwise import Sink, own_tile
from ranvier.compiler.lower.step import Chunk
from ranvier.errors import error
from ranvier.graph.contract import Conv, Pool
from ranvier.graph.core import Node, Value
from ranvier.kernels.matmul import MOVING_COLUMNS, accumulate, spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over two image axes: taps, steps, dilation and padding ((top, bottom), (left, right))."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    size: tuple[int, int]  # of the image
    out: tuple[int, int]  # of the result

    @property
    def padded(self) -> tuple[int, int]:
        """Size of the image that the window's last position needs, borders included."""
        return (self._reach(0), self._reach(1))

    def _reach(self, i: int) -> int:
        last = (self.out[i] - 1) * self.stride[i] + (self.taps[i] - 1) * self.dilation[i] + 1
        return max(last, self.padding[i][0] + self.size[i])

    def tap(self, image: NkiTensor, y: int, x: int, row0: int, rows: int) -> NkiTensor:
        """Rows [row0, row0 + rows) of the result's positions, seen through tap (y, x) of a padded [P, H, W] image."""
        (sy, sx), (dy, dx) = self.stride, self.dilation
        top, left = row0 * sy + y * dy, x * dx
        down, across = (rows - 1) * sy + 1, (self.out[1] - 1) * sx + 1
        return image[:, top : top + down : sy, left : left + across : sx]


def _two(values: Sequence, fill) -> tuple:
    """One-dimensional attributes as two-dimensional ones with a first axis of size 1."""
    return (fill, *values) if len(values) == 1 else tuple(values)


def window_of(node: Node, kernel: Sequence[int], stride, padding, dilation) -> Window:
    size, out = node.inputs[0].shape[2:], node.outputs[0].shape[2:]
    if len(size) not in (1, 2):
        raise error("E0604", f"{node.op.name} over {len(size)} axes; one or two are supported", where=node.loc)
    return Window(
        _two(kernel, 1), _two(stride, 1), _two(dilation, 1), _two(padding, (0, 0)), _two(size, 1), _two(out, 1)
    )


def padded_images(ctx: Lowering, x: Value, window: Window, fill: float) -> list[list[NkiTensor]]:
    """For each chunk of channels, each image as a [channels, H, W] tile with borders of `fill`."""
    layout = channels(x.shape)
    height, width = window.size
    plain = window.padded == window.size and all(p[0] == 0 for p in window.padding)
    fits = ctx.fits(layout, x.dtype)
    found = []
    for b0, b in layout.chunks():
        images = []
        for n in range(layout.a):
            if fits:
                source = ctx.tiles(x, layout).rows(b0, b)[:, n : n + 1, :]
            else:
                loaded = own_tile(ctx, x, layout, Chunk(b0, b, n, 1, 0, layout.c))
                source = loaded
            source = source.reshape((b, height, width))
            if plain:
                images.append(source)
                continue
            image = ctx.sbuf((b, *window.padded), x.dtype)
            nisa.memset(dst=image, value=fill)
            top, left = window.padding[0][0], window.padding[1][0]
            nisa.tensor_copy(dst=image[:, top : top + height, left : left + width], src=source)
            images.append(image)
        found.append(images)
    return found


def _bands(window: Window) -> list[tuple[int, int]]:
    """Rows of the result that fit in one PSUM bank together."""
    if window.out[1] > MOVING_COLUMNS:
        raise error("E0604", f"rows of {window.out[1]} positions; at most {MOVING_COLUMNS} fit in a bank")
    return spans(window.out[0], max(1, MOVING_COLUMNS // window.out[1]))


def lower_conv(ctx: Lowering, group: Group) -> None:
    """Convolution [N, C, H, W] with weight [O, C / groups, kh, kw]; depthwise ones on the vector engine."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Conv)
    op = node.op
    if op.transposed:
        raise error("E0604", f"transposed convolution with weight {node.inputs[1].shape}", where=node.loc)
    x, weight = node.inputs[:2]
    window = window_of(node, weight.shape[2:], op.stride, op.padding, op.dilation)
    images = padded_images(ctx, x, window, 0.0)
    if op.groups == 1:
        _dense(ctx, group, window, images)
    elif op.groups == x.shape[1] == weight.shape[0]:
        _depthwise(ctx, group, window, images)
    else:
        raise error("E0604", f"convolution in {op.groups} groups of {weight.shape[1]} channels", where=node.loc)


def _bias(ctx: Lowering, node: Node, layout: Layout, chunk: Chunk):
    if len(node.inputs) < 3:
        return None
    return ctx.vector(node.inputs[2], Layout(1, layout.b, 1, layout.segment), chunk.b0, chunk.b)


def _taps(ctx: Lowering, weight: Value) -> list[NkiTensor]:
    """Weights as [channels in, taps, channels out] tiles, one per 128 channels in."""
    out, inner = weight.shape[:2]
    count = math.prod(weight.shape[2:])
    base = ctx.root(weight)
    layout = Layout(1, inner, count * out)
    if base in ctx.params:
        view = ctx.param_view(base, (out, inner, count), (1, 2, 0))
    else:
        shaped = ctx.contiguous(weight).reshape((out, inner, count))
        assert shaped is not None
        view = ctx.scratch((inner, count, out), weight.dtype)
        ctx.copy_view(view, shaped.permute((1, 2, 0)))
    found = []
    for start, size in layout.chunks():
        tile = ctx.sbuf((size, 1, count * out), weight.dtype)
        ctx.load(tile, view, layout, start, size)
        found.append(tile.reshape((size, count, out)))
    return found


def _dense(ctx: Lowering, group: Group, window: Window, images: list[list[NkiTensor]]) -> None:
    node = group.anchor
    assert node is not None
    layout = ctx.layout_of(group.last.output)
    sink = Sink(ctx, group.last.output, layout)
    taps = _taps(ctx, node.inputs[1])
    places = [(y, x) for y in range(window.taps[0]) for x in range(window.taps[1])]
    for b0, b in layout.chunks():
        for n in range(layout.a):
            for row0, rows in _bands(window):
                columns = rows * window.out[1]
                product = ctx.psum((b, columns))
                stationary, moving = [], []
                for weights, per_image in zip(taps, images, strict=True):
                    for i, (y, x) in enumerate(places):
                        stationary.append(weights[:, i, b0 : b0 + b])
                        moving.append(window.tap(per_image[n], y, x, row0, rows))
                accumulate(product, stationary, moving)
                chunk = Chunk(b0, b, n, 1, row0 * window.out[1], columns)
                with sink.chunk(chunk) as dst:
                    finish(ctx, group, layout, chunk, product, dst, _bias(ctx, node, layout, chunk))
    sink.finish()


def _depthwise(ctx: Lowering, group: Group, window: Window, images: list[list[NkiTensor]]) -> None:
    """One filter per channel: a weighted sum of shifted images, channel by channel, on the vector engine."""
    node = group.anchor
    assert node is not None
    layout = ctx.layout_of(group.last.output)
    sink = Sink(ctx, group.last.output, layout)
    count = math.prod(window.taps)
    weights = ctx.tiles(node.inputs[1], Layout(1, layout.b, count))
    for (b0, b), per_image in zip(layout.chunks(), images, strict=True):
        factors = ctx.float32(weights.rows(b0, b).reshape((b, count)))
        for n in range(layout.a):
            chunk = Chunk(b0, b, n, 1, 0, layout.c)
            total = None
            for i in range(count):
                tap = window.tap(per_image[n], *divmod(i, window.taps[1]), 0, window.out[0])
                grown = ctx.sbuf((b, *window.out), dt.float32)
                if total is None:
                    nisa.tensor_scalar(dst=grown, data=tap, op0="multiply", operand0=factors[:, i : i + 1])
                else:
                    nisa.scalar_tensor_tensor(
                        dst=grown, data=tap, op0="multiply", operand0=factors[:, i : i + 1], op1="add", operand1=total
                    )
                total = grown
            assert total is not None
            with sink.chunk(chunk) as dst:
                finish(ctx, group, layout, chunk, total, dst, _bias(ctx, node, layout, chunk))
    sink.finish()


def lower_pool(ctx: Lowering, group: Group) -> None:
    """Maximum or average over a window: shifted views of the padded image, combined on the vector engine."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Pool)
    op, x = node.op, node.inputs[0]
    window = window_of(node, op.kernel, op.stride, op.padding, op.dilation or (1,) * len(op.kernel))
    largest = op.kind == "max"
    images = padded_images(ctx, x, window, -3.0e38 if largest else 0.0)
    layout = ctx.layout_of(node.output)
    sink = Sink(ctx, node.output, layout)
    counts = None if largest else _window_counts(op, window)
    for (b0, b), per_image in zip(layout.chunks(), images, strict=True):
        for n in range(layout.a):
            total = None
            for y in range(window.taps[0]):
                for i in range(window.taps[1]):
                    tap = window.tap(per_image[n], y, i, 0, window.out[0])
                    if total is None:
                        total = tap
                        continue
                    grown = ctx.sbuf((b, *window.out), x.dtype if largest else dt.float32)
                    nisa.tensor_tensor(dst=grown, data1=total, data2=tap, op="maximum" if largest else "add")
                    total = grown
            assert total is not None
            with sink.chunk(Chunk(b0, b, n, 1, 0, layout.c)) as dst:
                _store_pooled(ctx, dst.reshape((b, *window.out)), total, counts, b)
    sink.finish()


def _store_pooled(ctx: Lowering, dst: NkiTensor, total: NkiTensor, counts, partitions: int) -> None:
    if counts is None:
        nisa.tensor_copy(dst=dst, src=total)
    elif (counts == counts.flat[0]).all():
        nisa.tensor_scalar(dst=dst, data=total, op0="multiply", operand0=float(1.0 / counts.flat[0]))
    else:
        table = ctx.builder.constant("window_counts", (1.0 / counts).astype("float32"), dt.float32)
        factors = ctx.sbuf((partitions, *counts.shape), dt.float32)
        pairs = ((0, partitions), (1, counts.size))
        view = table.access
        source = type(view)(view.buffer, 0, pairs, view.dtype)
        nisa.dma_copy(dst=factors, src=NkiTensor(source))
        nisa.tensor_tensor(dst=dst, data1=total, data2=factors, op="multiply")


def _window_counts(op: Pool, window: Window):
    """How many elements each position averages over, [out height, out width]."""

    def along(i: int) -> np.ndarray:
        low = window.padding[i][0]
        high = window.size[i] + (sum(window.padding[i]) if op.count_include_pad else low)
        first = 0 if op.count_include_pad else low
        starts = np.arange(window.out[i]) * window.stride[i]
        return np.minimum(starts + window.taps[i], high) - np.maximum(starts, first)

    return np.outer(along(0), along(1)).astype(np.float64)
