"""Rules for operators that move, cut and join values without computing: views, slices, concatenation, casts."""

from __future__ import annotations

from collections.abc import Sequence

from ranvier import graph as g
from ranvier.frontends.torch.rules import Context, Refused, RuleTable, axis_of, rank
from ranvier.graph import Value

VIEW = RuleTable()
rule = VIEW.rule


@rule("clone.default", "contiguous.default", "alias.default", "detach.default", "lift_fresh_copy.default",
      "lift_fresh.default", "lift.default", "positive.default", "resolve_conj.default", "resolve_neg.default",
      note="the identity")
def identity(ctx: Context, x: Value) -> Value:
    return x


@rule("to.dtype", "to.device", "to.dtype_layout", "to.other", "to.prim_Device", "to.prim_dtype", "_to_copy.default",
      "type_as.default", "float.default", "prims.convert_element_type.default")
def to(ctx: Context, x: Value, dtype=None, other: Value | None = None) -> Value:
    return ctx.cast(x, ctx.dtype)


@rule("view.default", "_unsafe_view.default", "reshape.default", "view_as.default", "reshape_as.default",
      "flatten.using_ints", "unflatten.int", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default")
def reshape(ctx: Context, x: Value, size=None, shape=None, other=None, start_dim=None, end_dim=None, dim=None,
            sizes=None) -> Value:
    # torch has already worked out the shape, inferred sizes and all.
    return ctx.reshape(x, ctx.shape)


@rule("permute.default")
def permute(ctx: Context, x: Value, dims: Sequence[int]) -> Value:
    return ctx.transpose(x, tuple(axis_of(x, d) for d in dims))


@rule("transpose.int", "swapaxes.default", "swapdims.default")
def transpose(ctx: Context, x: Value, dim0: int | None = None, dim1: int | None = None, axis0: int | None = None,
              axis1: int | None = None) -> Value:
    perm = list(range(rank(x)))
    first = axis_of(x, dim0 if dim0 is not None else axis0)  # type: ignore[arg-type]
    second = axis_of(x, dim1 if dim1 is not None else axis1)  # type: ignore[arg-type]
    if rank(x):
        perm[first], perm[second] = perm[second], perm[first]
    return ctx.transpose(x, perm)


@rule("t.default", "numpy_T.default", "mT.default")
def t(ctx: Context, x: Value) -> Value:
    if rank(x) > 2:
        return ctx.transpose(x, (*range(rank(x) - 2), rank(x) - 1, rank(x) - 2))
    return ctx.transpose(x, tuple(reversed(range(rank(x)))))


@rule("movedim.int", "movedim.intlist", "moveaxis.int")
def movedim(ctx: Context, x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    pairs = zip(*([v] if isinstance(v, int) else v for v in (source, destination)), strict=True)
    placed = {axis_of(x, to): axis_of(x, of) for of, to in pairs}
    rest = iter(a for a in range(rank(x)) if a not in placed.values())
    return ctx.transpose(x, tuple(placed[a] if a in placed else next(rest) for a in range(rank(x))))


@rule("expand.default", "expand_as.default", "broadcast_to.default")
def expand(ctx: Context, x: Value, size=None, other=None) -> Value:
    return ctx.broadcast(x, ctx.shape)


@rule("select.int")
def select(ctx: Context, x: Value, dim: int, index: int) -> Value:
    axis = axis_of(x, dim)
    index %= x.type.shape[axis]
    return ctx.reshape(ctx.slice(x, axis, index, index + 1), ctx.shape)


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    start, end = (default if v is None else min(max(v + size if v < 0 else v, 0), size)
                  for v, default in ((start, 0), (end, size)))
    return start, max(start, end)


@rule("slice.Tensor")
def slice_(ctx: Context, x: Value, dim: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Value:
    axis = axis_of(x, dim)
    return ctx.slice(x, axis, *_bounds(x.type.shape[axis], start, end), step)


@rule("narrow.default")
def narrow(ctx: Context, x: Value, dim: int, start: int, length: int) -> Value:
    axis = axis_of(x, dim)
    start %= x.type.shape[axis]
    return ctx.slice(x, axis, start, start + length)


@rule("split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default", "unsafe_split.Tensor",
      "unsafe_chunk.default", "split_with_sizes_copy.default", "split_copy.Tensor")
def split(ctx: Context, x: Value, split_size=None, split_sizes=None, chunks=None, dim: int = 0) -> tuple[Value, ...]:
    axis, start, parts = axis_of(x, dim), 0, []
    for part in ctx.result:
        length = int(part.shape[axis])
        parts.append(ctx.slice(x, axis, start, start + length))
        start += length
    return tuple(parts)


@rule("unbind.int")
def unbind(ctx: Context, x: Value, dim: int = 0) -> tuple[Value, ...]:
    axis = axis_of(x, dim)
    return tuple(ctx.reshape(ctx.slice(x, axis, i, i + 1), part.shape) for i, part in enumerate(ctx.result))


@rule("cat.default", "concat.default", "concatenate.default")
def cat(ctx: Context, tensors: Sequence[Value], dim: int = 0) -> Value:
    # torch lets an empty tensor of one axis join anything.
    parts = [ctx.cast(t, ctx.dtype) for t in tensors if t.type.shape != (0,) or len(ctx.shape) == 1]
    return parts[0] if len(parts) == 1 else ctx.emit(g.Concat(dim % len(ctx.shape)), *parts)


@rule("stack.default")
def stack(ctx: Context, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % len(ctx.shape)
    parts = [ctx.cast(t, ctx.dtype) for t in tensors]
    parts = [ctx.reshape(t, (*t.type.shape[:axis], 1, *t.type.shape[axis:])) for t in parts]
    return parts[0] if len(parts) == 1 else ctx.emit(g.Concat(axis), *parts)


@rule("repeat.default", "tile.default")
def repeat(ctx: Context, x: Value, repeats: Sequence[int] | None = None, dims: Sequence[int] | None = None) -> Value:
    counts = list(repeats if repeats is not None else dims or ())
    extra = len(counts) - rank(x)
    sizes = [1] * max(0, extra) + list(x.type.shape)
    counts = [1] * max(0, -extra) + counts
    return _tiled(ctx, x, sizes, counts, inner=False)


def _tiled(ctx: Context, x: Value, sizes: Sequence[int], counts: Sequence[int], inner: bool) -> Value:
    """`x` with each axis repeated: whole copies one after the other, or (`inner`) each element by itself."""
    split_shape: list[int] = []
    wide_shape: list[int] = []
    for size, count in zip(sizes, counts, strict=True):
        if count == 1:
            split_shape, wide_shape = [*split_shape, size], [*wide_shape, size]
        else:
            pair = ([size, 1], [size, count]) if inner else ([1, size], [count, size])
            split_shape, wide_shape = split_shape + pair[0], wide_shape + pair[1]
    x = ctx.broadcast(ctx.reshape(x, split_shape), wide_shape)
    return ctx.reshape(x, tuple(s * c for s, c in zip(sizes, counts, strict=True)))


@rule("repeat_interleave.self_int")
def repeat_interleave(ctx: Context, x: Value, repeats: int, dim: int | None = None,
                      output_size: int | None = None) -> Value:
    if dim is None:
        x, dim = ctx.reshape(x, (_count(x.type.shape),)), 0
    axis = axis_of(x, dim)
    return _tiled(ctx, x, x.type.shape, [repeats if a == axis else 1 for a in range(rank(x))], inner=True)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


@rule("flip.default")
def flip(ctx: Context, x: Value, dims: Sequence[int]) -> Value:
    axes = tuple(sorted(axis_of(x, d) for d in dims))
    return ctx.emit(g.Reverse(axes), x) if axes else x


@rule("roll.default")
def roll(ctx: Context, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    shape = x.type.shape
    if not dims:
        x, dims = ctx.reshape(x, (_count(shape),)), (0,)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(x, dim)
        size = x.type.shape[axis]
        cut = -shift % size if size else 0
        if cut:
            x = ctx.emit(g.Concat(axis), ctx.slice(x, axis, cut, size), ctx.slice(x, axis, 0, cut))
    return ctx.reshape(x, shape)


def _pad_amounts(x: Value, pad: Sequence[int]) -> tuple[list[int], list[int]]:
    low, high = [0] * rank(x), [0] * rank(x)
    for i in range(len(pad) // 2):
        low[rank(x) - 1 - i], high[rank(x) - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


@rule("constant_pad_nd.default", "pad.default")
def pad(ctx: Context, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    low, high = _pad_amounts(x, pad)
    if mode != "constant":
        return _pad_edges(ctx, x, low, high, mode)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if before < 0 or after < 0:  # negative amounts crop
            size = x.type.shape[axis]
            x = ctx.slice(x, axis, max(0, -before), size - max(0, -after))
    low, high = [max(0, n) for n in low], [max(0, n) for n in high]
    if not any(low) and not any(high):
        return x
    fill = value or 0
    return ctx.emit(g.Pad(tuple(low), tuple(high), float(fill) if ctx.dtype.is_float else int(fill)), x)


def _pad_edges(ctx: Context, x: Value, low: Sequence[int], high: Sequence[int], mode: str) -> Value:
    """Padding by the mirrored, repeated or wrapped edge: slices of the tensor itself, joined."""
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        size, parts = x.type.shape[axis], [x]
        if mode == "reflect":
            pieces = (ctx.slice(x, axis, 1, 1 + before), ctx.slice(x, axis, size - 1 - after, size - 1))
            pieces = tuple(ctx.emit(g.Reverse((axis,)), p) if n else p
                           for p, n in zip(pieces, (before, after), strict=True))
        elif mode == "circular":
            pieces = (ctx.slice(x, axis, size - before, size), ctx.slice(x, axis, 0, after))
        elif mode == "replicate":
            shape = x.type.shape
            pieces = tuple(ctx.broadcast(ctx.slice(x, axis, at, at + 1), (*shape[:axis], n, *shape[axis + 1 :]))
                           for at, n in ((0, before), (size - 1, after)))
        else:
            raise Refused(f"with mode={mode!r}")
        parts = [pieces[0]] * (before > 0) + parts + [pieces[1]] * (after > 0)
        x = x if len(parts) == 1 else ctx.emit(g.Concat(axis), *parts)
    return x


@rule("reflection_pad1d.default", "reflection_pad2d.default")
def reflection_pad(ctx: Context, x: Value, padding: Sequence[int]) -> Value:
    return _pad_edges(ctx, x, *_pad_amounts(x, padding), mode="reflect")


@rule("replication_pad1d.default", "replication_pad2d.default")
def replication_pad(ctx: Context, x: Value, padding: Sequence[int]) -> Value:
    return _pad_edges(ctx, x, *_pad_amounts(x, padding), mode="replicate")


@rule("pixel_shuffle.default")
def pixel_shuffle(ctx: Context, x: Value, upscale_factor: int) -> Value:
    *lead, channels, height, width = x.type.shape
    r, n = upscale_factor, len(lead)
    x = ctx.reshape(x, (*lead, channels // (r * r), r, r, height, width))
    return ctx.reshape(ctx.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2)), ctx.shape)


@rule("pixel_unshuffle.default")
def pixel_unshuffle(ctx: Context, x: Value, downscale_factor: int) -> Value:
    *lead, channels, height, width = x.type.shape
    r, n = downscale_factor, len(lead)
    x = ctx.reshape(x, (*lead, channels, height // r, r, width // r, r))
    return ctx.reshape(ctx.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3)), ctx.shape)


@rule("select_scatter.default")
def select_scatter(ctx: Context, x: Value, src: Value, dim: int, index: int) -> Value:
    axis = axis_of(x, dim)
    index %= x.type.shape[axis]
    shape = x.type.shape
    src = ctx.reshape(ctx.cast(src, ctx.dtype), (*shape[:axis], 1, *shape[axis + 1 :]))
    return _replaced(ctx, x, src, axis, index, index + 1)


@rule("slice_scatter.default")
def slice_scatter(ctx: Context, x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1) -> Value:
    if step != 1:
        raise Refused(f"with step={step}")
    axis = axis_of(x, dim)
    return _replaced(ctx, x, ctx.cast(src, ctx.dtype), axis, *_bounds(x.type.shape[axis], start, end))


def _replaced(ctx: Context, x: Value, src: Value, axis: int, start: int, end: int) -> Value:
    """`x` with its range start:end along `axis` replaced by `src`."""
    size = x.type.shape[axis]
    parts = [ctx.slice(x, axis, 0, start)] * (start > 0) + [src] + [ctx.slice(x, axis, end, size)] * (end < size)
    return parts[0] if len(parts) == 1 else ctx.emit(g.Concat(axis), *parts)


@rule("diff.default")
def diff(ctx: Context, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
         append: Value | None = None) -> Value:
    axis = axis_of(x, dim)
    parts = [t for t in (prepend, x, append) if t is not None]
    if len(parts) > 1:
        x = ctx.emit(g.Concat(axis), *parts)
    kind = "ne" if x.type.dtype.kind == "bool" else "sub"
    for _ in range(n):
        size = x.type.shape[axis]
        later, earlier = ctx.slice(x, axis, 1, size), ctx.slice(x, axis, 0, size - 1)
        x = ctx.emit(g.Compare(kind) if kind == "ne" else g.Binary(kind), later, earlier)
    return x
