"""The kernel level: instructions on named buffers, in program order.

Static loops and branches are unrolled while a kernel is recorded, so a body is a plain sequence; its meaning is to run
the instructions one after the other. Buffers are not placed yet, engines need not be chosen yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.isa.access import AccessPattern, Buffer, BufferKind
from ranvier.isa.record import Instruction, form, verify
from ranvier.target.spec import Target


@dataclass(frozen=True, slots=True)
class ParamSource:
    """Where a parameter buffer's contents come from: entry `key` of the model's state, reshaped, permuted, cast.

    The steps are applied in the order slice along axis 0, reshape, permute, cast; None skips one. The array itself is
    never part of a kernel.
    """

    key: str
    reshape: tuple[int, ...] | None = None
    permute: tuple[int, ...] | None = None
    dtype: DType | None = None
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal array: little-endian bytes in row-major order."""

    shape: tuple[int, ...]
    dtype: DType
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, array: np.ndarray, dtype: DType) -> Constant:
        return cls(tuple(array.shape), dtype, np.ascontiguousarray(array, dtype=dtype.np).tobytes())

    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, dtype=self.dtype.np).reshape(self.shape)


@dataclass(frozen=True)
class Kernel:
    """Instructions in program order on named buffers. `inputs` and `outputs` name HBM buffers in calling order."""

    name: str
    target: str
    buffers: tuple[Buffer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[Instruction, ...]
    params: tuple[tuple[str, ParamSource], ...] = ()
    constants: tuple[tuple[str, Constant], ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}


def accesses(inst: Instruction) -> list[AccessPattern]:
    """Everything the instruction touches."""
    return inst.reads() + inst.writes()


def with_buffers(inst: Instruction, buffers: Mapping[str, Buffer]) -> Instruction:
    """`inst` with each buffer whose name is a key of `buffers`, of equal shape, replaced; indices included."""

    def moved(ap: AccessPattern) -> AccessPattern:
        index = None if ap.index is None else replace(ap.index, ap=moved(ap.index.ap))
        return replace(ap, buffer=buffers.get(ap.buffer.name, ap.buffer), index=index)

    operands = {s.name: v for s in inst.SPECS if isinstance(v := getattr(inst, s.name), AccessPattern)}
    changes = {n: new for n, ap in operands.items() if (new := moved(ap)) != ap}
    return replace(inst, **changes) if changes else inst


def verify_kernel(kernel: Kernel, target: Target, *, stage: str = "kernel") -> None:
    """The rules of the kernel level. Raises E0901 naming `stage`, or the instruction's own error."""
    if len(kernel.by_name) != len(kernel.buffers):
        raise error("E0901", f"after {stage}: two buffers share a name")
    roles = (("input", kernel.inputs, BufferKind.INPUT), ("output", kernel.outputs, BufferKind.OUTPUT))
    for role, names, kind in roles:
        for name in names:
            if name not in kernel.by_name or kernel.by_name[name].kind is not kind:
                raise error("E0901", f"after {stage}: {role} {name} is not a buffer of kind {kind.value}")
    known, written = kernel.by_name, {b.name for b in kernel.buffers if b.kind.preset}
    checked: set[tuple] = set()
    for inst in kernel.body:
        reads, writes = inst.reads(), inst.writes()
        shape = form(inst)
        if shape not in checked:
            verify(inst, target)
            for ap in (*reads, *writes):
                if not ap.is_within_buffer:
                    raise _broken(stage, inst, f"reaches outside {ap.buffer.name}, of shape {ap.buffer.shape}")
            checked.add(shape)
        for group in (reads, writes):
            for ap in group:
                buffer = known.get(ap.buffer.name)
                if buffer is not ap.buffer and buffer != ap.buffer:
                    raise _broken(stage, inst, f"names the unknown buffer {ap.buffer.name}")
        for ap in reads:
            if ap.buffer.name not in written:
                raise _broken(stage, inst, f"reads {ap.buffer.name} before anything wrote it")
        for ap in writes:
            if ap.buffer.kind.preset:
                raise _broken(stage, inst, f"writes {ap.buffer.name}, an input")
            written.add(ap.buffer.name)


def _broken(stage: str, inst: Instruction, what: str) -> RanvierError:
    return error("E0901", f"after {stage}: {inst.MNEMONIC} {what}", where=inst.loc)
