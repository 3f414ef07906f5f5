"""The shadow of a buffer against a plain array of booleans."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.sim.shadow import Shadow


@st.composite
def patterns(draw, buffer):
    """Access patterns of a [P, N] buffer on chip: partitions, a stride, one or two free dimensions."""
    first = draw(st.integers(0, buffer.shape[0] - 1))
    count = draw(st.integers(1, buffer.shape[0] - first))
    stride = draw(st.sampled_from((1, 1, 2, 3)))
    inner = draw(st.integers(1, max(1, (buffer.shape[1] - 1) // stride + 1)))
    reach = stride * (inner - 1) + 1
    outer = draw(st.integers(1, buffer.shape[1] // reach))
    offset = draw(st.integers(0, buffer.shape[1] - reach * outer))
    return AccessPattern(buffer, offset, ((1, count), (reach, outer), (stride, inner)), buffer.dtype, first)


def cells(array, ap):
    (outer, rows), (inner, columns) = ap.free
    free = [ap.offset + o * outer + i * inner for o in range(rows) for i in range(columns)]
    return np.ix_(range(ap.partition, ap.partition + ap.partitions), free)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_agrees_with_an_array_of_booleans(data):
    shape = data.draw(st.sampled_from(((128, 8), (100, 5), (3, 12), (65, 6))))
    buffer = Buffer("b", Space.SBUF, shape, data.draw(st.sampled_from((dt.float32, dt.bfloat16, dt.uint8))))
    shadow, expected = Shadow(buffer), np.zeros(shape, bool)
    for _ in range(data.draw(st.integers(1, 6))):
        ap = data.draw(patterns(buffer))
        shadow.mark(ap)
        expected[cells(expected, ap)] = True
        query = data.draw(patterns(buffer))
        assert shadow.written(query) == bool(expected[cells(expected, query)].all())
    assert shadow.written(buffer.all) == bool(expected.all())
    if expected.all():
        assert shadow.complete


def test_hbm_counts_bytes_of_any_dtype():
    buffer = Buffer("h", Space.HBM, (4, 6), dt.float32)
    shadow = Shadow(buffer)
    shadow.mark(AccessPattern(buffer, 0, ((6, 4), (1, 3)), dt.float32))  # the left half of each row
    assert shadow.written(AccessPattern(buffer, 12, ((1, 6),), dt.bfloat16))
    assert not shadow.written(AccessPattern(buffer, 4, ((1, 4),), dt.bfloat16))
    shadow.mark(AccessPattern(buffer, 3, ((6, 4), (1, 3)), dt.float32))
    assert shadow.written(buffer.all) and shadow.complete
