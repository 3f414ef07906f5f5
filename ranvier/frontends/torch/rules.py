"""How a rule turns one ATen operator into graph operations: the registry of rules, and what a rule may use.

A rule is a function ``rule(ctx, <arguments of the operator by their names in its schema, self is called x>)``. Tensors
arrive as graph values, everything else as torch gives it. It returns the value, or a tuple of values, of the operator's
results. Arguments that a rule does not name must have their default: a rule cannot overlook one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

from ranvier import graph as g
from ranvier.dtypes import DType, cast
from ranvier.frontends.torch.tensors import from_torch_dtype, promote
from ranvier.graph import GraphBuilder, Node, Value
from ranvier.loc import Loc

# Where a tensor lies, and in which order, does not change values; a graph has one memory and one order.
_WITHOUT_MEANING = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "implicit", "cudnn_enabled",
     "cudnn_enable", "sparse", "sparse_grad", "scale_grad_by_freq", "padding_idx", "momentum"}
)

_MAX_KNOWN_ELEMENTS = 1 << 20


class Refused(Exception):
    """Raised by a rule for a form of its operator that the graph cannot express; collected into one E0602."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Stands for a result of an operator that inference does not need; `reason` is told if it is used after all."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one operator overload. `name` is "aten.add.Tensor"; `kind` a fixed row of the op family or None."""

    name: str
    function: Callable[..., Any]
    note: str = ""
    kind: str | None = None

    @property
    def emits(self) -> tuple[str, ...]:
        """Names of the graph operations the rule may emit, read from its code."""
        names = tuple(sorted(_graph_ops(self.function)))
        return tuple(f"{n}({self.kind})" if n in ("Unary", "Binary", "Compare", "Reduce") and self.kind else n
                     for n in names)


class RuleTable:
    """The rules of one family of operators, filled by decorators."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}

    def rule(self, *names: str, note: str = "") -> Callable[[Callable], Callable]:
        """Decorator: the function is the rule for the overloads `names` ("add.Tensor"; aten is left out)."""

        def register(function: Callable) -> Callable:
            for name in names:
                self.add(name, function, note)
            return function

        return register

    def add(self, name: str, function: Callable, note: str = "", kind: str | None = None) -> None:
        """`function` is the rule for the overload `name`; `kind` names a row of a table that made it."""
        full = f"aten.{name}"
        assert full not in self.rules, f"two rules for {full}"
        self.rules[full] = Rule(full, function, note or (inspect.getdoc(function) or ""), kind)


@functools.lru_cache(maxsize=1024)
def _plan(function: Callable, target: torch._ops.OpOverload) -> tuple[tuple[str, str | None, Any, bool], ...]:
    """For each argument of `target`: its name, the rule's name for it (None: not taken), default, keyword only."""
    takes = inspect.signature(function).parameters
    plan = []
    for argument in target._schema.arguments:
        ours = "x" if argument.name == "self" else argument.name
        plan.append((argument.name, ours if ours in takes else None, argument.default_value, argument.kwarg_only))
    return tuple(plan)


def bind(rule: Rule, target: torch._ops.OpOverload, args: Sequence, kwargs: dict) -> dict[str, Any]:
    """The keywords to call `rule` with for ``target(*args, **kwargs)``. Raises `Refused` for an argument it ignores."""
    bound: dict[str, Any] = {}
    position = 0
    for name, ours, default, keyword_only in _plan(rule.function, target):
        if not keyword_only and position < len(args):
            value = args[position]
            position += 1
        else:
            value = kwargs.get(name, default)
        if ours is not None:
            bound[ours] = value
        elif name not in _WITHOUT_MEANING and not isinstance(value, Value) and value == default:
            continue
        elif name not in _WITHOUT_MEANING:
            raise Refused(f"with {name}={value}")
    return bound


class Known:
    """Integers that do not depend on inputs or parameters: positions that models count out with arange and slices."""

    def __init__(self, builder: GraphBuilder):
        self.builder = builder
        self.made: dict[Value, Node] = {}
        self.arrays: dict[Value, np.ndarray | None] = {}
        self._nodes = self._constants = 0

    def node(self, value: Value) -> Node | None:
        """The node that makes `value`; None for inputs, parameters and constants."""
        for node in self.builder.nodes[self._nodes :]:
            self.made.update(dict.fromkeys(node.outputs, node))
        for constant in self.builder.constants[self._constants :]:
            self.arrays[constant.value] = constant.array
        self._nodes, self._constants = len(self.builder.nodes), len(self.builder.constants)
        return self.made.get(value)

    def array(self, value: Value) -> np.ndarray | None:
        """The elements of `value`, if it holds at most `_MAX_KNOWN_ELEMENTS` integers that are known."""
        node = self.node(value)
        if value not in self.arrays:
            self.arrays[value] = None if node is None else self._computed(value, node)
        return self.arrays[value]

    def _computed(self, value: Value, node: Node) -> np.ndarray | None:
        if value.dtype.is_float or value.type.elements > _MAX_KNOWN_ELEMENTS or len(node.outputs) > 1:
            return None
        operands = [self.array(v) for v in node.inputs]
        if any(a is None for a in operands):
            return None
        return cast(node.op.evaluate(*(a for a in operands if a is not None))[0], value.dtype)


class Context:
    """What a rule works with: the builder, the place of the operator, and what torch says of its results.

    `result` is torch's fake tensor of the operator's result (a tuple of them if there are several). `known` tells which
    integers do not depend on the inputs.
    """

    def __init__(self, builder: GraphBuilder, loc: Loc | None, result: Any, known: Known):
        self.builder, self.loc, self.result, self.known = builder, loc, result, known

    @property
    def dtype(self) -> DType:
        """The dtype torch gives the result (the first, if there are several)."""
        result = self.result[0] if isinstance(self.result, list | tuple) else self.result
        return from_torch_dtype(result.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape torch gives the result (the first, if there are several)."""
        result = self.result[0] if isinstance(self.result, list | tuple) else self.result
        return tuple(int(n) for n in result.shape)

    def emit(self, op: g.Op, *operands: Value) -> Any:
        """The value of `op` on `operands` (a tuple of values if it has several results)."""
        return self.builder.emit(op, *operands, loc=self.loc)

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` in `dtype` by torch's rules: floats lose their fraction (a graph cast would round them)."""
        if value.type.dtype is dtype:
            return value
        if value.type.dtype.is_float and dtype.is_integer:
            value = self.emit(g.Unary("trunc"), value)
        return self.emit(g.Cast(dtype), value)

    def scalar(self, number: float | int | bool, dtype: DType) -> Value:
        """A tensor without axes that holds `number`."""
        return self.emit(g.Full((), number, dtype))

    def operand(self, what: Value | float | int | bool, dtype: DType) -> Value:
        """`what` as a value of `dtype`: tensors are cast, numbers become tensors without axes."""
        return self.cast(what, dtype) if isinstance(what, Value) else self.scalar(what, dtype)

    def promoted(self, *operands: Value | float | int | bool) -> DType:
        """The dtype in which torch combines two operands."""
        left, right = ((x.type.dtype, len(x.type.shape)) if isinstance(x, Value) else x for x in operands)
        return promote(left, right)

    def unary(self, kind: str, x: Value) -> Value:
        return self.emit(g.Unary(kind), x)

    def binary(self, kind: str, x: Value, y: Value | float | int) -> Value:
        """`x kind y`, where a number `y` takes the dtype of `x`."""
        return self.emit(g.Binary(kind), x, self.operand(y, x.type.dtype))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if tuple(shape) == x.type.shape else self.emit(g.Reshape(tuple(shape)), x)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        return x if tuple(shape) == x.type.shape else self.emit(g.Broadcast(tuple(shape)), x)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return x if tuple(perm) == tuple(range(len(perm))) else self.emit(g.Transpose(tuple(perm)), x)

    def slice(self, x: Value, axis: int, start: int, limit: int, stride: int = 1) -> Value:
        """`x[start:limit:stride]` along `axis`; the bounds lie within the tensor."""
        starts, limits, strides = [0] * rank(x), list(x.type.shape), [1] * rank(x)
        starts[axis], limits[axis], strides[axis] = start, limit, stride
        whole = not any(starts) and limits == list(x.type.shape) and strides[axis] == 1
        return x if whole else self.emit(g.Slice(tuple(starts), tuple(limits), tuple(strides)), x)


def rank(x: Value) -> int:
    """The number of axes of `x`."""
    return len(x.type.shape)


def axis_of(x: Value, dim: int) -> int:
    """The axis that torch's `dim` (which may count from the end) names."""
    return dim % max(1, rank(x))


def axes_of(x: Value, dim: Sequence[int] | int | None) -> tuple[int, ...]:
    """The axes that torch's `dim` names, in order; all of them for None and for an empty list."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return tuple(range(rank(x)))
    return tuple(sorted(axis_of(x, d) for d in ((dim,) if isinstance(dim, int) else dim)))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _graph_ops(function: Any, seen: frozenset[Callable] = frozenset()) -> set[str]:
    """Names of the graph operations that `function` or the helpers it calls construct."""
    if not isinstance(function, FunctionType) or function in seen:
        return set()
    seen = seen | {function}
    found: set[str] = set()
    for code in _codes(function.__code__):
        for name in code.co_names:
            op = getattr(g, name, None)
            if isinstance(op, type) and issubclass(op, g.Op):
                found.add(name)
            else:
                found |= _graph_ops(Context.__dict__.get(name) or function.__globals__.get(name), seen)
    return found
