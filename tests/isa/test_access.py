"""Access patterns beside the set of bytes that they name, element by element."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Buffer, Indirect, Space

TILE = Buffer("tile", Space.SBUF, (16, 64), dt.float32)
TENSOR = Buffer("tensor", Space.HBM, (16, 64), dt.float32)


def elements(ap: AccessPattern) -> set[tuple[int, int]]:
    """Partition and element (of the pattern's dtype) of everything that `ap` names; HBM is partition 0."""
    found = set()
    for index in itertools.product(*(range(count) for count in ap.shape)):
        steps = [i * stride for i, (stride, _) in zip(index, ap.pattern, strict=True)]
        if ap.space.on_chip:
            found.add((ap.partition + index[0], ap.offset + sum(steps[1:])))
        else:
            found.add((0, ap.offset + sum(steps)))
    return found


@st.composite
def patterns(draw):
    buffer = draw(st.sampled_from((TILE, TENSOR)))
    pairs = draw(st.lists(st.tuples(st.integers(-9, 20), st.integers(1, 5)), min_size=1, max_size=3))
    dtype = draw(st.sampled_from((dt.float32, dt.bfloat16)))
    offset, partition = draw(st.integers(-4, 80)), 0
    if buffer is TILE:
        pairs = [(1, draw(st.integers(1, 6))), *pairs]
        partition = draw(st.integers(0, 13))
    return AccessPattern(buffer, offset, tuple(pairs), dtype, partition)


@settings(max_examples=300)
@given(patterns())
def test_extent_and_bounds(ap):
    size, named = ap.dtype.itemsize, elements(ap)
    columns = [column for _, column in named]
    assert ap.extent == (min(columns) * size, (max(columns) + 1) * size)
    inside = all(column * size >= 0 and (column + 1) * size <= ap.buffer.bytes_per_partition for column in columns)
    assert ap.is_within_buffer == (inside and all(p < ap.buffer.partitions for p, _ in named))


@settings(max_examples=300)
@given(patterns())
def test_runs(ap):
    walk = [sum(i * s for i, (s, _) in zip(index, ap.walk, strict=True))
            for index in itertools.product(*(range(count) for _, count in ap.walk))]
    assert ap.is_contiguous == (walk == list(range(len(walk))))
    run = ap.run_elements
    assert walk[:run] == list(range(run)) and len(walk) % run == 0
    if ap.is_contiguous:
        assert run == len(walk)
    inner = [s for s, count in ap.free if count > 1]
    assert ap.inner_stride == (inner[-1] if inner else None)


@settings(max_examples=300)
@given(patterns(), patterns())
def test_patterns_that_share_an_element_overlap(a, b):
    if a.buffer is b.buffer and a.dtype is b.dtype and elements(a) & elements(b):
        assert a.overlaps(b) and b.overlaps(a)
    if a.buffer is not b.buffer:
        assert not a.overlaps(b)


def test_neighbours_do_not_overlap():
    left, right = (AccessPattern(TILE, 32 * i, ((1, 8), (1, 32)), dt.float32) for i in (0, 1))
    low, high = (AccessPattern(TILE, 0, ((1, 8), (1, 64)), dt.float32, 8 * i) for i in (0, 1))
    assert not left.overlaps(right) and not low.overlaps(high) and left.overlaps(low)


def test_an_indirect_pattern_is_all_rows_that_it_may_name():
    index = Buffer("index", Space.SBUF, (4, 1), dt.int32)
    ap = AccessPattern(TENSOR, 3, ((64, 4), (1, 8)), dt.float32, index=Indirect(index.all, 64, 16))
    assert ap.all_rows.pattern == ((64, 16), (1, 8)) and ap.all_rows.index is None
    assert ap.extent == ap.all_rows.extent == (12, (15 * 64 + 3 + 8) * 4)
    assert ap.is_within_buffer
    assert not AccessPattern(TENSOR, 60, ap.pattern, dt.float32, index=ap.index).is_within_buffer
