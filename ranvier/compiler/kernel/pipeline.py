"""From a kernel to a program: the passes, in order, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ranvier.compiler.emit import emit
from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.find_dependencies import find_dependencies
from ranvier.compiler.kernel.legalize import legalize
from ranvier.compiler.kernel.place import place
from ranvier.compiler.kernel.schedule import schedule
from ranvier.compiler.kernel.synchronize import synchronize
from ranvier.ir.kernel import Kernel, verify_kernel
from ranvier.ir.program import Program
from ranvier.ir.verify import verify_program
from ranvier.target.spec import Target

Observer = Callable[[str, Any], None]


def lower_kernel(
    kernel: Kernel, target: Target, *, observe: Observer | None = None, verify: bool = True
) -> Program:
    """Compile `kernel` for one core of `target`.

    `observe(name, artifact)` is called after each pass with what it made: a `Kernel`, the records of `stages`, at last
    the `Program`. With `verify` the rules of the level are checked after each pass.

    Raises the errors of the instructions' rules, E0501 and E0502 when memory is too small, E0901 for a bug of a pass.
    """
    seen = observe or (lambda name, artifact: None)
    costs = Costs(target)

    kernel = legalize(kernel, target)  # first, so that later passes meet legal instructions with a use only
    seen("legalize", kernel)
    placed = place(kernel, target)  # before the dependencies, since reuse of memory adds some
    if verify:
        verify_kernel(placed.kernel, target, stage="place")
    seen("place", placed)
    dependencies = find_dependencies(placed)  # by address: order of the program, and reuse of memory
    seen("find_dependencies", dependencies)
    plan = schedule(placed, dependencies, costs)  # engines and their order, now that all constraints are known
    seen("schedule", plan)
    sync = synchronize(placed, dependencies, plan, target)  # needs the streams: only what they do not order
    seen("synchronize", sync)
    program = emit(placed, plan, sync)
    if verify:
        verify_program(program, target)
    seen("emit", program)
    return program
