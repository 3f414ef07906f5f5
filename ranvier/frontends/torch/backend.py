"""The backend of ``torch.compile(model, backend="ranvier")``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ranvier.errors import error
from ranvier.frontends.torch import export as exporting
from ranvier.frontends.torch.calling import version
from ranvier.frontends.torch.import_fx import Imported, Importer
from ranvier.frontends.torch.signature import InputSlot, Signature

_KEY = re.compile(r"_(modules|parameters|buffers)\['([^']+)'\]")
_OPTIONS = ("target", "dtype")

Compile = Callable[..., Callable[..., Any]]
"""``compile(imported, target=..., dtype=...)`` gives what is called with the inputs and gives the outputs."""


def ranvier_backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
                    mode: str | None = None, compile: Compile | None = None) -> Callable[..., tuple]:
    """Compile one graph that torch.compile captured, for inference.

    `options` are those of ``torch.compile(..., options={"target": "trn2", "dtype": "bfloat16"})``. `compile` makes an
    executable of the imported graph; `ranvier.runtime.compile.compile_imported` by default. Parameters stay those of
    the model: when they are replaced or written to, they are bound anew before the next call. Each shape is a program
    of its own; beyond ``torch._dynamo.config.recompile_limit`` of them torch runs the model itself. Raises E0602 where
    gradients are wanted or operators have no rule, E0802 for an option that does not exist.
    """
    chosen = dict(options or {})
    unknown = sorted(chosen.keys() - set(_OPTIONS))
    if unknown or mode is not None:
        given = f"the option {unknown[0]!r}" if unknown else f"mode={mode!r}"
        raise error("E0802", f"the torch.compile backend does not take {given}",
                    fix=f"options are {', '.join(_OPTIONS)}")
    if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in example_inputs):
        raise error("E0602", "gradients are wanted, and the torch.compile backend compiles inference only",
                    fix="call the compiled model under torch.no_grad() or torch.inference_mode()")
    imported, places = import_dynamo(gm, example_inputs)
    build = compile or _default_compile()
    return _Compiled(imported, places, lambda it: build(it, **chosen))


def _default_compile() -> Compile:
    from ranvier.runtime.compile import compile_imported  # late: with it comes the whole compiler

    return compile_imported


def import_dynamo(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> tuple[Imported, dict[int, str | None]]:
    """A graph captured by torch.compile as `Imported`, and those of its inputs that are parameters (their keys) or
    numbers (None), by position.

    The signature of the result takes the other inputs, in order, and gives a tuple. Numbers and sizes that
    torch.compile left open are fixed, so it compiles again for others. Raises E0602.
    """
    example_inputs = [int(v) if isinstance(v, torch.SymInt) else v for v in example_inputs]
    importer = Importer("compiled")
    slots: list[InputSlot] = []
    places: dict[int, str | None] = {}
    captured = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in captured:
        _fix_sizes(node.meta.get("example_value"))
    traced = _trace(gm, example_inputs)
    inner = [n for n in traced.graph.nodes if n.op == "placeholder"]
    for position, (source, node, value) in enumerate(zip(captured, inner, example_inputs, strict=True)):
        key = _state_key(source)
        if key is not None:
            importer.bind_tensor(node, key, value, False)
            places[position] = key
        elif isinstance(value, torch.Tensor):
            slots.append(importer.bind_input(node, source.name))
        elif isinstance(value, int):
            places[position] = None
        else:
            raise error("E0602", f"torch.compile made {value!r} an input of the graph ({source.name})",
                        fix="call torch.compile(..., dynamic=False)")
    results = importer.walk(traced.graph, importer.scope)
    for node in traced.graph.nodes:
        written = node.args[0] if exporting.is_mutating(node.target) else None
        if isinstance(written, fx.Node) and written.op == "placeholder":
            importer.problem(str(node.target), "changes an input or buffer of the model, which must not be", None)
    leaves, out_spec = pytree.tree_flatten(results)
    graph, outputs = importer.finish(leaves)
    in_spec = pytree.tree_structure(((0,) * len(slots), {}))
    signature = Signature(tuple(s.path for s in slots), in_spec, out_spec, tuple(slots), outputs)
    return Imported(graph, importer.params, signature), places


def _fix_sizes(value: Any) -> None:
    """Have torch.compile guard the sizes of a tensor that it left open: asking for one as a number does that."""
    if isinstance(value, torch.Tensor):
        for size in (*value.shape, *value.stride(), value.storage_offset()):
            int(size)


def _trace(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
    """`gm`, which calls torch functions, as ATen operators with composites whole; its places in the source are kept."""
    run = fx.Interpreter(gm).run
    # torch.compile's own fake tensors may have symbolic shapes, so they are left aside.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(t, static_shapes=True) if isinstance(t, torch.Tensor) else t for t in example_inputs]
    with tracing(None), torch.no_grad(), mode, fx_traceback.preserve_node_meta():
        traced = make_fx(run, pre_dispatch=True)(*fakes)
        if not exporting.mutations_are_local(traced.graph):
            traced = make_fx(torch.func.functionalize(run, remove="mutations"))(*fakes)
    return traced


def _state_key(node: fx.Node) -> str | None:
    """The state-dict name of a parameter or buffer that torch.compile passes as an input; None for a true input."""
    argument = node.meta.get("grapharg")
    name = getattr(argument.source, "name", "") if argument is not None else ""
    name = name() if callable(name) else name
    parts = _KEY.findall(name)
    if not parts or parts[-1][0] == "modules":
        return None
    return ".".join(part for _, part in parts)


class _Compiled:
    """What torch.compile calls: takes parameters, numbers and inputs together, binds the first, passes the last on."""

    def __init__(self, imported: Imported, places: Mapping[int, str | None],
                 build: Callable[[Imported], Callable[..., Any]]):
        self.imported, self.places, self.build = imported, dict(places), build
        self.version = version(imported.params.values())
        self.executable = build(imported)

    def __call__(self, *args: Any) -> tuple:
        given = {key: args[position] for position, key in self.places.items() if key in self.imported.params}
        params = {key: given.get(key, tensor) for key, tensor in self.imported.params.items()}
        now = version(params.values())
        if now != self.version:
            self.imported = dataclasses.replace(self.imported, params=params)
            self.executable, self.version = self.build(self.imported), now
        return self.executable(*(a for i, a in enumerate(args) if i not in self.places))
