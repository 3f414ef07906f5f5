"""The reference meaning of graphs: numpy, one operation after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Graph, Node, TensorType, Value

OnValue = Callable[[Node, tuple[np.ndarray, ...]], Any]


def evaluate_graph(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    params: Mapping[str, np.ndarray],
    *,
    precision: str = "native",
    on_value: OnValue | None = None,
) -> list[np.ndarray]:
    """The outputs of `graph` for arrays `inputs` (of `graph.input_types`) and `params` (by key).

    `precision` "native": each operation computes in float32 (in float64 if its operands are), and its result is rounded
    once, to the value's dtype. "float64": everything float is float64, inputs and parameters unrounded, and nothing is
    rounded: an oracle. Integers are exact in both. `on_value` sees each node with its results as they are stored.

    Raises E0603 when inputs or parameters do not fit, E0608 when an index reaches outside, and E0802.
    """
    if precision not in ("native", "float64"):
        raise error("E0802", f"precision is native or float64, not {precision!r}")
    exact = precision == "float64"
    stored = _bind(graph, inputs, params, exact)
    last_use = _last_uses(graph)
    for index, node in enumerate(graph.nodes):
        operands = [_load(stored[v], v.dtype, exact) for v in node.inputs]
        with np.errstate(all="ignore"):
            try:
                raw = node.op.evaluate(*operands)
            except RanvierError as problem:
                if problem.where is None:
                    problem.where = node.loc
                raise
            results = tuple(_store(a, v.type, exact, node) for a, v in zip(raw, node.outputs, strict=True))
        if on_value is not None:
            on_value(node, results)
        stored.update(zip(node.outputs, results, strict=True))
        for value in last_use[index]:
            stored.pop(value, None)
    return [
        convert_integer(stored[v], given, f"output {i}") if given is not v.dtype else stored[v]
        for i, (v, given) in enumerate(zip(graph.outputs, graph.output_dtypes, strict=True))
    ]


def convert_integer(array: np.ndarray, to: DType, what: str) -> np.ndarray:
    """An integer array in another integer dtype. Raises E0603, naming `what`, when an element does not fit."""
    info = np.iinfo(to.np)
    if array.size and (int(array.min()) < info.min or int(array.max()) > info.max):
        raise error("E0603", f"{what} has elements from {array.min()} to {array.max()}, which {to} does not hold")
    return array.astype(to.np)


def _bind(graph: Graph, inputs: Sequence[np.ndarray], params: Mapping[str, np.ndarray], exact: bool) -> dict:
    if len(inputs) != len(graph.inputs):
        raise error("E0603", f"graph {graph.name} takes {len(graph.inputs)} inputs, not {len(inputs)}")
    stored: dict[Value, np.ndarray] = {}
    for value, given, array in zip(graph.inputs, graph.input_types, inputs, strict=True):
        array = np.asarray(array)
        wide = exact and given.dtype.is_float and array.dtype == np.float64
        if array.shape != given.shape or (array.dtype != given.dtype.np and not wide):
            raise error("E0603", f"input {value.name} is {array.dtype}{list(array.shape)}, expected {given}")
        if given.dtype is not value.dtype:
            array = convert_integer(array, value.dtype, f"input {value.name}")
        stored[value] = _round(array, value.dtype, exact)
    for param in graph.params:
        if param.key not in params:
            raise error("E0603", f"parameter {param.key!r} is missing")
        array = np.asarray(params[param.key])
        kind = param.value.type
        if array.shape != kind.shape or not _converts(dtypes.dtype(array.dtype), kind.dtype):
            raise error("E0603", f"parameter {param.key!r} is {array.dtype}{list(array.shape)}, expected {kind}")
        if kind.dtype.is_integer and array.dtype != kind.dtype.np:
            array = convert_integer(array, kind.dtype, f"parameter {param.key!r}")
        stored[param.value] = _round(array, kind.dtype, exact)
    for constant in graph.constants:
        stored[constant.value] = _round(constant.array, constant.value.dtype, exact)
    return stored


def _converts(given: DType, kept: DType) -> bool:
    return given is kept or (given.is_float and kept.is_float) or (given.is_integer and kept.is_integer)


def _round(array: np.ndarray, to: DType, exact: bool) -> np.ndarray:
    return array.astype(np.float64, copy=False) if exact and to.is_float else dtypes.cast(array, to)


def _load(array: np.ndarray, dtype: DType, exact: bool) -> np.ndarray:
    return array if exact or not dtype.is_float or dtype is dtypes.float64 else dtypes.compute(array)


def _store(array: np.ndarray, kind: TensorType, exact: bool, node: Node) -> np.ndarray:
    if array.shape != kind.shape:
        raise error("E0901", f"{node.op.mnemonic} computed shape {array.shape}, inferred {kind}", where=node.loc)
    if kind.dtype.is_integer and array.dtype.kind == "f":
        raise error("E0901", f"{node.op.mnemonic} computed {array.dtype}, inferred {kind}", where=node.loc)
    return _round(np.asarray(array), kind.dtype, exact)


def _last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values that nothing reads after it."""
    last: dict[Value, int] = {v: index for index, node in enumerate(graph.nodes) for v in (*node.outputs, *node.inputs)}
    result: list[list[Value]] = [[] for _ in graph.nodes]
    kept = set(graph.outputs)
    for value, index in last.items():
        if value not in kept:
            result[index].append(value)
    return result
