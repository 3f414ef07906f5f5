"""verify_program: it accepts what the compiler makes, and nothing that was tampered with."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_kernel, tiny_target

from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.errors import RanvierError
from ranvier.ir.program import Placement, Program, Signal, Slot, Wait
from ranvier.ir.text import parse_kernel
from ranvier.ir.verify import verify_program
from ranvier.target import get
from ranvier.target.spec import Engine

TRN2 = get("trn2")

KERNEL = """kernel "k" target=trn2 {
  buffer %x: hbm float32[128, 512] input
  buffer %y: hbm float32[128, 512] output
  buffer %a: sbuf float32[128, 512] temp
  buffer %b: sbuf float32[128, 512] temp
  buffer %p: psum float32[128, 512] temp
  inputs %x
  outputs %y
  body {
    dma_copy dst=%a src=%x engine=sync
    nc_matmul dst=%p stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=false
    tensor_copy dst=%b src=%p engine=vector
    dma_copy dst=%y src=%b engine=sync
  }
}"""


@pytest.fixture(scope="module")
def program() -> Program:
    return lower_kernel(parse_kernel(KERNEL), TRN2)


def changed(program: Program, place: int, **fields) -> Program:
    """`program` with fields of the slot at `place` in kernel order replaced."""
    streams = []
    for stream in program.streams:
        slots = (dataclasses.replace(slot, **fields) if slot.order == place else slot for slot in stream.slots)
        streams.append(dataclasses.replace(stream, slots=tuple(slots)))
    return dataclasses.replace(program, streams=tuple(streams))


def moved(program: Program, **places: Placement) -> Program:
    return dataclasses.replace(program, placements=tuple((program.placed | places).items()))


def fails(program: Program, code: str, text: str) -> None:
    with pytest.raises(RanvierError) as caught:
        verify_program(program, TRN2)
    assert caught.value.code == code and text in str(caught.value)


def test_bad_places_are_found(program):
    top = TRN2.sbuf.usable_bytes_per_partition
    fails(moved(program, a=Placement(0, top - 1024)), "E0901", f"a lies at bytes {top - 1024} to {top + 1024} of sbuf")
    fails(moved(program, a=Placement(0, 2)), "E0901", "not aligned")
    fails(moved(program, a=Placement(1, 0)), "E0901", "from 1 on")
    fails(moved(program, p=Placement(0, 1024)), "E0901", "across a border of banks")
    fails(moved(program, x=Placement(0, program.placed["y"].byte)), "E0901", "overlap in hbm")
    nowhere = dataclasses.replace(program, placements=tuple(p for p in program.placements if p[0] != "b"))
    fails(nowhere, "E0901", "b is not placed")


def test_bad_slots_are_found(program):
    fails(changed(program, 2, signals=(Signal("lost", 1),)), "E0901", "lost is not declared")
    fails(changed(program, 2, signals=(Signal("done.tensor", 1),)), "E0901", "counts more than one thing")
    fails(changed(program, 2, order=1), "E0901", "place 1 in kernel order")
    fails(changed(program, 0, queue=None), "E0901", "has queue None")
    fails(changed(program, 2, queue="sync0"), "E0901", "has queue sync0")
    wrong = [dataclasses.replace(s, engine=Engine.GPSIMD) if s.engine is Engine.VECTOR else s for s in program.streams]
    fails(dataclasses.replace(program, streams=tuple(wrong)), "E0306", "stream of gpsimd")
    gone = dataclasses.replace(program, buffers=tuple(b for b in program.buffers if b.name != "b"))
    fails(gone, "E0901", "unknown buffer b")


def test_a_missing_wait_is_a_race(program):
    fails(changed(program, 1, waits=()), "E0402", "dma_copy (place 0) and nc_matmul (place 1)")
    fails(changed(program, 3, waits=()), "E0402", "buffers: b")


def test_tiles_that_share_memory_without_order_are_a_race(program):
    shared = moved(program, b=program.placed["a"])
    verify_program(shared, TRN2)  # the copy into b comes after the matmul that reads a
    early = changed(shared, 2, waits=(Wait("done.sync0", 16),))
    fails(early, "E0402", "nc_matmul (place 1) and tensor_copy (place 2)")


def test_a_wait_that_nothing_satisfies_is_a_deadlock(program):
    fails(changed(program, 1, waits=(Wait("done.sync0", 32),)), "E0404", "done.sync0 >= 32 (it stays at 16)")


def test_two_engines_waiting_for_each_other_are_a_deadlock(program):
    waits = tuple(Wait(name, 1) for name in ("done.tensor",))
    circular = changed(program, 1, waits=(Wait("done.vector", 1),))
    circular = changed(circular, 2, waits=waits)
    with pytest.raises(RanvierError) as caught:
        verify_program(circular, TRN2)
    assert caught.value.code == "E0404"
    assert "tensor slot 0" in str(caught.value) and "vector slot 0" in str(caught.value)


def slots_with_waits(program: Program) -> list[Slot]:
    return [slot for _, slot in program.slots() if slot.waits]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), sbuf=st.sampled_from((1024, 2048, 1 << 16)))
def test_every_wait_is_needed(seed, sbuf):
    target = tiny_target(sbuf)
    program = lower_kernel(random_kernel(seed, target, 30), target)
    rng = random.Random(seed)
    for slot in rng.sample(slots_with_waits(program), min(8, len(slots_with_waits(program)))):
        dropped = rng.randrange(len(slot.waits))
        waits = slot.waits[:dropped] + slot.waits[dropped + 1 :]
        with pytest.raises(RanvierError) as caught:
            verify_program(changed(program, slot.order, waits=waits), target)
        # Without the wait there is a race, or the order that is left gives memory away too early.
        assert caught.value.code == "E0402" or "has overwritten" in str(caught.value)
