"""Attention: finds the heads of queries, keys and values on chip and runs the attention kernel on them."""

from __future__ import annotations

from ranvier import dtypes as dt
from ranvier.compiler.graph.assign_layouts import head_layout, merged_heads, unsplit_heads
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, rows
from ranvier.compiler.lower.context import Lowering, Tiles
from ranvier.graph.attention import Attention
from ranvier.graph.core import Node, Value
from ranvier.kernels.attention import MASKED, Heads, attention
from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import PARTITIONS
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor


def lower_attention(ctx: Lowering, group: Group) -> None:
    """softmax(scale * q k^T + mask) v for q [B, H, Sq, D] and k, v [B, Hkv, Sk, D], batch entry by batch entry."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Attention)
    query, key, value = node.inputs[:3]
    batch, heads, q_len, _ = query.shape
    k_len, dv = value.shape[2:]
    shared = heads // key.shape[1]
    queries, keys = _Columns(ctx, query, shared > 1), _Columns(ctx, key, shared > 1)
    values = _Rows(ctx, value)
    merged = merged_heads(node, ctx.users)
    result = merged if merged is not None else node.output
    out_shape = (batch, q_len, heads, dv)
    layout = rows(out_shape, 2, q_len)
    out = ctx.new_tiles(layout, node.output.dtype)
    scale = node.op.scale if node.op.scale is not None else query.shape[-1] ** -0.5
    masks = _Masks(ctx, node, scale)
    for b in range(batch):
        for q0, q in spans(q_len, PARTITIONS):
            count = masks.keys_for(q0, q, k_len)
            operands = Heads(
                queries=[queries.head(b, h, q0, q) for h in range(heads)],
                keys=[keys.head(b, h // shared, 0, count) for h in range(heads)],
                values=[values.head(b, h // shared, count) for h in range(heads)],
                scale=scale,
                row_mask=masks.row(b, count),
                mask=masks.tile(b, q0, q, count),
                may_be_empty=masks.may_be_empty,
            )
            attention(out.rows(b * q_len + q0, q).reshape((q, heads, dv)), operands)
    if merged is not None:
        ctx.put_tiles(result, out)
        return
    # Nobody merges the heads right away: the result goes to HBM in the order [B, H, S, D] that the graph asks for.
    view = ctx.scratch(out_shape, node.output.dtype)
    ctx.store(out, view)
    ctx.put_view(result, view.permute((0, 2, 1, 3)))


class _Columns:
    """Queries or keys with the head dimension on partitions."""

    def __init__(self, ctx: Lowering, value: Value, shared: bool):
        batch, heads, length, size = value.shape
        self.length, self.heads, self.size = length, heads, size
        plain = unsplit_heads(value, ctx.producers)
        self.merged = plain is not None
        if plain is not None:
            self.tiles = ctx.tiles(plain, head_layout(plain.shape, shared))
        else:
            self.tiles = ctx.tiles(value, Layout(batch * heads * length, size, 1))

    def head(self, b: int, h: int, start: int, count: int) -> list[NkiTensor]:
        """[D, count] of positions [start, start + count), in several pieces if D exceeds the partitions of a tile."""
        first = b * self.length + start if self.merged else (b * self.heads + h) * self.length + start
        row = h * self.size if self.merged else 0
        found = []
        for d0, d in spans(self.size, PARTITIONS):
            tile = self.tiles.rows(row + d0, d)
            found.append(tile.reshape((d, self.tiles.layout.free))[:, first : first + count])
        return found


class _Rows:
    """Values with positions on partitions."""

    def __init__(self, ctx: Lowering, value: Value):
        _, heads, length, size = value.shape
        self.length, self.heads, self.size = length, heads, size
        plain = unsplit_heads(value, ctx.producers)
        self.merged = plain is not None
        if plain is not None:
            self.tiles: Tiles = ctx.tiles(plain, rows(plain.shape, 2, length))
        else:
            self.tiles = ctx.tiles(value, rows(value.shape, 3, length))

    def head(self, b: int, h: int, count: int) -> list[NkiTensor]:
        """[<=128 keys, Dv] tiles of the first `count` positions."""
        base = b * self.length if self.merged else (b * self.heads + h) * self.length
        first = h * self.size if self.merged else 0
        found = []
        for start, size in spans(count, PARTITIONS):
            tile = self.tiles.rows(base + start, min(PARTITIONS, self.length - start))
            found.append(tile.reshape((tile.shape[0], self.tiles.layout.free))[:size, first : first + self.size])
        return found


class _Masks:
    """What is added to the scores: nothing, one row for all queries of a batch entry, or a tile."""

    def __init__(self, ctx: Lowering, node: Node, scale: float):
        assert isinstance(node.op, Attention)
        self.ctx, self.node, self.scale = ctx, node, scale
        self.causal = node.op.causal
        self.dtype = node.inputs[0].dtype
        self.mask: Value | None = node.inputs[3] if len(node.inputs) > 3 else None
        shape = (1,) * 4 if self.mask is None else (1,) * (4 - len(self.mask.shape)) + self.mask.shape
        self.per_batch = self.mask is not None and shape[0] > 1
        self.per_head = self.mask is not None and shape[1] > 1
        self.as_row = self.mask is not None and shape[2] == 1 and not self.per_head and not self.causal
        self.may_be_empty = self.mask is not None and self.mask.dtype is dt.bool_
        self._rows: dict[int, NkiTensor] = {}
        self._tiles: dict[tuple, NkiTensor] = {}

    def keys_for(self, q0: int, q: int, k_len: int) -> int:
        """How many keys count for queries [q0, q0 + q)."""
        return min(k_len, q0 + q) if self.causal else k_len

    def _view(self):
        assert self.mask is not None
        batch, heads, q_len, _ = self.node.inputs[0].shape
        k_len = self.node.inputs[1].shape[2]
        return self.ctx.view(self.mask).broadcast((batch, heads, q_len, k_len))

    def _additive(self, raw: NkiTensor, factor: float, dtype: dt.DType) -> NkiTensor:
        """What to add to the scores for a mask as the model gives it: bool (true: keep) or a number to add."""
        assert self.mask is not None
        tile = self.ctx.sbuf(raw.shape, dtype)
        if self.mask.dtype is dt.bool_:
            nisa.tensor_scalar(dst=tile, data=raw, op0="subtract", operand0=1.0, op1="multiply", operand1=-MASKED)
        else:
            nisa.tensor_scalar(dst=tile, data=raw, op0="multiply", operand0=factor, op1="maximum", operand1=MASKED)
        return tile

    def row(self, b: int, count: int) -> tuple[NkiTensor, NkiTensor] | None:
        """A column of ones and the mask's row, whose product is added to the unscaled scores."""
        if not self.as_row:
            return None
        index = b if self.per_batch else 0
        if index not in self._rows:
            view = self._view()
            k_len = view.shape[3]
            raw = self.ctx.sbuf((1, k_len), view.dtype)
            access = view.access(((view.strides[3], k_len),), index * view.strides[0])
            nisa.dma_copy(dst=raw, src=NkiTensor(access))
            self._rows[index] = self._additive(raw, 1.0 / self.scale, self.dtype)
        return self.ctx.ones(PARTITIONS, self.dtype), self._rows[index][:, :count]

    def tile(self, b: int, q0: int, q: int, count: int):
        """A function from the head to the [q, count] tile that is added to the scaled scores."""
        if self.as_row or (self.mask is None and not self.causal):
            return None
        return lambda h: self._tile(b if self.per_batch else 0, h if self.per_head else 0, q0, q, count)

    def _tile(self, b: int, h: int, q0: int, q: int, count: int) -> NkiTensor:
        key = (b, h, q0, q, count)
        if key not in self._tiles:
            tile = None
            if self.mask is not None:
                view = self._view()
                offset = b * view.strides[0] + h * view.strides[1] + q0 * view.strides[2]
                raw = self.ctx.sbuf((q, count), view.dtype)
                nisa.dma_copy(
                    dst=raw, src=NkiTensor(view.access(((view.strides[2], q), (view.strides[3], count)), offset))
                )
                tile = self._additive(raw, 1.0, dt.float32)
            if self.causal:
                tile = self._causal(tile, q0, q, count)
            assert tile is not None
            self._tiles[key] = tile
        return self._tiles[key]

    def _causal(self, tile: NkiTensor | None, q0: int, q: int, count: int) -> NkiTensor:
        """Keep what is at or below the diagonal: query q0 + p sees key k if q0 + p - k >= 0."""
        if tile is None:
            tile = self.ctx.sbuf((q, count), dt.float32)
            nisa.memset(dst=tile, value=0.0)
        result = self.ctx.sbuf((q, count), dt.float32)
        nisa.affine_select(
            dst=result, pattern=[[-1, count]], offset=q0, channel_multiplier=1, on_true_tile=tile,
            on_false_value=MASKED, cmp_op="greater_equal",
        )  # fmt: skip
        return result
