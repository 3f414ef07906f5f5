"""What Python and numpy would do with a tensor, and the language does not: each says which function to use instead."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from ranvier.errors import RanvierError, error
from ranvier.isa.act import ACT
from ranvier.isa.alu import ALU
from ranvier.loc import capture

# Operators with a function of the same meaning. Each is refused with the tensor on either side.
_BINARY = {
    "add": ("+", "nl.add"), "sub": ("-", "nl.subtract"), "mul": ("*", "nl.multiply"),
    "truediv": ("/", "nl.multiply by nl.reciprocal"), "floordiv": ("//", "nl.floor of nl.multiply by nl.reciprocal"),
    "mod": ("%", "nl.floor, nl.multiply and nl.subtract"), "pow": ("**", "nl.power"), "matmul": ("@", "nl.matmul"),
    "and": ("&", "nl.bitwise_and"), "or": ("|", "nl.bitwise_or"), "xor": ("^", "nl.bitwise_xor"),
    "lshift": ("<<", "nl.left_shift"), "rshift": (">>", "nl.right_shift"),
}  # fmt: skip
_COMPARED = {
    "lt": ("<", "nl.less"), "le": ("<=", "nl.less_equal"), "gt": (">", "nl.greater"), "ge": (">=", "nl.greater_equal"),
}  # fmt: skip
_UNARY = {"neg": ("-", "nl.negative"), "abs": ("abs()", "nl.abs"), "invert": ("~", "nl.invert")}
_VALUES = {"float": "float()", "int": "int()", "complex": "complex()"}


def _no(what: str, fix: str) -> RanvierError:
    return error("E0104", f"{what} on a tensor", where=capture(), fix=fix)


def _operator(sign: str, function: str) -> Callable[..., Any]:
    def refuse(self: object, *others: object) -> Any:
        raise _no(f"the operator {sign}", f"use {function}, or an instruction of nki.isa")

    return refuse


def _conversion(call: str) -> Callable[..., Any]:
    def refuse(self: object) -> Any:
        raise _no(call, "a kernel cannot depend on values; in an eager run tensor.numpy() shows them")

    return refuse


class NoOperators:
    """A base of tensors on which operators, conversions to numbers and numpy's functions are E0104 at the user's line.

    Without it `tensor == 0` would be False, whatever the tensor holds.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is not other and isinstance(other, NoOperators | numbers.Number | np.ndarray):
            raise _no("the operator ==", "use nl.equal; tensor objects are compared with `is`")
        return self is other

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Any:
        name = ufunc.__name__
        known = f"use nl.{name}" if name in ALU or name in ACT else "use a function of nki.language"
        raise _no(f"numpy's {name}", known)


for _name, (_sign, _function) in _BINARY.items():
    for _side in ("", "r", "i"):
        setattr(NoOperators, f"__{_side}{_name}__", _operator(_sign, _function))
for _name, (_sign, _function) in {**_COMPARED, **_UNARY}.items():
    setattr(NoOperators, f"__{_name}__", _operator(_sign, _function))
for _name, _call in _VALUES.items():
    setattr(NoOperators, f"__{_name}__", _conversion(_call))
