"""Activation functions of the scalar engine as a table: one row is all there is to a function.

Valid input ranges and table names: NKI documentation (nki.api.shared, activation functions) and the metadata of
compiled programs; membership of functions in table sets is not published and is an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ranvier.errors import error


@dataclass(frozen=True, slots=True, eq=False)
class ActFn:
    """One activation function: `fn` on float32 arrays, `domain` of valid inputs (outside: invalid output), `table` set.

    Functions with `table` None need no table load (they are part of every set). A `parametric` function takes a second
    argument, one number or one per partition.
    """

    name: str
    fn: Callable[..., np.ndarray]
    table: str | None
    domain: tuple[float, float] = (-math.inf, math.inf)
    parametric: bool = False

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return (act, (self.name,))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    from scipy import special  # here, since importing it takes as long as all of this package

    return special.erf(x)


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the standard normal distribution function at x."""
    return 0.5 * x * (1.0 + erf(x * np.float32(math.sqrt(0.5))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh approximation of gelu."""
    return 0.5 * x * (1.0 + np.tanh(np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x**3)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.expit(x)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, np.float32(0))


def _normal_density(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) * np.float32(1.0 / math.sqrt(2.0 * math.pi))


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + erf(x * np.float32(math.sqrt(0.5)))) + x * _normal_density(x)


def _silu_dx(x: np.ndarray) -> np.ndarray:
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _gelu_sigmoid(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(np.float32(1.702) * x)


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    s = sigmoid(np.float32(1.702) * x)
    return s * (1.0 + np.float32(1.702) * x * (1.0 - s))


_EXP, _GELU, _RSQRT, _RECIPROCAL, _TRIG = "exp_log", "gelu", "sqrt_rsqrt", "reciprocal", "trigonometric"

ACT: dict[str, ActFn] = {
    fn.name: fn
    for fn in (
        ActFn("copy", lambda x: x, None),
        ActFn("square", np.square, None),
        ActFn("relu", lambda x: np.maximum(x, 0), None),
        ActFn("prelu", lambda x, slope: np.where(x > 0, x, x * slope), None, parametric=True),
        ActFn("abs", np.abs, None),
        ActFn("sign", np.sign, None),
        ActFn("exp", np.exp, _EXP),
        ActFn("log", np.log, _EXP, (2.0**-64, 2.0**64)),
        ActFn("softplus", softplus, _EXP),
        ActFn("mish", lambda x: x * np.tanh(softplus(x)), _EXP),
        ActFn("tanh", np.tanh, _GELU),
        ActFn("sigmoid", sigmoid, _GELU),
        ActFn("gelu", gelu, _GELU),
        ActFn("gelu_dx", _gelu_dx, _GELU),
        ActFn("gelu_apprx_tanh", gelu_tanh, _GELU),
        ActFn("gelu_apprx_sigmoid", _gelu_sigmoid, _GELU),
        ActFn("gelu_apprx_sigmoid_dx", _gelu_sigmoid_dx, _GELU),
        ActFn("silu", lambda x: x * sigmoid(x), _GELU),
        ActFn("silu_dx", _silu_dx, _GELU),
        ActFn("erf", erf, _GELU),
        ActFn("erf_dx", lambda x: np.float32(2.0 / math.sqrt(math.pi)) * np.exp(-x * x), _GELU),
        ActFn("sqrt", np.sqrt, _RSQRT, (2.0**-116, 2.0**118)),
        ActFn("rsqrt", lambda x: np.reciprocal(np.sqrt(x)), _RSQRT, (2.0**-87, 2.0**97)),
        ActFn("reciprocal", np.reciprocal, _RECIPROCAL, (-(2.0**42), 2.0**42)),
        ActFn("sin", np.sin, _TRIG, (-math.pi, math.pi)),
        ActFn("arctan", np.arctan, _TRIG, (-math.pi / 2, math.pi / 2)),
    )
}


def act(what: object) -> ActFn:
    """The row for an `ActFn`, a name, a numpy ufunc such as `np.exp`, or a language function such as `nl.exp`.

    Raises E0309 when there is none.
    """
    if isinstance(what, ActFn):
        return what
    name = what if isinstance(what, str) else getattr(what, "act_name", None) or getattr(what, "__name__", None)
    if name in ACT:
        return ACT[name]
    raise error("E0309", f"{getattr(what, '__name__', repr(what))} is not an activation function; known are {', '.join(ACT)}")
