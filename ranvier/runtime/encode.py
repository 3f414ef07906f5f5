"""Programs as JSON: the form in which artifacts and the compile cache keep them.

Whatever many instructions share (access patterns, attribute values, source locations) stands once in a table; a slot
refers to it by number. Fields of instructions are named, so a record may gain a field with a default, and files written
before still load. Reading checks everything it refers to: a damaged text gives E0703, never a wrong program.
"""

from __future__ import annotations

import base64
import binascii
import enum
import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.ir.kernel import Constant, ParamSource
from ranvier.ir.program import Placement, Program, Signal, Slot, Stream, Wait
from ranvier.isa import REGISTRY
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Indirect, Space
from ranvier.isa.act import ActFn, act
from ranvier.isa.alu import AluOp, alu
from ranvier.loc import Loc
from ranvier.target.spec import Engine


def encode(program: Program) -> dict[str, Any]:
    """`program` as what `json.dumps` takes. Raises E0901 for an attribute of a type that has no text form."""
    return _Encoder(program).encode()


def decode(content: Mapping[str, Any]) -> Program:
    """The program that `encode` described. Raises E0703 if the description is not consistent."""
    try:
        return _Decoder(content).decode()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error, RanvierError) as cause:
        raise error("E0703", f"the program in the artifact cannot be read: {type(cause).__name__}: {cause}") from cause


@lru_cache(maxsize=1)
def _enums() -> Mapping[str, type[enum.Enum]]:
    """The enumerations that instructions take as attributes, by name."""
    from ranvier.isa import enums

    found = {c.__name__: c for _, c in inspect.getmembers(enums, inspect.isclass) if issubclass(c, enum.Enum)}
    return {**found, "Engine": Engine}


class _Table:
    """Rows that are kept once each, numbered in the order of their first use."""

    def __init__(self, row: Callable[[Any], Any]):
        self.row, self.rows, self.numbers = row, [], {}

    def number(self, key: Any, value: Any) -> int:
        found = self.numbers.get(key)
        if found is None:
            row = self.row(value)  # a row may itself add rows
            found = self.numbers[key] = len(self.rows)
            self.rows.append(row)
        return found


class _Encoder:
    def __init__(self, program: Program):
        self.program = program
        self.buffers = {b.name: i for i, b in enumerate(program.buffers)}
        self.semaphores = {name: i for i, name in enumerate(program.semaphores)}
        self.locs = _Table(_loc_row)
        self.patterns = _Table(self._pattern_row)
        self.values = _Table(value_row)
        self.queues: dict[str, int] = {}
        self.mnemonics: dict[str, int] = {}

    def encode(self) -> dict[str, Any]:
        program = self.program
        streams = [[s.engine.name, [self._slot(slot) for slot in s.slots]] for s in program.streams]
        buffers = [[b.name, b.space.value, list(b.shape), b.dtype.name, b.kind.value, self._loc(b.loc)]
                   for b in program.buffers]
        known = REGISTRY
        return {
            "name": program.name, "target": program.target, "inputs": list(program.inputs),
            "outputs": list(program.outputs), "semaphores": list(program.semaphores), "buffers": buffers,
            "placements": [[name, p.partition, p.byte] for name, p in program.placements],
            "params": [[name, _param_row(source)] for name, source in program.params],
            "constants": [[name, list(c.shape), c.dtype.name, base64.b64encode(c.data).decode()]
                          for name, c in program.constants],
            "instructions": [[m, [s.name for s in known[m].SPECS if s.role != "state"]] for m in self.mnemonics],
            "patterns": self.patterns.rows, "values": self.values.rows, "locs": self.locs.rows,
            "queues": list(self.queues), "streams": streams,
        }

    def _loc(self, loc: Loc | None) -> int:
        return -1 if loc is None else self.locs.number(loc, loc)

    def _slot(self, slot: Slot) -> list:
        inst = slot.instruction
        kind = self.mnemonics.setdefault(inst.MNEMONIC, len(self.mnemonics))
        operands = [self._operand(getattr(inst, s.name)) for s in inst.SPECS if s.role != "state"]
        waits = [n for w in slot.waits for n in (self.semaphores[w.semaphore], w.value)]
        signals = [n for s in slot.signals for n in (self.semaphores[s.semaphore], s.amount)]
        queue = -1 if slot.queue is None else self.queues.setdefault(slot.queue, len(self.queues))
        return [kind, operands, inst.name, self._loc(inst.loc), waits, signals, queue, slot.order]

    def _operand(self, value: Any) -> int:
        """Patterns count from 0 up, other values from -1 down."""
        if isinstance(value, AccessPattern):
            return self._pattern(value)
        return -1 - self.values.number((type(value), repr(value)), value)

    def _pattern(self, ap: AccessPattern) -> int:
        key = (ap.buffer.name, ap.offset, ap.pattern, ap.dtype, ap.partition, ap.index)
        return self.patterns.number(key, ap)

    def _pattern_row(self, ap: AccessPattern) -> list:
        pairs = [n for pair in ap.pattern for n in pair]
        row = [self.buffers[ap.buffer.name], ap.offset, pairs, ap.dtype.name, ap.partition]
        if ap.index is not None:
            row += [self._pattern(ap.index.ap), ap.index.stride, ap.index.bound]
        return row


def _loc_row(loc: Loc) -> list:
    return [loc.file, loc.line, loc.col, loc.end_line, loc.end_col, loc.function, loc.scope]


def _param_row(source: ParamSource) -> list:
    lists = [None if part is None else list(part) for part in (source.reshape, source.permute, source.rows)]
    return [source.key, *lists[:2], None if source.dtype is None else source.dtype.name, lists[2]]


def value_row(value: Any) -> Any:
    """Plain values stand for themselves, others are a list of kind and content."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else ["float", repr(value)]
    if isinstance(value, DType):
        return ["dtype", value.name]
    if isinstance(value, enum.Enum):
        return ["enum", type(value).__name__, value.name]
    if isinstance(value, AluOp):
        return ["alu", value.name]
    if isinstance(value, ActFn):
        return ["act", value.name]
    if isinstance(value, tuple | list):
        return ["tuple", [value_row(item) for item in value]]
    kind = type(value).__name__
    raise error("E0901", f"an instruction has the attribute {value!r}, a {kind}, which has no text form")


def value_of(row: Any) -> Any:
    """The value that `value_row` described. Raises KeyError or ValueError for anything else."""
    if not isinstance(row, list):
        return row
    kind = row[0]
    if kind == "float":
        return float(row[1])
    if kind == "dtype":
        return dtypes.DTYPES[row[1]]
    if kind == "enum":
        return _enums()[row[1]][row[2]]
    if kind == "alu":
        return alu(row[1])
    if kind == "act":
        return act(row[1])
    if kind == "tuple":
        return tuple(value_of(item) for item in row[1])
    raise ValueError(f"unknown kind of value {kind!r}")


class _Decoder:
    def __init__(self, content: Mapping[str, Any]):
        self.content = content
        self.locs = [Loc(*row) for row in content["locs"]]
        self.buffers = [
            Buffer(name, Space(space), tuple(shape), dtypes.DTYPES[dtype], BufferKind(kind), self._loc(loc))
            for name, space, shape, dtype, kind, loc in content["buffers"]
        ]
        self.values = [value_of(row) for row in content["values"]]
        self.patterns: list[AccessPattern] = []
        for row in content["patterns"]:
            self.patterns.append(self._pattern(row))

    def decode(self) -> Program:
        content = self.content
        return Program(
            name=content["name"], target=content["target"], buffers=tuple(self.buffers),
            placements=tuple((name, Placement(partition, byte)) for name, partition, byte in content["placements"]),
            streams=tuple(Stream(Engine[name], self._slots(rows)) for name, rows in content["streams"]),
            semaphores=tuple(content["semaphores"]), inputs=tuple(content["inputs"]),
            outputs=tuple(content["outputs"]),
            params=tuple((name, _param_source(row)) for name, row in content["params"]),
            constants=tuple(
                (name, Constant(tuple(shape), dtypes.DTYPES[dtype], base64.b64decode(data, validate=True)))
                for name, shape, dtype, data in content["constants"]
            ),
        )

    def _loc(self, number: int) -> Loc | None:
        return None if number < 0 else self.locs[number]

    def _pattern(self, row: list) -> AccessPattern:
        buffer, offset, flat, dtype, partition = row[:5]
        index = Indirect(self.patterns[row[5]], row[6], row[7]) if len(row) > 5 else None
        pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
        return AccessPattern(self.buffers[buffer], offset, pairs, dtypes.DTYPES[dtype], partition, index)

    def _slots(self, rows: list) -> tuple[Slot, ...]:
        known, semaphores, queues = REGISTRY, self.content["semaphores"], self.content["queues"]
        kinds = [(known[m], tuple(fields)) for m, fields in self.content["instructions"]]
        patterns, values = self.patterns, self.values
        slots = []
        for kind, operands, name, loc, waits, signals, queue, order in rows:
            cls, fields = kinds[kind]
            given = [patterns[n] if n >= 0 else values[-1 - n] for n in operands]
            inst = cls(**dict(zip(fields, given, strict=True)), name=name, loc=self._loc(loc))
            slots.append(Slot(
                inst,
                tuple(Wait(semaphores[waits[i]], waits[i + 1]) for i in range(0, len(waits), 2)),
                tuple(Signal(semaphores[signals[i]], signals[i + 1]) for i in range(0, len(signals), 2)),
                None if queue < 0 else queues[queue],
                order,
            ))
        return tuple(slots)


def _param_source(row: list) -> ParamSource:
    key, reshape, permute, dtype, rows = row
    reshape, permute, rows = (None if part is None else tuple(part) for part in (reshape, permute, rows))
    return ParamSource(key, reshape, permute, None if dtype is None else dtypes.DTYPES[dtype], rows)
