"""Text of kernels and programs: what prints parses back, and errors say where they are."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.text_strategies import buffer_tables, dtypes, instructions, names
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.ir.kernel import Constant, Kernel, ParamSource
from ranvier.ir.program import Placement, Program, Signal, Slot, Stream, Wait
from ranvier.ir.text import parse_kernel, parse_program, print_kernel, print_program
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.dma import DmaCopy
from ranvier.isa.gpsimd import Iota
from ranvier.target.spec import Engine

_sizes = st.none() | st.lists(st.integers(0, 999), min_size=1, max_size=4).map(tuple)
_rows = st.none() | st.tuples(st.integers(0, 9), st.integers(10, 99))
_sources = st.builds(ParamSource, names, _sizes, _sizes, st.none() | dtypes, _rows)


@st.composite
def _constants(draw) -> Constant:
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    dtype = draw(dtypes)
    size = int(np.prod(shape)) * dtype.itemsize
    return Constant(shape, dtype, draw(st.binary(min_size=size, max_size=size)))


@st.composite
def _headers(draw):
    table = draw(buffer_tables())
    some = st.lists(st.sampled_from(sorted(table)), max_size=3).map(tuple)
    params = tuple(draw(st.lists(st.tuples(st.sampled_from(sorted(table)), _sources), max_size=2)))
    constants = tuple(draw(st.lists(st.tuples(st.sampled_from(sorted(table)), _constants()), max_size=2)))
    return table, draw(some), draw(some), params, constants


@st.composite
def _kernels(draw) -> Kernel:
    table, inputs, outputs, params, constants = draw(_headers())
    body = tuple(draw(st.lists(instructions(table), max_size=4)))
    return Kernel(draw(names), "trn2", tuple(table.values()), inputs, outputs, body, params, constants)


@st.composite
def _programs(draw) -> Program:
    table, inputs, outputs, params, constants = draw(_headers())
    waits = st.lists(st.builds(Wait, names, st.integers(0, 99)), max_size=2).map(tuple)
    signals = st.lists(st.builds(Signal, names, st.integers(1, 16)), max_size=2).map(tuple)
    slots = st.builds(Slot, instructions(table), waits, signals, st.none() | names, st.integers(0, 999))
    streams = st.builds(Stream, st.sampled_from(list(Engine)), st.lists(slots, max_size=3).map(tuple))
    places = st.builds(Placement, st.integers(0, 127), st.integers(0, 1 << 34))
    placed = draw(st.permutations(sorted(table)) | st.just(list(table)))
    placements = tuple((name, draw(places)) for name in placed)
    return Program(
        draw(names), "trn2", tuple(table.values()), placements, tuple(draw(st.lists(streams, max_size=2))),
        tuple(draw(st.lists(names, max_size=3))), inputs, outputs, params, constants,
    )  # fmt: skip


def _locations(instructions, buffers):
    return [i.loc for i in instructions], [b.loc for b in buffers]


@given(_kernels())
@settings(max_examples=60, deadline=None)
def test_kernels_parse_back(kernel):
    back = parse_kernel(print_kernel(kernel))
    assert back == kernel
    assert _locations(back.body, back.buffers) == _locations(kernel.body, kernel.buffers)
    bare = parse_kernel(print_kernel(kernel, locations=False))
    assert bare == kernel
    assert not any(i.loc for i in bare.body)


@given(_programs())
@settings(max_examples=60, deadline=None)
def test_programs_parse_back(program):
    back = parse_program(print_program(program))
    assert back == program
    assert _locations([s.instruction for _, s in back.slots()], back.buffers) == _locations(
        [s.instruction for _, s in program.slots()], program.buffers
    )


def _small() -> Kernel:
    tile = Buffer("tile", Space.SBUF, (128, 4), dt.int32)
    out = Buffer("out", Space.HBM, (128, 4), dt.int32, BufferKind.OUTPUT)
    body = (Iota(dst=tile.all, pattern=[[1, 4]], channel_multiplier=4), DmaCopy(dst=out.all, src=tile.all))
    return Kernel("count", "trn2", (tile, out), (), ("out",), body)


KERNEL_TEXT = """\
kernel "count" target=trn2 {
  buffer %tile: sbuf int32[128, 4] temp
  buffer %out: hbm int32[128, 4] output
  outputs %out
  body {
    iota dst=%tile pattern=[[1, 4]] channel_multiplier=4
    dma_copy dst=%out src=%tile
  }
}
"""

PROGRAM_TEXT = """\
program "count" target=trn2 {
  buffer %tile: sbuf int32[128, 4] temp at p0 b64
  buffer %out: hbm int32[128, 4] output at p0 b0
  outputs %out
  semaphores s0
  stream gpsimd {
    @0 signal(s0+=1): iota dst=%tile pattern=[[1, 4]] channel_multiplier=4
  }
  stream sync {
    @1 queue(q0) wait(s0>=1): dma_copy dst=%out src=%tile
  }
}
"""


def test_the_form_of_a_kernel():
    assert print_kernel(_small()) == KERNEL_TEXT
    assert parse_kernel(KERNEL_TEXT) == _small()


def test_the_form_of_a_program():
    kernel = _small()
    streams = (
        Stream(Engine.GPSIMD, (Slot(kernel.body[0], signals=(Signal("s0", 1),)),)),
        Stream(Engine.SYNC, (Slot(kernel.body[1], waits=(Wait("s0", 1),), queue="q0", order=1),)),
    )
    placements = (("tile", Placement(0, 64)), ("out", Placement(0, 0)))
    program = Program("count", "trn2", kernel.buffers, placements, streams, ("s0",), (), ("out",))
    assert print_program(program) == PROGRAM_TEXT
    assert parse_program(PROGRAM_TEXT) == program


@pytest.mark.parametrize(
    ("old", "new", "place", "expected"),
    [
        ("body", "boddy", "line 5, column 3", "'body'"),
        ("sbuf int32", "l2 int32", "line 2, column 17", "one of hbm, sbuf, psum"),
        ("%out: hbm", "%tile: hbm", "line 3, column 10", "a name that no other buffer has"),
        ("dst=%out", "dst=%in", "line 7, column 19", "the name of a buffer (tile, out)"),
        ("  }\n}\n", "  }\n", "line 9, column 1", "'}'"),
        ("  }\n}\n", "  }\n}\nkernel", "line 10, column 1", "the end"),
    ],
)
def test_errors_say_where_and_what(old, new, place, expected):
    with pytest.raises(RanvierError) as failure:
        parse_kernel(KERNEL_TEXT.replace(old, new, 1))
    assert failure.value.code == "E0605"
    assert f"{place}: " in failure.value.message
    assert expected in failure.value.message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("stream sync", "stream warp", "one of unknown, tensor"),
        ("at p0 b64", "at p0", "b and the byte"),
        ("wait(s0>=1)", "wait(s0=1)", "'>='"),
        ("@1 queue", "@x queue", "a whole number"),
    ],
)
def test_errors_of_programs(old, new, expected):
    with pytest.raises(RanvierError, match="expected") as failure:
        parse_program(PROGRAM_TEXT.replace(old, new, 1))
    assert failure.value.code == "E0605"
    assert expected in failure.value.message


def test_damaged_constants_are_errors():
    line = 'constant %tile float32[1] "AACAPw=="'
    good = KERNEL_TEXT.replace("body", line + "\n  body", 1)
    assert parse_kernel(good).constants[0][1].array().tolist() == [1.0]
    for bad in ("AACAPw=", "AACA"):
        with pytest.raises(RanvierError, match="base64") as failure:
            parse_kernel(good.replace("AACAPw==", bad))
        assert failure.value.code == "E0605"
