"""Instructions and access patterns as text, one instruction a line; what prints parses back.

    nc_matmul dst=%acc stationary=%w[p0 f128 | 1x128 1x128] moving=%x accumulate=false ; loc("mlp.py":12:4:12:60 "mlp" "")

An operand names its buffer. Alone it is the whole buffer; in brackets follow the first partition (on chip), the offset in
elements and the pattern as stride x count pairs, outermost first; `as` gives a dtype other than the buffer's, `rows` the
dynamic index of its leading axis. Attributes at their defaults are left out.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from typing import Any

from ranvier.dtypes import DTYPES, DType
from ranvier.errors import error
from ranvier.isa.access import AccessPattern, Buffer, Indirect
from ranvier.isa.act import ActFn, act
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.record import REGISTRY, REQUIRED, Instruction, OperandSpec
from ranvier.loc import Loc

_PLAIN = re.compile(r"[A-Za-z0-9_.$/@-]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?(?:inf|nan|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+)")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SPACE = re.compile(r"\s*")


class Scanner:
    """Reads `text` token by token. Failures are E0605 with line and column and what was expected there."""

    def __init__(self, text: str):
        self.text, self.position = text, 0

    def fail(self, expected: str, position: int | None = None) -> Exception:
        """The error that at `position` (by default here) the text is not `expected`."""
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        found = self.text[at : end if end >= 0 else None][:40]
        return error("E0605", f"line {line}, column {at - start + 1}: expected {expected}, found {found or 'the end'!r}")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def find(self, pattern: re.Pattern[str]) -> str | None:
        """The text that `pattern` matches after any space, or None, without moving on."""
        self.skip()
        match = pattern.match(self.text, self.position)
        return match.group() if match else None

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        """Move past what `pattern` matches. Raises E0605 unless it does."""
        found = self.find(pattern)
        if found is None:
            raise self.fail(expected)
        self.position += len(found)
        return found

    def accept(self, symbol: str) -> bool:
        """Move past `symbol` if it is next; words end where letters and digits end."""
        self.skip()
        if not self.text.startswith(symbol, self.position):
            return False
        end = self.position + len(symbol)
        if symbol[-1].isalnum() and end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            return False
        self.position = end
        return True

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.fail(repr(symbol))

    def expect_end(self) -> None:
        self.skip()
        if self.position < len(self.text):
            raise self.fail("the end")

    def integer(self) -> int:
        return int(self.take(_INTEGER, "a whole number"))

    def word(self, expected: str) -> str:
        return self.take(_WORD, expected)

    def string(self) -> str:
        start = self.position
        found = self.take(_STRING, "a string in double quotes")
        try:
            return json.loads(found)
        except ValueError:
            raise self.fail("a string in double quotes", start) from None

    def name(self) -> str:
        """A name as `name_text` prints it."""
        found = self.find(_STRING)
        return self.string() if found is not None else self.take(_PLAIN, "a name")

    def dtype(self) -> DType:
        self.skip()
        start = self.position
        name = self.word("a dtype")
        if name not in DTYPES:
            raise self.fail(f"a dtype ({', '.join(DTYPES)})", start)
        return DTYPES[name]


def name_text(name: str) -> str:
    """A name as it is, or in quotes if it holds characters that would end it."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


# Locations ------------------------------------------------------------------------------------------------------------


def loc_text(loc: Loc) -> str:
    numbers = ":".join(str(n) for n in (loc.line, loc.col, loc.end_line, loc.end_col))
    return f"loc({json.dumps(loc.file)}:{numbers} {json.dumps(loc.function)} {json.dumps(loc.scope)})"


def scan_loc(scan: Scanner) -> Loc | None:
    """The location after ";", if there is one."""
    if not scan.accept(";"):
        return None
    scan.expect("loc")
    scan.expect("(")
    file = scan.string()
    numbers = []
    for _ in range(4):
        scan.expect(":")
        numbers.append(scan.integer())
    function, scope = scan.string(), scan.string()
    scan.expect(")")
    return Loc(file, numbers[0], numbers[1], numbers[2], numbers[3], function, scope)


# Access patterns --------------------------------------------------------------------------------------------------------


def print_access(ap: AccessPattern) -> str:
    """`ap` as text: %name, %name[p0 f0 | 1x128 1x512], with `as dtype` and `rows(%index, stride, bound)` where needed."""
    text = f"%{name_text(ap.buffer.name)}"
    whole = ap.buffer.all
    if (ap.offset, ap.pattern, ap.partition) != (whole.offset, whole.pattern, whole.partition):
        first = f"p{ap.partition} " if ap.space.on_chip else ""
        pairs = " ".join(f"{stride}x{count}" for stride, count in ap.pattern)
        text += f"[{first}f{ap.offset} | {pairs}]" if pairs else f"[{first}f{ap.offset} |]"
    if ap.dtype is not ap.buffer.dtype:
        text += f" as {ap.dtype}"
    if ap.index is not None:
        text += f" rows({print_access(ap.index.ap)}, {ap.index.stride}, {ap.index.bound})"
    return text


def scan_access(scan: Scanner, buffers: Mapping[str, Buffer]) -> AccessPattern:
    scan.expect("%")
    start = scan.position
    name = scan.name()
    buffer = buffers.get(name)
    if buffer is None:
        raise scan.fail(f"the name of a buffer ({', '.join(list(buffers)[:8])}{', ...' if len(buffers) > 8 else ''})", start)
    offset, pattern, partition, dtype, index = 0, buffer.all.pattern, 0, buffer.dtype, None
    if scan.accept("["):
        if buffer.space.on_chip:
            partition = int(scan.take(_FIRST, "p and the first partition")[1:])
        offset = int(scan.take(_OFFSET, "f and the offset")[1:])
        scan.expect("|")
        pairs = []
        while not scan.accept("]"):
            stride, count = scan.take(_PAIR, "stride x count, or ]").split("x")
            pairs.append((int(stride), int(count)))
        pattern = tuple(pairs)
    if scan.accept("as"):
        dtype = scan.dtype()
    if scan.accept("rows"):
        scan.expect("(")
        ap = scan_access(scan, buffers)
        scan.expect(",")
        stride = scan.integer()
        scan.expect(",")
        index = Indirect(ap, stride, scan.integer())
        scan.expect(")")
    return AccessPattern(buffer, offset, pattern, dtype, partition, index)


_FIRST = re.compile(r"p-?\d+")
_OFFSET = re.compile(r"f-?\d+")
_PAIR = re.compile(r"-?\d+x\d+")


def parse_access(text: str, buffers: Mapping[str, Buffer]) -> AccessPattern:
    """The access pattern that `print_access` wrote; `buffers` by name. Raises E0605 for anything else."""
    scan = Scanner(text)
    ap = scan_access(scan, buffers)
    scan.expect_end()
    return ap


# Values ---------------------------------------------------------------------------------------------------------------


def _value_text(value: Any) -> str:
    match value:
        case None | True | False:
            return str(value).lower()
        case AccessPattern():
            return print_access(value)
        case enum.Enum():
            return value.name.lower()
        case AluOp() | ActFn() | DType():
            return value.name
        case str():
            return json.dumps(value)
        case tuple() | list():
            return f"[{', '.join(_value_text(v) for v in value)}]"
        case int():
            return str(value)
    return repr(float(value))


def scan_value(scan: Scanner, buffers: Mapping[str, Buffer], kind: Any = None) -> Any:
    """A value of an attribute or operand; `kind` says what a bare word means."""
    for word, value in (("none", None), ("true", True), ("false", False)):
        member = isinstance(kind, type) and issubclass(kind, enum.Enum)
        if not member and scan.accept(word):
            return value
    if scan.find(re.compile("%")) is not None:
        return scan_access(scan, buffers)
    if scan.accept("["):
        values = []
        while not scan.accept("]"):
            if values:
                scan.expect(",")
            values.append(scan_value(scan, buffers, kind))
        return tuple(values)
    if scan.find(_STRING) is not None:
        return scan.string()
    if scan.find(_NUMBER) is not None and not _names_something(kind):
        number = scan.take(_NUMBER, "a number")
        return int(number) if _INTEGER.fullmatch(number) else float(number)
    return _scan_named(scan, kind)


def _names_something(kind: Any) -> bool:
    return kind in (AluOp, ActFn, DType) or (isinstance(kind, type) and issubclass(kind, enum.Enum))


def _scan_named(scan: Scanner, kind: Any) -> Any:
    scan.skip()
    start = scan.position
    word = scan.word("a value")
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        found = {m.name.lower(): m for m in kind}.get(word)
        if found is None and word == "none":  # an optional enumeration without a member of that name
            return None
        if found is None:
            raise scan.fail(f"one of {', '.join(m.name.lower() for m in kind)}", start)
        return found
    table = {AluOp: alu, ActFn: act}.get(kind)
    if table is not None:
        return table(word)
    if word in DTYPES:
        return DTYPES[word]
    raise scan.fail("a value", start)


# Instructions -----------------------------------------------------------------------------------------------------------


def _is_default(spec: OperandSpec, value: Any) -> bool:
    if spec.role == "state" or (spec.optional and value is None):
        return True
    default = spec.default
    return default is not REQUIRED and type(value) is type(default) and value == default


def print_instruction(inst: Instruction, *, locations: bool = True) -> str:
    """`inst` on one line, its location behind ";" unless `locations` is False."""
    parts = [inst.MNEMONIC]
    for spec in inst.SPECS:
        value = getattr(inst, spec.name)
        if not _is_default(spec, value):
            parts.append(f"{spec.name}={_value_text(value)}")
    if inst.name is not None:
        parts.append(f"name={json.dumps(inst.name)}")
    if locations and inst.loc is not None:
        parts.append(f"; {loc_text(inst.loc)}")
    return " ".join(parts)


def scan_instruction(scan: Scanner, buffers: Mapping[str, Buffer]) -> Instruction:
    scan.skip()
    start = scan.position
    cls = REGISTRY.get(scan.word("an instruction"))
    if cls is None:
        raise scan.fail("an instruction", start)
    specs = {spec.name: spec for spec in cls.SPECS if spec.role != "state"}
    fields: dict[str, Any] = {}
    while True:
        field = scan.find(_FIELD)
        if field is None:
            break
        start = scan.position
        name = field.rstrip("= ")
        if name in fields or (name not in specs and name != "name"):
            raise scan.fail(f"a field of {cls.MNEMONIC} ({', '.join(specs)}, name), each once", start)
        scan.position += len(field)
        fields[name] = scan.string() if name == "name" else scan_value(scan, buffers, specs[name].type)
    missing = [n for n, s in specs.items() if n not in fields and s.default is REQUIRED and not s.optional]
    if missing:
        raise scan.fail(f"{missing[0]}= of {cls.MNEMONIC}")
    return cls(**fields, loc=scan_loc(scan))


_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]* *=(?!=)")


def parse_instruction(text: str, buffers: Mapping[str, Buffer]) -> Instruction:
    """The instruction that `print_instruction` wrote; `buffers` by name. Raises E0605 for anything else."""
    scan = Scanner(text)
    inst = scan_instruction(scan, buffers)
    scan.expect_end()
    return inst
