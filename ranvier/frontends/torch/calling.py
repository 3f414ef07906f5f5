"""Calls of compiled PyTorch models: torch tensors in and out, and how that is kept in an artifact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from ranvier import dtypes
from ranvier.errors import error
from ranvier.frontends.torch.signature import InputSlot, OutputSlot, Signature
from ranvier.frontends.torch.tensors import checksum, to_numpy, to_torch
from ranvier.runtime.calling import constant_leaf, tensor_leaf


@dataclasses.dataclass(frozen=True, slots=True)
class TorchCalling:
    """The calling convention of a PyTorch model, for the runtime."""

    signature: Signature
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the graph's outputs."""

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[np.ndarray]:
        """The tensors among the arguments as arrays that share their memory. Raises E0603 for what does not fit."""
        return [to_numpy(tensor) for tensor in self.signature.flatten(args, kwargs)]

    def unflatten(self, outputs: Sequence[np.ndarray]) -> Any:
        """What the model returns, with tensors that share the memory of `outputs`."""
        return self.signature.unflatten([to_torch(array) for array in outputs])

    def arrays_of(self, result: Any) -> list[np.ndarray]:
        """The graph's outputs, in order, in what the model itself returned."""
        leaves = pytree.tree_leaves(result)
        found = {slot.index: leaf for slot, leaf in zip(self.signature.outputs, leaves, strict=True)}
        return [to_numpy(found[i]) for i in range(len(self.shapes))]

    def describe(self) -> dict[str, Any]:
        """The description that works without torch, and below "torch" the one that `restore` takes.

        The latter is left out where torch cannot write the structure as text. Raises E0704 if there is no description.
        """
        signature = self.signature
        leaves = [_input_leaf(slot) for slot in signature.inputs]
        tree = _tree(signature.in_spec, iter(leaves))
        args, kwargs = tree["tuple"]
        results = [_output_leaf(slot, i, self.shapes) for i, slot in enumerate(signature.outputs)]
        described = {
            "names": list(signature.names), "args": args["tuple"], "kwargs": kwargs["dict"],
            "result": _tree(signature.out_spec, iter(results)),
        }
        specs = _specs_text(signature)
        if specs is not None:
            described["torch"] = {"specs": specs, "inputs": leaves, "outputs": results}
        return described


def restore(description: Mapping[str, Any]) -> TorchCalling | None:
    """The calling convention from what `TorchCalling.describe` gave; None if it was left out there."""
    kept = description.get("torch")
    if kept is None:
        return None
    in_spec, out_spec = (pytree.treespec_loads(text) for text in kept["specs"])
    inputs = tuple(
        InputSlot(leaf["path"], leaf["tensor"], tuple(leaf["shape"]), dtypes.DTYPES[leaf["dtype"]])
        if "tensor" in leaf else InputSlot(leaf["path"], None, value=leaf["constant"]) for leaf in kept["inputs"]
    )
    outputs = tuple(
        OutputSlot(leaf["tensor"], dtypes.DTYPES[leaf["dtype"]]) if "tensor" in leaf
        else OutputSlot(None, value=leaf["constant"]) for leaf in kept["outputs"]
    )
    shapes = {leaf["tensor"]: tuple(leaf["shape"]) for leaf in kept["outputs"] if "tensor" in leaf}
    signature = Signature(tuple(description["names"]), in_spec, out_spec, inputs, outputs)
    return TorchCalling(signature, tuple(shapes[i] for i in range(len(shapes))))


def version(tensors: Iterable[torch.Tensor]) -> tuple:
    """Something that differs when the contents of a tensor do.

    Torch counts writes, but not those through `.data` or numpy, so contents count: a checksum of MiniLM's 90 MB takes
    50 ms, 3% of a run on the simulated core.
    """
    return tuple((t.shape, t.dtype, checksum(t)) for t in tensors)


class ModuleParams:
    """The parameters and buffers of a module that a graph refers to by `keys`, as they are when they are asked for."""

    def __init__(self, model: nn.Module, keys: Sequence[str]):
        self.model, self.keys = model, tuple(keys)

    @classmethod
    def of(cls, model: nn.Module, keys: Sequence[str]) -> ModuleParams | None:
        """None if the module holds no tensor under one of the keys."""
        made = cls(model, keys)
        return made if made._named().keys() >= set(keys) else None

    def version(self) -> object:
        """See `version`. Raises E0603 if a tensor is gone."""
        return version(self._tensors().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors as arrays that share their memory. Raises E0603 if one is gone or has no values."""
        return {key: to_numpy(tensor) for key, tensor in self._tensors().items()}

    def _tensors(self) -> dict[str, torch.Tensor]:
        named = self._named()
        for key in self.keys:
            if key not in named:
                raise error("E0603", f"the model has no parameter or buffer {key} any more",
                            fix="compile the model again")
        return {key: named[key] for key in self.keys}

    def _named(self) -> dict[str, torch.Tensor]:
        return {**dict(self.model.named_parameters(remove_duplicate=False)),
                **dict(self.model.named_buffers(remove_duplicate=False))}


def _input_leaf(slot: InputSlot) -> dict[str, Any]:
    if slot.index is None:
        return constant_leaf(slot.value, slot.path)
    assert slot.dtype is not None
    return tensor_leaf(slot.index, slot.path, slot.shape, slot.dtype.name)


def _output_leaf(slot: OutputSlot, number: int, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    if slot.index is None:
        return constant_leaf(slot.value, f"result {number}")
    assert slot.dtype is not None
    return tensor_leaf(slot.index, f"result {number}", shapes[slot.index], slot.dtype.name)


def _tree(spec: pytree.TreeSpec, leaves: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The description of a structure, with `leaves` in its places."""
    if spec.is_leaf():
        return next(leaves)
    kind: Any = spec.type
    parts = [_tree(child, leaves) for child in spec.children()]
    if kind in (tuple, list):
        return {kind.__name__: parts}
    keys = _keys(kind, spec.context)
    if keys is None:
        raise error("E0704", f"inputs or outputs contain a {kind.__module__}.{kind.__qualname__}")
    for key in keys:
        constant_leaf(key, "a key of a dictionary")
    pairs = [[key, part] for key, part in zip(keys, parts, strict=True)]
    return {"dict": pairs} if kind is dict else {"record": f"{kind.__module__}.{kind.__qualname__}", "dict": pairs}


def _keys(kind: Any, context: Any) -> list[Any] | None:
    """The names of the parts of a container with named parts."""
    if isinstance(kind, type) and issubclass(kind, Mapping) and isinstance(context, list | tuple):
        return list(context)
    if isinstance(context, type) and hasattr(context, "_fields"):
        return list(context._fields)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(kind) and isinstance(context, list | tuple) and len(context) == 2:
        return list(context[0])
    return None


def _specs_text(signature: Signature) -> list[str] | None:
    try:
        texts = [pytree.treespec_dumps(spec) for spec in (signature.in_spec, signature.out_spec)]
        same = [pytree.treespec_loads(text) for text in texts] == [signature.in_spec, signature.out_spec]
    except (NotImplementedError, TypeError, ValueError, AttributeError):  # what torch raises for types without a text
        return None
    return texts if same else None
