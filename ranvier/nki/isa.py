"""The public instructions, `nki.isa`: one function per instruction record, generated from it.

Each function takes tensors and attributes under the names, in the order and with the defaults of NKI, adds the
instruction to the kernel that is being run or recorded, and returns a handle on it. What an operand may be, what an
instruction computes and costs, and which rules it has, says its record in `ranvier.isa`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ranvier.errors import NkiValidationError, RanvierError
from ranvier.isa import REGISTRY
from ranvier.isa.access import AccessPattern
from ranvier.isa.act import ActFn, act
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.enums import DgeMode, DmaEngine, MatmulPerfMode, NcVersion, OobMode, ReduceCmd, member
from ranvier.isa.record import REQUIRED, Instruction, OperandSpec
from ranvier.loc import capture
from ranvier.nki.builder import NkiInstruction
from ranvier.nki.calls import bad_call, point_at
from ranvier.nki.context import current, current_target
from ranvier.nki.tensor import NUMBERS, NkiTensor, fail, shown
from ranvier.target.spec import Engine

_ONE_CORE = "kernels run on one core"
_NUMBERS_INSTEAD = "use Python numbers, which are known while the kernel is made"
_NOT_AVAILABLE = MappingProxyType({
    "activate2": "use activation, or tensor_scalar followed by activation",
    "core_barrier": _ONE_CORE,
    "dma_compute": "load the operands and add them with tensor_tensor",
    "get_nc_sub_version": "use get_nc_version",
    "nc_matmul_mx": "use nc_matmul on bfloat16 or float8 tiles",
    "quantize_mx": "scale and cast with tensor_scalar",
    "rand_get_state": "use set_rng_seed",
    "rand_set_state": "use set_rng_seed",
    "register_alloc": _NUMBERS_INSTEAD,
    "register_load": "use vector_select to index by values in memory",
    "register_move": _NUMBERS_INSTEAD,
    "register_store": _NUMBERS_INSTEAD,
    "sendrecv": _ONE_CORE,
    "topk": "use max8 and nc_match_replace8",
    "VirtualRegister": _NUMBERS_INSTEAD,
})  # fmt: skip
NOT_AVAILABLE = MappingProxyType({name: fix for name, fix in _NOT_AVAILABLE.items() if name not in REGISTRY})
"""Names of NKI that no record defines, and what to use instead."""


class engine(enum.Enum):
    """Engines, as instructions take them."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


reduce_cmd, dge_mode, oob_mode, matmul_perf_mode, nc_version, dma_engine = (
    ReduceCmd, DgeMode, OobMode, MatmulPerfMode, NcVersion, DmaEngine,
)  # fmt: skip


def get_nc_version() -> NcVersion:
    """The generation of the current kernel's target; outside a kernel, of the target that the settings choose."""
    return NcVersion[current_target().generation]


# Arguments of a call as the record takes them -------------------------------------------------------------------------


def _operand(spec: OperandSpec) -> Callable[[Any], Any]:
    takes = (
        "a tensor"
        + (" or a number" if spec.scalar else "")
        + (" or None" if spec.optional or spec.default is None else "")
    )

    def convert(value: Any) -> Any:
        if type(value) is NkiTensor:
            return value.access
        if isinstance(value, AccessPattern) or (value is None and (spec.optional or spec.default is None)):
            return value
        if spec.scalar and isinstance(value, NUMBERS):
            return value.item() if isinstance(value, np.generic) else value
        raise fail("E0103", f"{spec.name} is {_show(value)}; it takes {takes}")

    return convert


def _attribute(spec: OperandSpec) -> Callable[[Any], Any] | None:
    """What turns an argument into the value of an attribute; None when it is taken as it is."""
    kind = spec.type
    if kind is AluOp:
        make: Callable[[Any], Any] = alu
    elif kind is ActFn:
        make = act
    elif kind is Engine:
        make = _engine
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        make = partial(member, kind)
    elif kind is bool:
        make = _flag
    elif kind is tuple:
        make = _tuples
    else:
        return None
    return (lambda value: None if value is None else make(value)) if spec.default is None else make


def _engine(value: Any) -> Engine:
    if isinstance(value, Engine):
        return value
    if isinstance(value, engine):
        return Engine(value.value)
    raise fail("E0103", f"engine is {value!r}; it is a member of nki.isa.engine")


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise fail("E0103", f"{_show(value)} is not True or False")


def _tuples(value: Any) -> Any:
    """Lists as tuples and tensors as access patterns, all the way down: instructions do not change once made."""
    if type(value) is NkiTensor:
        return value.access
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _show(value: Any) -> str:
    hint = " (kernels see arrays as their arguments, or through nl.shared_constant)"
    return shown(value) + hint * isinstance(value, np.ndarray)


# Functions from records -----------------------------------------------------------------------------------------------


def _parameter(spec: OperandSpec) -> inspect.Parameter:
    default = None if spec.default is REQUIRED and spec.optional else spec.default
    if default is REQUIRED or spec.explicit:
        default = inspect.Parameter.empty
    if isinstance(default, Engine):
        default = engine(default.value)
    return inspect.Parameter(spec.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def signature_of(record: type[Instruction]) -> inspect.Signature:
    """The public signature of the function for `record`: its fields in order, then `name`."""
    shown = [_parameter(spec) for spec in record.SPECS if spec.role != "state"]
    shown.append(inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
    return inspect.Signature(shown)


def _function(record: type[Instruction]) -> Callable[..., NkiInstruction]:
    signature = signature_of(record)
    names = list(signature.parameters)
    required = frozenset(n for n, p in signature.parameters.items() if p.default is inspect.Parameter.empty)
    converters: dict[str, Callable[[Any], Any] | None] = {"name": None}
    for spec in record.SPECS:
        if spec.role != "state":
            converters[spec.name] = _attribute(spec) if spec.role == "attr" else _operand(spec)
    public_name = f"nki.isa.{record.MNEMONIC}"

    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        builder = current()
        if args:
            if len(args) > len(names):
                raise bad_call(public_name, signature, f"takes {len(names)} arguments, not {len(args)}")
            for name, value in zip(names, args, strict=False):
                if name in kwargs:
                    raise bad_call(public_name, signature, f"got {name} twice", name)
                kwargs[name] = value
        if not kwargs.keys() <= converters.keys():
            unknown = next(name for name in kwargs if name not in converters)
            raise bad_call(public_name, signature, f"has no argument {unknown}", unknown)
        if not required <= kwargs.keys():
            missing = [name for name in names if name in required and name not in kwargs]
            raise bad_call(public_name, signature, f"needs {', '.join(missing)}")
        where, key = capture(), None
        try:
            for key in kwargs:
                convert = converters[key]
                if convert is not None:
                    kwargs[key] = convert(kwargs[key])
            key = None
            return builder.emit(record(loc=where, **kwargs))
        except RanvierError as failure:
            failure.where = failure.where or where
            failure.argument = failure.argument or key
            point_at(failure, names, len(args))
            raise

    call.__name__ = call.__qualname__ = record.MNEMONIC
    call.__module__ = __name__
    call.__doc__ = record.__doc__
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


globals().update({record.MNEMONIC: _function(record) for record in REGISTRY.values()})

__all__ = [
    *REGISTRY, "NkiInstruction", "NkiValidationError", "dge_mode", "dma_engine", "engine", "get_nc_version",
    "matmul_perf_mode", "nc_version", "oob_mode", "reduce_cmd",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in NOT_AVAILABLE:
        raise fail("E0104", f"nki.isa.{name}", fix=NOT_AVAILABLE[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
