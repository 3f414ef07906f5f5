"""Parameter arrays of a program, made from the state of the model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.ir.kernel import ParamSource


def param_array(source: ParamSource, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array that `source` describes; it shares memory with the state when no step copies.

    Raises E0603 for a missing key.
    """
    if source.key not in state:
        message = f"the state has no entry {source.key!r}; it has {len(state)} entries"
        raise error("E0603", message, fix="give the whole state")
    array = np.asarray(state[source.key])
    if source.rows is not None:
        array = array[source.rows[0] : source.rows[1]]
    if source.reshape is not None:
        array = array.reshape(source.reshape)
    if source.permute is not None:
        array = array.transpose(source.permute)
    if source.dtype is not None:
        array = dt.cast(array, source.dtype)
    return array


def param_arrays(
    params: tuple[tuple[str, ParamSource], ...], state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Arrays by buffer name for all of a program's or kernel's `params`."""
    return {name: param_array(source, state) for name, source in params}
