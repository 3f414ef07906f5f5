"""Builders: what the functions of the kernel language act on. One front end, two of them.

`EagerBuilder` executes each instruction at once, so that a kernel can be stepped through and printed from;
`RecordingBuilder` collects instructions into a `Kernel` for the compiler. Both verify every instruction, at the user's
line, and both resolve in the same way what an instruction leaves open.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.ir.kernel import Constant, Kernel, ParamSource, with_buffers
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.record import Instruction, form, verify
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.loc import capture
from ranvier.nki import context
from ranvier.nki.tensor import NkiTensor, as_dtype, fail, shown
from ranvier.nki.written import Written
from ranvier.sim.machine import Memory, bind, check_written, storage_for, storage_of
from ranvier.target.spec import Target


@dataclasses.dataclass(frozen=True, slots=True)
class NkiInstruction:
    """What a function of `nki.isa` returns: a handle on the instruction that it added."""

    instruction: Instruction
    recorded: bool

    @property
    def name(self) -> str | None:
        return self.instruction.name

    def __repr__(self) -> str:
        return f"<instruction {self.instruction.MNEMONIC}>"

    def depends_on(self, *producers: NkiInstruction) -> None:
        """Start only when `producers` are complete. In an eager run, which is in program order, that holds already."""
        if self.recorded:
            raise fail(
                "E0104",
                "ordering two instructions of a recorded kernel that share no data",
                fix="let them share a tensor",
            )


class Builder(ABC):
    """The kernel that is being run or recorded. As a context manager, it is the one that language functions act on.

    `has_values` says whether tensors have values while the kernel is built.
    """

    has_values = False

    def __init__(self, target: Target):
        self.target = target
        self._names: dict[str, int] = {}
        self._matmuls = Written()
        self._legal: set[tuple] = set()
        self._tokens: list = []

    def __enter__(self) -> Self:
        self._tokens.append(context.enter(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.leave(self._tokens.pop())

    # -- tensors -------------------------------------------------------------------------------------------------------
    def alloc(
        self,
        shape: Sequence[int],
        dtype: object,
        space: Space = Space.SBUF,
        name: str = "",
        address: object = None,
        *,
        shared: bool = False,
    ) -> NkiTensor:
        """A new tensor without values. `shared` marks an HBM tensor that outlives the kernel.

        On chip dimension 0 is the partition dimension. Raises E0103 for a bad shape, E0202 when the tensor does not fit
        in its memory, E0305 for a dtype that the core lacks, E0104 for a fixed `address`.
        """
        if address is not None:
            raise fail(
                "E0104",
                f"a tensor at the fixed address {address}",
                argument="address",
                fix="leave address out: the compiler places tensors",
            )
        if not isinstance(name, str):
            raise fail("E0103", f"name is {shown(name)}; it takes a string", argument="name")
        return self._new(shape, dtype, space, name or space.value, BufferKind.TEMP, shared)

    def _new(
        self, shape: Sequence[int], dtype: object, space: Space, name: str, kind: BufferKind, shared: bool = False
    ) -> NkiTensor:
        made = as_dtype(dtype)
        sizes = self._checked_shape(shape, made, space)
        buffer = Buffer(self._unique(name), space, sizes, made, kind, capture())
        self._add(buffer)
        return NkiTensor(buffer.all, shared)

    def _checked_shape(self, shape: Sequence[int], dtype: DType, space: Space) -> tuple[int, ...]:
        given = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        if not given or not all(isinstance(s, (int, np.integer)) and s > 0 for s in given):
            raise fail("E0103", f"the shape {given} is not made of positive integers", argument="shape")
        sizes = tuple(int(s) for s in given)
        if not space.on_chip:
            return sizes
        where, target = space.value.upper(), self.target
        if len(sizes) == 1:
            raise fail(
                "E0103",
                f"a tile in {where} has a partition and at least one free dimension, not shape {sizes}",
                argument="shape",
                fix=f"use shape ({sizes[0]}, 1) or (1, {sizes[0]})",
            )
        rows = int(target.sbuf.partitions.value)
        if sizes[0] > rows:
            raise fail(
                "E0202",
                f"a tile of shape {sizes} needs {sizes[0]} partitions, {where} has {rows}",
                rule="MEM-1",
                argument="shape",
            )
        needed = math.prod(sizes[1:]) * dtype.itemsize
        room = target.sbuf.usable_bytes_per_partition if space is Space.SBUF else target.psum.bytes_per_partition
        if needed > room:
            raise fail(
                "E0202",
                f"a {dtype} tile of shape {sizes} needs {needed} bytes per partition, {where} has {room}",
                rule="MEM-2",
                argument="shape",
            )
        return sizes

    def _unique(self, name: str) -> str:
        count = self._names.get(name)
        self._names[name] = 0 if count is None else count + 1
        return name if count is None else self._unique(f"{name}.{count + 1}")

    # -- instructions --------------------------------------------------------------------------------------------------
    def emit(self, inst: Instruction) -> NkiInstruction:
        """Add `inst`, after checking its rules on the target. Raises what `isa.record.verify` raises."""
        if inst.IS_DMA:  # HBM offsets differ nearly always, so their forms do not repeat
            verify(inst, self.target)
            self._check_mutable(inst)
        else:
            shape = form(inst)
            if shape not in self._legal:
                verify(inst, self.target)
                self._legal.add(shape)
            if isinstance(inst, NcMatmul):
                inst = self._accumulating(inst)
        return self._accept(inst)

    def _accumulating(self, inst: NcMatmul) -> NcMatmul:
        """`inst` with `accumulate` decided: what no matmul has written since the tile was made is overwritten."""
        before = self._matmuls.add(inst.dst)
        if inst.accumulate is not None:
            return inst
        if before is None:
            raise error(
                "E0104",
                "nc_matmul: earlier matmuls have written a part of dst only, so it would both add and overwrite",
                where=inst.loc,
                argument="dst",
                fix="give accumulate, or split the matmul where the written part ends",
            )
        return dataclasses.replace(inst, accumulate=before)

    def _check_mutable(self, inst: Instruction) -> None:
        for spec, ap in inst.operands("dst"):
            if ap.buffer.kind.preset:
                raise error("E0105", f"{inst.MNEMONIC} writes {ap.buffer.name}", where=inst.loc, argument=spec.name)

    @abstractmethod
    def _add(self, buffer: Buffer) -> None: ...

    @abstractmethod
    def _accept(self, inst: Instruction) -> NkiInstruction: ...

    @abstractmethod
    def constant(self, name: str, array: np.ndarray, dtype: object) -> NkiTensor:
        """An HBM tensor that holds `array`, cast to `dtype`; equal constants share one tensor."""

    @abstractmethod
    def read(self, tensor: NkiTensor) -> np.ndarray:
        """A copy of the values of `tensor`. Raises E0104 where there are none yet."""


class EagerBuilder(Builder):
    """Executes every instruction as soon as it is emitted, on memory that is checked for reads of what nobody wrote."""

    has_values = True

    def __init__(self, target: Target):
        super().__init__(target)
        self.memory = Memory()
        self._constants: dict[tuple, NkiTensor] = {}

    def _add(self, buffer: Buffer) -> None:
        if not buffer.kind.preset:
            self.memory.storages[buffer.name] = storage_for(buffer)
            # A kernel makes new tiles all the time; what no tensor names any more is given back.
            weakref.finalize(buffer, self._release, buffer.name).atexit = False

    def _release(self, name: str) -> None:
        del self.memory.storages[name]
        self._matmuls.forget(name)

    def _accept(self, inst: Instruction) -> NkiInstruction:
        check_written(inst, self.memory)
        with np.errstate(all="ignore"):  # infinities and NaN are values like others
            bind(inst, self.memory, self.target)()
        return NkiInstruction(inst, False)

    def input(self, name: str, array: np.ndarray) -> NkiTensor:
        """An HBM tensor that the kernel may read, with the values of `array`."""
        tensor = self._new(array.shape or (1,), array.dtype, Space.HBM, name, BufferKind.INPUT)
        self._fill(tensor, array)
        return tensor

    def _fill(self, tensor: NkiTensor, array: np.ndarray) -> None:
        buffer = tensor.access.buffer
        self.memory.storages[buffer.name] = storage_of(buffer, array.reshape(buffer.shape))

    def constant(self, name: str, array: np.ndarray, dtype: object) -> NkiTensor:
        made = as_dtype(dtype)
        key = _constant_key(array, made)
        if key not in self._constants:
            tensor = self._new(array.shape or (1,), made, Space.HBM, name, BufferKind.CONSTANT, True)
            self._fill(tensor, array.astype(made.np))
            self._constants[key] = tensor
        return self._constants[key]

    def read(self, tensor: NkiTensor) -> np.ndarray:
        return self.memory.view(tensor.access).copy()


class RecordingBuilder(Builder):
    """Collects instructions into a `Kernel`.

    with RecordingBuilder(target, "double") as builder:
        x = builder.input("x", (128, 512), "float32")
        builder.mark_output(double(x))
    kernel = builder.finish()
    """

    def __init__(self, target: Target, name: str):
        super().__init__(target)
        self.name = name
        self._buffers: dict[str, Buffer] = {}
        self._body: list[Instruction] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._params: dict[str, ParamSource] = {}
        self._constants: dict[tuple, tuple[NkiTensor, Constant]] = {}

    def _add(self, buffer: Buffer) -> None:
        self._buffers[buffer.name] = buffer

    def _accept(self, inst: Instruction) -> NkiInstruction:
        self._body.append(inst)
        return NkiInstruction(inst, True)

    def input(self, name: str, shape: Sequence[int], dtype: object) -> NkiTensor:
        """The next input: an HBM tensor that the caller provides."""
        tensor = self._new(shape, dtype, Space.HBM, name, BufferKind.INPUT)
        self._inputs.append(tensor.name)
        return tensor

    def output(self, name: str, shape: Sequence[int], dtype: object) -> NkiTensor:
        """The next output: an HBM tensor that the kernel fills."""
        tensor = self._new(shape, dtype, Space.HBM, name, BufferKind.OUTPUT, True)
        self._outputs.append(tensor.name)
        return tensor

    def mark_output(self, tensor: NkiTensor) -> None:
        """Make `tensor`, a whole HBM tensor that the kernel allocated, its next output. Raises E0102 for any other."""
        buffer = check_result(tensor)
        self._outputs.append(buffer.name)

    def param(self, name: str, shape: Sequence[int], dtype: object, source: ParamSource) -> NkiTensor:
        """An HBM tensor that holds part of the model's state, as `source` says."""
        tensor = self._new(shape, dtype, Space.HBM, name, BufferKind.PARAM)
        self._params[tensor.name] = source
        return tensor

    def constant(self, name: str, array: np.ndarray, dtype: object) -> NkiTensor:
        made = as_dtype(dtype)
        key = _constant_key(array, made)
        if key not in self._constants:
            tensor = self._new(array.shape or (1,), made, Space.HBM, name, BufferKind.CONSTANT, True)
            self._constants[key] = tensor, Constant.of(array.reshape(tensor.shape), made)
        return self._constants[key][0]

    def read(self, tensor: NkiTensor) -> np.ndarray:
        raise fail(
            "E0104",
            f"{tensor.name} has no values yet: the kernel is being recorded",
            fix="run the kernel with nki.simulate to look at values",
        )

    def finish(self) -> Kernel:
        """The kernel recorded so far; buffers that were marked as outputs get that kind."""
        marked = {
            n: dataclasses.replace(self._buffers[n], kind=BufferKind.OUTPUT)
            for n in self._outputs
            if self._buffers[n].kind is BufferKind.TEMP
        }
        return Kernel(
            name=self.name,
            target=self.target.name,
            buffers=tuple(marked.get(name, buffer) for name, buffer in self._buffers.items()),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            body=tuple(with_buffers(inst, marked) for inst in self._body) if marked else tuple(self._body),
            params=tuple(self._params.items()),
            constants=tuple((tensor.name, constant) for tensor, constant in self._constants.values()),
        )


def check_result(tensor: object) -> Buffer:
    """The buffer of a kernel's result: a whole HBM tensor that the kernel made. Raises E0102 for anything else."""
    if not isinstance(tensor, NkiTensor):
        raise fail(
            "E0102",
            f"the kernel returns {shown(tensor)}",
            fix="return tensors in shared_hbm, alone or in a tuple, list or dict",
        )
    buffer = tensor.access.buffer
    if buffer.space is not Space.HBM:
        raise fail(
            "E0102",
            f"the kernel returns {tensor!r}, which is in {buffer.space.value}",
            fix="copy it into a shared_hbm tensor with nisa.dma_copy, and return that",
        )
    if buffer.kind.preset:
        raise fail(
            "E0102",
            f"the kernel returns {tensor.name}, which is not its own",
            fix="copy it into a shared_hbm tensor with nisa.dma_copy",
        )
    if tensor.access != buffer.all:
        raise fail(
            "E0102",
            f"the kernel returns a part or another view of {tensor.name}",
            fix="return the whole tensor as it was made",
        )
    return buffer


def _constant_key(array: np.ndarray, dtype: DType) -> tuple:
    return dtype, array.shape, hashlib.sha256(np.ascontiguousarray(array, dtype=dtype.np).tobytes()).digest()
