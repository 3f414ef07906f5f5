"""What crosses the boundary of the core: inputs, outputs and parameters in the types that the core has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ranvier import dtypes
from ranvier.compiler.graph.hoist_parameters import derived_key
from ranvier.errors import error
from ranvier.graph.core import Graph, TensorType
from ranvier.ir.kernel import ParamSource
from ranvier.ir.program import Program
from ranvier.sim.params import param_array


def to_device(program: Program, types: Sequence[TensorType], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`arrays`, of the `types` a caller gives, in shape and dtype of the program's input buffers.

    Booleans become uint8, 64-bit integers int32. Raises E0603 for an integer that does not fit, or a wrong type.
    """
    if not len(arrays) == len(types) == len(program.inputs):
        raise error("E0603", f"{program.name} takes {len(program.inputs)} arrays, not {len(arrays)}")
    converted = []
    for name, kind, array in zip(program.inputs, types, arrays, strict=True):
        if array.shape != kind.shape or array.dtype != kind.dtype.np:
            raise error("E0603", f"input {name} has shape {array.shape} and dtype {array.dtype}; the program was "
                        f"compiled for {kind.shape} and {kind.dtype}")
        buffer = program.by_name[name]
        converted.append(_narrowed(array, buffer.dtype, f"input {name}").reshape(buffer.shape))
    return converted


def from_device(program: Program, types: Sequence[TensorType], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The program's outputs in the `types` that a caller gets."""
    results = []
    for name, kind, array in zip(program.outputs, types, arrays, strict=True):
        if kind.dtype is dtypes.bool_:
            array = array != 0
        elif kind.dtype.is_integer and array.dtype.kind in "iu":
            array = array.astype(kind.dtype.np, copy=False)
        elif array.dtype != kind.dtype.np:
            raise error("E0901", f"after lowering: output {name} is {array.dtype}, the graph says {kind.dtype}")
        results.append(array.reshape(kind.shape))
    return results


def full_state(params: Mapping[str, np.ndarray], prologue: Graph | None, *,
               precision: str = "native") -> dict[str, np.ndarray]:
    """The model's parameters and those derived from them, by key. Evaluates `prologue`."""
    if prologue is None:
        return dict(params)
    derived = prologue.evaluate([], {p.key: _entry(params, p.key) for p in prologue.params}, precision=precision)
    return {**params, **{derived_key(i): array for i, array in enumerate(derived)}}


def check_params(graph: Graph, params: Mapping[str, np.ndarray]) -> None:
    """Raise E0603 unless `params` has an array of the compiled shape and dtype for each parameter of `graph`."""
    for p in graph.params:
        found = _entry(params, p.key)
        if found.shape != p.value.shape:
            raise error("E0603", f"the parameter {p.key} has shape {found.shape}; the program was compiled for "
                        f"{p.value.shape}", fix="compile the model again")
        if found.dtype != p.value.dtype.np:
            raise error("E0603", f"the parameter {p.key} is {found.dtype}; the program was compiled for "
                        f"{p.value.dtype}", fix=f"convert it to {p.value.dtype}, or compile the model again")


def weight_array(source: ParamSource, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array that `source` describes; like `param_array`, but integers that do not fit are an error as well.

    Raises E0603 for a missing entry of `state` and for such integers.
    """
    entry = _entry(state, source.key)
    if source.dtype is not None and entry.dtype.kind in "iu" and source.dtype.is_integer:
        _check_range(entry, source.dtype, f"parameter {source.key}")
    return param_array(source, state)


def _entry(state: Mapping[str, np.ndarray], key: str) -> np.ndarray:
    if key not in state:
        raise error("E0603", f"the parameter {key} is missing; {len(state)} others are given")
    return state[key]


def _narrowed(array: np.ndarray, to: dtypes.DType, what: str) -> np.ndarray:
    if array.dtype == to.np:
        return array
    if array.dtype == np.bool_ and to is dtypes.uint8:
        return array.view(np.uint8)
    if array.dtype.kind in "iu" and to.is_integer:
        _check_range(array, to, what)
        return array.astype(to.np)
    raise error("E0901", f"after lowering: {what} is {array.dtype}, its buffer {to}")


def _check_range(array: np.ndarray, to: dtypes.DType, what: str) -> None:
    if not array.size:
        return
    info, low, high = np.iinfo(to.np), array.min(), array.max()
    if low < info.min or high > info.max:
        raise error("E0603", f"{what} holds {low if low < info.min else high}, which does not fit in {to}; the core "
                    "has no 64-bit integers", fix=f"use values between {info.min} and {info.max}")
