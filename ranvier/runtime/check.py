"""The reference beside every stage of the compiler, and the first stage that differs.

Passes on graphs are compared in float64, each with the stage before it, so that rounding hides nothing. The kernel is
compared with the graph it was lowered from: its distance to float64 may be a few times that of the graph's own rounded
evaluation. The scheduled program must agree with the kernel to the last bit.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranvier import dtypes
from ranvier.compiler.graph.assign_layouts import assign_layouts
from ranvier.compiler.graph.fuse import fuse
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.compiler.lower.lower import lower
from ranvier.compiler.pipeline import GraphPass, compile_graph
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Graph, Node, Value
from ranvier.graph.rewriter import remove_dead
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.loc import Loc
from ranvier.nki.jit import JitKernel
from ranvier.runtime.state import from_device, full_state, to_device
from ranvier.sim import compare
from ranvier.sim.compare import compare_kernel_to_program
from ranvier.sim.interpreter import Interpreter, run_kernel
from ranvier.target import Target

PASS_TOLERANCE = 1e-6
"""Largest difference, relative to the largest value, that a pass may make in float64: other orders of summation."""
ROUNDING_FACTOR = 4.0
"""How many times further from float64 than the graph's own rounded evaluation the kernel may be."""
ROUNDING_FLOOR = 4.0
"""The same in units of the last place of the dtype, for values that the rounded evaluation happens to hit."""
_UNIT = {"bfloat16": 2.0**-8, "float32": 2.0**-23}


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage: how far its outputs are from its reference, relative to their largest value, and what is allowed."""

    name: str
    reference: str
    difference: float
    tolerance: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first thing that differs: `what` (a value of a graph or an instruction), where, one element, and how much."""

    stage: str
    what: str
    loc: Loc | None
    index: tuple[int, ...]
    expected: float
    found: float
    extent: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check: with `divergence` if a stage failed. Stages after a failed one are not compared."""

    stages: tuple[StageResult, ...]
    divergence: Divergence | None

    @property
    def passed(self) -> bool:
        return all(stage.passed for stage in self.stages)

    def raise_if_failed(self) -> None:
        """Raise E0606 that names stage, value or instruction, source line and element."""
        d = self.divergence
        if d is not None:
            raise error(
                "E0606", f"after {d.stage}: {d.what} differs from the reference: element {list(d.index)} is "
                f"{d.found:.9g}, the reference {d.expected:.9g}; {d.extent}", where=d.loc)


@dataclass(frozen=True)
class _Stages:
    """What `compile_graph` showed of its work."""

    graphs: list[tuple[str, Graph]]
    prologue: Graph | None
    lowered: Kernel
    program: Program


def check_graph(graph: Graph, inputs: Sequence[np.ndarray], params: Mapping[str, np.ndarray], *, target: Target,
                dtype: str, reference: Sequence[np.ndarray] | None = None,
                extra_passes: tuple[tuple[str, GraphPass], ...] = ()) -> CheckReport:
    """Compile `graph` and compare every stage on `inputs` (of the graph's input types) with its reference.

    `reference` is what the model itself gives: with it the import is checked as well. `extra_passes` are passes of
    one's own, run and checked after the others. Raises what `compile_graph` raises; a difference is reported, see
    `CheckReport.raise_if_failed`.
    """
    results: list[StageResult] = []
    if reference is not None:
        start = time.perf_counter()
        state = _only(params, graph)
        native, exact = graph.evaluate(inputs, state), graph.evaluate(inputs, state, precision="float64")
        limit = _rounding_limit(_distance(native, exact), _coarsest(graph))
        results.append(StageResult("import", "the model in its framework", _distance(native, reference), limit,
                                   time.perf_counter() - start))
        if not results[-1].passed:
            return CheckReport(tuple(results), _in_outputs("import", graph, native, reference))
    stages = _compile(graph, target, dtype, extra_passes)
    before, expected = stages.graphs[0][1], None
    for name, after in stages.graphs:
        start = time.perf_counter()
        outputs = after.evaluate(inputs, _state(params, stages.prologue, after), precision="float64")
        if expected is not None:
            limit = _pass_tolerance(name, dtype, before)
            results.append(StageResult(name, "the stage before it, in float64", _distance(outputs, expected), limit,
                                       time.perf_counter() - start))
            if not results[-1].passed:
                found = _in_graphs(name, before, after, inputs, params, stages.prologue, limit)
                return CheckReport(tuple(results), found or _in_outputs(name, after, outputs, expected))
        before, expected = after, outputs
    assert expected is not None
    return _check_kernel_stages(stages, graph, inputs, params, expected, results, target, dtype)


def _pass_tolerance(name: str, dtype: str, before: Graph) -> float:
    """What a pass on `before` may change: a constant that it computes is rounded to the graph's dtype."""
    return 4 * _UNIT[dtype] if name == "convert_precision" else max(PASS_TOLERANCE, _UNIT[_coarsest(before)])


def _check_kernel_stages(stages: _Stages, graph: Graph, inputs: Sequence[np.ndarray], params: Mapping[str, np.ndarray],
                         expected: list[np.ndarray], results: list[StageResult], target: Target,
                         dtype: str) -> CheckReport:
    state, device = full_state(params, stages.prologue), stages.graphs[-1][1]
    given = to_device(stages.program, graph.input_types, inputs)
    start = time.perf_counter()
    raw = run_kernel(stages.lowered, target, given, state)
    outputs = from_device(stages.program, graph.output_types, raw)
    native = device.evaluate(inputs, _only(state, device))
    limit = _rounding_limit(_distance(native, expected), dtype)
    results.append(StageResult("lower", "the graph in float64", _distance(outputs, expected), limit,
                               time.perf_counter() - start))
    if not results[-1].passed:
        found = _in_lowering(device, inputs, state, target, dtype)
        return CheckReport(tuple(results), found or _in_outputs("lower", device, outputs, expected))
    start = time.perf_counter()
    program_raw = Interpreter(stages.program, target).run(given, state)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(program_raw, raw, strict=True))
    distance = 0.0 if same else max(_distance(program_raw, raw), np.finfo(np.float64).tiny)
    results.append(StageResult("schedule", "the kernel, to the last bit", distance, 0.0, time.perf_counter() - start))
    if same:
        return CheckReport(tuple(results), None)
    found = _from_sim(compare_kernel_to_program(stages.lowered, stages.program, target, given, state))
    return CheckReport(tuple(results), found or _in_outputs("schedule", device, program_raw, raw))


def _compile(graph: Graph, target: Target, dtype: str, extra: tuple[tuple[str, GraphPass], ...]) -> _Stages:
    graphs: list[tuple[str, Graph]] = []

    def observe(name: str, made: object) -> None:
        if isinstance(made, Graph) and name != "prologue":
            graphs.append((name, made))

    compiled = compile_graph(graph, target=target, dtype=dtype, observe=observe, extra_passes=extra)
    return _Stages(graphs, compiled.prologue, compiled.kernel, compiled.program)


def _state(params: Mapping[str, np.ndarray], prologue: Graph | None, graph: Graph) -> dict[str, np.ndarray]:
    """Parameters that `graph` reads, derived ones in float64."""
    state = dict(params)
    if prologue is not None and any(p.key not in params for p in graph.params):
        state = full_state(params, prologue, precision="float64")
    return _only(state, graph)


def _only(state: Mapping[str, np.ndarray], graph: Graph) -> dict[str, np.ndarray]:
    return {p.key: state[p.key] for p in graph.params}


def _coarsest(graph: Graph) -> str:
    """The dtype whose rounding shows in the graph's values."""
    return "bfloat16" if any(v.dtype is dtypes.bfloat16 for v in graph.values()) else "float32"


def _rounding_limit(native: float, dtype: str) -> float:
    return max(ROUNDING_FACTOR * native, ROUNDING_FLOOR * _UNIT[dtype])


def _distance(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference, relative to the largest finite value of the array it occurs in; infinite for NaN."""
    return max((_largest(f, e)[0] for f, e in zip(found, expected, strict=True)), default=0.0)


def _largest(found: np.ndarray, expected: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """The largest difference of two arrays, as `_distance` measures it, and where it is."""
    if found.shape != expected.shape:
        return float("inf"), ()
    if not found.size:
        return 0.0, ()
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = np.where(same, 0.0, np.abs(a - b))
    difference = np.where(np.isnan(difference), np.inf, difference)
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0) or 1.0
    place = np.unravel_index(int(difference.argmax()), difference.shape)
    return float(difference[place] / scale), tuple(int(i) for i in place)


def _differ(stage: str, what: str, loc: Loc | None, found: np.ndarray, expected: np.ndarray) -> Divergence:
    difference, index = _largest(found, expected)
    at = index if found.shape == expected.shape else None
    extent = f"the difference is {difference:.3g} of the largest value" if at is not None else (
        f"its shape is {found.shape}, the reference's {expected.shape}")
    return Divergence(stage, what, loc, index, float(expected[at]) if at is not None else float("nan"),
                      float(found[at]) if at is not None else float("nan"), extent)


def _in_outputs(stage: str, graph: Graph, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Divergence:
    """The output that differs most, for where no value inside can be named."""
    worst = max(range(len(found)), key=lambda i: _largest(found[i], expected[i])[0])
    node = graph.producers().get(graph.outputs[worst])
    return _differ(stage, f"output {worst}", node.loc if node else None, found[worst], expected[worst])


def _in_graphs(stage: str, before: Graph, after: Graph, inputs: Sequence[np.ndarray], params: Mapping[str, np.ndarray],
               prologue: Graph | None, limit: float) -> Divergence | None:
    """The first value of `after` that differs from the same value (or the one of the same name) of `before`."""
    known: dict[Value | tuple, np.ndarray] = {}

    def remember(node: Node, arrays: tuple[np.ndarray, ...]) -> None:
        for value, array in zip(node.outputs, arrays, strict=True):
            known[value] = array
            if value.name:
                known[value.name, value.shape] = array

    before.evaluate(inputs, _state(params, prologue, before), precision="float64", on_value=remember)
    found: list[Divergence] = []

    def examine(node: Node, arrays: tuple[np.ndarray, ...]) -> None:
        for value, array in zip(node.outputs, arrays, strict=True):
            twin = known.get(value, known.get((value.name, value.shape)))
            if not found and twin is not None and _largest(array, twin)[0] > limit:
                found.append(_differ(stage, f"value %{value.name} of {node.op.mnemonic}", node.loc, array, twin))

    after.evaluate(inputs, _state(params, prologue, after), precision="float64", on_value=examine)
    return found[0] if found else None


def _in_lowering(graph: Graph, inputs: Sequence[np.ndarray], state: Mapping[str, np.ndarray], target: Target,
                 dtype: str) -> Divergence | None:
    """The first node whose lowering differs, found by lowering the graph up to a node, and halving."""
    low, high = 0, len(graph.nodes)  # the first `low` nodes are known to be right
    found = None
    while low < high:
        middle = (low + high) // 2
        difference = _up_to(graph, graph.nodes[middle], inputs, state, target, dtype)
        if difference is None:
            low = middle + 1
        else:
            high, found = middle, difference
    return found


def _up_to(graph: Graph, node: Node, inputs: Sequence[np.ndarray], state: Mapping[str, np.ndarray], target: Target,
           dtype: str) -> Divergence | None:
    """How the kernel of `graph` cut off after `node` differs; None if it does not, or cannot be cut off there."""
    cut = remove_dead(dataclasses.replace(graph, outputs=node.outputs, output_dtypes=()))
    groups = fuse(cut)
    try:
        kernel = lower(cut, groups, assign_layouts(cut, groups), target)
    except RanvierError:
        return None  # a form that only exists inside of a larger kernel
    given = [_as_device(array, kernel.by_name[name].dtype, kernel.by_name[name].shape)
             for name, array in zip(kernel.inputs, inputs, strict=True)]
    raw = run_kernel(kernel, target, given, state)
    outputs = [a.reshape(v.shape) for a, v in zip(raw, node.outputs, strict=True)]
    expected = cut.evaluate(inputs, _only(state, cut), precision="float64")
    native = cut.evaluate(inputs, _only(state, cut))
    if _distance(outputs, expected) <= _rounding_limit(_distance(native, expected), dtype):
        return None
    worst = max(range(len(outputs)), key=lambda i: _largest(outputs[i], expected[i])[0])
    what = f"value %{node.outputs[worst].name} of {node.op.mnemonic}"
    return _differ("lower", what, node.loc, outputs[worst], expected[worst])


def _as_device(array: np.ndarray, dtype: dtypes.DType, shape: tuple[int, ...]) -> np.ndarray:
    array = array.view(np.uint8) if array.dtype == np.bool_ else array.astype(dtype.np)
    return array.reshape(shape)


def _from_sim(found: compare.Divergence | None) -> Divergence | None:
    if found is None:
        return None
    what = f"{found.instruction.MNEMONIC} (number {found.order} of the kernel) writing {found.tensor}"
    extent = f"{found.differing} of {found.total} elements differ"
    return Divergence("schedule", what, found.loc, found.index, found.expected, found.actual, extent)


def check_kernel(kernel: Any, *arguments: Any, target: str | Target | None = None) -> CheckReport:
    """Run an NKI kernel eagerly and as a scheduled program on the same arguments; they must agree to the last bit.

    Arguments are those of a call: arrays, numbers, nested containers of both. Raises whatever the kernel breaks, at its
    own line, and E0102 for an argument without values.
    """
    made = kernel if isinstance(kernel, JitKernel) else JitKernel(kernel)
    chosen = made.target_for(target)
    recorded = made.record(*arguments, target=chosen)
    program = lower_kernel(recorded, chosen)
    given = zip(recorded.inputs, made.input_arrays(*arguments), strict=True)
    inputs = [array.reshape(recorded.by_name[name].shape) for name, array in given]
    start = time.perf_counter()
    expected = run_kernel(recorded, chosen, inputs)
    found = Interpreter(program, chosen).run(inputs)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))
    stage = StageResult("schedule", "the kernel, to the last bit", 0.0 if same else _distance(found, expected), 0.0,
                        time.perf_counter() - start)
    if same:
        return CheckReport((stage,), None)
    where = _from_sim(compare_kernel_to_program(recorded, program, chosen, inputs))
    worst = max(range(len(found)), key=lambda i: _largest(found[i], expected[i])[0])
    return CheckReport((stage,), where or _differ("schedule", f"output {worst}", None, found[worst], expected[worst]))
