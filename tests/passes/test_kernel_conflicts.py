"""The bytes of access patterns, and conflicts between accesses, against sets of bytes."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.ir.conflicts import ConflictMap, footprint, overlap
from ranvier.isa.access import AccessPattern, Buffer, Indirect, Space

ROWS, WIDTH = 8, 64
TILE = Buffer("tile", Space.SBUF, (ROWS, WIDTH // 4), dt.float32)
TENSOR = Buffer("tensor", Space.HBM, (ROWS, WIDTH // 4), dt.float32)


@st.composite
def patterns(draw, buffer: Buffer = TILE) -> AccessPattern:
    """A pattern within the bounds of `buffer`, with strides of any sign and broadcasts."""
    dtype = draw(st.sampled_from((dt.float32, dt.bfloat16, dt.uint8)))
    limit = buffer.bytes_per_partition // dtype.itemsize
    pairs, low, high = [], 0, 0
    for _ in range(draw(st.integers(1, 3))):
        stride, count = draw(st.integers(-12, 24)), draw(st.integers(1, 5))
        reach = stride * (count - 1)
        if high - low + abs(reach) < limit:
            pairs.append((stride, count))
            low, high = low + min(reach, 0), high + max(reach, 0)
    pairs = pairs or [(1, 1)]
    offset = draw(st.integers(-low, limit - 1 - high))
    if not buffer.space.on_chip:
        return AccessPattern(buffer, offset, tuple(pairs), dtype)
    first = draw(st.integers(0, ROWS - 1))
    rows = draw(st.integers(1, ROWS - first))
    return AccessPattern(buffer, offset, ((1, rows), *pairs), dtype, first)


def touched(ap: AccessPattern) -> set[tuple[int, int]]:
    """(partition, byte) of everything that `ap` touches."""
    size, pairs, rows = ap.dtype.itemsize, ap.pattern, range(1)
    if ap.space.on_chip:
        pairs, rows = ap.pattern[1:], range(ap.partition, ap.partition + ap.partitions)
    elements = [
        ap.offset + sum(stride * i for (stride, _), i in zip(pairs, index, strict=True))
        for index in itertools.product(*(range(count) for _, count in pairs))
    ]
    return {(row, element * size + k) for row in rows for element in elements for k in range(size)}


def described(ap: AccessPattern) -> set[tuple[int, int]]:
    """What the footprint of `ap` says."""
    at = footprint(ap)
    runs = range(at.low, at.high, at.period) if at.period else [at.low]
    length = at.run if at.period else at.high - at.low
    ends = {low + k for low in runs for k in range(length) if low + k < at.high}
    return {(row, byte) for row in range(at.first, at.last) for byte in ends}


@settings(max_examples=200, deadline=None)
@given(ap=st.one_of(patterns(), patterns(TENSOR)))
def test_footprint_bounds_the_bytes(ap):
    at = footprint(ap)
    assert touched(ap) <= described(ap)
    assert not at.dense or touched(ap) == described(ap)
    assert 0 <= at.left <= at.low < at.high <= at.right <= ap.buffer.bytes_per_partition


@settings(max_examples=200, deadline=None)
@given(a=patterns(), b=patterns())
def test_overlap_is_never_missed(a, b):
    assert overlap(footprint(a), footprint(b)) or not touched(a) & touched(b)


def test_overlap_is_exact_for_rows_of_one_matrix():
    left = AccessPattern(TENSOR, 0, ((16, ROWS), (1, 8)), dt.float32)
    right = AccessPattern(TENSOR, 8, ((16, ROWS), (1, 8)), dt.float32)
    wrong = AccessPattern(TENSOR, 7, ((16, ROWS), (1, 8)), dt.float32)
    assert not overlap(footprint(left), footprint(right))
    assert overlap(footprint(left), footprint(wrong))
    assert footprint(left).dense and footprint(right).dense


def test_a_place_shifts_the_footprint():
    at = footprint(TILE.all, 32, 1000)
    assert at[:4] == (1000, 1064, 32, 40)


def test_an_indirect_access_counts_as_all_its_rows():
    index = AccessPattern(Buffer("rows", Space.SBUF, (4, 1), dt.int32), 0, ((1, 4), (1, 1)), dt.int32)
    at = footprint(AccessPattern(TENSOR, 0, ((16, 4), (1, 16)), dt.float32, index=Indirect(index, 16, ROWS)))
    assert (at.low, at.high, at.dense) == (0, ROWS * WIDTH, False)


@st.composite
def histories(draw) -> list[tuple[bool, AccessPattern, int]]:
    """Accesses (writes, pattern, place of the buffer) to buffers at places that overlap."""
    places = st.sampled_from((0, 16, 64))
    return [(draw(st.booleans()), draw(patterns()), draw(places)) for _ in range(draw(st.integers(2, 14)))]


@settings(max_examples=200, deadline=None)
@given(history=histories())
def test_conflicts_are_ordered_and_nothing_else_is(history):
    conflicts = ConflictMap()
    edges: list[set[int]] = []
    after: list[set[int]] = []
    bytes_of = [{(row, byte + place) for row, byte in touched(ap)} for _, ap, place in history]
    for i, (writes, ap, place) in enumerate(history):
        found: set[int] = set()
        (conflicts.write if writes else conflicts.read)(i, footprint(ap, 0, place), found)
        edges.append(found)
        after.append(found.union(*(after[k] for k in found)) if found else set())
        for k in range(i):
            if (writes or history[k][0]) and bytes_of[i] & bytes_of[k]:
                assert k in after[i]
        for k in found:
            assert writes or history[k][0]
            assert overlap(footprint(history[k][1], 0, history[k][2]), footprint(ap, 0, place))


def test_a_write_hides_what_it_covers():
    conflicts, found = ConflictMap(), set()
    for i in range(3):
        found = set()
        conflicts.write(i, footprint(TILE.all), found)
    assert found == {1}


def test_a_partial_write_leaves_the_rest():
    conflicts = ConflictMap()
    lower = AccessPattern(TILE, 0, ((1, 4), (1, 16)), dt.float32)
    conflicts.write(0, footprint(TILE.all), set())
    conflicts.write(1, footprint(lower), set())
    found: set[int] = set()
    conflicts.read(2, footprint(TILE.all), found)
    assert found == {0, 1}
    found = set()
    conflicts.read(3, footprint(lower), found)
    assert found == {1}
