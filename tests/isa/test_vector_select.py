"""Selection, search and shuffles of the vector engine; random numbers; searches on gpsimd."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, TRN3, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import NkiValidationError, UndefinedBehavior
from ranvier.isa.alu import ALU
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.gpsimd_search import NonzeroWithCount, SequenceBounds
from ranvier.isa.record import verify
from ranvier.isa.vector_random import Dropout, Rand2, Rng, SetRngSeed
from ranvier.isa.vector_select import (
    FP32_MIN,
    Max8,
    NcFindIndex8,
    NcMatchReplace8,
    NcStreamShuffle,
    RangeSelect,
    SelectReduce,
    TensorCopyPredicated,
)
from ranvier.sim.machine import Memory, bind, check_written
from ranvier.target.spec import Engine

MAX = ALU["maximum"]


def numbers(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).uniform(-4, 4, shape).astype(np.float32).astype(dt.dtype(dtype).np)


def flags(shape, dtype=np.uint8, seed=1):
    return np.random.default_rng(seed).integers(0, 2, shape).astype(dtype) * np.array(3, dtype)


# Selection ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_tensor_copy_predicated(dtype, reverse, scalar):
    tiles, old, new, where = Tiles(), numbers((16, 12), dtype), numbers((16, 12), dtype, 2), flags((16, 3, 4))
    inst = TensorCopyPredicated(
        dst=tiles.holding(old), src=2.0 if scalar else tiles.holding(new), predicate=tiles.holding(where),
        reverse_pred=reverse,
    )  # fmt: skip
    chosen = (where.reshape(16, 12) != 0) != reverse
    result = run(inst, tiles)
    assert (result[~chosen] == old[~chosen]).all()
    assert (result[chosen] == (2.0 if scalar else new[chosen])).all()


def test_tensor_copy_predicated_reads_dst():
    tiles, memory = Tiles(), Memory({})
    src, where = tiles.holding(numbers((4, 4))), tiles.holding(flags((4, 4)))
    inst = TensorCopyPredicated(dst=tiles("sbuf", (4, 4), "float32"), src=src, predicate=where)
    for ap in (src, where):
        memory.set(ap.buffer, tiles.values[ap.buffer.name])
    with pytest.raises(UndefinedBehavior) as caught:
        check_written(inst, memory)
    assert caught.value.code == "E0401"


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_select_reduce(reverse, vector):
    tiles, memory = Tiles(), Memory({})
    data, where = numbers((32, 20), "bfloat16"), flags((32, 20), np.int16)
    other = numbers((32, 1), seed=5) if vector else -9984.0
    inst = SelectReduce(
        dst=tiles("sbuf", (32, 20), "float32"), predicate=tiles.holding(where), on_true=tiles.holding(data, "psum"),
        on_false=tiles.holding(other) if isinstance(other, np.ndarray) else other,
        reduce_res=tiles("sbuf", (32, 1), "float32"), reduce_cmd=ReduceCmd.reset_reduce, reverse_pred=reverse,
    )  # fmt: skip
    result = run(inst, tiles, memory=memory)
    expected = np.where((where != 0) != reverse, data.astype(np.float64), other)
    assert (result == expected.astype(np.float32)).all()
    assert inst.reduce_res is not None
    assert (memory.view(inst.reduce_res)[:, 0] == expected.max(1).astype(np.float32)).all()


@given(
    start=st.integers(0, 600), low=st.integers(0, 600), high=st.integers(0, 600),
    ops=st.tuples(*[st.sampled_from(["less", "less_equal", "greater", "greater_equal", "equal"])] * 2),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_range_select(start, low, high, ops):
    tiles, memory, data = Tiles(), Memory({}), numbers((8, 50))
    bounds = [np.arange(8, dtype=np.float32)[:, None] * 10 + b for b in (low, high)]
    inst = RangeSelect(
        dst=tiles("sbuf", (8, 50), "float32"), on_true_tile=tiles.holding(data), comp_op0=ALU[ops[0]],
        comp_op1=ALU[ops[1]], bound0=tiles.holding(bounds[0]), bound1=tiles.holding(bounds[1]), range_start=start,
        reduce_res=tiles("sbuf", (8, 1), "float32"), on_false_value=-3.4028235e38,
    )  # fmt: skip
    index = start + np.arange(50)
    keep = (getattr(np, ops[0])(index, bounds[0])) & (getattr(np, ops[1])(index, bounds[1]))
    expected = np.where(keep, data, np.float32(FP32_MIN))
    assert (run(inst, tiles, memory=memory) == expected).all()
    assert inst.reduce_res is not None
    assert (memory.view(inst.reduce_res)[:, 0] == expected.max(1)).all()


def test_range_select_fills_narrow_dtypes_with_infinity():
    tiles = Tiles()
    inst = RangeSelect(
        dst=tiles("sbuf", (4, 8), "bfloat16"), on_true_tile=tiles.holding(numbers((4, 8))), comp_op0=ALU["less"],
        comp_op1=ALU["less"], bound0=tiles.holding(np.full((4, 1), 3, np.float32)),
        bound1=tiles.holding(np.full((4, 1), 5, np.float32)),
    )  # fmt: skip
    result = run(inst, tiles).astype(np.float32)
    assert np.isinf(result[:, 3:]).all() and np.isfinite(result[:, :3]).all()
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, TRN1)
    assert caught.value.rule == "ISA-6"


# Search ---------------------------------------------------------------------------------------------------------------


@given(partitions=st.integers(1, 128), count=st.integers(8, 300), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_max8_then_find_then_replace(partitions, count, seed):
    tiles = Tiles()
    data = np.random.default_rng(seed).integers(0, 20, (partitions, count)).astype(np.float32)  # many duplicates
    operand = tiles.holding(data)
    largest = run(Max8(dst=tiles("sbuf", (partitions, 8), "float32"), src=operand), tiles)
    assert (largest == -np.sort(-data, axis=1)[:, :8]).all()
    vals = tiles.holding(largest)
    found = run(NcFindIndex8(dst=tiles("sbuf", (partitions, 8), "uint16"), data=operand, vals=vals), tiles)
    # Equal values are found in ascending order: what a stable descending sort gives.
    assert (found == np.argsort(-data, axis=1, kind="stable")[:, :8]).all()
    memory = Memory({})
    inst = NcMatchReplace8(
        dst=tiles("sbuf", (partitions, count), "float32"), data=operand, vals=vals, imm=-1.0,
        dst_idx=tiles("sbuf", (partitions, 8), "uint32"),
    )  # fmt: skip
    replaced = run(inst, tiles, memory=memory)
    assert ((replaced == -1).sum(1) == 8).all() and (replaced[replaced != -1] == data[replaced != -1]).all()
    assert inst.dst_idx is not None
    index = memory.view(inst.dst_idx)
    assert (np.sort(index, 1) == np.sort(found, 1)).all()
    assert (np.take_along_axis(data, index.astype(np.int64), 1) == largest).all()
    same = largest[:, :-1] == largest[:, 1:]
    assert (index[:, :-1][same] > index[:, 1:][same]).all()  # duplicates in descending order


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_what_is_not_found_is_all_ones(dtype):
    tiles, data = Tiles(), np.arange(16, dtype=np.float32)[None]
    vals = tiles.holding(np.array([[3, 99, 3, 0, 15, -1, 7, 8]], np.float32))
    inst = NcFindIndex8(dst=tiles("sbuf", (1, 8), dtype), data=tiles.holding(data), vals=vals)
    ones = np.iinfo(dt.dtype(dtype).np).max
    assert run(inst, tiles).tolist() == [[3, ones, ones, 0, 15, ones, 7, 8]]


def test_search_dimensions_and_sizes():
    tiles = Tiles()
    for shape in ((4, 2, 2, 8), (4, 16385), (4, 7)):
        with pytest.raises(NkiValidationError) as caught:
            verify(Max8(dst=tiles("sbuf", (4, 8), "float32"), src=tiles("sbuf", shape, "float32")), TRN2)
        assert caught.value.rule == "MX8-1" and str(shape) in str(caught.value)


# Shuffles -------------------------------------------------------------------------------------------------------------


@given(quadrants=st.integers(1, 4), mask=st.lists(st.integers(0, 31) | st.just(255), min_size=32, max_size=32))
@settings(max_examples=25, deadline=None)
def test_stream_shuffle(quadrants, mask):
    tiles, partitions = Tiles(), 32 * quadrants
    old, src = numbers((partitions, 6), "bfloat16"), numbers((partitions, 6), "bfloat16", 3)
    inst = NcStreamShuffle(dst=tiles.holding(old), src=tiles.holding(src), shuffle_mask=tuple(mask))
    result = run(inst, tiles)
    for partition in range(partitions):
        entry = mask[partition % 32]
        expected = old[partition] if entry == 255 else src[partition // 32 * 32 + entry]
        assert (result[partition] == expected).all()


def test_stream_shuffle_broadcasts_and_works_in_place():
    tiles, row = Tiles(), numbers((1, 5))
    spread = NcStreamShuffle(dst=tiles("sbuf", (20, 5), "float32"), src=tiles.holding(row), shuffle_mask=(0,) * 32)
    assert (run(spread, tiles) == row).all()
    data = numbers((32, 5))
    tile = tiles.holding(data)
    turned = NcStreamShuffle(dst=tile, src=tile, shuffle_mask=tuple(reversed(range(32))))
    assert (run(turned, tiles) == data[::-1]).all()


# Random numbers -------------------------------------------------------------------------------------------------------


def seeded(seed):
    tiles, memory = Tiles(), Memory({})
    run(SetRngSeed(src_seeds=tiles.holding(np.array([[seed]], np.uint32))), tiles, memory=memory)
    return tiles, memory


def bits(tiles, memory, shape=(128, 256), dtype="uint32", **fields):
    return run(Rng(dst=tiles("sbuf", shape, dtype), **fields), tiles, memory=memory)


def test_random_bits_repeat_with_the_seed_and_go_on():
    first = seeded(7)
    a, b = bits(*first), bits(*first)
    again = seeded(7)
    assert (bits(*again) == a).all() and (bits(*again) == b).all()
    assert (a != b).mean() > 0.99 and (bits(*seeded(8)) != a).mean() > 0.99
    assert (a[0] != a[1]).mean() > 0.99


def test_random_bits_do_not_depend_on_how_they_are_drawn():
    whole = bits(*seeded(3), shape=(16, 64))
    tiles, memory = seeded(3)
    halves = [bits(tiles, memory, shape=(16, 32)) for _ in range(2)]
    assert (np.concatenate(halves, axis=1) == whole).all()
    assert (bits(*seeded(3), shape=(16, 64), dtype="uint8") == whole.astype(np.uint8)).all()


def test_random_bits_look_random():
    words = bits(*seeded(1))
    for bit in range(32):
        assert abs((words >> np.uint32(bit) & 1).mean() - 0.5) < 0.02
    assert np.unique(words).size > 0.99 * words.size


def test_rng_engines():
    inst = Rng(dst=Tiles()("sbuf", (8, 8), "uint32"), engine=Engine.GPSIMD)
    verify(inst, TRN2)
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, TRN1)
    assert caught.value.rule == "ISA-5"


def test_rand2_is_uniform():
    tiles, memory = seeded(5)
    low = np.linspace(-8, 0, 128, dtype=np.float32)[:, None]
    inst = Rand2(dst=tiles("sbuf", (128, 512), "float32"), min=tiles.holding(low), max=2.0)
    values = run(inst, tiles, TRN3, memory)
    assert (values >= low).all() and (values <= 2).all()
    scaled = (values - low) / (2 - low)
    assert abs(scaled.mean() - 0.5) < 0.01 and abs(scaled.var() - 1 / 12) < 0.005


@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0, "vector"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int32"])
def test_dropout(prob, dtype):
    tiles, memory = seeded(2)
    data = np.full((128, 512), 7).astype(dt.dtype(dtype).np)
    rate = np.repeat(np.array([[0.1], [0.9]], np.float32), 64, axis=0) if prob == "vector" else prob
    inst = Dropout(
        dst=tiles("sbuf", data.shape, dtype), data=tiles.holding(data),
        prob=tiles.holding(rate) if isinstance(rate, np.ndarray) else rate,
    )  # fmt: skip
    result = run(inst, tiles, memory=memory).astype(np.float32)
    assert set(np.unique(result)) <= {0.0, 7.0}
    np.testing.assert_allclose((result == 0).mean(1), np.broadcast_to(rate, (128, 1))[:, 0], atol=0.1)
    if prob in (0.0, 1.0):
        assert (result == (7 if prob == 0 else 0)).all()


# Searches on gpsimd ---------------------------------------------------------------------------------------------------


@given(runs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_sequence_bounds(runs):
    tiles = Tiles()
    ids = np.concatenate([np.full(n, v, np.int32) for v, n in runs])
    inst = SequenceBounds(dst=tiles("sbuf", (1, 2, ids.size), "int32"), segment_ids=tiles.holding(ids[None]))
    result = run(inst, tiles)[0]
    for i, value in enumerate(ids):
        start, end = i, i + 1
        while start > 0 and ids[start - 1] == value:
            start -= 1
        while end < ids.size and ids[end] == value:
            end += 1
        assert result[:, i].tolist() == ([ids.size, -1] if value == 0 else [start, end])


def test_nonzero_with_count_of_the_documentation():
    tiles, src = Tiles(), np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.float32)
    inst = NonzeroWithCount(dst=tiles("sbuf", (1, 9), "int32"), src=tiles.holding(src), index_offset=16)
    assert run(inst, tiles).tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


def test_nonzero_with_count_touches_every_sixteenth_partition():
    tiles, src = Tiles(), flags((40, 6), np.int32)
    old = np.full((40, 7), 77, np.int32)
    result = run(NonzeroWithCount(dst=tiles.holding(old), src=tiles.holding(src), padding_val=-5), tiles)
    for partition in range(40):
        where = np.flatnonzero(src[partition]).tolist()
        expected = [*where, *([-5] * (6 - len(where))), len(where)] if partition % 16 == 0 else [77] * 7
        assert result[partition].tolist() == expected


# Time -----------------------------------------------------------------------------------------------------------------


def test_times():
    tiles = Tiles()

    def busy(inst, on=TRN2):
        verify(inst, on)
        return inst.cost(on, inst.engine_on(on)).busy.ns

    f32 = {n: tiles("sbuf", (128, 256), "float32") for n in "ab"}
    where, psum = tiles("sbuf", (128, 256), "uint8"), tiles("psum", (128, 256), "float32")
    copy = TensorCopyPredicated
    assert busy(copy(dst=f32["a"], src=f32["b"], predicate=where)) == pytest.approx((512 + 70) / 0.96)
    assert busy(copy(dst=f32["a"], src=psum, predicate=where)) == pytest.approx((256 + 64) / 0.96)
    assert busy(copy(dst=f32["a"], src=1.0, predicate=where)) == pytest.approx((256 + 70) / 0.96)
    assert busy(Max8(dst=tiles("sbuf", (128, 8), "float32"), src=f32["a"])) == pytest.approx((256 + 70) / 0.96)
    assert busy(NcStreamShuffle(dst=f32["a"], src=f32["b"], shuffle_mask=(0,) * 32)) == pytest.approx((256 + 70) / 0.96)
    assert busy(Rand2(dst=f32["a"], min=0.0, max=1.0), TRN3) == pytest.approx((64 + 70) / 1.2)
    ids = SequenceBounds(dst=tiles("sbuf", (1, 2, 64), "int32"), segment_ids=tiles("sbuf", (1, 64), "int32"))
    assert busy(ids) == pytest.approx((150 + 128) / 1.2)


def test_a_bound_instruction_reads_its_operands_at_each_run():
    tiles, memory = Tiles(), Memory({})
    src = tiles.holding(numbers((8, 16)))
    inst = Max8(dst=tiles("sbuf", (8, 8), "float32"), src=src)
    memory.set(src.buffer, tiles.values[src.buffer.name])
    go = bind(inst, memory, TRN2)
    go()
    memory.set(src.buffer, np.zeros((8, 16), np.float32))
    go()
    assert (memory.view(inst.dst) == 0).all()
