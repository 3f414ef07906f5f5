"""How a program is called: from nested arguments to a flat list of arrays, and back to what the model returns.

A front end gives its own `Calling` (tensors in, tensors out). `ArrayCalling` is the one every program has: it is made
from a description that an artifact keeps, needs no framework, and takes and gives numpy arrays in tuples, lists and
dictionaries. Classes of a framework (a dataclass of outputs, say) come back as dictionaries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ranvier import dtypes
from ranvier.errors import error
from ranvier.graph.core import Graph
from ranvier.nki import arrays as frameworks


class Calling(Protocol):
    """The calling convention of a compiled model."""

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[np.ndarray]:
        """The arrays among the arguments, in the order of the graph's inputs. Raises E0603 for what does not fit."""
        ...

    def unflatten(self, outputs: Sequence[np.ndarray]) -> Any:
        """What the model returns, from the graph's outputs in order."""
        ...

    def describe(self) -> dict[str, Any]:
        """The description that `ArrayCalling` takes: JSON, see there. Raises E0704 for what has no description."""
        ...


def tensor_leaf(index: int, path: str, shape: Sequence[int], dtype: str) -> dict[str, Any]:
    """The description of an array: graph input or output number `index`."""
    return {"tensor": index, "path": path, "shape": list(shape), "dtype": dtype}


def constant_leaf(value: Any, path: str) -> dict[str, Any]:
    """The description of an argument or result that is a fixed value, not an array. Raises E0704 unless it is plain."""
    if value is not None and not isinstance(value, bool | int | float | str):
        raise error("E0704", f"{path} is {value!r}, a {type(value).__name__}")
    return {"constant": value, "path": path}


def describe_tree(value: Any, leaf: Callable[[Any], dict[str, Any] | None]) -> dict[str, Any]:
    """The description of nested containers. `leaf` describes a leaf, and gives None for a container.

    Raises E0704 for a container that is none of tuple, list, dictionary and dataclass.
    """
    found = leaf(value)
    if found is not None:
        return found
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _record(value, zip(value._fields, value, strict=True), leaf)  # type: ignore[attr-defined]
    if isinstance(value, tuple | list):
        return {type(value).__name__: [describe_tree(item, leaf) for item in value]}
    if isinstance(value, Mapping) and type(value) is not dict:
        return _record(value, value.items(), leaf)
    if isinstance(value, dict):
        return {"dict": _items(value.items(), leaf)}
    if dataclasses.is_dataclass(value):
        return _record(value, ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value)), leaf)
    raise error("E0704", f"a {type(value).__name__} is neither a tensor nor a tuple, list, dictionary or dataclass")


def _record(value: Any, items: Any, leaf: Callable[[Any], dict[str, Any] | None]) -> dict[str, Any]:
    return {"record": f"{type(value).__module__}.{type(value).__qualname__}", "dict": _items(items, leaf)}


def _items(items: Any, leaf: Callable[[Any], dict[str, Any] | None]) -> list:
    pairs = [[key, describe_tree(item, leaf)] for key, item in items]
    for key, _ in pairs:
        constant_leaf(key, f"the key {key!r}")
    return pairs


def describe_graph(graph: Graph) -> dict[str, Any]:
    """The description of a bare graph: inputs by position or name, one result or a tuple of them."""
    arguments = [
        tensor_leaf(i, value.name or f"input{i}", kind.shape, kind.dtype.name)
        for i, (value, kind) in enumerate(zip(graph.inputs, graph.input_types, strict=True))
    ]
    results = [tensor_leaf(i, f"result[{i}]", t.shape, t.dtype.name) for i, t in enumerate(graph.output_types)]
    return {
        "names": [leaf["path"] for leaf in arguments], "args": arguments, "kwargs": [],
        "result": results[0] if len(results) == 1 else {"tuple": results},
    }


class ArrayCalling:
    """Calls with numpy arrays, by description.

    `description` has `names` (parameters of the model's forward, in order), `args` (trees of the positional arguments),
    `kwargs` (pairs of name and tree) and `result` (a tree). A tree is {"tensor": n, "path", "shape", "dtype"},
    {"constant": value, "path"}, {"tuple": trees}, {"list": trees} or {"dict": pairs}, the last with "record" for other
    classes with named parts.
    """

    def __init__(self, description: Mapping[str, Any]):
        self.description = dict(description)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[np.ndarray]:
        """The arrays among the arguments, given by position or by name. Raises E0603 for what does not fit."""
        arrays: dict[int, np.ndarray] = {}
        for name, tree, value in self._arranged(args, kwargs):
            _collect(tree, value, name, arrays)
        return [arrays[i] for i in range(len(arrays))]

    def _arranged(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], Any]]:
        names, positional = self.description["names"], self.description["args"]
        named = [names[i] if i < len(names) else f"args[{i}]" for i in range(len(positional))]
        trees = {**dict(zip(named, positional, strict=True)), **dict(self.description["kwargs"])}
        order = [n for n in names if n in trees] or list(trees)
        order += [n for n in trees if n not in order]
        given = dict(zip(order, args, strict=False))
        if len(args) > len(order) or given.keys() & kwargs.keys() or {*given, *kwargs} != set(trees):
            shown = [*(order[: len(args)] if len(args) <= len(order) else [f"{len(args)} by position"]), *kwargs]
            raise error("E0603", f"the inputs are {', '.join(shown) or 'none'}; the program was compiled for "
                        f"{', '.join(trees)}")
        given.update(kwargs)
        return [(name, tree, given[name]) for name, tree in trees.items()]

    def unflatten(self, outputs: Sequence[np.ndarray]) -> Any:
        """The outputs in the structure of the result; classes of a framework become dictionaries."""
        return _build(self.description["result"], outputs)

    def describe(self) -> dict[str, Any]:
        """The description this was made from."""
        return self.description

    def inputs(self) -> list[dict[str, Any]]:
        """The description of each array that is an input, in order."""
        trees = [*self.description["args"], *(tree for _, tree in self.description["kwargs"])]
        return _tensors(trees)

    def outputs(self) -> list[dict[str, Any]]:
        """The description of each array that is an output, in order; one that is returned twice stands once."""
        return _tensors([self.description["result"]])


def _tensors(trees: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    pending = list(trees)
    while pending:
        tree = pending.pop(0)
        if "tensor" in tree:
            found.setdefault(tree["tensor"], tree)
        pending += [*tree.get("tuple", ()), *tree.get("list", ()), *(part for _, part in tree.get("dict", ()))]
    return [found[i] for i in sorted(found)]


def _collect(tree: Mapping[str, Any], value: Any, path: str, arrays: dict[int, np.ndarray]) -> None:
    if "tensor" in tree:
        arrays[tree["tensor"]] = checked_array(value, path, tuple(tree["shape"]), tree["dtype"])
    elif "constant" in tree:
        if type(value) is not type(tree["constant"]) or value != tree["constant"]:
            raise error("E0603", f"{path} is {value!r}; the program was compiled for {tree['constant']!r}",
                        fix=f"compile again for this value of {path}, or make it a tensor")
    elif "dict" in tree:
        keys = [key for key, _ in tree["dict"]]
        if not isinstance(value, Mapping) or set(value) != set(keys):
            raise error("E0603", f"{path} is {_shape_of(value)}; the program was compiled for a dictionary of "
                        f"{', '.join(map(str, keys))}")
        for key, part in tree["dict"]:
            _collect(part, value[key], f"{path}[{key!r}]", arrays)
    else:
        kind = "tuple" if "tuple" in tree else "list"
        parts = tree[kind]
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            raise error("E0603", f"{path} is {_shape_of(value)}; the program was compiled for a {kind} of {len(parts)}")
        for i, (part, item) in enumerate(zip(parts, value, strict=True)):
            _collect(part, item, f"{path}[{i}]", arrays)


def checked_array(value: Any, path: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """`value`, an array or what numpy takes for one, if it has this shape and dtype. Raises E0603."""
    array = as_array(value, path)
    if array.shape != shape:
        raise error("E0603", f"{path} has shape {array.shape}; the program was compiled for {shape}")
    if array.dtype != dtypes.DTYPES[dtype].np:
        raise error("E0603", f"{path} is {array.dtype}; the program was compiled for {dtype}",
                    fix=f"convert {path} to {dtype}")
    return array


def as_array(value: Any, path: str) -> np.ndarray:
    """`value` as an array: one of numpy or a loaded framework, or what numpy takes for one. Raises E0603."""
    try:
        array = np.asarray(value) if frameworks.framework(value) is None else frameworks.to_numpy(value)
    except (TypeError, ValueError) as cause:
        raise error("E0603", f"{path} is a {type(value).__name__}, and no array: {cause}") from cause
    if array.dtype.kind in "OUSMm":
        raise error("E0603", f"{path} is a {type(value).__name__}; the program was compiled for an array of numbers")
    return array


def _shape_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dictionary of {', '.join(map(str, value))}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")


def _build(tree: Mapping[str, Any], outputs: Sequence[np.ndarray]) -> Any:
    if "tensor" in tree:
        return outputs[tree["tensor"]]
    if "constant" in tree:
        return tree["constant"]
    if "dict" in tree:
        return {key: _build(part, outputs) for key, part in tree["dict"]}
    if "tuple" in tree:
        return tuple(_build(part, outputs) for part in tree["tuple"])
    return [_build(part, outputs) for part in tree["list"]]
