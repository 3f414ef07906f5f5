"""Exact times of small programs on Trainium2, each from the target's facts by hand, and published times nearby."""

from itertools import pairwise

import pytest
from helpers.programs import Builder

from ranvier.isa.access import AccessPattern, BufferKind
from ranvier.isa.act import act
from ranvier.isa.alu import alu
from ranvier.isa.dma import DmaCopy
from ranvier.isa.scalar import Activation
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy, TensorTensor
from ranvier.sim.timing import simulate
from ranvier.sim.trace import Kind, Reason
from ranvier.target import get
from ranvier.target.spec import Engine

TRN2 = get("trn2")


def events(builder, target="trn2"):
    timeline = simulate(builder.program(), get(target))
    return timeline, list(timeline.events())


def matmuls(count, dtype="bfloat16", moving=512):
    b = Builder()
    held, moved = b.buffer("s", "sbuf", (128, 128), dtype), b.buffer("m", "sbuf", (128, moving), dtype)
    product = b.buffer("p", "psum", (128, moving))
    for i in range(count):
        b.put(Engine.TENSOR, NcMatmul(dst=product.all, stationary=held.all, moving=moved.all, accumulate=i > 0))
    return b


@pytest.mark.parametrize(
    ("dtype", "moving", "interval_ns"),
    [
        ("bfloat16", 512, 517 / 2.4),  # 512 columns and 5 cycles: published traces show 215 to 216 ns
        ("bfloat16", 128, 133 / 2.4),  # 55 to 56 ns
        ("float32", 512, 2 * 1030 / 2.4),  # two passes of 429 ns
    ],
)
def test_stream_of_matmuls(dtype, moving, interval_ns):
    timeline, found = events(matmuls(10, dtype, moving))
    starts = [event.start_ns for event in found]
    assert [b - a for a, b in pairwise(starts)] == pytest.approx([interval_ns] * 9)
    # accumulation happens in PSUM: no matmul waits for the one before; the last result is visible one latency later
    assert timeline.total_ns == pytest.approx(10 * interval_ns + 163.5)
    assert all(event.reason is Reason.ENGINE for event in found[1:])


def test_published_times_of_single_instructions():
    """Start to end within 7 % of what public instruction traces show."""
    b = Builder()
    psum, out = b.buffer("p", "psum", (128, 512)), b.buffer("o", "sbuf", (128, 512))
    small, rounded = b.buffer("q", "psum", (128, 128)), b.buffer("r", "sbuf", (128, 128), "bfloat16")
    cases = [
        (Engine.SCALAR, Activation(dst=out.all, data=psum.all, op=act("exp")), 686),
        (Engine.VECTOR, TensorCopy(dst=out.all, src=psum.all), 690),
        (Engine.VECTOR, TensorCopy(dst=rounded.all, src=small.all), 291),
        (Engine.SCALAR, TensorCopy(dst=out.all, src=psum.all), 585),
    ]
    for engine, inst, published in cases:
        single = Builder()
        single.buffers, single.placements = b.buffers, b.placements
        single.put(engine, inst)
        _, found = events(single)
        assert found[-1].done_ns - found[-1].start_ns == pytest.approx(published, rel=0.07), inst.MNEMONIC


def test_a_signal_takes_a_hop():
    b = matmuls(1)
    product, out = b.buffers["p"], b.buffer("o", "sbuf", (128, 512))
    b.streams[Engine.TENSOR].clear()
    inst = NcMatmul(dst=product.all, stationary=b.buffers["s"].all, moving=b.buffers["m"].all, accumulate=False)
    b.put(Engine.TENSOR, inst, signals={"t": 1})
    b.put(Engine.VECTOR, TensorCopy(dst=out.all, src=product.all), waits={"t": 1})
    _, (matmul, copy) = events(b)
    assert matmul.done_ns == pytest.approx(517 / 2.4 + 163.5)
    assert copy.start_ns == pytest.approx(matmul.done_ns + 25)
    assert (copy.reason, copy.cause, copy.ready_ns) == (Reason.SEMAPHORE, matmul.index, 0)
    assert copy.end_ns - copy.start_ns == pytest.approx((512 + 64) / 0.96)


def test_a_dependent_instruction_waits_for_the_latency():
    b = Builder()
    a, c, d, e = (b.buffer(name, "sbuf", (128, 512)) for name in "acde")
    b.put(Engine.VECTOR, TensorCopy(dst=c.all, src=a.all))
    b.put(Engine.VECTOR, TensorCopy(dst=d.all, src=c.all))
    b.put(Engine.VECTOR, TensorCopy(dst=e.all, src=a.all))
    _, (first, second, third) = events(b)
    assert first.done_ns - first.end_ns == pytest.approx(88)
    assert second.start_ns == pytest.approx(first.done_ns)
    assert (second.reason, second.cause) == (Reason.DEPENDENCY, 0)
    assert (third.start_ns, third.reason) == (pytest.approx(second.end_ns), Reason.ENGINE)


def test_halves_of_a_tile_do_not_depend_on_each_other():
    b = Builder()
    a, c, d = (b.buffer(name, "sbuf", (128, 512)) for name in "acd")
    left, right = (AccessPattern(c, first, ((1, 128), (1, 256)), c.dtype) for first in (0, 256))
    half = AccessPattern(a, 0, ((1, 128), (1, 256)), a.dtype)
    b.put(Engine.VECTOR, TensorCopy(dst=left, src=half))
    b.put(Engine.VECTOR, TensorCopy(dst=AccessPattern(d, 0, half.pattern, d.dtype), src=right))
    _, (first, second) = events(b)
    assert second.start_ns == pytest.approx(first.end_ns)


def test_table_loads_only_when_the_table_changes_and_before_waiting():
    b = Builder()
    a, c = b.buffer("a", "sbuf", (128, 64)), b.buffer("c", "sbuf", (128, 64))
    x = b.buffer("x", "hbm", (128, 64), kind=BufferKind.INPUT)
    b.put(Engine.SYNC, DmaCopy(dst=a.all, src=x.all), signals={"q": 16}, queue="sync0")
    for fn in ("exp", "log", "relu", "gelu", "copy", "exp"):
        b.put(Engine.SCALAR, Activation(dst=c.all, data=a.all, op=act(fn)), waits={"q": 16})
    timeline, found = events(b)
    loads = [event for event in found if event.kind is Kind.TABLE_LOAD]
    assert len(loads) == 3 and all(e.end_ns - e.start_ns == pytest.approx(1283) for e in loads)
    assert loads[0].start_ns == 0  # while the data still moves
    first = next(e for e in found if e.kind is Kind.INSTRUCTION)
    transfer = next(e for e in found if e.kind is Kind.TRANSFER)
    assert first.start_ns == pytest.approx(transfer.done_ns + 25)
    assert timeline.busy_ns["scalar"] > 3 * 1283


def load(shape, dtype="bfloat16", copies=1, queue="sync0", engine=Engine.SYNC, **target):
    b = Builder()
    x = b.buffer("x", "hbm", shape, dtype, kind=BufferKind.INPUT)
    for i in range(copies):
        tile = b.buffer(f"t{i}", "sbuf", shape, dtype)
        b.put(engine, DmaCopy(dst=tile.all, src=x.all), signals={"q": 16}, queue=queue)
    used = TRN2
    for path, value in target.items():
        used = used.replace(path.replace("__", "."), value)
    timeline = simulate(b.program(), used)
    return timeline, [e for e in timeline.events() if e.kind is Kind.TRANSFER]


def test_one_load_by_hand():
    _, (transfer,) = load((128, 1024))  # one descriptor of 2 KiB per partition, 8 on each of 16 engines
    each = 7.6 + 2048 / 27.2
    assert transfer.start_ns == pytest.approx(88 + 832)
    assert transfer.end_ns == pytest.approx(88 + 832 + 15 * 25 + 8 * each + 9)
    assert transfer.done_ns == pytest.approx(transfer.end_ns + 325)


@pytest.mark.parametrize(
    ("shape", "copies", "published_ns"),
    [
        ((4, 4096), 1, 1416),  # 32 KiB on one engine
        ((128, 128), 1, 535),  # 256 byte descriptors on 16 engines
        ((128, 1024), 6, 4699),  # 1.5 MiB issued together
    ],
)
def test_published_transfers(shape, copies, published_ns):
    """First byte to last byte within 10 % of public profiles."""
    _, found = load(shape, copies=copies)
    assert max(e.end_ns for e in found) - min(e.start_ns for e in found) == pytest.approx(published_ns, rel=0.1)


def test_transfers_of_one_queue_complete_in_order_and_share_engines():
    _, (first, second) = load((128, 1024), copies=2)
    assert (second.reason, second.cause) == (Reason.DMA_ENGINE, first.index)
    assert second.done_ns > first.done_ns
    assert second.end_ns - first.end_ns == pytest.approx(8 * (7.6 + 2048 / 27.2) + 9)


def test_hbm_bandwidth_caps_all_transfers_together():
    timeline, found = load((128, 1024), copies=8, hbm__stack_bytes_per_ns=50.0)
    moved = sum(e.hbm_bytes for e in found)
    assert moved == 8 * 128 * 2048
    assert max(e.end_ns for e in found) - found[0].ready_ns == pytest.approx(moved / 50 + 9)
    assert found[-1].reason is Reason.HBM
    assert timeline.total_ns > simulate(load_program(8), TRN2).total_ns


def load_program(copies):
    b = Builder()
    x = b.buffer("x", "hbm", (128, 1024), "bfloat16", kind=BufferKind.INPUT)
    for i in range(copies):
        tile = b.buffer(f"t{i}", "sbuf", (128, 1024), "bfloat16")
        b.put(Engine.SYNC, DmaCopy(dst=tile.all, src=x.all), queue="sync0")
    return b.program()


def test_small_transfers_are_limited_by_the_trigger():
    timeline, found = load((128, 16), copies=20)
    gaps = [b.ready_ns - a.ready_ns for a, b in pairwise(found)]
    assert gaps == pytest.approx([88] * 19)
    assert timeline.busy_ns["sync"] == pytest.approx(20 * 88)
    _, gpsimd = load((128, 16), copies=3, queue="gpsimd0", engine=Engine.GPSIMD)
    assert gpsimd[1].ready_ns - gpsimd[0].ready_ns == pytest.approx(600)


def both_read_psum(same_bank, target):
    b = Builder(target=target)
    p = [b.buffer(f"p{i}", "psum", (128, 512), byte=2048 * i) for i in range(2)]
    out = [b.buffer(f"o{i}", "sbuf", (128, 512)) for i in range(2)]
    b.put(Engine.VECTOR, TensorCopy(dst=out[0].all, src=p[0].all))
    b.put(Engine.SCALAR, Activation(dst=out[1].all, data=p[0 if same_bank else 1].all, op=act("relu")))
    _, found = events(b, target)
    return sorted(found, key=lambda e: e.start_ns)


def test_a_psum_bank_serves_vector_or_scalar():
    first, second = both_read_psum(True, "trn2")
    assert (second.reason, second.cause) == (Reason.PORT, first.index)
    assert second.start_ns == pytest.approx(first.end_ns)
    first, second = both_read_psum(False, "trn2")
    assert first.start_ns == second.start_ns == 0


def test_a_tile_over_two_banks_needs_both():
    for bank, shared in ((1, True), (2, False)):
        b = Builder()
        wide = b.buffer("wide", "psum", (128, 1024), byte=0)
        other = b.buffer("other", "psum", (128, 512), byte=2048 * bank)
        out, result = b.buffer("out", "sbuf", (128, 1024)), b.buffer("result", "sbuf", (128, 512))
        b.put(Engine.VECTOR, TensorCopy(dst=out.all, src=wide.all))
        b.put(Engine.SCALAR, Activation(dst=result.all, data=other.all, op=act("relu")))
        _, found = events(b)
        assert (max(event.start_ns for event in found) > 0) is shared


def test_generation_two_serializes_memory_ports():
    first, second = both_read_psum(False, "trn1")
    assert second.reason is Reason.PORT and second.start_ns == pytest.approx(first.end_ns)
    for target, parallel in (("trn1", False), ("trn2", True)):
        b = Builder(target=target)
        a, c, d = (b.buffer(name, "sbuf", (128, 512)) for name in "acd")
        add = alu("add")
        b.put(Engine.VECTOR, TensorTensor(dst=c.all, data1=a.all, data2=a.all, op=add, engine=Engine.VECTOR))
        b.put(Engine.GPSIMD, TensorTensor(dst=d.all, data1=a.all, data2=a.all, op=add, engine=Engine.GPSIMD))
        _, found = events(b, target)
        one, two = sorted(found, key=lambda e: e.start_ns)
        assert (two.start_ns == 0) is parallel
        if not parallel:
            assert two.start_ns == pytest.approx(one.end_ns)
