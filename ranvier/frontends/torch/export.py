"""From a module to a functional FX graph: torch.export, and only as much decomposition as is needed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch._decomp import global_decomposition_table
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from ranvier.errors import RanvierError, error
from ranvier.frontends.torch.places import place_of_exception

_MESSAGE_LINES = 12
_REGISTER = "call torch.export.register_dataclass on it, or return a tuple, list, dictionary or named tuple"
# Composites that compute, so their results share memory with nothing. All others may return their operand.
_COMPUTING = frozenset(
    f"aten.{name}" for name in (
        "conv1d.default", "conv2d.default", "conv3d.default", "conv_transpose2d.input", "linear.default",
        "matmul.default", "batch_norm.default", "layer_norm.default", "group_norm.default", "rms_norm.default",
        "softmax.int", "log_softmax.int", "scaled_dot_product_attention.default", "max_pool2d.default",
        "adaptive_avg_pool2d.default", "einsum.default", "one_hot.default", "upsample_nearest2d.vec",
        "upsample_bilinear2d.vec", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "max.other", "min.other",
    )
)


def export(model: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> ExportedProgram:
    """``torch.export`` of `model` for inference, in a form in which nothing is changed in place behind a view.

    Raises E0607 if the arguments are not those of its forward, and, with torch's message and the user's line, if torch
    cannot trace the model.
    """
    _register_containers()
    try:
        signature = inspect.signature(model.forward)
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        raise error("E0607", f"the example inputs do not fit {type(model).__qualname__}.forward: {misfit}",
                    fix=f"its parameters are {signature}; give the arguments as a tuple and a dictionary") from None
    try:
        with torch.no_grad():
            program = functional(torch.export.export(model, args, dict(kwargs), strict=False))
    except RanvierError:
        raise
    except Exception as failure:  # whatever the user's forward, or torch while it traces it, raises
        lines = str(failure).strip().splitlines() or [""]
        more = ["..."] if len(lines) > _MESSAGE_LINES else []
        text = "\n    ".join(lines[:_MESSAGE_LINES] + more)
        raise error(
            "E0607",
            f"torch.export could not trace {type(model).__qualname__}: {type(failure).__name__}: {text}",
            where=place_of_exception(failure.__traceback__),
            fix=_REGISTER if "register a pytree" in text else None,
        ) from failure
    return program


def functional(program: ExportedProgram) -> ExportedProgram:
    """`program` itself if its in-place operators are local (`mutations_are_local`), else made functional by torch."""
    return program if mutations_are_local(program.graph) else program.run_decompositions({})


def _register_containers() -> None:
    """Let torch look into the key-value caches that language models of transformers return."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is not None and caches.DynamicCache not in pytree.SUPPORTED_NODES:
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()


def is_mutating(target: Any) -> bool:
    """Whether an operator writes to one of its operands."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def functional_name(target: torch._ops.OpOverload) -> str:
    """ "aten.add.Tensor" for aten.add_.Tensor: the operator that computes what `target` writes in place."""
    packet, _, overload = str(target).rpartition(".")
    return f"{packet.removesuffix('_')}.{overload}" if target._schema.is_mutable else str(target)


def _may_alias(target: Any) -> bool:
    """Whether a result of `target` may share memory with an operand."""
    if not isinstance(target, torch._ops.OpOverload) or str(target) in _COMPUTING:
        return False
    if any(result.alias_info is not None for result in target._schema.returns):
        return True
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)


def mutations_are_local(graph: fx.Graph) -> bool:
    """Whether each in-place operator writes to a fresh value that no view shows.

    Then the value has a new meaning from there on, and nothing else changes; otherwise the program must be made
    functional by torch.
    """
    fresh: dict[fx.Node, fx.Node] = {}  # a value that owns its memory -> the first value in that memory
    shown: set[fx.Node] = set()  # those of which a view exists
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if is_mutating(node.target):
            base = node.args[0] if node.args else None
            if not isinstance(base, fx.Node) or base not in fresh or fresh[base] in shown:
                return False
            if len(node.target._schema.returns) != 1:
                return False
            fresh[node] = fresh[base]
        elif not _may_alias(node.target) and isinstance(node.target, torch._ops.OpOverload):
            fresh[node] = node
        else:
            shown.update(fresh[n] for n in node.all_input_nodes if n in fresh)
    return True


@functools.lru_cache(maxsize=8)
def _decompositions(supported: frozenset[str]) -> dict:
    table = global_decomposition_table["post_autograd"]
    return {op: f for op, f in table.items()
            if isinstance(op, torch._ops.OpOverload) and functional_name(op) not in supported}


def decomposed(node: fx.Node, supported: frozenset[str]) -> fx.GraphModule | None:
    """What the operator of `node` consists of, as a graph of simpler ones; None if torch knows no decomposition.

    The inputs of the graph are the tensor operands, in order of appearance.
    """
    fakes = [n.meta["val"] for n in operand_nodes(node)]
    mode = next((f.fake_mode for f in fakes if hasattr(f, "fake_mode")), None)
    if mode is None:
        return None

    def call(*tensors):
        given = dict(zip(operand_nodes(node), tensors, strict=True))
        args = map_arg(node.args, lambda n: given[n])
        kwargs = map_arg(node.kwargs, lambda n: given[n])
        return node.target(*args, **kwargs)  # type: ignore[operator]

    with torch.no_grad(), _without_mkldnn(), mode:
        functional = torch.func.functionalize(call, remove="mutations")
        result = make_fx(functional, decomposition_table=_decompositions(supported))(*fakes)
    result.graph.eliminate_dead_code()
    targets = [n.target for n in result.graph.nodes if n.op == "call_function"]
    return None if node.target in targets else result


@contextlib.contextmanager
def _without_mkldnn() -> Iterator[None]:
    """With mkldnn an LSTM would become one operator of that library. (The public context manager warns about TF32.)"""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def operand_nodes(node: fx.Node) -> list[fx.Node]:
    """The nodes that `node` takes as operands, each once, in order of appearance."""
    found: dict[fx.Node, None] = {}
    for value in leaves((node.args, node.kwargs)):
        if isinstance(value, fx.Node):
            found[value] = None
    return list(found)


def leaves(value: Any) -> Iterator[Any]:
    """The items of nested lists, tuples and dictionaries, in order."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(tuple(value.values()))
    else:
        yield value
