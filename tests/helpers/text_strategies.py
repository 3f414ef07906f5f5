"""Hypothesis strategies for the text form: buffers, access patterns and instructions, legal or not."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from ranvier.dtypes import DTYPES
from ranvier.isa import REGISTRY
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Indirect, Space
from ranvier.isa.examples import build
from ranvier.loc import Loc

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8)
locs = st.none() | st.builds(
    Loc, names, st.integers(1, 9999), st.integers(-1, 200), st.integers(-1, 9999), st.integers(-1, 200),
    function=st.just("") | names, scope=st.just("") | names,
)  # fmt: skip
dtypes = st.sampled_from(list(DTYPES.values()))


@st.composite
def buffer_tables(draw) -> dict[str, Buffer]:
    """At least one buffer on chip and one in HBM, by name."""
    table = {}
    for space in (Space.SBUF, Space.HBM, *draw(st.lists(st.sampled_from(list(Space)), max_size=4))):
        name = draw(names.filter(lambda n: n not in table))
        shape = tuple(draw(st.lists(st.integers(1, 128), min_size=1 if space.on_chip else 0, max_size=4)))
        table[name] = Buffer(name, space, shape, draw(dtypes), draw(st.sampled_from(list(BufferKind))), draw(locs))
    return table


@st.composite
def access_patterns(draw, table: dict[str, Buffer], indirect: bool = True) -> AccessPattern:
    buffer = table[draw(st.sampled_from(sorted(table)))]
    if draw(st.booleans()):
        return buffer.all
    pairs = draw(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 128)), min_size=0, max_size=5))
    index = None
    if indirect and draw(st.integers(0, 4)) == 0:
        rows = draw(access_patterns(table, indirect=False))
        index = Indirect(rows, draw(st.integers(1, 1000)), draw(st.integers(1, 1000)))
    partition = draw(st.integers(0, 127)) if buffer.space.on_chip else 0
    return AccessPattern(buffer, draw(st.integers(0, 10000)), tuple(pairs), draw(dtypes), partition, index)


@st.composite
def instructions(draw, table: dict[str, Buffer]):
    """An instruction of any record, with operands, name and location exchanged for random ones."""
    cls = REGISTRY[draw(st.sampled_from(sorted(REGISTRY)))]
    inst = build(cls, draw(st.sampled_from(cls.EXAMPLES)))
    changed = {}
    for spec in cls.SPECS:
        value = getattr(inst, spec.name)
        if isinstance(value, AccessPattern):
            changed[spec.name] = draw(access_patterns(table))
        elif isinstance(value, tuple) and value and isinstance(value[0], AccessPattern):
            changed[spec.name] = tuple(draw(access_patterns(table)) for _ in value)
        elif type(value) is float:
            changed[spec.name] = draw(st.floats(allow_nan=False))
        elif type(value) is int and spec.type is int:
            changed[spec.name] = draw(st.integers(-(2**40), 2**40))
    return dataclasses.replace(inst, **changed, name=draw(st.none() | names), loc=draw(locs))
