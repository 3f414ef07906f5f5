"""Import of PyTorch models: torch.export, then one rule for each ATen operator, into a graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx.node import map_arg

from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.frontends.torch import export as exporting
from ranvier.frontends.torch.calling import TorchCalling
from ranvier.frontends.torch.places import place_of
from ranvier.frontends.torch.rules import Context, Known, Refused, Unavailable, bind
from ranvier.frontends.torch.signature import InputSlot, OutputSlot, Signature, input_paths, parameter_names
from ranvier.frontends.torch.table import DROPPED, all_rules
from ranvier.frontends.torch.tensors import from_torch_dtype, is_supported, to_numpy
from ranvier.graph import CONSTANT_LIMIT_BYTES, Full, Graph, GraphBuilder, TensorType, Value
from ranvier.loc import Loc


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as a graph, with all that is needed to call it the way the model is called.

    `params` maps the keys of the graph's parameters (state-dict names; lifted tensors keep torch's name) to the
    model's own tensors: memory is shared, nothing is copied. `signature` turns calls into lists of tensors and
    results back.
    """

    graph: Graph
    params: Mapping[str, torch.Tensor]
    signature: Signature

    @property
    def output_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the graph's outputs."""
        return tuple(value.type.dtype for value in self.graph.outputs)

    def param_arrays(self) -> dict[str, np.ndarray]:
        """The parameters as arrays that share the model's memory."""
        return {key: to_numpy(tensor) for key, tensor in self.params.items()}

    def calling(self) -> TorchCalling:
        """How the model is called, with torch tensors in and out."""
        return TorchCalling(self.signature, tuple(value.shape for value in self.graph.outputs))


def import_model(model: nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
                 name: str | None = None) -> Imported:
    """`model`, called with the example inputs `args` and `kwargs`, as a graph.

    Shapes and dtypes are those of the examples; inputs that are not tensors become constants. `name` is the graph's
    name, the model's class by default. Raises E0607 if torch cannot export the model, E0602 with all operators that
    have no rule.
    """
    name = name or type(model).__name__
    program = exporting.export(model, tuple(args), kwargs or {})
    return import_exported(program, parameter_names(model), name=name, tensors=_tensors_of(model))


def import_exported(program: ExportedProgram, names: Sequence[str] = (), *, name: str = "model",
                    tensors: Mapping[str, torch.Tensor] | None = None) -> Imported:
    """An ExportedProgram (of `torch.export`) as a graph.

    `names` are the parameters of the model's forward, so that calls may name them. `tensors` are the model's own
    parameters and buffers by name, if they are not those of the program. Raises E0602.
    """
    program = exporting.functional(program)
    importer = Importer(name)
    slots = _bind_program(importer, program, dict(tensors or {}), names)
    results = importer.walk(program.graph, importer.scope)
    for changed in program.graph_signature.output_specs:
        if changed.kind is not OutputKind.USER_OUTPUT:
            importer.problem(str(changed.target or changed.arg.name), "is changed by the model, which inputs and "
                             "buffers must not be (in training mode: call model.eval() first)", None)
    graph, outputs = importer.finish(results)
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    assert in_spec is not None and out_spec is not None
    return Imported(graph, importer.params, Signature(tuple(names), in_spec, out_spec, slots, outputs))


def _bind_program(importer: Importer, program: ExportedProgram, tensors: Mapping[str, torch.Tensor],
                  names: Sequence[str]) -> tuple[InputSlot, ...]:
    """Give each placeholder its meaning: parameter, constant or input. Returns a slot for each leaf of the inputs."""
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    assert program.call_spec.in_spec is not None
    paths = iter(input_paths(names, program.call_spec.in_spec))
    slots: list[InputSlot] = []
    for given in program.graph_signature.input_specs:
        node, argument = placeholders[given.arg.name], given.arg
        if given.kind is InputKind.USER_INPUT and isinstance(argument, ConstantArgument):
            slots.append(InputSlot(next(paths), None, value=argument.value))
            importer.scope.values[node] = argument.value
        elif given.kind is InputKind.USER_INPUT:
            slots.append(importer.bind_input(node, next(paths)))
        elif isinstance(argument, TensorArgument) and given.target is not None:
            tensor = _find(given.target, tensors, program.state_dict, program.constants)
            constant = given.kind is InputKind.CONSTANT_TENSOR or given.persistent is False
            importer.bind_tensor(node, given.target, tensor, constant)
        else:
            raise error("E0602", f"the model has the input {argument.name} of kind {given.kind.name}, which is not "
                        "supported")
    return tuple(slots)


def _find(key: str, *tables: Mapping[str, Any]) -> torch.Tensor:
    for table in tables:
        if key in table:
            return table[key]
    raise error("E0901", f"the exported program refers to the tensor {key}, which neither it nor the model holds")


def _tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


@dataclass(frozen=True, slots=True)
class _Problem:
    """An operator that cannot be imported, and why."""

    operator: str
    reason: str
    loc: Loc | None

    def __str__(self) -> str:
        text = f"{self.operator} {self.reason}".rstrip()
        if self.loc is None:
            return text
        place = f"{self.loc.file}, line {self.loc.line}"
        return f"{text}: module {self.loc.scope or '(the model itself)'}, {place}"


class _Scope:
    """The values of the nodes of one FX graph so far."""

    def __init__(self) -> None:
        self.values: dict[fx.Node, Any] = {}
        self.rewritten: dict[fx.Node, fx.Node] = {}  # a node written to in place -> the node that has its new value

    def latest(self, node: fx.Node) -> fx.Node:
        """The node that has the present value of the memory that `node` made."""
        while node in self.rewritten:
            node = self.rewritten[node]
        return node

    def __getitem__(self, node: fx.Node) -> Any:
        return self.values[self.latest(node)]

    def resolve(self, arguments: Any) -> Any:
        """`arguments` of a node with values in place of nodes."""
        return map_arg(arguments, self.__getitem__)


class Importer:
    """One import: the graph under construction, its parameters, and the problems met.

    First the placeholders of the FX graph are bound (`bind_input`, `bind_tensor`), then `walk` imports its nodes, and
    `finish` gives the graph.
    """

    def __init__(self, name: str):
        self.builder = GraphBuilder(name)
        self.known = Known(self.builder)
        self.rules = all_rules()
        self.names = frozenset(self.rules)
        self.scope = _Scope()
        self.params: dict[str, torch.Tensor] = {}
        self.problems: list[_Problem] = []
        self._bound: dict[int, Value] = {}
        self._inputs = 0

    # Inputs -----------------------------------------------------------------------------------------------------------

    def bind_input(self, node: fx.Node, path: str) -> InputSlot:
        """The placeholder `node`, which the user gives as `path`, becomes the next input of the graph."""
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            raise error("E0602", f"the input {path} is {fake!r}, which is not supported",
                        fix="pass tensors, or numbers that are constants of the program")
        kind = _static_type(fake, path)
        self.scope.values[node] = self.builder.input(kind, node.name)
        self._inputs += 1
        return InputSlot(path, self._inputs - 1, kind.shape, kind.dtype)

    def bind_tensor(self, node: fx.Node, key: str, tensor: torch.Tensor, constant: bool) -> None:
        """The placeholder or attribute `node` is `tensor`, which the model holds under `key`.

        It becomes a constant if it is small and no state that the user saves and loads (`constant`), else a parameter.
        Tied parameters are one.
        """
        if constant and tensor.numel() * tensor.element_size() <= CONSTANT_LIMIT_BYTES:
            # The model may write to its buffer later; a constant stays what it is.
            self.scope.values[node] = self.builder.constant(to_numpy(tensor).copy())
            return
        if id(tensor) not in self._bound:
            kind = TensorType(tuple(tensor.shape), from_torch_dtype(tensor.dtype))
            self.params[key] = tensor
            self._bound[id(tensor)] = self.builder.param(key, kind)
        self.scope.values[node] = self._bound[id(tensor)]

    # Operators -------------------------------------------------------------------------------------------------------

    def walk(self, graph: fx.Graph, scope: _Scope, outer: fx.Node | None = None) -> Any:
        """Import the nodes of `graph`, whose placeholders have their values in `scope`; returns its results.

        `outer` is the node whose decomposition `graph` is.
        """
        results = None
        for node in graph.nodes:
            if node.op == "output":
                results = scope.resolve(node.args[0])
            elif node.op == "get_attr":
                self._bind_attribute(graph, node)
            elif node.op == "call_function" and str(node.target) not in DROPPED:
                scope.values[node] = self._call(node, scope, outer)
                if exporting.is_mutating(node.target):
                    scope.rewritten[scope.latest(node.args[0])] = node  # type: ignore[arg-type]
        return results

    def _bind_attribute(self, graph: fx.Graph, node: fx.Node) -> None:
        found: Any = graph.owning_module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            raise error("E0602", f"the model uses {node.target}, a {type(found).__name__}, which is not supported")
        self.bind_tensor(node, str(node.target), found, True)

    def _call(self, node: fx.Node, scope: _Scope, outer: fx.Node | None) -> Any:
        """The value of a call, or a stand-in of the right type after a problem was recorded."""
        loc = place_of(outer or node)
        try:
            if node.target is operator.getitem:
                return self._item(node, scope)
            if isinstance(node.target, torch._ops.OpOverload):
                name = exporting.functional_name(node.target)
                if any(isinstance(scope[n], Unavailable) for n in exporting.operand_nodes(node)):
                    return self._stand_in(node.meta.get("val"))  # the problem was noted where the operand was made
                if name in self.rules:
                    return self._apply(name, node, scope.resolve(node.args), scope.resolve(node.kwargs), loc)
            if outer is None:
                return self._decompose(node, scope)
            raise Refused("")
        except Refused as refused:
            culprit: Any = node.args[0] if node.target is operator.getitem else node
            if outer is None:
                self.problem(str(culprit.target), str(refused), loc)
            else:
                self.problem(str(outer.target), f"(which needs {culprit.target} {refused}".rstrip() + ")", loc)
        return self._stand_in(node.meta.get("val"))

    def _item(self, node: fx.Node, scope: _Scope) -> Any:
        index: Any = node.args[1]
        value = scope[node.args[0]][index]  # type: ignore[index]
        if isinstance(value, Unavailable) and node.users:
            raise Refused(f"whose result {index} {value.reason}")
        return value

    def _apply(self, name: str, node: fx.Node, args: Any, kwargs: Any, loc: Loc | None) -> Any:
        expected = node.meta["val"]
        _check_results(expected)
        context = Context(self.builder, loc, expected, self.known)
        rule = self.rules[name]
        try:
            value = rule.function(context, **bind(rule, node.target, args, kwargs))  # type: ignore[arg-type]
        except RanvierError as failure:
            if failure.where is None:
                failure.where = loc
            raise
        _check_against_torch(name, value, expected, loc)
        return value

    def _decompose(self, node: fx.Node, scope: _Scope) -> Any:
        inner = exporting.decomposed(node, self.names) if isinstance(node.target, torch._ops.OpOverload) else None
        if inner is None:
            raise Refused("")
        inside = _Scope()
        placeholders = [n for n in inner.graph.nodes if n.op == "placeholder"]
        for placeholder, operand in zip(placeholders, exporting.operand_nodes(node), strict=True):
            inside.values[placeholder] = scope[operand]
        return self.walk(inner.graph, inside, outer=node)

    # Problems --------------------------------------------------------------------------------------------------------

    def problem(self, operator: str, reason: str, loc: Loc | None) -> None:
        """Note that `operator` cannot be imported. `finish` raises for all of them together."""
        self.problems.append(_Problem(operator, reason, loc))

    def _stand_in(self, result: Any) -> Any:
        """A value of the type of `result`, so that the rest of the model is looked at as well."""
        if isinstance(result, torch.Tensor) and not is_supported(result.dtype):
            return Unavailable("cannot be held")
        if isinstance(result, torch.Tensor):
            return self.builder.emit(Full(tuple(result.shape), 0, from_torch_dtype(result.dtype)))
        if isinstance(result, list | tuple):
            return tuple(self._stand_in(r) for r in result)
        return result

    def finish(self, results: Sequence[Any]) -> tuple[Graph, tuple[OutputSlot, ...]]:
        """The graph with those of `results` that are values as outputs, and a slot for each of them.

        Raises one E0602 for all problems, if there are any.
        """
        if self.problems:
            kinds = sorted({p.operator for p in self.problems})
            raise error("E0602", f"the model uses what is not supported: {', '.join(kinds)}",
                        notes=tuple(dict.fromkeys(map(str, self.problems))),
                        where=next((p.loc for p in self.problems if p.loc is not None), None))
        values: list[Value] = []
        slots: list[OutputSlot] = []
        for leaf in results:
            if isinstance(leaf, Value):
                slots.append(OutputSlot(len(values), leaf.type.dtype))
                values.append(leaf)
            else:
                slots.append(OutputSlot(None, value=leaf))
        return self.builder.build(values), tuple(slots)


def _static_type(tensor: Any, what: str) -> TensorType:
    """The type of a fake tensor. Raises E0602 if its shape is symbolic."""
    if not all(isinstance(n, int) for n in tensor.shape):
        raise error("E0602", f"{what} has the symbolic shape {tuple(tensor.shape)}; shapes are static here",
                    fix="export without dynamic_shapes")
    return TensorType(tuple(tensor.shape), from_torch_dtype(tensor.dtype))


def _check_results(result: Any) -> None:
    """Refuse results that no graph can hold."""
    for tensor in exporting.leaves(result):
        if isinstance(tensor, torch.Tensor) and not all(isinstance(n, int) for n in tensor.shape):
            raise Refused(f"whose result has the data-dependent shape {tuple(tensor.shape)}")
        if isinstance(tensor, torch.Tensor) and not is_supported(tensor.dtype):
            raise Refused(f"whose result is {tensor.dtype}")


def _check_against_torch(name: str, value: Any, expected: Any, loc: Loc | None) -> None:
    """A rule must give what torch says the operator gives: the same number of results, shapes and dtypes."""
    values = value if isinstance(value, list | tuple) else (value,)
    results = expected if isinstance(expected, list | tuple) else (expected,)
    if len(values) != len(results):
        raise error("E0901", f"the rule for {name} gives {len(values)} results, torch {len(results)}", where=loc)
    for ours, theirs in zip(values, results, strict=True):
        if isinstance(ours, Unavailable):
            continue
        wanted = TensorType(tuple(theirs.shape), from_torch_dtype(theirs.dtype))
        if ours.type != wanted:
            raise error("E0901", f"the rule for {name} gives {ours.type}, torch {wanted}", where=loc)
