"""Views of tensors: a random chain of view operations means the same on a tensor and on a numpy array."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import nki, target
from ranvier.errors import NkiValidationError, RanvierError
from ranvier.isa.access import Space
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.builder import EagerBuilder

TRN2 = target.get("trn2")


def tensor_and_array(builder, shape, space, dtype="int32"):
    """A tensor whose elements are numbered, and the same as an array."""
    tensor = builder.alloc(shape, dtype, space)
    array = np.arange(math.prod(shape)).astype(tensor.dtype.np).reshape(shape)
    builder.memory.set(tensor.access.buffer, array)
    return tensor, array


def lead(tensor):
    """First dimension that views may change freely."""
    return int(tensor.on_chip)


def draw_index(draw, size, is_lead):
    kind = draw(st.sampled_from(["all", "int", "slice", "ds"]))
    start = draw(st.integers(0, size - 1))
    if kind == "all":
        return slice(None), slice(None)
    if kind == "int":
        number = start - size if draw(st.booleans()) else start
        return number, (slice(start, start + 1) if is_lead else number)
    stop = draw(st.integers(start + 1, size))
    if kind == "ds":
        return nl.ds(start, stop - start), slice(start, stop)
    step = 1 if is_lead else draw(st.integers(1, 3))
    return slice(start if start else None, stop if stop < size else None, step), slice(start, stop, step)


def split(draw, size):
    factor = draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
    return factor, size // factor


def index(draw, t, a):
    keys = [draw_index(draw, size, t.on_chip and dim == 0) for dim, size in enumerate(t.shape)]
    shown = draw(st.integers(1, len(keys)))
    mine, theirs = tuple(k for k, _ in keys[:shown]), tuple(k for _, k in keys[:shown])
    if draw(st.booleans()):
        mine += (...,)
    got, want = t[mine], a[theirs]
    while want.ndim < 1 + t.on_chip:
        want = want[..., None]
    return got, want


def permute(draw, t, a):
    order = draw(st.permutations(range(lead(t), t.ndim)))
    dims = (*range(lead(t)), *order)
    return t.permute(dims), a.transpose(dims)


def expand(draw, t, a):
    dim = draw(st.integers(lead(t), t.ndim))
    return t.expand_dim(dim), np.expand_dims(a, dim)


def broadcast(draw, t, a):
    dims = [d for d in range(lead(t), t.ndim) if t.shape[d] == 1]
    if not dims:
        return t, a
    dim, size = draw(st.sampled_from(dims)), draw(st.integers(1, 3))
    shape = list(a.shape)
    shape[dim] = size
    return t.broadcast(dim, size), np.broadcast_to(a, shape)


def squeeze(draw, t, a):
    dims = [d for d in range(lead(t), t.ndim) if t.shape[d] == 1]
    if not dims or t.ndim <= 1 + t.on_chip:
        return t, a
    dim = draw(st.sampled_from(dims))
    return t.squeeze_dim(dim), a.squeeze(dim)


def reshape_dim(draw, t, a):
    dim = draw(st.integers(lead(t), t.ndim - 1))
    parts = split(draw, t.shape[dim])
    given_parts = (parts[0], -1) if draw(st.booleans()) else parts
    return t.reshape_dim(dim, given_parts), a.reshape((*a.shape[:dim], *parts, *a.shape[dim + 1 :]))


def flatten(draw, t, a):
    first = draw(st.integers(lead(t), t.ndim - 1))
    last = draw(st.integers(first, t.ndim - 1))
    merged = a.reshape((*a.shape[:first], -1, *a.shape[last + 1 :]))
    try:
        return t.flatten_dims(first, last), merged
    except RanvierError as failure:
        assert failure.code == "E0203"
        assert not mergeable(a, merged.shape)
        return t, a


def reshape(draw, t, a):
    free = math.prod(t.shape[lead(t) :])
    first, rest = split(draw, free)
    second, third = split(draw, rest)
    shape = (*t.shape[: lead(t)], first, second, third)
    try:
        return t.reshape(shape), a.reshape(shape)
    except RanvierError as failure:
        assert failure.code == "E0203"
        assert not mergeable(a, shape)
        return t, a


def mergeable(a, shape):
    """Whether numpy can reshape without a copy."""
    try:
        np.reshape(a, shape, copy=False)
    except ValueError:
        return False
    return True


INTEGERS = st.sampled_from(["int32", "int16", "uint8"])
STEPS = (index, index, permute, expand, broadcast, squeeze, reshape_dim, flatten, reshape)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(list(Space)), st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_chains_of_views_agree_with_numpy(data, space, shape):
    with EagerBuilder(TRN2) as builder:
        tensor, array = tensor_and_array(builder, tuple(shape), space)
        for _ in range(data.draw(st.integers(1, 6))):
            if tensor.ndim > 6:
                break
            tensor, array = data.draw(st.sampled_from(STEPS))(data.draw, tensor, array)
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.numpy(), array)
        flat = np.arange(math.prod(shape))
        numbers = tensor.offset + sum(
            np.arange(count).reshape((-1,) + (1,) * (tensor.ndim - 1 - dim)) * stride
            for dim, (stride, count) in enumerate(tensor.get_pattern())
        )
        assert np.array_equal(flat[numbers], array)  # offset and strides count as NKI's documentation says
        raw = tensor.ap(tensor.get_pattern(), offset=tensor.offset) if valid_lead(tensor) else tensor
        assert np.array_equal(raw.numpy(), array)


def valid_lead(tensor):
    return not tensor.on_chip or tensor.ndim > 1


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Space)), INTEGERS, INTEGERS, st.integers(0, 2), st.integers(1, 4))
def test_view_as_another_dtype(space, have, want, start, words):
    with EagerBuilder(TRN2) as builder:
        tensor, array = tensor_and_array(builder, (3, 4, 32), space, have)
        item = tensor.dtype.itemsize
        first, count = start * 4 // item, words * 4 // item
        seen = tensor[:, 1:4:2, first : first + count].view(want)
        assert np.array_equal(seen.numpy(), np.ascontiguousarray(array[:, 1:4:2, first : first + count]).view(want))


def test_rearrange():
    with EagerBuilder(TRN2) as builder:
        tensor, array = tensor_and_array(builder, (8, 24), Space.SBUF)
        got = tensor.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
        assert np.array_equal(got.numpy(), array.reshape(8, 4, 6).transpose(0, 2, 1))
        tensor, array = tensor_and_array(builder, (2, 3, 4), Space.HBM)
        got = tensor.rearrange(("a", "b", "c"), (("a", "b"), "c"))
        assert np.array_equal(got.numpy(), array.reshape(6, 4))


def test_attributes():
    with EagerBuilder(TRN2) as builder:
        t = builder.alloc((128, 64), "float32", Space.SBUF, "tile")
        part = t.slice(dim=1, start=8, end=24)
        assert (part.get_pattern(), part.offset) == ([[64, 128], [1, 16]], 8)
        assert (t.shape, t.strides, t.offset, t.ndim, t.size, t.name) == ((128, 64), (64, 1), 0, 2, 8192, "tile")
        assert t.buffer is nl.sbuf and t.dtype is nl.float32
        assert t.is_contiguous() and part.is_contiguous() and not t[:, ::2].is_contiguous()
        assert t[5, 3].shape == (1, 1) and t[5, 3].offset == 5 * 64 + 3
        hbm = builder.alloc((4, 5), "float32", Space.HBM)
        assert hbm[1].shape == (5,) and hbm[1, 2].shape == (1,) and hbm.buffer is nl.private_hbm


def test_values_can_be_printed(capsys):
    with EagerBuilder(TRN2) as builder:
        tensor, _ = tensor_and_array(builder, (2, 3), Space.SBUF)
        print(tensor[:, 1:])
    assert capsys.readouterr().out == "NkiTensor(sbuf, (2, 2), int32, sbuf)\n[[1 2]\n [4 5]]\n"
    assert str(tensor) == "NkiTensor(sbuf, (2, 3), int32, sbuf)"


def test_rows_by_index():
    @nki.jit
    def gather(table, rows):
        picked = nl.load(rows)
        out = nl.ndarray((rows.shape[0], table.shape[1]), table.dtype, buffer=nl.shared_hbm)
        a = table.vector_select(0, picked)
        b = table.ap([[table.shape[1], rows.shape[0]], [1, 4]], offset=2, vector_offset=picked, indirect_dim=0)
        assert a.is_indirect() and a.shape == out.shape and b.shape == (rows.shape[0], 4)
        tile = nl.ndarray(out.shape, table.dtype)
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=tile[:, 0:4], src=b)
        nl.store(out, tile)
        return out

    table = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    rows = np.array([[3], [49], [0], [3]], np.int32)
    want = table[rows[:, 0]]
    want[:, 0:4] = table[rows[:, 0], 2:6]
    assert np.array_equal(gather(table, rows), want)
    with pytest.raises(RanvierError, match="index 50 in partition 1") as caught:
        gather(table, rows + 1)
    assert caught.value.code == "E0403"


REFUSED = {
    "slice past the end": (lambda t, h: t[:, 60:65], "E0201", r"slice 60:65 reaches outside: dimension 1 of t has 64"),
    "empty slice": (lambda t, h: t[:, 5:5], "E0201", "is empty"),
    "index": (lambda t, h: h[4], "E0201", "index 4 reaches outside: dimension 0 of h has 4 elements"),
    "negative index": (lambda t, h: t[:, -65], "E0201", "index -65"),
    "too many": (lambda t, h: h[0, 0, 0, 0], "E0201", "h has 3 dimensions, the index has 4 indices"),
    "ds": (lambda t, h: t[:, nl.ds(60, 8)], "E0201", r"ds\(60, 8\) reaches outside"),
    "partition step": (lambda t, h: t[::2], "E0203", "step 2"),
    "negative step": (lambda t, h: t[:, 9:1:-1], "E0203", "at least 1"),
    "None": (lambda t, h: t[:, None], "E0203", "None is not an index"),
    "array": (lambda t, h: t[:, np.arange(3)], "E0203", "is not an index"),
    "bool": (lambda t, h: h[True], "E0203", "True is not an index"),
    "float": (lambda t, h: h[1.0], "E0203", "1.0 is not an index"),
    "tensor": (lambda t, h: h[t], "E0104", "indexed by a tensor"),
    "permute": (lambda t, h: t.permute((1, 0)), "E0203", "partition dimension"),
    "permute twice": (lambda t, h: h.permute((0, 1, 1)), "E0203", "not an order of the 3 dimensions"),
    "broadcast": (lambda t, h: t.broadcast(1, 3), "E0203", "has size 64; only size 1"),
    "squeeze": (lambda t, h: t.squeeze_dim(1), "E0203", "has size 64"),
    "reshape count": (lambda t, h: t.reshape((128, 65)), "E0203", "8192 elements"),
    "reshape partitions": (lambda t, h: t.reshape((64, 128)), "E0203", "stays 128"),
    "reshape of a permutation": (lambda t, h: h.permute((1, 0, 2)).reshape((512, 32)), "E0203", "without a copy"),
    "flatten": (lambda t, h: h[:, 0:64].flatten_dims(0, 1), "E0203", "needs a copy"),
    "split": (lambda t, h: t.reshape_dim(1, (3, -1)), "E0203", "does not multiply"),
    "view": (lambda t, h: t[:, 1:3].view(nl.int8)[:, 1:5].view(nl.int32), "E0203", "cannot be seen as int32"),
    "ap partition stride": (lambda t, h: t.ap([[32, 8], [1, 32]]), "E0203", "its step is 64, not 32"),
    "ap outside": (lambda t, h: t.ap([[64, 128], [1, 64]], offset=1), "E0201", "touches bytes"),
    "ap on too many partitions": (lambda t, h: t.ap([[64, 128], [1, 1]], offset=64), "E0201", "up to 129 of 128"),
    "scalar offset": (lambda t, h: h.ap([[1, 4]], scalar_offset=t), "E0104", "scalar_offset"),
    "vector_select on chip": (lambda t, h: t.vector_select(0, t), "E0203", "HBM tensor"),
    "vector_select of floats": (lambda t, h: h.vector_select(0, t[:, 0:1]), "E0203", "integer tensor"),
    "indirect": (lambda t, h: t.indirect(t), "E0104", "indirect"),
    "assignment": (lambda t, h: t.__setitem__(0, 1), "E0104", "not assigned"),
    "branch": (lambda t, h: bool(t), "E0103", "branch"),
    "permute by a number": (lambda t, h: t.permute(1), "E0203", "made of integers"),
    "broadcast to text": (lambda t, h: t[:, 0:1].broadcast(1, "3"), "E0203", "made of integers"),
    "reshape to text": (lambda t, h: t.reshape("ab"), "E0203", "made of integers"),
    "ap of numbers": (lambda t, h: t.ap([1, 2]), "E0203", "made of pairs"),
    "ap of triples": (lambda t, h: t.ap([[1, 2, 3]]), "E0203", "made of pairs"),
    "rearrange": (lambda t, h: t.rearrange(("a", "b"), ("a", "c")), "E0203", "named once"),
    "dtype": (lambda t, h: t.view("complex64"), "E0305", "complex64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, code, text = REFUSED[case]
    with EagerBuilder(TRN2) as builder:
        t = builder.alloc((128, 64), "float32", Space.SBUF, "t")
        h = builder.alloc((4, 128, 32), "float32", Space.HBM, "h")
        with pytest.raises(RanvierError, match=text) as caught:
            make(t, h)
    assert caught.value.code == code
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_tensors_are_compared_and_hashed_by_identity():
    with EagerBuilder(TRN2) as builder:
        a, b = builder.alloc((2, 2), "float32"), builder.alloc((2, 2), "float32")
        assert a == a and a in [a, b] and len({a, b, a}) == 2 and (a == None) is False  # noqa: E711


def test_numpy_sees_the_values():
    with EagerBuilder(TRN2) as builder:
        tile = builder.alloc((2, 3), "bfloat16", Space.SBUF)
        nisa.memset(dst=tile, value=1.5)
        assert np.array_equal(np.asarray(tile, np.float32), np.full((2, 3), 1.5, np.float32))


def test_iteration_is_refused():
    with EagerBuilder(TRN2) as builder, pytest.raises(TypeError):
        list(builder.alloc((2, 2), "float32", Space.SBUF))


def test_validation_errors_have_the_name_nki_gives_them():
    with EagerBuilder(TRN2) as builder, pytest.raises(nisa.NkiValidationError):
        builder.alloc((2, 2), "float32", Space.SBUF)[3]
    assert nisa.NkiValidationError is NkiValidationError
