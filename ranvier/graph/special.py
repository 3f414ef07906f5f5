"""Element-wise functions that numpy lacks."""

from __future__ import annotations

import numpy as np


def integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x ** y. For integers a negative exponent gives the whole part of the fraction: 1 for 1, +-1 for -1, else 0."""
    if x.dtype.kind == "f":
        return np.power(x, y)
    positive = np.power(x, np.maximum(y, y.dtype.type(0)))
    if x.dtype.kind == "u" or not np.any(y < 0):
        return positive
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)).astype(x.dtype)
    return np.where(y < 0, inverse, positive)
