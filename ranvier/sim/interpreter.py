"""Execution of programs and kernels for their values.

A program is executed as the core would: engines run their own streams, DMA queues theirs, and only semaphores order
them. Since nothing in a program depends on values but dynamic row indices, the order of execution is found once, every
instruction is bound to its memory once, and a run is a walk through a list of bound functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from ranvier.errors import UndefinedBehavior, error
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program, Slot
from ranvier.isa.access import Buffer
from ranvier.isa.record import Instruction
from ranvier.sim.machine import Memory, Storage, bind, check_written, mark_written, storage_of
from ranvier.sim.memory import CoreMemory, check_bounds
from ranvier.sim.order import execution_order
from ranvier.sim.params import param_arrays
from ranvier.sim.shadow import Shadow
from ranvier.target.spec import Target

Arrays = Sequence[np.ndarray] | Mapping[str, np.ndarray]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """How instructions execute: without numpy's warnings (NaN and overflow are results), and on one thread.

    Products of tiles are too small to share: threads that wait for each other cost several times what they save.
    """
    with np.errstate(all="ignore"), threadpool_limits(1, "blas"):
        yield


class Interpreter:
    """Executes one program, any number of times.

    `seed` chooses among the orders of execution that the program's semaphores allow, `dma` whether data moves as
    "early" or as "late" as they allow (see `execution_order`). What does not depend on values is checked once, before
    the first run: deadlock (E0404), bounds and places (E0901, E0501, E0502), reads of what nothing wrote (E0401) or of
    what is written later in kernel order only by luck of the schedule (E0402). That is enough for all runs: access
    patterns are fixed, an indirect one counting as all rows it may name, and every run poisons memory and repeats the
    same order. Without `check_reads` such reads give poison.
    """

    def __init__(
        self, program: Program, target: Target, *, seed: int = 0, dma: str = "early", check_reads: bool = True
    ):
        self.program, self.target, self._check_reads = program, target, check_reads
        self._order = [slot for _, slot in execution_order(program, seed=seed, dma=dma)]
        check_bounds(slot.instruction for slot in self._order)
        self._state: dict[str, np.ndarray] | None = None
        self._core: CoreMemory | None = None
        self._calls: list[Callable[[], None]] = []

    def run(
        self, inputs: Arrays, params: Mapping[str, np.ndarray] | None = None, *,
        observe: Callable[[Slot, Memory], None] | None = None,
    ) -> list[np.ndarray]:
        """Outputs, in order, as new arrays.

        `inputs` come in the order of `program.inputs` or by name, with exactly the shapes and dtypes of their buffers
        (else E0603). `params` is the model's state by the keys of `program.params`; it is bound by reference, and a new
        run costs nothing more as long as the arrays are the same objects with the same contents. `observe` is called
        after each instruction.
        Raises E0403 for dynamic indices out of bounds.
        """
        core = self._bound(params or {})
        core.poison()
        set_inputs(core.memory, self.program, inputs)
        if observe is None:
            self.walk()
        else:
            with quiet():
                for slot, call in zip(self._order, self._calls, strict=True):
                    call()
                    observe(slot, core.memory)
        return get_outputs(core.memory, self.program)

    def walk(self) -> None:
        """Execute the program on memory as it is, after a first `run`; what a run does besides is left out."""
        with quiet():
            for call in self._calls:
                call()

    @property
    def memory(self) -> Memory | None:
        """The memory of the last run, None before the first."""
        return self._core.memory if self._core is not None else None

    def _bound(self, state: Mapping[str, np.ndarray]) -> CoreMemory:
        """Memory with all instructions bound to it, made anew when the parameters are others than last time."""
        used = {source.key: state[source.key] for _, source in self.program.params if source.key in state}
        same = self._state is not None and all(used.get(k) is v for k, v in self._state.items())
        if self._core is None or not same:
            core = CoreMemory(self.program, self.target, param_arrays(self.program.params, state))
            if self._check_reads:
                _check_reads(self.program, self._order, core.memory)
            else:
                for slot in self._order:
                    mark_written(slot.instruction, core.memory)
            self._calls = [bind(slot.instruction, core.memory, self.target) for slot in self._order]
            self._core, self._state = core, used
        return self._core


def _check_reads(program: Program, order: Sequence[Slot], memory: Memory) -> None:
    """Raise E0401 or E0402 where a slot reads what no slot before it in `order` wrote."""
    for slot in order:
        try:
            check_written(slot.instruction, memory)
        except UndefinedBehavior as found:
            in_kernel_order = kernel_shadows(program)
            for other in program.in_kernel_order():
                check_written(other.instruction, in_kernel_order)  # raises E0401 if the kernel is at fault
            message = f"{found.message} yet: in kernel order something has, but no semaphore makes this one wait for it"
            raise error("E0402", message, where=found.where, argument=found.argument) from None


def run_program(
    program: Program, target: Target, inputs: Arrays, params: Mapping[str, np.ndarray] | None = None, *,
    seed: int = 0, dma: str = "early",
) -> dict[str, np.ndarray]:
    """Outputs by name of one execution of `program`; arguments and errors as for `Interpreter`."""
    outputs = Interpreter(program, target, seed=seed, dma=dma).run(inputs, params)
    return dict(zip(program.outputs, outputs, strict=True))


def run_kernel(
    kernel: Kernel, target: Target, inputs: Arrays, params: Mapping[str, np.ndarray] | None = None, *,
    observe: Callable[[int, Instruction, Memory], None] | None = None,
) -> list[np.ndarray]:
    """Outputs of `kernel`: its instructions one after the other, each buffer in memory of its own.

    This is what a kernel means. `inputs` and `params` as in `Interpreter.run`; `observe` is called with the index, the
    instruction and the memory after each instruction. Raises E0401 for reads of what nothing wrote, E0403 for dynamic
    indices out of bounds, E0603 for arrays that do not fit.
    """
    memory = kernel_memory(kernel, params or {})
    set_inputs(memory, kernel, inputs)
    with quiet():
        for index, inst in enumerate(kernel.body):
            check_written(inst, memory)
            bind(inst, memory, target)()
            if observe is not None:
                observe(index, inst, memory)
    return get_outputs(memory, kernel)


def kernel_shadows(kernel: Kernel | Program) -> Memory:
    """Memory for `check_written` only: shadows of all buffers of `kernel`, without room for values."""
    nothing = np.zeros((1, 1), np.uint8)
    shadows = {b.name: Storage(nothing, 0, 0, Shadow(b, complete=b.kind.preset)) for b in kernel.buffers}
    return Memory(shadows, closed=True)


def kernel_memory(kernel: Kernel | Program, state: Mapping[str, np.ndarray]) -> Memory:
    """Memory in which every buffer has storage of its own, parameters and constants filled in from `state`."""
    memory = Memory()
    arrays = param_arrays(kernel.params, state) | {name: constant.array() for name, constant in kernel.constants}
    for name, array in arrays.items():
        memory.storages[name] = storage_of(kernel.by_name[name], array)
    return memory


def set_inputs(memory: Memory, of: Kernel | Program, inputs: Arrays) -> None:
    """Copy `inputs` (in order, or by name) into the input buffers of `of`. Raises E0603 for what does not fit."""
    if isinstance(inputs, Mapping):
        if set(inputs) != set(of.inputs):
            raise error("E0603", f"{of.name} takes the inputs {', '.join(of.inputs)}; given are {', '.join(inputs)}")
        inputs = [inputs[name] for name in of.inputs]
    if len(inputs) != len(of.inputs):
        names = ", ".join(of.inputs)
        raise error("E0603", f"{of.name} takes {len(of.inputs)} inputs ({names}); given are {len(inputs)}")
    for name, array in zip(of.inputs, inputs, strict=True):
        buffer = of.by_name[name]
        _check_array(buffer, array)
        memory.set(buffer, array)


def _check_array(buffer: Buffer, array: np.ndarray) -> None:
    shape, dtype = tuple(np.shape(array)), getattr(array, "dtype", type(array).__name__)
    if shape != buffer.shape or dtype != buffer.dtype.np:
        raise error(
            "E0603",
            f"input {buffer.name} has shape {shape} and dtype {dtype}; "
            f"it was compiled for {buffer.shape} and {buffer.dtype}",
        )


def get_outputs(memory: Memory, of: Kernel | Program) -> list[np.ndarray]:
    """Copies of the outputs of `of`. Raises E0401 when part of one was never written."""
    outputs = []
    for name in of.outputs:
        buffer = of.by_name[name]
        if not memory.storage(buffer).shadow.written(buffer.all):
            message = f"part of the output {name} (shape {buffer.shape}) was never written"
            raise error("E0401", message, where=buffer.loc)
        outputs.append(memory.get(buffer))
    return outputs
