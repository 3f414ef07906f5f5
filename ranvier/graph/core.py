"""The graph level: pure operations on tensors of static shape, in the order they are written.

A `Graph` is an ordered tuple of `Node`s. A `Node` applies one `Op` (a frozen dataclass that holds attributes only) to
`Value`s, which have identity and carry their `TensorType`. Nothing here changes after it was made; a pass builds a new
graph. What an operation means is its `evaluate`; what a graph means is `Graph.evaluate`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.loc import Loc

if TYPE_CHECKING:
    from ranvier.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor; printed as ``float32[8,128,384]``."""

    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a tensor without axes."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size of the elements in bytes."""
        return self.elements * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        """The same dtype in another shape."""
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape in another dtype."""
        return TensorType(self.shape, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor in a graph. Compared by identity; `name` is only a hint for printing."""

    type: TensorType
    name: str = ""

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.type.dtype


class Op:
    """Base of all operations of the graph level: frozen slotted dataclasses whose fields are attributes.

    `arity` is the least and greatest number of operands. Operands of `infer`, `evaluate` and `decompose` are in the
    order of `Node.inputs`. Axes in attributes count from 0; the builder's methods also take negative ones.
    """

    __slots__ = ()

    arity: ClassVar[tuple[int, int]] = (1, 1)
    is_elementwise: ClassVar[bool] = False
    """Each result element depends on one element of each operand (after broadcasting) only."""
    is_composite: ClassVar[bool] = False
    """`decompose` gives the same meaning in smaller operations."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Members of a family, which its attribute `kind` chooses from."""
    mnemonic_form: ClassVar[str] = ""
    """How a family spells its members in text, such as "reduce_{kind}"; empty for the snake case of the class name."""

    @property
    def name(self) -> str:
        """The class name in snake case: "layer_norm"."""
        return snake_case(type(self).__name__)

    @property
    def mnemonic(self) -> str:
        """The spelling in text: the name, for a family that of the member ("exp", "reduce_sum")."""
        form = type(self).mnemonic_form
        return form.format(kind=getattr(self, "kind", "")) if form else self.name

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """Types of the results for operands of `types`. Raises E0601, with the shapes, when they do not fit."""
        raise NotImplementedError(type(self).__name__)

    def evaluate(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results for operands `arrays`, which `infer` accepts.

        Floats arrive as float32, or as float64 where they are to be computed in float64; integers and booleans as they
        are. Results have the inferred shapes, in any dtype that holds them: whoever calls stores (rounds) them.
        """
        raise NotImplementedError(type(self).__name__)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        """For composites: emits the same meaning in smaller operations to `b` and returns the result."""
        raise NotImplementedError(type(self).__name__)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Arithmetic operations, a multiply-add counting 2. Data movement counts 0."""
        return sum(t.elements for t in outputs) if self.is_elementwise else 0

    def check_kind(self) -> None:
        """Raises E0601 if the attribute `kind` is none of `kinds`."""
        kind = getattr(self, "kind", None)
        if kind not in self.kinds:
            raise self.reject(f"{kind!r} is not a kind of {self.name}; kinds are {', '.join(self.kinds)}")

    def reject(self, why: str, *types: TensorType) -> RanvierError:
        """The E0601 that says `why` operands of `types` do not fit."""
        operands = f" (operands {', '.join(map(str, types))})" if types else ""
        return error("E0601", f"{self.mnemonic}: {why}{operands}")


def snake_case(name: str) -> str:
    """ "LayerNorm" as "layer_norm"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def infer_types(op: Op, types: Sequence[TensorType], loc: Loc | None = None) -> tuple[TensorType, ...]:
    """Result types of `op` on operands of `types`; an error names `loc`. Raises E0601."""
    low, high = op.arity
    if not low <= len(types) <= high:
        expected = str(low) if low == high else f"{low} to {high}"
        raise error("E0601", f"{op.mnemonic} takes {expected} operands, not {len(types)}", where=loc)
    try:
        return op.infer(*types)
    except RanvierError as problem:
        if problem.where is None:
            problem.where = loc
        raise


OpClass = TypeVar("OpClass", bound=Op)


@dataclass(frozen=True, slots=True, eq=False)
class Node(Generic[OpClass]):
    """One operation applied to values. `loc` is the user's own source line that it comes from."""

    op: OpClass
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    loc: Loc | None = None

    @property
    def output(self) -> Value:
        """The result of a node that has exactly one."""
        (result,) = self.outputs
        return result

    def flops(self) -> int:
        """Arithmetic operations of this node, a multiply-add counting 2."""
        return self.op.flops([v.type for v in self.inputs], [v.type for v in self.outputs])


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """A parameter: `key` names its array in the mapping that a graph runs with (a name of the model's state dict).

    The array may have another float dtype than `value`: it is converted once, when it is bound.
    """

    value: Value
    key: str


CONSTANT_LIMIT_BYTES = 64 * 1024
"""Larger arrays than this are parameters: constants are printed in the graph's text."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A small array (at most `CONSTANT_LIMIT_BYTES`) that is part of the graph. The array must not be written to."""

    value: Value
    array: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A pure function of tensors: `inputs` and `params` to `outputs`.

    `input_dtypes` and `output_dtypes` are what the caller gives and gets. They differ from the values' own dtypes only
    where a pass narrowed an integer; conversion happens at the boundary, with a check that every element fits.
    """

    name: str
    inputs: tuple[Value, ...]
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    input_dtypes: tuple[DType, ...] = ()
    output_dtypes: tuple[DType, ...] = ()

    def __post_init__(self) -> None:
        if len(self.input_dtypes) != len(self.inputs):
            object.__setattr__(self, "input_dtypes", tuple(v.dtype for v in self.inputs))
        if len(self.output_dtypes) != len(self.outputs):
            object.__setattr__(self, "output_dtypes", tuple(v.dtype for v in self.outputs))

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the tensors the caller gives."""
        return tuple(v.type.with_dtype(d) for v, d in zip(self.inputs, self.input_dtypes, strict=True))

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the tensors the caller gets."""
        return tuple(v.type.with_dtype(d) for v, d in zip(self.outputs, self.output_dtypes, strict=True))

    def values(self) -> Iterator[Value]:
        """Every value: inputs, parameters, constants, then results in order."""
        yield from self.inputs
        yield from (p.value for p in self.params)
        yield from (c.value for c in self.constants)
        for node in self.nodes:
            yield from node.outputs

    def producers(self) -> dict[Value, Node]:
        """The node that computes each value (inputs, parameters and constants have none)."""
        return {value: node for node in self.nodes for value in node.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order, a node once for each operand; outputs of the graph not counted."""
        users: dict[Value, list[Node]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for value in node.inputs:
                users[value].append(node)
        return users

    def flops(self) -> int:
        """Arithmetic operations of one run, a multiply-add counting 2."""
        return sum(node.flops() for node in self.nodes)

    def evaluate(
        self,
        inputs: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray] | None = None,
        *,
        precision: str = "native",
        on_value: Callable[[Node, tuple[np.ndarray, ...]], Any] | None = None,
    ) -> list[np.ndarray]:
        """The reference meaning of the graph; see `ranvier.graph.evaluate.evaluate_graph`."""
        from ranvier.graph.evaluate import evaluate_graph

        return evaluate_graph(self, inputs, params or {}, precision=precision, on_value=on_value)

    def canonical(self, *, locations: bool = True) -> tuple:
        """A hashable description in which values are numbered in order: equal for graphs that differ in names only."""
        number: dict[Value, int] = {}
        for value in self.values():
            number[value] = len(number)
        return (
            self.name,
            tuple(str(v.type) for v in self.inputs),
            tuple((str(p.value.type), p.key) for p in self.params),
            tuple((str(c.value.type), c.array.tobytes()) for c in self.constants),
            tuple(
                (op_key(n.op), tuple(number.get(v, -1) for v in n.inputs), tuple(str(v.type) for v in n.outputs),
                 n.loc if locations else None)
                for n in self.nodes
            ),
            tuple(number.get(v, -1) for v in self.outputs),
            tuple(d.name for d in self.input_dtypes + self.output_dtypes),
        )

    def digest(self) -> str:
        """A content hash (hex, 32 digits) that names and locations do not change."""
        return hashlib.sha256(repr(self.canonical(locations=False)).encode()).hexdigest()[:32]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self is other or self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __str__(self) -> str:
        from ranvier.graph.text import print_graph

        return print_graph(self)


def attributes(op: Op) -> dict[str, Any]:
    """The attributes of `op` by name."""
    return {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}  # type: ignore[arg-type]


def with_dtypes(op: OpClass, change: Callable[[DType], DType]) -> OpClass:
    """`op` with each attribute that is a dtype replaced by what `change` makes of it."""
    changed = {n: change(v) for n, v in attributes(op).items() if isinstance(v, DType) and change(v) is not v}
    return dataclasses.replace(op, **changed) if changed else op  # type: ignore[type-var]


def op_key(op: Op) -> tuple:
    """Class and attributes of `op` as a key in which 0.0 and -0.0, or 1 and 1.0, differ (they do not under ``==``)."""
    return (type(op).__name__, *map(repr, attributes(op).values()))
