"""Where two executions part: the first instruction whose written values differ.

A program is compared with its own instructions run one after the other on memory of their own. Whatever differs is due
to places, order or synchronization, and the first difference in kernel order names the instruction that was hit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ranvier.errors import error
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.isa.record import Instruction
from ranvier.loc import Loc
from ranvier.sim.interpreter import Arrays, Interpreter, run_kernel
from ranvier.sim.machine import Memory, written_values
from ranvier.target.spec import Target


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between two executions.

    `order` is the place of the instruction in the program's order of the kernel, `tensor` what it wrote, `index` the
    first element that differs, with its `expected` and `actual` value, `differing` of `total` elements.
    """

    order: int
    instruction: Instruction
    tensor: str
    index: tuple[int, ...]
    expected: float
    actual: float
    differing: int
    total: int

    @property
    def loc(self) -> Loc | None:
        return self.instruction.loc

    def __str__(self) -> str:
        line = f" at {self.loc}" if self.loc else ""
        return (
            f"instruction {self.order} ({self.instruction.MNEMONIC}{line}) wrote {self.actual:g} to {self.tensor} at "
            f"{self.index}, expected {self.expected:g}; {self.differing} of {self.total} elements differ"
        )


def first_divergence(
    program: Program, target: Target, inputs: Arrays, params: Mapping[str, np.ndarray] | None = None, *,
    seed: int = 0, dma: str = "early",
) -> Divergence | None:
    """The first instruction, in kernel order, whose written values differ when `program` runs as scheduled.

    The reference runs the program's instructions in kernel order, each buffer in memory of its own. None if all agree
    bit for bit. Errors as for `Interpreter`.
    """
    digests: dict[int, bytes] = {}
    slots = program.in_kernel_order()
    reference = as_kernel(program)

    def remember(index: int, inst: Instruction, memory: Memory) -> None:
        digests[slots[index].order] = _digest(inst, memory)

    run_kernel(reference, target, inputs, params, observe=remember)
    wrong: dict[int, list[np.ndarray]] = {}

    def compare(slot, memory: Memory) -> None:
        # Only what may be the first difference is kept: order of execution is not kernel order.
        if _digest(slot.instruction, memory) != digests[slot.order] and slot.order < min(wrong, default=slot.order + 1):
            wrong.clear()
            wrong[slot.order] = written_values(slot.instruction, memory)

    scheduled = Interpreter(program, target, seed=seed, dma=dma, check_reads=False)
    scheduled.run(inputs, params, observe=compare)
    if not wrong:
        return None
    order = min(wrong)
    expected: list[np.ndarray] = []

    def collect(index: int, inst: Instruction, memory: Memory) -> None:
        if slots[index].order == order:
            expected.extend(written_values(inst, memory))

    run_kernel(reference, target, inputs, params, observe=collect)
    inst = next(slot.instruction for slot in slots if slot.order == order)
    return _difference(order, inst, expected, wrong[order])


def compare_kernel_to_program(
    kernel: Kernel, program: Program, target: Target, inputs: Arrays, params: Mapping[str, np.ndarray] | None = None, *,
    seed: int = 0, dma: str = "early",
) -> Divergence | None:
    """Where `program` first departs from `kernel`, which it was made from; None if it does not.

    If the schedule is at fault the result is that of `first_divergence`. Otherwise a pass before it changed the
    meaning: the result is the first write, in order, of a buffer that both have, whose values differ.
    """
    found = first_divergence(program, target, inputs, params, seed=seed, dma=dma)
    if found is not None:
        return found
    writes: dict[tuple[str, int], list[np.ndarray]] = {}
    counts: dict[str, int] = {}
    result: list[Divergence] = []

    def key(inst: Instruction) -> tuple[str, int]:
        name = inst.writes()[0].buffer.name
        counts[name] = counts.get(name, 0) + 1
        return name, counts[name]

    def remember(index: int, inst: Instruction, memory: Memory) -> None:
        writes[key(inst)] = written_values(inst, memory)

    def compare(index: int, inst: Instruction, memory: Memory) -> None:
        expected = writes.get(key(inst))
        actual = written_values(inst, memory)
        if result or expected is None or [a.shape for a in actual] != [e.shape for e in expected]:
            return
        if any(a.tobytes() != e.tobytes() for a, e in zip(actual, expected, strict=True)):
            result.append(_difference(index, inst, expected, actual))

    run_kernel(kernel, target, inputs, params, observe=remember)
    counts.clear()
    run_kernel(as_kernel(program), target, inputs, params, observe=compare)
    return result[0] if result else None


def as_kernel(program: Program) -> Kernel:
    """The program's instructions in kernel order, as a kernel."""
    return Kernel(
        program.name, program.target, program.buffers, program.inputs, program.outputs,
        tuple(slot.instruction for slot in program.in_kernel_order()), program.params, program.constants,
    )  # fmt: skip


def _digest(inst: Instruction, memory: Memory) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in written_values(inst, memory):
        digest.update(array.tobytes())
    return digest.digest()


def _difference(order: int, inst: Instruction, expected: list[np.ndarray], actual: list[np.ndarray]) -> Divergence:
    """Describe the first element that differs."""
    for ap, want, have in zip(inst.writes(), expected, actual, strict=True):
        size = want.dtype.itemsize
        raw = [np.ascontiguousarray(a).view(np.uint8).reshape(*want.shape, size) for a in (want, have)]
        differs = (raw[0] != raw[1]).any(axis=-1)
        if differs.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), want.shape))
            count = int(differs.sum())
            return Divergence(order, inst, ap.buffer.name, at, float(want[at]), float(have[at]), count, want.size)
    raise error("E0901", f"{inst.MNEMONIC}: two executions differ, but not in what it wrote", where=inst.loc)
