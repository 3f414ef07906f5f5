"""The text of graphs: `print_graph` and `parse_graph`, inverse to each other but for the names of values.

    graph @main {
      input %ids: int32[1,8] given int64
      param %table: float32[100,16] = "embedding.weight"
      constant %shift: float32[1] = [0.5]
      %0: float32[1,8,16] = take(%table, %ids) {axis=0} loc("model.py":12:8:12:31 "forward" "embedding")
      return %0
    }

Attributes that have their default are left out. In `loc`, numbers are line, column, end line and end column (from the
right, those unknown are left out), then the function, then the part of the model.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DTYPES, DType
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Constant, Graph, Node, Op, Param, TensorType, Value
from ranvier.graph.ops import mnemonics
from ranvier.loc import Loc

_LIST_LIMIT = 16  # constants with more elements are printed as bytes

# Printing -------------------------------------------------------------------------------------------------------------


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The text of `graph`, without locations if they are not wanted. Names are made unique by adding numbers."""
    names = value_names(graph)
    lines = [f"graph @{_word(graph.name)} {{"]
    for value, given in zip(graph.inputs, graph.input_dtypes, strict=True):
        lines.append(f"  input %{names[value]}: {value.type}{_given(value, given)}")
    lines += [f"  param %{names[p.value]}: {p.value.type} = {json.dumps(p.key)}" for p in graph.params]
    lines += [f"  constant %{names[c.value]}: {c.value.type} = {_elements(c.array)}" for c in graph.constants]
    lines += [f"  {print_node(node, names, locations=locations)}" for node in graph.nodes]
    outputs = zip(graph.outputs, graph.output_dtypes, strict=True)
    lines.append(f"  return {', '.join(f'%{names[v]}{_given(v, given)}' for v, given in outputs)}".rstrip())
    return "\n".join([*lines, "}"])


def print_node(node: Node, names: dict[Value, str], *, locations: bool = True) -> str:
    """One line of text; `names` holds the names of the values."""
    results = ", ".join(f"%{names[v]}: {v.type}" for v in node.outputs)
    operands = ", ".join(f"%{names[v]}" for v in node.inputs)
    attributes = attributes_text(node.op)
    place = f" {_loc_text(node.loc)}" if locations and node.loc is not None else ""
    return f"{results} = {node.op.mnemonic}({operands})" + (f" {{{attributes}}}" if attributes else "") + place


def value_names(graph: Graph) -> dict[Value, str]:
    """A unique name for each value: its own, with a number where that is taken, or only a number."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for value in graph.values():
        base = re.sub(r"[^A-Za-z0-9_.]", "_", value.name)
        if not base or base.isdigit():
            base, name = "", str(counts.get("", 0))
        else:
            name = base
        while name in taken:
            counts[base] = counts.get(base, 0) + 1
            name = f"{base}_{counts[base]}" if base else str(counts[base])
        taken.add(name)
        names[value] = name
    return names


def attributes_text(op: Op) -> str:
    """Attributes of `op` that its spelling does not say and that have not their default."""
    parts = []
    for field in dataclasses.fields(type(op)):  # type: ignore[arg-type]
        value = getattr(op, field.name)
        spelled = field.name == "kind" and "{kind}" in type(op).mnemonic_form
        if not spelled and (field.default is dataclasses.MISSING or repr(value) != repr(field.default)):
            parts.append(f"{field.name}={_attribute(value)}")
    return ", ".join(parts)


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_attribute, value))})"
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)


def _word(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) else json.dumps(name)


def _given(value: Value, given: DType) -> str:
    return "" if given is value.dtype else f" given {given}"


def _elements(array: np.ndarray) -> str:
    numbers = array.astype(np.float64) if dtypes.dtype(array.dtype).is_float else array.astype(np.int64)
    if array.size > _LIST_LIMIT or np.isnan(numbers.astype(np.float64)).any():
        return f'hex "{array.tobytes().hex()}"'
    return f"[{', '.join(map(repr, numbers.ravel().tolist()))}]"


def _loc_text(loc: Loc) -> str:
    numbers = [loc.line, loc.col, loc.end_line, loc.end_col]
    while len(numbers) > 1 and numbers[-1] == -1:
        numbers.pop()
    names = [loc.function, loc.scope] if loc.scope else [loc.function] if loc.function else []
    place = ":".join(map(str, numbers))
    return f"loc({json.dumps(loc.file)}:{place}{''.join(' ' + json.dumps(n) for n in names)})"


# Parsing --------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<value>%[A-Za-z0-9_.]+)
      | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<mark>[@{}()\[\]:=,])""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


T = TypeVar("T")


def parse_graph(text: str) -> Graph:
    """The graph that `text` describes. Raises E0605, with line and column, where it is not what the printer writes.

    The result is not verified, apart from names that are used before they are defined: `verify` does the rest.
    """
    return _Parser(text).graph()


class _Parser:
    def __init__(self, text: str):
        self.source = text
        self.tokens = list(self._tokens())
        self.index = 0
        self.values: dict[str, Value] = {}

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while position < len(self.source):
            found = _TOKEN.match(self.source, position)
            if found is None:
                raise self.wrong("a token", position)
            if found.lastgroup != "space":
                yield _Token(str(found.lastgroup), found.group(), position)
            position = found.end()
        yield _Token("end", "", position)

    def wrong(self, expected: str, position: int | None = None) -> RanvierError:
        at = self.tokens[self.index].position if position is None else position
        line = self.source.count("\n", 0, at) + 1
        column = at - self.source.rfind("\n", 0, at)
        found = re.match(r"\S*", self.source[at:])
        return error("E0605", f"line {line}, column {column}: expected {expected}, found "
                     f"{(found.group() if found else '')[:40] or 'the end'!r}")

    def peek(self, text: str) -> bool:
        token = self.tokens[self.index]
        return token.text == text and token.kind in ("mark", "word")

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.wrong(repr(text))

    def take(self, kind: str, what: str) -> str:
        token = self.tokens[self.index]
        if token.kind != kind:
            raise self.wrong(what)
        self.index += 1
        return token.text

    def many(self, item: Callable[[], T], end: str) -> list[T]:
        """Items separated by commas, up to the mark `end`, which is taken."""
        items: list[T] = []
        while not self.accept(end):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def integer(self) -> int:
        text = self.take("number", "an integer")
        if not re.fullmatch(r"-?\d+", text):
            self.index -= 1
            raise self.wrong("an integer")
        return int(text)

    def string(self) -> str:
        return json.loads(self.take("string", "a string"))

    def dtype(self) -> DType:
        name = self.take("word", "a dtype")
        if name not in DTYPES:
            self.index -= 1
            raise self.wrong("a dtype")
        return DTYPES[name]

    def type(self) -> TensorType:
        dtype = self.dtype()
        self.expect("[")
        return TensorType(tuple(self.many(self.integer, "]")), dtype)

    def definition(self) -> Value:
        """``%name: type``."""
        name = self.take("value", "a value")[1:]
        if name in self.values:
            self.index -= 1
            raise self.wrong("a value that is not defined yet")
        self.expect(":")
        value = Value(self.type(), "" if name.isdigit() else name)
        self.values[name] = value
        return value

    def use(self) -> Value:
        name = self.take("value", "a value")[1:]
        if name not in self.values:
            self.index -= 1
            raise self.wrong("a defined value")
        return self.values[name]

    def given(self, value: Value) -> DType:
        return self.dtype() if self.accept("given") else value.dtype

    def graph(self) -> Graph:
        self.expect("graph")
        self.expect("@")
        name = self.string() if self.tokens[self.index].kind == "string" else self.take("word", "a name")
        self.expect("{")
        inputs: list[Value] = []
        input_dtypes: list[DType] = []
        params: list[Param] = []
        constants: list[Constant] = []
        nodes: list[Node] = []
        while not self.accept("return"):
            if self.accept("input"):
                inputs.append(self.definition())
                input_dtypes.append(self.given(inputs[-1]))
            elif self.accept("param"):
                value = self.definition()
                self.expect("=")
                params.append(Param(value, self.string()))
            elif self.accept("constant"):
                constants.append(self.constant())
            else:
                nodes.append(self.node())
        outputs: list[Value] = []
        output_dtypes: list[DType] = []
        while not self.accept("}"):
            if outputs:
                self.expect(",")
            outputs.append(self.use())
            output_dtypes.append(self.given(outputs[-1]))
        self.take("end", "the end")
        return Graph(name, tuple(inputs), tuple(params), tuple(constants), tuple(nodes), tuple(outputs),
                     tuple(input_dtypes), tuple(output_dtypes))

    def constant(self) -> Constant:
        value = self.definition()
        self.expect("=")
        target = value.dtype.np
        at = self.index
        if self.accept("hex"):
            data = self.string()
            if not re.fullmatch(f"[0-9a-f]{{{2 * value.type.size_bytes}}}", data):
                self.index = at + 1
                raise self.wrong(f"{value.type.size_bytes} bytes in hexadecimal")
            array = np.frombuffer(bytes.fromhex(data), target).reshape(value.shape)
        else:
            self.expect("[")
            numbers = self.many(self.number, "]")
            if len(numbers) != value.type.elements:
                self.index = at
                raise self.wrong(f"{value.type.elements} elements")
            held = np.array(numbers, np.float64 if value.dtype.is_float else np.int64)
            array = held.astype(target).reshape(value.shape)
        array.flags.writeable = False
        return Constant(value, array)

    def number(self) -> int | float:
        text = self.take("number", "a number")
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def node(self) -> Node:
        outputs = [self.definition()]
        while self.accept(","):
            outputs.append(self.definition())
        self.expect("=")
        start = self.index
        word = self.take("word", "an operation")
        if word not in mnemonics():
            self.index = start
            raise self.wrong("an operation")
        self.expect("(")
        inputs = self.many(self.use, ")")
        attributes = dict(mnemonics()[word][1])
        if self.accept("{"):
            attributes.update(self.many(self.attribute, "}"))
        cls = mnemonics()[word][0]
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        required = {f.name for f in fields if f.default is dataclasses.MISSING}
        if not required <= set(attributes) <= {f.name for f in fields}:
            self.index = start
            raise self.wrong(f"{word} with attributes {', '.join(f.name for f in fields) or 'none'}")
        return Node(cls(**attributes), tuple(inputs), tuple(outputs), self.loc())

    def attribute(self) -> tuple[str, Any]:
        name = self.take("word", "an attribute")
        self.expect("=")
        return name, self.literal()

    def literal(self) -> Any:
        token = self.tokens[self.index]
        if token.kind == "number":
            return self.number()
        if token.kind == "string":
            return self.string()
        if self.accept("("):
            return tuple(self.many(self.literal, ")"))
        for word, value in (("True", True), ("False", False), ("None", None)):
            if self.accept(word):
                return value
        return self.dtype()

    def loc(self) -> Loc | None:
        if not self.accept("loc"):
            return None
        self.expect("(")
        file = self.string()
        numbers = []
        while self.accept(":"):
            numbers.append(self.integer())
        names = []
        while self.tokens[self.index].kind == "string":
            names.append(self.string())
        if not 1 <= len(numbers) <= 4 or len(names) > 2:
            raise self.wrong("a location")
        self.expect(")")
        line, col, end_line, end_col = numbers + [-1] * (4 - len(numbers))
        function, scope = names + [""] * (2 - len(names))
        return Loc(file, line, col, end_line, end_col, function, scope)
