"""What the lowering knows while it walks the groups of a graph: where each value lies, in which layouts.

A value may lie in HBM as a strided view, on chip as tiles in one or more layouts, or both; it gets to another place
the first time somebody asks for it there. Movement operations (transpose, slice, broadcast) cost nothing until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ranvier import dtypes as dt
from ranvier.compiler.layout import Layout, rows
from ranvier.compiler.lower.ranges import magnitudes
from ranvier.compiler.lower.view import HbmView
from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.graph.core import Graph, Node, Value
from ranvier.graph.movement import Reshape
from ranvier.ir.kernel import ParamSource
from ranvier.isa.access import AccessPattern, Buffer
from ranvier.kernels.sizes import MOVING_COLUMNS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.builder import RecordingBuilder
from ranvier.nki.tensor import NkiTensor
from ranvier.target.spec import Target

FREE_BYTES = 32 * 1024
"""Most bytes per partition that one tile of an intermediate value takes; larger values stay in HBM."""


def device_dtype(dtype: DType) -> DType:
    """The dtype in device memory: bool is stored as uint8."""
    return dt.uint8 if dtype is dt.bool_ else dtype


@dataclass(frozen=True, slots=True)
class Tiles:
    """A value on chip: one [size, a, c] tile for each chunk of its layout."""

    layout: Layout
    tiles: tuple[NkiTensor, ...]

    def rows(self, start: int, size: int) -> NkiTensor:
        """Rows [start, start + size) of axis b, which must lie in one tile: [size, a, c]."""
        for (first, count), tile in zip(self.layout.chunks(), self.tiles, strict=True):
            if first <= start and start + size <= first + count:
                return tile if size == count else tile[start - first : start - first + size]
        raise error("E0901", f"rows {start} to {start + size} cross the tiles of {self.layout}")


@dataclass(frozen=True, slots=True)
class Affine:
    """A value as normalized rows that are still to be scaled by `weight` and shifted by `bias`, both per column.

    Turned to columns on partitions, scale and shift cost nothing: the copy out of PSUM applies them.
    """

    normal: Tiles
    weight: Value | None
    bias: Value | None


class Lowering:
    """The state of one lowering. `layouts` are those that `assign_layouts` chose, by value."""

    def __init__(self, graph: Graph, layouts: dict[Value, Layout], builder: RecordingBuilder, target: Target):
        self.graph, self.layouts, self.builder, self.target = graph, layouts, builder, target
        self.producers: dict[Value, Node] = graph.producers()
        self.users = graph.users()
        self.params = {p.value: p.key for p in graph.params}
        self.literals = {c.value: c.array for c in graph.constants}
        self._magnitudes = magnitudes(graph)
        self._views: dict[Value, HbmView] = {}
        self._tiles: dict[tuple[Value, Layout], Tiles] = {}
        self._by_root: dict[Value, list[Layout]] = {}
        self._lazy: dict[Value, Callable[[], HbmView]] = {}
        self._affine: dict[Value, Affine] = {}
        self._shared: dict[tuple, NkiTensor] = {}

    # -- where values are
    def root(self, value: Value) -> Value:
        """The value with the same elements in the same order that `value` is a reshape of."""
        while value in self.producers and isinstance(self.producers[value].op, Reshape):
            value = self.producers[value].inputs[0]
        return value

    def put_view(self, value: Value, view: HbmView) -> None:
        self._views[value] = view

    def put_lazy(self, value: Value, make: Callable[[], HbmView]) -> None:
        """`value` is what `make` gives, in HBM, when somebody asks."""
        self._lazy[value] = make

    def put_tiles(self, value: Value, tiles: Tiles) -> None:
        value = self.root(value)
        self._tiles[value, tiles.layout] = tiles
        self._by_root.setdefault(value, []).append(tiles.layout)

    def put_affine(self, value: Value, affine: Affine) -> None:
        self._affine[self.root(value)] = affine

    def number(self, value: Value) -> float | int | None:
        """The value as a Python number (an integer for integers and booleans) if it is a literal with one element."""
        array = self.literals.get(self.root(value))
        if array is None or array.size != 1:
            return None
        return float(array.reshape(-1)[0]) if value.dtype.is_float else int(array.reshape(-1)[0])

    def magnitude(self, value: Value) -> int:
        """A bound on the magnitude of an integer value."""
        return self._magnitudes[value]

    # -- on chip
    def tiles(self, value: Value, layout: Layout) -> Tiles:
        """`value` on chip in `layout`: as it is there already, turned around on the tensor engine, or loaded."""
        base = self.root(value)
        found = self._tiles.get((base, layout))
        if found is None:
            found = self._scaled(base, layout) or self._derive(base, layout) or self._load(value, layout)
            self.put_tiles(base, found)
        return found

    def has_tiles(self, value: Value) -> list[Layout]:
        """Layouts in which `value` is on chip already."""
        base = self.root(value)
        rows_of = [self._affine[base].normal.layout] if base in self._affine else []
        return [*self._by_root.get(base, []), *(have for have in rows_of if (base, have) not in self._tiles)]

    def column_block(self, value: Value, start: int, size: int) -> list[NkiTensor]:
        """Rows [start, start + size) of [.., K], turned: a [<=128, size] tile for each 128 of K.

        For values that are too large to be on chip as columns all at once.
        """
        width = value.shape[-1]
        total = math.prod(value.shape[:-1])
        columns = Layout(total, width, 1)
        if (self.root(value), columns) in self._tiles or self.fits(columns, value.dtype):
            whole = self.tiles(value, columns)
            return [t.reshape((t.shape[0], total))[:, start : start + size] for t in whole.tiles]
        source = self.new_tiles(Layout(1, size, width), value.dtype)
        view = self.view_in(value, Layout(1, total, width))
        for (first, count), tile in zip(source.layout.chunks(), source.tiles, strict=True):
            self.load(tile, view, Layout(1, total, width), start + first, count)
        turned = self._turn(source, Layout(size, width, 1), value.dtype)
        return [t.reshape((t.shape[0], size)) for t in turned.tiles]

    def new_tiles(self, layout: Layout, dtype: DType) -> Tiles:
        shapes = [(size, layout.a, layout.c) for _, size in layout.chunks()]
        return Tiles(layout, tuple(self.sbuf(shape, dtype) for shape in shapes))

    def sbuf(self, shape: tuple[int, ...], dtype: DType) -> NkiTensor:
        return nl.ndarray(shape, dtype=device_dtype(dtype), buffer=nl.sbuf)

    def psum(self, shape: tuple[int, ...], dtype: DType = dt.float32) -> NkiTensor:
        return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)

    def _scaled(self, base: Value, layout: Layout) -> Tiles | None:
        """A value kept as normalized rows: as such rows, scaled and shifted, or turned to columns."""
        affine = self._affine.get(base)
        if affine is None:
            return None
        have = affine.normal.layout
        if (have.a, have.b, have.c) == (1, layout.a, layout.b) and layout.c == 1:
            return self._turn(affine.normal, layout, base.dtype, affine)
        if layout == have:
            return self._scaled_rows(base, affine)
        self.tiles(base, have)  # another layout is made from the rows
        return None

    def _scaled_rows(self, base: Value, affine: Affine) -> Tiles:
        result = self.new_tiles(affine.normal.layout, base.dtype)
        steps = [(v, op) for v, op in ((affine.weight, "multiply"), (affine.bias, "add")) if v is not None]
        for source, to in zip(affine.normal.tiles, result.tiles, strict=True):
            for i, (value, op) in enumerate(steps):
                size = to.shape[0]
                row = self.replica(value, value.shape, size).reshape(to.shape)
                dst = to if i == len(steps) - 1 else self.sbuf(to.shape, base.dtype)
                nisa.tensor_tensor(dst=dst, data1=source, data2=row, op=op)
                source = dst
        return result

    def _derive(self, base: Value, layout: Layout) -> Tiles | None:
        """From another layout on chip: finer chunks of the same box, or rows and columns exchanged."""
        for have in self._by_root.get(base, []):
            same_box = (have.a, have.b, have.c) == (layout.a, layout.b, layout.c)
            if same_box and self._nested(layout, have):
                source = self._tiles[base, have]
                return Tiles(layout, tuple(source.rows(start, size) for start, size in layout.chunks()))
        for have in self._by_root.get(base, []):
            turned = (have.a, have.b, have.c) == (1, layout.a, layout.b) and layout.c == 1
            turned = turned or ((have.a, have.b) == (layout.b, layout.c) and have.c == 1 and layout.a == 1)
            if turned and base.dtype.is_float and base.dtype.itemsize in (2, 4):
                return self._turn(self._tiles[base, have], layout, base.dtype)
        return None

    def _nested(self, inner: Layout, outer: Layout) -> bool:
        """Every chunk of `inner` lies in one of `outer`, at a partition where an engine can start."""
        ends = [(start, start + size) for start, size in outer.chunks()]
        for start, size in inner.chunks():
            home = next((e for e in ends if e[0] <= start and start + size <= e[1]), None)
            if home is None or (start - home[0]) % self.target.limits.start_step(size):
                return False
        return True

    def _turn(self, source: Tiles, layout: Layout, dtype: DType, affine: Affine | None = None) -> Tiles:
        """Rows to columns or back, block by block through PSUM. A block is where a source tile meets a result tile.

        With `affine` the copy out of PSUM scales and shifts each column, which is a partition by then.
        """
        result = self.new_tiles(layout, dtype)
        have = source.layout
        # A product takes 512 columns at a time: more of them together would make the first wait for the last.
        bank = min(MOVING_COLUMNS, int(self.target.psum.bank_bytes.value) // dtype.itemsize)
        for (b0, b_size), to in zip(layout.chunks(), result.tiles, strict=True):
            to = to.reshape((b_size, layout.free))
            pieces = list(zip(have.chunks(), source.tiles, strict=True))
            while pieces:  # several source tiles are copied out of one PSUM bank together
                batch, width = [], 0
                while pieces and width + pieces[0][0][1] <= bank:
                    width += pieces[0][0][1]
                    batch.append(pieces.pop(0))
                first = batch[0][0][0]
                turned = self.psum((b_size, width), dtype)
                for (start, size), tile in batch:
                    block = tile.reshape((size, have.free))[:, b0 : b0 + b_size]
                    nisa.nc_transpose(dst=turned[:, start - first : start - first + size], data=block)
                self._copy_scaled(to[:, first : first + width], turned, affine, layout, b0)
        return result

    def _copy_scaled(self, dst: NkiTensor, src: NkiTensor, affine: Affine | None, layout: Layout, start: int) -> None:
        steps = []
        if affine is not None:
            whole = Layout(1, layout.b, 1, layout.segment)
            for value, op in ((affine.weight, "multiply"), (affine.bias, "add")):
                if value is not None:
                    steps.append((op, self.vector(value, whole, start, dst.shape[0])))
        if not steps:
            nisa.tensor_copy(dst=dst, src=src)
            return
        (op0, operand0), (op1, operand1) = steps[0], steps[1] if len(steps) == 2 else (None, None)
        nisa.tensor_scalar(dst=dst, data=src, op0=op0, operand0=operand0, op1=op1, operand1=operand1)

    # -- HBM
    def view(self, value: Value) -> HbmView:
        """`value` in HBM; stored there first if it is only on chip."""
        found = self._views.get(value)
        if found is None:
            found = self._views[value] = self._make_view(value)
        return found

    def _make_view(self, value: Value) -> HbmView:
        if value in self._lazy:
            return self._lazy[value]()
        if value in self.params:
            buffer = self.builder.param(
                self.name_of(value),
                value.shape or (1,),
                device_dtype(value.dtype),
                ParamSource(self.params[value], reshape=value.shape or (1,), dtype=device_dtype(value.dtype)),
            )
            return self._shaped(HbmView.whole(buffer.access.buffer), value.shape)
        if value in self.literals:
            array = np.ascontiguousarray(self.literals[value])
            dtype = device_dtype(value.dtype)
            tensor = self.builder.constant(
                self.name_of(value), array.astype(dtype.np).reshape(array.shape or (1,)), dtype
            )
            return self._shaped(HbmView.whole(tensor.access.buffer), value.shape)
        base = self.root(value)
        if base is not value and (
            base in self._views or base in self._lazy or base in self.params or base in self.literals
        ):
            reshaped = self.view(base).reshape(value.shape)
            return reshaped if reshaped is not None else self._shaped(self.contiguous(base), value.shape)
        if self.has_tiles(base):
            return self._shaped(self._store(base), value.shape)
        raise error("E0901", f"lowering reads {value!r} before it is computed")

    def _shaped(self, view: HbmView, shape: tuple[int, ...]) -> HbmView:
        reshaped = view.reshape(shape)
        if reshaped is None:
            raise error("E0901", f"a contiguous tensor of shape {view.shape} does not reshape to {shape}")
        return reshaped

    def name_of(self, value: Value) -> str:
        """A name for a buffer that holds `value`; the builder makes it unique."""
        return value.name or "value"

    def scratch(self, shape: tuple[int, ...], dtype: DType) -> HbmView:
        """A new tensor in HBM."""
        return self._shaped(HbmView.whole(self._hbm(shape, device_dtype(dtype))), shape)

    def _hbm(self, shape: tuple[int, ...], dtype: DType) -> Buffer:
        return nl.ndarray(shape or (1,), dtype=dtype, buffer=nl.private_hbm).access.buffer

    def contiguous(self, value: Value) -> HbmView:
        """`value` in HBM in row-major order without gaps, copied there if need be."""
        view = self.view(value)
        if HbmView.whole(view.buffer).strides == view.strides and view.offset == 0 and view.buffer.shape == view.shape:
            return view
        copy = self.scratch(value.shape, value.dtype)
        self.copy_view(copy, view)
        return copy

    def copy_view(self, to: HbmView, source: HbmView) -> None:
        """Copy between HBM views of one shape."""
        nisa.dma_copy(dst=NkiTensor(to.access(to.pairs)), src=NkiTensor(source.access(source.pairs)))

    def _store(self, base: Value) -> HbmView:
        layout = self.has_tiles(base)[0]
        view = self.scratch(base.shape, base.dtype)
        self.store(self.tiles(base, layout), view)
        return view

    def store(self, source: Tiles, view: HbmView) -> None:
        """Write tiles to an HBM view whose dimensions split at the layout's borders."""
        for (start, size), tile in zip(source.layout.chunks(), source.tiles, strict=True):
            for done, count, access in self._boxes(view, source.layout, start, size):
                nisa.dma_copy(dst=NkiTensor(access), src=tile[done : done + count])

    def _boxes(self, view: HbmView, layout: Layout, start: int, size: int) -> list[tuple[int, int, AccessPattern]]:
        boxes = view.boxes(layout, start, size)
        if boxes is None:
            raise error("E0901", f"a view of shape {view.shape} and strides {view.strides} has no layout {layout}")
        return list(boxes)

    def load(self, tile: NkiTensor, view: HbmView, layout: Layout, start: int, size: int) -> None:
        """Fill a [size, a, c] tile with rows [start, start + size) of axis b of `view` in `layout`."""
        for done, count, access in self._boxes(view, layout, start, size):
            nisa.dma_copy(dst=tile[done : done + count], src=NkiTensor(access))

    def _load(self, value: Value, layout: Layout) -> Tiles:
        view = self.view_in(value, layout)
        result = self.new_tiles(layout, value.dtype)
        for (start, size), tile in zip(layout.chunks(), result.tiles, strict=True):
            self.load(tile, view, layout, start, size)
        return result

    def view_in(self, value: Value, layout: Layout) -> HbmView:
        """An HBM view of `value` that splits at the layout's borders; for parameters one that loads in long runs."""
        base = self.root(value)
        if base in self.params and layout.a > 1:
            return self.param_view(base, (layout.a, layout.b, layout.c), (1, 0, 2)).permute((1, 0, 2))
        view = self.view(value)
        return view if view.regroup((layout.a, layout.b, layout.c)) is not None else self.contiguous(value)

    def splitting(self, view: HbmView, layout: Layout) -> HbmView:
        """`view`, or a contiguous copy of it where its dimensions do not split at the layout's borders."""
        if view.regroup((layout.a, layout.b, layout.c)) is not None:
            return view
        copy = self._shaped(HbmView.whole(self._hbm(view.shape, view.dtype)), view.shape)
        self.copy_view(copy, view)
        return copy

    def param_view(self, value: Value, reshape: tuple[int, ...], permute: tuple[int, ...]) -> HbmView:
        """A parameter rearranged when it is loaded to the device: reshaped, then permuted."""

        def make() -> NkiTensor:
            shape = tuple(reshape[i] for i in permute)
            source = ParamSource(self.params[value], reshape, permute, device_dtype(value.dtype))
            return self.builder.param(self.name_of(value), shape, device_dtype(value.dtype), source)

        return HbmView.whole(self.once(("param", value, reshape, permute), make).access.buffer)

    # -- what several groups share
    def once(self, key: tuple, make: Callable[[], NkiTensor]) -> NkiTensor:
        """The tile that `make` gives, made the first time that `key` is asked for."""
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = make()
        return found

    # -- operands of element-wise work
    def replica(self, value: Value, shape: tuple[int, ...], partitions: int) -> NkiTensor:
        """A tile [partitions, elements] with the elements of `value`, seen in `shape`, in every partition."""

        def make() -> NkiTensor:
            view = self._shaped(self.view(value), shape)
            tile = self.sbuf((partitions, math.prod(shape)), value.dtype)
            nisa.dma_copy(dst=tile, src=NkiTensor(view.access(((0, partitions), *view.pairs))))
            return tile

        return self.once(("replica", self.root(value), shape, partitions), make)

    def vector(self, value: Value, layout: Layout, start: int, size: int) -> NkiTensor:
        """Rows [start, start + size) of a value with one element per partition, as [size, 1] float32.

        Scalar operands of instructions are float32, so others are converted, once.
        """
        return self.float32(self.tiles(value, layout).rows(start, size).reshape((size, 1)))

    def float32(self, tile: NkiTensor) -> NkiTensor:
        """The tile itself or, once made, a copy of it in float32."""
        if tile.dtype is dt.float32:
            return tile

        def make() -> NkiTensor:
            copy = self.sbuf(tile.shape, dt.float32)
            nisa.tensor_copy(dst=copy, src=tile)
            return copy

        return self.once(("float32", tile.access), make)

    def ones(self, size: int, dtype: DType) -> NkiTensor:
        """A [1, size] tile of ones."""

        def make() -> NkiTensor:
            tile = self.sbuf((1, size), dtype)
            nisa.memset(dst=tile, value=1.0)
            return tile

        return self.once(("ones", size, dtype), make)

    def fits(self, layout: Layout, dtype: DType) -> bool:
        """Whether a value in this layout stays on chip."""
        return layout.free * device_dtype(dtype).itemsize <= FREE_BYTES

    def layout_of(self, value: Value) -> Layout:
        """The layout chosen for a group's result."""
        return self.layouts.get(value) or rows(value.shape or (1,))
