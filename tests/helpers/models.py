"""Graphs under construction with random data for their inputs and parameters."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.graph import GraphBuilder, TensorType, Value


class Model:
    """A graph under construction with random inputs and parameters."""

    def __init__(self, dtype: dt.DType = dt.float32):
        self.b = GraphBuilder("model")
        self.dtype = dtype
        self.random = np.random.default_rng(0)
        self.inputs: list[np.ndarray] = []
        self.params: dict[str, np.ndarray] = {}

    def input(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Value:
        self.inputs.append(self.random.uniform(low, high, shape).astype(self.dtype.np))
        return self.b.input(TensorType(shape, self.dtype), f"x{len(self.inputs)}")

    def indices(self, *shape: int, below: int) -> Value:
        self.inputs.append(self.random.integers(0, below, shape).astype(np.int32))
        return self.b.input(TensorType(shape, dt.int32), f"i{len(self.inputs)}")

    def flags(self, *shape: int) -> Value:
        keep = self.random.random(shape) > 0.3
        keep[..., 0] = True  # a row without any key has no defined attention
        self.inputs.append(keep)
        return self.b.input(TensorType(shape, dt.bool_), f"m{len(self.inputs)}")

    def param(self, *shape: int, scale: float = 0.1, low: float | None = None) -> Value:
        key = f"p{len(self.params)}"
        array = self.random.standard_normal(shape) * scale if low is None else self.random.uniform(low, low + 1, shape)
        self.params[key] = array.astype(self.dtype.np)
        return self.b.param(key, TensorType(shape, self.dtype))
