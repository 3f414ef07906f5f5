"""Arrays of other frameworks as numpy arrays and back, without importing any framework.

An array of a framework can only exist once that framework is imported, so it is found among the loaded modules.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.dtypes import DType

# What numpy and torch have in common carries the bytes of what only one of them knows.
_CARRIER = {1: "uint8", 2: "int16"}


def framework(value: object) -> str | None:
    """ "numpy", "torch" or "jax" for an array of that framework, None for anything else."""
    if isinstance(value, np.ndarray):
        return "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        return "jax"
    return None


def dtype_of(value: Any) -> DType:
    """The dtype of an array of any framework, or of anything with a `dtype`. Raises E0305 for one that is not known."""
    return dt.dtype(str(value.dtype).removeprefix("torch."))


def to_numpy(value: Any) -> np.ndarray:
    """An array of any framework as a numpy array; shares memory where it can."""
    kind = framework(value)
    if kind == "numpy":
        return value
    if kind == "jax":
        return np.asarray(value)
    torch = sys.modules["torch"]
    dtype = dtype_of(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    if dtype.np.isbuiltin == 1:
        return tensor.numpy()
    return tensor.view(getattr(torch, _CARRIER[dtype.itemsize])).numpy().view(dtype.np)


def from_numpy(array: np.ndarray, kind: str) -> Any:
    """`array` as an array of the framework `kind`."""
    if kind == "numpy":
        return array
    if kind == "jax":
        return sys.modules["jax"].numpy.asarray(array)
    torch = sys.modules["torch"]
    dtype = dt.dtype(array.dtype)
    if dtype.np.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_CARRIER[dtype.itemsize])).view(getattr(torch, dtype.name))
