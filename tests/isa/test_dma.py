"""Copies, casts, gathers, scatters and transposes by DMA, and the descriptors that they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, TRN3, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.isa.access import AccessPattern, Indirect
from ranvier.isa.dma import DmaCopy, DmaTranspose, transfer
from ranvier.isa.enums import DgeMode, OobMode
from ranvier.isa.record import verify
from ranvier.sim.machine import Memory, bind
from ranvier.target.spec import Engine


def rows_of(tiles: Tiles, table: np.ndarray, index: AccessPattern) -> AccessPattern:
    """The rows of `table`, in HBM, that `index` names."""
    whole = tiles.holding(table, "hbm")
    row = whole.pattern[0][0]
    pattern = ((row, index.size), *whole.pattern[1:])
    return AccessPattern(whole.buffer, 0, pattern, whole.dtype, index=Indirect(index, row, table.shape[0]))


@given(
    st.integers(1, 128), st.integers(1, 40), st.sampled_from(("hbm", "sbuf")), st.sampled_from(("hbm", "sbuf")),
    st.sampled_from(("float32", "bfloat16", "int32", "uint8")), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_copies_move_bits(p, f, source, to, dtype, seed):
    tiles, of = Tiles(), dt.dtype(dtype)
    data = np.random.default_rng(seed).integers(0, 256, (p, f * of.itemsize), dtype=np.uint8).view(of.np)
    inst = DmaCopy(dst=tiles(to, (p, f), dtype), src=tiles.holding(data, source))
    assert run(inst, tiles).tobytes() == data.tobytes()


def test_copies_may_change_the_shape():
    tiles = Tiles()
    data = np.arange(48, dtype=np.float32).reshape(4, 12)
    inst = DmaCopy(dst=tiles("sbuf", (8, 2, 3), "float32"), src=tiles.holding(data, "hbm"))
    assert (run(inst, tiles) == data.reshape(8, 2, 3)).all()


def test_casts_go_through_float32():
    tiles = Tiles()
    data = np.array([[2**24 + 1, -3]], np.int32)
    inst = DmaCopy(dst=tiles("sbuf", (1, 2), "float32"), src=tiles.holding(data, "hbm"))
    assert run(inst, tiles).tolist() == [[2.0**24, -3.0]]
    halves = tiles.holding(np.array([[2.5, -300.0]], np.float32))
    assert run(DmaCopy(dst=tiles("hbm", (1, 2), "int8"), src=halves), tiles).tolist() == [[2, -128]]


@given(st.integers(1, 128), st.integers(1, 60), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_gather_and_scatter_rows(p, rows, f, seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, f)).astype(np.float32)
    index = rng.integers(0, rows, (p, 1)).astype(np.int32)
    tiles = Tiles()
    gather = DmaCopy(dst=tiles("sbuf", (p, f), "float32"), src=rows_of(tiles, table, tiles.holding(index)))
    assert (run(gather, tiles) == table[index[:, 0]]).all()
    if p > rows:
        return
    tiles, unique = Tiles(), rng.permutation(rows)[:p].astype(np.int32)[:, None]
    data = rng.normal(size=(p, f)).astype(np.float32)
    scatter = DmaCopy(dst=rows_of(tiles, table, tiles.holding(unique)), src=tiles.holding(data))
    memory_rows = table.copy()
    memory_rows[unique[:, 0]] = data
    assert (scattered(scatter, tiles, table) == memory_rows).all()


def scattered(inst: DmaCopy, tiles: Tiles, table: np.ndarray) -> np.ndarray:
    """What the whole table holds after `inst`, which writes some of its rows."""
    verify(inst, TRN2)
    memory = Memory({})
    for ap in (*inst.reads(), *inst.writes()):
        memory.set(ap.buffer, tiles.values[ap.buffer.name])
    bind(inst, memory, TRN2)()
    return memory.get(inst.dst.buffer)


def test_rows_out_of_bounds_are_errors_or_skipped():
    index = np.array([[2], [5], [-1], [0]], np.int32)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    tiles = Tiles()
    gather = DmaCopy(dst=tiles("sbuf", (4, 4), "float32"), src=rows_of(tiles, table, tiles.holding(index)))
    with pytest.raises(RanvierError, match="index 5 in partition 1 is outside the 3 rows") as failure:
        run(gather, tiles)
    assert failure.value.code == "E0403"
    tiles = Tiles()
    before = tiles.holding(np.full((4, 4), -7, np.float32))
    skip = DmaCopy(dst=before, src=rows_of(tiles, table, tiles.holding(index)), oob_mode=OobMode.skip)
    assert skip.reads_dst
    assert run(skip, tiles).tolist() == [table[2].tolist(), [-7] * 4, [-7] * 4, table[0].tolist()]
    tiles = Tiles()
    data = tiles.holding(np.ones((4, 4), np.float32))
    into = DmaCopy(dst=rows_of(tiles, table, tiles.holding(index)), src=data, oob_mode=OobMode.skip)
    assert scattered(into, tiles, table).tolist() == [[1] * 4, table[1].tolist(), [1] * 4]


@given(st.sampled_from([(2, (1, 0)), (3, (2, 1, 0)), (4, (3, 1, 2, 0))]), st.sampled_from(("hbm", "sbuf")), st.data())
@settings(max_examples=30, deadline=None)
def test_transposes_permute(rank_and_axes, space, data):
    rank, axes = rank_and_axes
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=rank, max_size=rank)))
    values = np.random.default_rng(0).integers(0, 2**16, shape).astype(np.uint16).view(dt.bfloat16.np)
    tiles = Tiles()
    inst = DmaTranspose(dst=tiles("sbuf", tuple(shape[a] for a in axes), "bfloat16"), src=tiles.holding(values, space))
    assert run(inst, tiles).tobytes() == values.transpose(axes).tobytes()


def test_an_indirect_transpose_takes_its_index_column_after_column():
    rng, tiles = np.random.default_rng(1), Tiles()
    table = rng.normal(size=(300, 16)).astype(dt.float16.np)
    index = rng.integers(0, 300, (128, 2)).astype(np.uint32)
    inst = DmaTranspose(dst=tiles("sbuf", (16, 256), "float16"), src=rows_of(tiles, table, tiles.holding(index)))
    assert (run(inst, tiles) == table[index.T.reshape(-1)].T).all()


def test_who_triggers_and_makes_descriptors():
    tiles = Tiles()
    dst, src = tiles("sbuf", (128, 64), "float32"), tiles("hbm", (128, 64), "float32")
    plain = DmaCopy(dst=dst, src=src)
    assert plain.legal_engines(TRN2) == (Engine.SYNC, Engine.SCALAR, Engine.GPSIMD)
    assert [plain.mode(e) for e in plain.legal_engines(TRN2)] == ["static", "static", "swdge"]
    hardware = DmaCopy(dst=dst, src=src, dge_mode=DgeMode.hwdge)
    assert hardware.legal_engines(TRN2) == (Engine.SYNC, Engine.SCALAR)
    with pytest.raises(RanvierError) as failure:
        verify(DmaCopy(dst=dst, src=src, dge_mode=DgeMode.hwdge, engine=Engine.GPSIMD), TRN2)
    assert failure.value.rule == "ISA-5"
    with pytest.raises(RanvierError) as failure:
        verify(hardware, TRN1)
    assert failure.value.code == "E0307"
    assert DmaCopy(dst=dst, src=src, dge_mode=DgeMode.swdge).legal_engines(TRN2) == (Engine.GPSIMD,)
    verify(DmaCopy(dst=dst, src=src, priority=2), TRN3)


@pytest.mark.parametrize(
    ("dst", "src", "descriptors", "size_bytes", "engines", "hbm_bytes"),
    [
        (("sbuf", (128, 1024), "bfloat16"), ("hbm", (128, 1024), "bfloat16"), 128, 2048, 16, 1 << 18),
        (("sbuf", (4, 2048), "float32"), ("hbm", (4, 2048), "float32"), 4, 8192, 1, 1 << 15),
        (("hbm", (64, 512), "bfloat16"), ("sbuf", (64, 512), "float32"), 64, 2048, 8, 1 << 16),
        (("hbm", (1 << 20,), "float32"), ("hbm", (1 << 20,), "float32"), 16, 1 << 18, 16, 1 << 23),
        (("hbm", (100,), "float32"), ("hbm", (100,), "float32"), 1, 400, 1, 800),
        (("sbuf", (64, 512), "bfloat16"), ("sbuf", (64, 512), "bfloat16"), 64, 1024, 8, 0),
    ],
)
def test_descriptors_are_runs_spread_over_engines(dst, src, descriptors, size_bytes, engines, hbm_bytes):
    tiles = Tiles()
    work = transfer(TRN2, tiles(*src), tiles(*dst), "static")
    assert (work.descriptors, work.descriptor_bytes, work.engines) == (descriptors, size_bytes, engines)
    assert work.hbm_bytes == hbm_bytes


def test_strided_and_gathered_rows_are_descriptors_of_their_own():
    tiles = Tiles()
    strided = tiles("sbuf", (128, 64), "float32", slice(0, 64, 2))
    assert transfer(TRN2, tiles("hbm", (128, 32), "float32"), strided, "static").descriptors == 128 * 32
    index = tiles("sbuf", (64, 1), "int32")
    gathered = rows_of(tiles, np.zeros((100, 32), np.float32), index)
    work = transfer(TRN2, gathered, tiles("sbuf", (64, 32), "float32"), "swdge")
    assert (work.descriptors, work.descriptor_bytes, work.engines) == (64, 128, 8)
    assert transfer(TRN2, gathered, tiles("hbm", (64, 32), "float32"), "swdge").descriptors == 64


@pytest.mark.parametrize(
    ("space", "shape", "efficiency"), [("hbm", (256, 128), 0.9), ("sbuf", (128, 128), 0.5), ("hbm", (250, 128), 0.45)]
)
def test_transposes_reach_part_of_the_rate(space, shape, efficiency):
    tiles = Tiles()
    inst = DmaTranspose(dst=tiles("sbuf", shape[::-1], "bfloat16"), src=tiles(space, shape, "bfloat16"))
    cost = inst.cost(TRN2, Engine.SYNC)
    assert cost.dma is not None and cost.dma.efficiency == pytest.approx(efficiency)
    assert cost.busy.ns == TRN2.dma.static.issue_ns.value
