"""Running and recording kernels: `nki.jit`, `nki.simulate`.

There is no device, so calling a kernel runs it eagerly on a simulated core, one instruction after the other.
`record` gives the same kernel to the compiler.
"""

from __future__ import annotations

import enum
import functools
import inspect
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from ranvier import config
from ranvier import dtypes as dt
from ranvier import target as targets
from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.ir.kernel import Kernel
from ranvier.isa.access import Buffer
from ranvier.nki import arrays
from ranvier.nki.builder import EagerBuilder, RecordingBuilder, check_result
from ranvier.nki.calls import bad_call
from ranvier.nki.context import maybe_current
from ranvier.nki.tensor import NkiTensor, fail, shown
from ranvier.target.spec import Target


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of an argument, in place of an array, for `record`. Both are what `nl.ndarray` takes."""

    shape: Sequence[int]
    dtype: object


class JitKernel:
    """A kernel: a Python function on tensors. Made by `nki.jit`.

    Called with arrays (numpy, torch or jax) it runs on the simulator and returns arrays of the same kind; called inside
    another kernel it is a plain function.
    """

    def __init__(self, fn: Callable[..., Any], target: str | Target | None = None):
        if not callable(fn) or isinstance(fn, type | np.ufunc):
            raise fail("E0103", f"a kernel is a Python function, not {shown(fn)}")
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self.target = target
        self.signature = inspect.signature(fn)

    def __repr__(self) -> str:
        return f"<kernel {self.name}{self.signature}>"

    def __get__(self, instance: object, owner: type | None = None) -> JitKernel:
        """In a class, a method: the kernel with its first argument bound to `instance`."""
        return self if instance is None else JitKernel(self.fn.__get__(instance, owner), self.target)

    def __getitem__(self, grid: object) -> JitKernel:
        """The kernel on a logical core of `grid` cores; only one core is available."""
        if grid in (1, (1,)):
            return self
        raise fail(
            "E0104",
            f"{self.name}[{grid}]: programs on several cores of a logical core",
            fix=f"call {self.name}[1](...)",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if maybe_current() is not None:
            return self.fn(*args, **kwargs)
        return simulate(self)(*args, **kwargs)

    def bound(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in. Raises E0103 at the caller's line."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as misfit:
            raise bad_call(self.name, self.signature, str(misfit)) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def invoke(self, arguments: dict[str, Any]) -> Any:
        """The function's result for arguments by name."""
        call = inspect.BoundArguments(self.signature, arguments)  # type: ignore[arg-type]
        return self.fn(*call.args, **call.kwargs)

    def record(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> Kernel:
        """The kernel as instructions, for arguments of these shapes and dtypes (arrays, `TensorSpec`s, constants).

        `target` is a name or a `Target`; None is the one given to `nki.jit`, else the setting. Raises what the kernel
        breaks, E0102 for arguments and results that kernels cannot have.
        """
        builder = RecordingBuilder(self.target_for(target), self.name)

        def add(name: str, value: Any) -> NkiTensor:
            return builder.input(name, value.shape or (1,), _dtype(name, value))

        with builder:
            arguments = {name: _lift(name, value, add) for name, value in self.bound(args, kwargs).items()}
            results = _leaves(self.invoke(arguments))
            if not results:
                raise fail("E0102", f"the kernel {self.name} returns no tensor, so nothing it computes is of use",
                           fix="return the shared_hbm tensors that hold the results")
            for result in results:
                builder.mark_output(result)
        kernel = builder.finish()
        written = {ap.buffer.name for inst in kernel.body for ap in inst.writes()}
        for name in kernel.outputs:
            if name not in written:
                raise _unwritten(kernel.by_name[name])
        return kernel

    def input_arrays(self, *args: Any, **kwargs: Any) -> list[np.ndarray]:
        """The arrays among the arguments, in the order of the recorded kernel's inputs. Raises E0102, E0103."""
        found: list[np.ndarray] = []

        def add(name: str, value: Any) -> Any:
            found.append(_array(name, value))

        for name, value in self.bound(args, kwargs).items():
            _lift(name, value, add)
        return found

    def target_for(self, asked: str | Target | None = None) -> Target:
        """The target asked for, else the one given to `nki.jit`, else the setting's. Raises E0801."""
        chosen = asked if asked is not None else self.target
        return targets.get(config.get("target") if chosen is None else chosen)


def jit(fn: Callable[..., Any] | None = None, *, target: str | Target | None = None, **options: Any) -> Any:
    """Make a Python function a kernel: `@nki.jit` or `@nki.jit(target="trn1")`. Raises E0103 for unknown options."""
    if options:
        raise fail("E0103", f"nki.jit has no option {', '.join(options)}; it takes target")
    if fn is None:
        return functools.partial(jit, target=target)
    return JitKernel(fn, target)


def simulate(kernel: Callable[..., Any], *, target: str | Target | None = None) -> Callable[..., Any]:
    """A function that runs `kernel` on a simulated core: arrays in, arrays of the same kind out.

    Each instruction is checked and executed in program order; memory that nobody wrote may not be read. Inputs stay
    unchanged. Raises what the kernel breaks, at its own line; E0102 for arguments and results that kernels cannot have.
    """
    made = kernel if isinstance(kernel, JitKernel) else JitKernel(kernel)

    @functools.wraps(made.fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        for setting in ("precise_fp", "simulator"):
            if not config.get(setting):
                raise fail("E0104", f"{config.SETTINGS[setting].environment}=0", fix="leave it unset or set it to 1")
        builder = EagerBuilder(made.target_for(target))
        kinds: list[str] = []

        def add(name: str, value: Any) -> NkiTensor:
            array = _array(name, value)
            kinds.append(arrays.framework(value) or "numpy")
            return builder.input(name, array)

        with builder:
            arguments = {name: _lift(name, value, add) for name, value in made.bound(args, kwargs).items()}
            result = made.invoke(arguments)
            back = kinds[0] if kinds else "numpy"
            return _lower(result, lambda tensor: arrays.from_numpy(_values(builder, tensor), back))

    return run


def _values(builder: EagerBuilder, tensor: object) -> np.ndarray:
    buffer = check_result(tensor)
    values = builder.memory.get(buffer)
    if not builder.memory.storage(buffer).shadow.written(buffer.all):
        raise _unwritten(buffer)
    return values


def _unwritten(buffer: Buffer) -> RanvierError:
    return error(
        "E0401", f"the kernel returns {buffer.name}, but has not written all of it", where=buffer.loc,
        fix="store to every element of the result",
    )  # fmt: skip


def _array(name: str, value: Any) -> np.ndarray:
    """The values of an argument. Raises E0102 if it has none, or a dtype that kernels do not take."""
    if arrays.framework(value) is None:
        raise fail("E0102", f"{name} is {value!r}, which has no values", argument=name)
    _dtype(name, value)
    return arrays.to_numpy(value)


def _dtype(name: str, value: Any) -> DType:
    try:
        made = dt.dtype(value.dtype) if isinstance(value, TensorSpec) else arrays.dtype_of(value)
    except RanvierError:
        raise fail("E0102", f"{name} has dtype {value.dtype}, which kernels do not take", argument=name) from None
    if not made.on_device:
        narrow = "int32" if made.is_integer else "float32"
        raise fail("E0102", f"{name} is {made}, which the core lacks", argument=name, fix=f"convert it to {narrow}")
    return made


_CONSTANTS = (numbers.Number, str, bytes, type(None), np.generic, DType, enum.Enum, NkiTensor, slice, range)


def _lift(name: str, value: Any, add: Callable[[str, Any], NkiTensor]) -> Any:
    """An argument as the kernel sees it: arrays become tensors, constants stay. Raises E0102 for anything else."""
    if arrays.framework(value) is not None or isinstance(value, TensorSpec):
        return add(name, value)
    if isinstance(value, (tuple, list)):
        return _like(value, [_lift(f"{name}_{i}", item, add) for i, item in enumerate(value)])
    if isinstance(value, dict):
        return {key: _lift(f"{name}_{key}", item, add) for key, item in value.items()}
    if isinstance(value, _CONSTANTS) or callable(value) or is_dataclass(value):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return add(name, value)
    raise fail("E0102", f"{name} is a {type(value).__name__}", argument=name)


def _like(container: Any, items: list[Any]) -> Any:
    """`items` in a container of the type of `container`, which may be a named tuple."""
    return type(container)(*items) if hasattr(container, "_fields") else type(container)(items)


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [leaf for value in result.values() for leaf in _leaves(value)]
    if isinstance(result, (tuple, list)):
        return [leaf for value in result for leaf in _leaves(value)]
    return [] if result is None else [result]


def _lower(result: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(result, dict):
        return {key: _lower(value, convert) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return _like(result, [_lower(value, convert) for value in result])
    return None if result is None else convert(result)
