"""Convolution and pooling on images with channels on partitions.

A convolution is a sum of matrix products, one for each tap of the window: the taps' weights [channels in, channels out]
are stationary, and the moving operand is the padded image seen through the tap, a strided view that costs no copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, channels
from ranvier.compiler.lower.context import Lowering, device_dtype
from ranvier.compiler.lower.contract import finish
from ranvier.compiler.lower.pointwise import Sink, own_tile
from ranvier.compiler.lower.step import Chunk
from ranvier.compiler.lower.view import HbmView
from ranvier.errors import error
from ranvier.graph.contract import Conv, Pool
from ranvier.graph.core import Node, Value
from ranvier.kernels.matmul import accumulate, spans
from ranvier.kernels.sizes import MOVING_COLUMNS
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

    def rows_of(self, row0: int, rows: int) -> tuple[int, int]:
        """First row of the padded image that result rows [row0, row0 + rows) need, and how many."""
        return row0 * self.stride[0], (rows - 1) * self.stride[0] + (self.taps[0] - 1) * self.dilation[0] + 1

    def tap(self, image: NkiTensor, y: int, x: int, at: Band) -> NkiTensor:
        """The result's positions `at`, seen through tap (y, x) of a padded [P, H, W] image from row at.top on."""
        (sy, sx), (dy, dx) = self.stride, self.dilation
        top, left = at.row0 * sy - at.top + y * dy, at.column0 * sx + x * dx
        down, across = (at.rows - 1) * sy + 1, (at.columns - 1) * sx + 1
        return image[:, top : top + down : sy, left : left + across : sx]


@dataclass(frozen=True, slots=True)
class Band:
    """Positions of a result: rows [row0, row0 + rows) and columns [column0, column0 + columns).

    The padded image that they are computed from begins at its row `top`.
    """

    row0: int
    rows: int
    column0: int
    columns: int
    top: int


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


IMAGE_BYTES = 48 * 1024
"""Bytes per partition that one padded image takes on chip; of larger ones a block of rows at a time is loaded."""


@dataclass(frozen=True, slots=True)
class Block:
    """Result rows [row0, row0 + rows) of image n, and the padded rows they need.

    `images` has a [channels, H, W] tile for each chunk of channels, from padded row `top` on.
    """

    n: int
    row0: int
    rows: int
    top: int
    images: tuple[NkiTensor, ...]


def blocks(ctx: Lowering, x: Value, layout: Layout, window: Window, fill: float) -> Iterator[Block]:
    """The images of a batch, whole or by blocks of rows, with borders of `fill`."""
    row_bytes = window.padded[1] * device_dtype(x.dtype).itemsize
    step, span = window.stride[0], (window.taps[0] - 1) * window.dilation[0] + 1
    together = max(1, (IMAGE_BYTES // row_bytes - span) // step + 1)
    for n in range(layout.a):
        for row0, rows in spans(window.out[0], together):
            top, height = window.rows_of(row0, rows) if rows < window.out[0] else (0, window.padded[0])
            parts = [Chunk(b0, b, n, 1, top, height) for b0, b in layout.chunks()]
            yield Block(n, row0, rows, top, tuple(_image(ctx, x, layout, window, fill, part) for part in parts))


def _image(ctx: Lowering, x: Value, layout: Layout, window: Window, fill: float, part: Chunk) -> NkiTensor:
    """Padded rows [c0, c0 + c) of image a0 for the channels of `part`."""
    (low, _), (left, _) = window.padding
    height, width = window.size
    first, last = max(part.c0 - low, 0), min(part.c0 + part.c - low, height)
    whole = Chunk(part.b0, part.b, part.a0, 1, first * width, max(last - first, 0) * width)
    if (first, last, part.c0) == (0, height, 0) and window.padded == window.size:
        return own_tile(ctx, x, layout, whole).reshape((part.b, height, width))
    image = ctx.sbuf((part.b, part.c, window.padded[1]), x.dtype)
    inner = (last - first) * width
    if inner < part.c * window.padded[1]:
        nisa.memset(dst=image, value=fill)
    if inner > 0:
        source = own_tile(ctx, x, layout, whole).reshape((part.b, last - first, width))
        top = first + low - part.c0
        nisa.tensor_copy(dst=image[:, top : top + last - first, left : left + width], src=source)
    return image


def _bands(window: Window, block: Block) -> list[Band]:
    """Parts of a block whose results fit in one PSUM bank."""
    width = window.out[1]
    found = []
    for r0, rows in spans(block.rows, max(1, MOVING_COLUMNS // width)):
        for c0, columns in spans(width, MOVING_COLUMNS):
            found.append(Band(block.row0 + r0, rows, c0, columns, block.top))
    return found


def lower_conv(ctx: Lowering, group: Group) -> None:
    """Convolution [N, C, H, W] with weight [O, C / groups, kh, kw]; depthwise ones on the vector engine."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Conv)
    op = node.op
    x, weight = node.inputs[:2]
    window = window_of(node, weight.shape[2:], op.stride, op.padding, op.dilation)
    if op.groups > 1 and op.groups == x.shape[1] == weight.shape[0]:
        _depthwise(ctx, group, window)
    else:
        _dense(ctx, group, window, op.groups)


def _bias(ctx: Lowering, node: Node, layout: Layout, chunk: Chunk):
    if len(node.inputs) < 3:
        return None
    return ctx.vector(node.inputs[2], Layout(1, layout.b, 1, layout.segment), chunk.b0, chunk.b)


def _weight_view(ctx: Lowering, weight: Value) -> HbmView:
    """The weight in HBM as [channels in, taps, channels out]."""
    out, inner = weight.shape[:2]
    count = math.prod(weight.shape[2:])
    base = ctx.root(weight)
    if base in ctx.params:
        return ctx.param_view(base, (out, inner, count), (1, 2, 0))
    shaped = ctx.contiguous(weight).reshape((out, inner, count))
    assert shaped is not None
    view = ctx.scratch((inner, count, out), weight.dtype)
    ctx.copy_view(view, shaped.permute((1, 2, 0)))
    return view


class _Taps:
    """Weights as [channels in, taps, channels out] tiles for a chunk of channels in and one of channels out.

    With several groups of channels a tile is zero but for blocks on its diagonal, one for each group: the products then
    cover whole chunks of channels, whatever the size of a group.
    """

    def __init__(self, ctx: Lowering, weight: Value, groups: int):
        self.ctx, self.weight, self.groups = ctx, weight, groups
        self.out, self.inner = weight.shape[0] // groups, weight.shape[1]  # channels of one group
        self.count = math.prod(weight.shape[2:])
        self.view = _weight_view(ctx, weight)

    def meets(self, i0: int, i: int, o0: int, o: int) -> list[int]:
        """The groups that have channels in [i0, i0 + i) and results in [o0, o0 + o)."""
        first, last = max(i0 // self.inner, o0 // self.out), min((i0 + i - 1) // self.inner, (o0 + o - 1) // self.out)
        return list(range(first, last + 1))

    def tile(self, i0: int, i: int, o0: int, o: int) -> NkiTensor:
        if self.groups == 1:  # one tile for all channels out, of which this is a part
            whole = self.ctx.once(("taps", self.weight, i0, i), lambda: self._load(i0, i, 0, self.out))
            return whole[:, :, o0 : o0 + o]
        return self.ctx.once(("taps", self.weight, i0, i, o0, o), lambda: self._load(i0, i, o0, o))

    def _load(self, i0: int, i: int, o0: int, o: int) -> NkiTensor:
        tile = self.ctx.sbuf((i, self.count, o), self.weight.dtype)
        if self.groups > 1:
            nisa.memset(dst=tile, value=0.0)
        for group in self.meets(i0, i, o0, o):
            ins = self._within(group, self.inner, i0, i)
            outs = self._within(group, self.out, o0, o)
            source = self.view.slice(
                (ins[0] - group * self.inner, 0, outs[0]), (ins[1] - group * self.inner, self.count, outs[1]), (1, 1, 1)
            )
            part = tile[ins[0] - i0 : ins[1] - i0, :, outs[0] - o0 : outs[1] - o0]
            nisa.dma_copy(dst=part, src=NkiTensor(source.access(source.pairs)))
        return tile

    @staticmethod
    def _within(group: int, size: int, start: int, count: int) -> tuple[int, int]:
        return max(group * size, start), min((group + 1) * size, start + count)


def _dense(ctx: Lowering, group: Group, window: Window, groups: int) -> None:
    """On the tensor engine: for each chunk of results the sum over taps and over the channels that it depends on."""
    node = group.anchor
    assert node is not None
    x, weight = node.inputs[:2]
    layout, source = ctx.layout_of(group.last.output), channels(x.shape)
    sink = Sink(ctx, group.last.output, layout)
    taps = _Taps(ctx, weight, groups)
    places = [(y, x) for y in range(window.taps[0]) for x in range(window.taps[1])]
    for block in blocks(ctx, x, source, window, 0.0):
        for b0, b in layout.chunks():
            used = [
                (taps.tile(i0, i, b0, b), image)
                for (i0, i), image in zip(source.chunks(), block.images, strict=True)
                if taps.meets(i0, i, b0, b)
            ]
            for band in _bands(window, block):
                product = ctx.psum((b, band.rows * band.columns))
                stationary = [weights[:, t, :] for weights, _ in used for t in range(len(places))]
                moving = [window.tap(image, *place, band) for _, image in used for place in places]
                accumulate(product, stationary, moving)
                _finish_band(ctx, group, layout, sink, window, block.n, (b0, b), band, product)
    sink.finish()


def _finish_band(
    ctx: Lowering, group: Group, layout: Layout, sink: Sink, window: Window, n: int, rows: tuple[int, int], band: Band,
    product: NkiTensor,
) -> None:  # fmt: skip
    node = group.anchor
    assert node is not None
    first = band.row0 * window.out[1] + band.column0
    chunk = Chunk(*rows, n, 1, first, band.rows * band.columns)
    with sink.chunk(chunk) as dst:
        finish(ctx, group, layout, chunk, product, dst, _bias(ctx, node, layout, chunk))


def _depthwise(ctx: Lowering, group: Group, window: Window) -> None:
    """One filter per channel: a weighted sum of shifted images, channel by channel, on the vector engine."""
    node = group.anchor
    assert node is not None
    x, weight = node.inputs[:2]
    layout = ctx.layout_of(group.last.output)
    sink = Sink(ctx, group.last.output, layout)
    count = math.prod(window.taps)
    weights = ctx.tiles(weight, Layout(1, layout.b, count))
    for block in blocks(ctx, x, channels(x.shape), window, 0.0):
        band = Band(block.row0, block.rows, 0, window.out[1], block.top)
        for (b0, b), image in zip(layout.chunks(), block.images, strict=True):
            factors = ctx.float32(weights.rows(b0, b).reshape((b, count)))
            total = None
            for i in range(count):
                tap = window.tap(image, *divmod(i, window.taps[1]), band)
                grown = ctx.sbuf((b, band.rows, band.columns), dt.float32)
                if total is None:
                    nisa.tensor_scalar(dst=grown, data=tap, op0="multiply", operand0=factors[:, i : i + 1])
                else:
                    nisa.scalar_tensor_tensor(
                        dst=grown, data=tap, op0="multiply", operand0=factors[:, i : i + 1], op1="add", operand1=total
                    )
                total = grown
            assert total is not None
            _finish_band(ctx, group, layout, sink, window, block.n, (b0, b), band, total)
    sink.finish()


# -- pooling


def lower_pool(ctx: Lowering, group: Group) -> None:
    """Maximum or average over a window, along rows first and then along columns, on the vector engine."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Pool)
    op, x = node.op, node.inputs[0]
    window = window_of(node, op.kernel, op.stride, op.padding, op.dilation)
    largest = op.kind == "max"
    layout = ctx.layout_of(node.output)
    sink = Sink(ctx, node.output, layout)
    factors = None if largest else 1.0 / _window_counts(op, window)
    for block in blocks(ctx, x, channels(x.shape), window, -math.inf if largest else 0.0):
        for (b0, b), image in zip(layout.chunks(), block.images, strict=True):
            total = _combined(ctx, window, block, image, largest)
            chunk = Chunk(b0, b, block.n, 1, block.row0 * window.out[1], block.rows * window.out[1])
            with sink.chunk(chunk) as dst:
                dst = dst.reshape((b, block.rows, window.out[1]))
                if factors is None:
                    nisa.tensor_copy(dst=dst, src=total)
                else:
                    _scale(ctx, dst, total, factors[block.row0 : block.row0 + block.rows])
    sink.finish()


def _combined(ctx: Lowering, window: Window, block: Block, image: NkiTensor, largest: bool) -> NkiTensor:
    """The maximum or sum of each window: taps of a row combined in every row, then those rows."""
    (down, across), (dy, dx), (sy, sx) = window.taps, window.dilation, window.stride
    columns = (window.out[1] - 1) * sx + 1
    in_rows = [image[:, :, x * dx : x * dx + columns : sx] for x in range(across)]
    rows = _fold(ctx, in_rows, largest)
    top, reach = block.row0 * sy - block.top, (block.rows - 1) * sy + 1
    return _fold(ctx, [rows[:, top + y * dy : top + y * dy + reach : sy, :] for y in range(down)], largest)


def _fold(ctx: Lowering, parts: list[NkiTensor], largest: bool) -> NkiTensor:
    total = parts[0]
    for part in parts[1:]:
        grown = ctx.sbuf(part.shape, part.dtype if largest else dt.float32)
        nisa.tensor_tensor(dst=grown, data1=total, data2=part, op="maximum" if largest else "add")
        total = grown
    return total


def _scale(ctx: Lowering, dst: NkiTensor, total: NkiTensor, factors: np.ndarray) -> None:
    """Sums times one factor, or one factor for each position."""
    if (factors == factors.flat[0]).all():
        nisa.tensor_scalar(dst=dst, data=total, op0="multiply", operand0=float(factors.flat[0]))
        return
    table = ctx.builder.constant("window_counts", factors.astype(np.float32), dt.float32)
    tile = ctx.sbuf((dst.shape[0], *factors.shape), dt.float32)
    view = HbmView.whole(table.access.buffer)
    nisa.dma_copy(dst=tile, src=NkiTensor(view.access(((0, dst.shape[0]), (1, factors.size)))))
    nisa.tensor_tensor(dst=dst, data1=total, data2=tile, op="multiply")


def _window_counts(op: Pool, window: Window) -> np.ndarray:
    """How many elements each position averages over, [out height, out width]."""

    def along(i: int) -> np.ndarray:
        low, high = window.padding[i]
        first, last = (0, low + window.size[i] + high) if op.count_include_pad else (low, low + window.size[i])
        taps = np.arange(window.taps[i]) * window.dilation[i]
        places = np.arange(window.out[i])[:, None] * window.stride[i] + taps
        return ((places >= first) & (places < last)).sum(axis=1)

    return np.outer(along(0), along(1)).astype(np.float64)
