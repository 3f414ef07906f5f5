"""Orders of execution: what semaphores allow, early and late data movement, deadlock."""

import pytest
from helpers.programs import Builder

from ranvier.errors import RanvierError
from ranvier.isa.access import BufferKind
from ranvier.isa.dma import DmaCopy
from ranvier.isa.vector import TensorCopy
from ranvier.sim.order import execution_order
from ranvier.target.spec import Engine


def two_engines(waits=()):
    """Three copies on the vector engine beside three on gpsimd; `waits` of gpsimd's first."""
    b = Builder()
    tiles = [b.buffer(f"t{i}", "sbuf", (128, 8)) for i in range(8)]
    for i in range(3):
        b.put(Engine.VECTOR, TensorCopy(dst=tiles[i + 1].all, src=tiles[0].all), signals={"v": 1})
    for i in range(3):
        b.put(Engine.GPSIMD, TensorCopy(dst=tiles[i + 5].all, src=tiles[4].all), waits=waits if i == 0 else ())
    return b.program()


def orders(program, **options):
    return [slot.order for _, slot in execution_order(program, **options)]


def test_seeds_permute_what_nothing_orders():
    found = {tuple(orders(two_engines(), seed=seed)) for seed in range(40)}
    assert len(found) > 5
    for order in found:
        assert [i for i in order if i < 3] == [0, 1, 2] and [i for i in order if i >= 3] == [3, 4, 5]


def test_the_same_seed_gives_the_same_order():
    assert orders(two_engines(), seed=7) == orders(two_engines(), seed=7)


def test_a_wait_holds_for_every_seed():
    for seed in range(30):
        order = orders(two_engines({"v": 2}), seed=seed)
        assert order.index(3) > order.index(1)


def loads():
    """Two loads on one queue; the vector engine waits for the first only."""
    b = Builder()
    source = b.buffer("x", "hbm", (128, 8), kind=BufferKind.INPUT)
    a, c, d = (b.buffer(name, "sbuf", (128, 8)) for name in "acd")
    b.put(Engine.SYNC, DmaCopy(dst=a.all, src=source.all), signals={"q": 16}, queue="sync0")
    b.put(Engine.SYNC, DmaCopy(dst=c.all, src=source.all), signals={"q": 16}, queue="sync0")
    b.put(Engine.VECTOR, TensorCopy(dst=d.all, src=a.all), waits={"q": 16})
    return b.program()


def test_late_transfers_happen_when_somebody_waits_and_at_the_end():
    assert all(orders(loads(), seed=seed, dma="late") == [0, 2, 1] for seed in range(10))
    assert {tuple(orders(loads(), seed=seed)) for seed in range(20)} == {(0, 1, 2), (0, 2, 1)}


def test_deadlock_shows_who_waits_for_what():
    b = Builder()
    t = [b.buffer(f"t{i}", "sbuf", (128, 8)) for i in range(3)]
    b.put(Engine.VECTOR, TensorCopy(dst=t[1].all, src=t[0].all), waits={"g": 1}, signals={"v": 1})
    b.put(Engine.GPSIMD, TensorCopy(dst=t[2].all, src=t[0].all), waits={"v": 1}, signals={"g": 1})
    with pytest.raises(RanvierError) as caught:
        execution_order(b.program())
    text = str(caught.value)
    assert caught.value.code == "E0404"
    assert "vector slot 0 (tensor_copy) waits for g >= 1, which is 0; it would be signalled by gpsimd slot 0" in text
    assert "gpsimd slot 0 (tensor_copy) waits for v >= 1, which is 0; it would be signalled by vector slot 0" in text


def test_a_semaphore_nobody_signals_is_a_deadlock():
    with pytest.raises(RanvierError) as caught:
        execution_order(two_engines({"v": 4}))
    assert caught.value.code == "E0404" and "nothing signals it any more (1 short)" in str(caught.value)


def test_a_transfer_that_waits_for_its_own_queue_out_of_order_is_a_deadlock():
    b = Builder()
    source = b.buffer("x", "hbm", (128, 8), kind=BufferKind.INPUT)
    a = b.buffer("a", "sbuf", (128, 8))
    b.put(Engine.SYNC, DmaCopy(dst=a.all, src=source.all), waits={"q": 16}, queue="sync0")
    b.put(Engine.SYNC, DmaCopy(dst=a.all, src=source.all), signals={"q": 16}, queue="sync0")
    for dma in ("early", "late"):
        with pytest.raises(RanvierError) as caught:
            execution_order(b.program(), dma=dma)
        assert caught.value.code == "E0404" and "sync slot 1 (dma_copy) (itself)" in str(caught.value)


def test_names_are_checked():
    program = two_engines({"v": 1})
    with pytest.raises(RanvierError) as caught:
        execution_order(program.__class__(**{**program.__dict__, "semaphores": ()}))
    assert caught.value.code == "E0901"
    with pytest.raises(RanvierError) as caught:
        execution_order(program, dma="sometimes")
    assert caught.value.code == "E0802"
    b = Builder()
    t = b.buffer("t", "sbuf", (128, 8))
    b.put(Engine.VECTOR, TensorCopy(dst=t.all, src=t.all), queue="sync0")
    with pytest.raises(RanvierError) as caught:
        execution_order(b.program())
    assert caught.value.code == "E0901" and "queue" in str(caught.value)
