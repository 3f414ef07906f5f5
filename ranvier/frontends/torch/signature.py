"""How a model is called: nested inputs to a flat list of tensors, flat outputs back to what the model returns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.frontends.torch.tensors import from_torch_dtype


@dataclass(frozen=True, slots=True)
class InputSlot:
    """One leaf of the inputs. `path` is how the user writes it ("input_ids", "x[0]").

    A tensor has `index`, its place among the graph's inputs, with `shape` and `dtype`; anything else is a constant of
    the compiled program and has `index` None and `value`.
    """

    path: str
    index: int | None
    shape: tuple[int, ...] = ()
    dtype: DType | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """One leaf of the outputs: the graph output `index` of `dtype`, or (index None) the constant `value`."""

    index: int | None
    dtype: DType | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The calling convention of an imported model.

    `names` are the parameters of its forward, in order; `in_spec` the tree of (args, kwargs) as it was traced,
    `out_spec` that of its result.
    """

    names: tuple[str, ...]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[torch.Tensor]:
        """The tensors among the arguments, in the order of the graph's inputs.

        Arguments may be given by position or by name, whichever way the model was traced. Raises E0603 when the
        arguments differ from the traced ones in structure, shape, dtype or the value of a constant.
        """
        leaves, spec = pytree.tree_flatten(self._arranged(args, dict(kwargs or {})))
        if spec != self.in_spec:
            raise error("E0603", f"the inputs have the structure {_shown(spec)}, the program was compiled for "
                        f"{_shown(self.in_spec)}")
        tensors: dict[int, torch.Tensor] = {}
        for slot, leaf in zip(self.inputs, leaves, strict=True):
            if slot.index is None:
                if type(leaf) is not type(slot.value) or leaf != slot.value:
                    raise error("E0603", f"{slot.path} is {leaf!r}, the program was compiled for {slot.value!r}",
                                fix=f"compile again for this value of {slot.path}, or pass it as a tensor")
                continue
            tensors[slot.index] = _checked(slot, leaf)
        return [tensors[i] for i in range(len(tensors))]

    def _arranged(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments split into positional and named ones as they were when the model was traced."""
        traced_args, traced_kwargs = self.in_spec.children()
        count = len(traced_args.children())
        order = traced_kwargs.context or []
        if len(args) == count and list(kwargs) == order:
            return tuple(args), kwargs
        named = dict(zip(self.names, args, strict=False)) if len(args) <= len(self.names) else {}
        both = sorted(named.keys() & kwargs.keys())
        if both:
            raise error("E0603", f"the input {both[0]} is given both by position and by name")
        named |= kwargs
        wanted = [*self.names[:count], *order]
        if len(wanted) != count + len(order) or set(named) != set(wanted):
            raise error("E0603", f"the inputs are {_listed(named, len(args))}, the program was compiled for "
                        f"{_listed(wanted, count + len(order))}")
        return tuple(named[n] for n in wanted[:count]), {n: named[n] for n in wanted[count:]}

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """What the model returns, from the values of the graph's outputs in order."""
        leaves = [slot.value if slot.index is None else outputs[slot.index] for slot in self.outputs]
        return pytree.tree_unflatten(leaves, self.out_spec)


def _checked(slot: InputSlot, leaf: Any) -> torch.Tensor:
    if not isinstance(leaf, torch.Tensor):
        raise error("E0603", f"{slot.path} is {type(leaf).__name__}, the program was compiled for a tensor")
    if tuple(leaf.shape) != slot.shape:
        raise error("E0603", f"{slot.path} has shape {tuple(leaf.shape)}, the program was compiled for {slot.shape}")
    dtype = from_torch_dtype(leaf.dtype)
    if dtype is not slot.dtype:
        raise error("E0603", f"{slot.path} is {dtype}, the program was compiled for {slot.dtype}",
                    fix=f"convert it with {slot.path}.to(torch.{slot.dtype})")
    return leaf


def _listed(names: Any, count: int) -> str:
    return ", ".join(names) or f"{count} positional"


def _shown(spec: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten(["*"] * spec.num_leaves, spec)
    return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of `model.forward` that can be given by position or by name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(n for n, p in inspect.signature(model.forward).parameters.items() if p.kind in kinds)


def input_paths(names: Sequence[str], spec: pytree.TreeSpec) -> list[str]:
    """For each leaf of the inputs how the user writes it: "input_ids", "states[0]", "batch['mask']"."""
    args, kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    named = {names[i] if i < len(names) else f"args[{i}]": value for i, value in enumerate(args)} | kwargs
    paths: dict[int, str] = {}
    for name, value in named.items():
        for keys, leaf in pytree.tree_flatten_with_path(value)[0]:
            paths[leaf] = name + pytree.keystr(keys)
    return [paths[i] for i in range(spec.num_leaves)]
