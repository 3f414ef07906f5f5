"""What compiled graphs must agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ranvier import target as targets
from ranvier.compiler.pipeline import compile_graph
from ranvier.graph import Graph
from ranvier.runtime.check import check_graph
from ranvier.runtime.state import from_device, full_state, to_device
from ranvier.sim.interpreter import run_kernel


def require_agreement(
    graph: Graph, inputs: Sequence[np.ndarray], params: Mapping[str, np.ndarray], dtype: str, chip: str = "trn2"
) -> None:
    """Every stage agrees with its reference; outputs that are integers or booleans, each element."""
    target = targets.get(chip)
    check_graph(graph, inputs, params, target=target, dtype=dtype).raise_if_failed()
    if all(v.dtype.is_float for v in graph.outputs):
        return
    made = compile_graph(graph, target=target, dtype=dtype)
    given = to_device(made.program, graph.input_types, inputs)
    raw = run_kernel(made.kernel, target, given, full_state(params, made.prologue))
    outputs = from_device(made.program, graph.output_types, raw)
    for value, found, expected in zip(graph.outputs, outputs, graph.evaluate(inputs, params), strict=True):
        if not value.dtype.is_float:
            np.testing.assert_array_equal(found, expected)
