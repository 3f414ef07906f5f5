"""Text of instructions and access patterns: what prints parses back, and errors say where they are."""

from __future__ import annotations

import pytest
from helpers.text_strategies import access_patterns, buffer_tables, instructions
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.isa import REGISTRY
from ranvier.isa.access import Buffer, Space
from ranvier.isa.examples import build
from ranvier.isa.text import parse_access, parse_instruction, print_access, print_instruction

X = Buffer("x", Space.SBUF, (128, 64), dt.bfloat16)
W = Buffer("w", Space.HBM, (100, 64), dt.float32)
BUFFERS = {"x": X, "w": W}


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_access_patterns_parse_back(data):
    table = data.draw(buffer_tables())
    ap = data.draw(access_patterns(table))
    assert parse_access(print_access(ap), table) == ap


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_instructions_parse_back_with_their_locations(data):
    table = data.draw(buffer_tables())
    inst = data.draw(instructions(table))
    text = print_instruction(inst)
    assert "\n" not in text
    back = parse_instruction(text, table)
    assert back == inst
    assert back.loc == inst.loc
    assert parse_instruction(print_instruction(inst, locations=False), table).loc is None


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_example_parses_back(name):
    for example in REGISTRY[name].EXAMPLES:
        inst = build(REGISTRY[name], example)
        table = {ap.buffer.name: ap.buffer for ap in inst.reads() + inst.writes()}
        assert parse_instruction(print_instruction(inst), table) == inst


def test_the_form_of_a_line():
    text = "dma_copy dst=%x[p0 f32 | 1x100 1x32] as float16 src=%w[f32 | 64x100 1x32] dge_mode=none"
    inst = parse_instruction(text, BUFFERS)
    assert print_instruction(inst) == text
    assert inst.writes()[0].offset == 32
    assert inst.writes()[0].dtype is dt.float16


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("copy dst=%x", "line 1, column 1", "an instruction"),
        ("iota dst=%x", "line 1, column 12", "pattern= of iota"),
        ("iota dst=%y pattern=[[1, 64]]", "line 1, column 11", "the name of a buffer (x, w)"),
        ("iota dst=%x pattern=[[1 64]]", "line 1, column 25", "','"),
        ("iota dst=%x[f0 | 1x1] pattern=[[1, 64]]", "line 1, column 13", "p and the first partition"),
        ("iota dst=%x\n  pattern=[[1, 64]] speed=3", "line 2, column 21", "a field of iota"),
        ("iota dst=%x pattern=[[1, 64]] offset=1 offset=2", "line 1, column 40", "each once"),
        ("nc_transpose dst=%x data=%x engine=warp", "line 1, column 36", "one of unknown, tensor"),
        ("dma_copy dst=%x as int7 src=%w", "line 1, column 20", "a dtype"),
        ("dma_copy dst=%x src=%w ; loc(3)", "line 1, column 30", "a string in double quotes"),
        ("dma_copy dst=%x src=%w rows", "line 1, column 28", "'('"),
        ("dma_copy dst=%x src=%w }", "line 1, column 24", "the end"),
    ],
)
def test_errors_say_where_and_what(text, place, expected):
    with pytest.raises(RanvierError) as failure:
        parse_instruction(text, BUFFERS)
    assert failure.value.code == "E0605"
    assert place in failure.value.message
    assert expected in failure.value.message


def test_unknown_operations_are_named():
    with pytest.raises(RanvierError) as failure:
        parse_instruction("activation dst=%x op=warp data=%x", BUFFERS)
    assert failure.value.code == "E0309"
    with pytest.raises(RanvierError) as failure:
        parse_access("%x %x", BUFFERS)
    assert failure.value.code == "E0605"
