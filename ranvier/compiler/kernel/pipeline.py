"""From a kernel to a program: the passes, in order, each with its reason."""

from __future__ import annotations

from collections.abc import Callable

from ranvier import config
from ranvier.compiler.emit import emit
from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.find_dependencies import find_dependencies
from ranvier.compiler.kernel.legalize import legalize
from ranvier.compiler.kernel.place import place
from ranvier.compiler.kernel.schedule import schedule
from ranvier.compiler.kernel.synchronize import synchronize
from ranvier.errors import RanvierError, error
from ranvier.ir.kernel import Kernel, verify_kernel
from ranvier.ir.program import Program
from ranvier.ir.verify import verify_program
from ranvier.target.spec import Target

Observer = Callable[[str, object], None]


def lower_kernel(
    kernel: Kernel, target: Target, *, observe: Observer | None = None, verify: bool | None = None
) -> Program:
    """Compile `kernel` for one core of `target`.

    `observe(name, artifact)` is called after each pass with what it made: a `Kernel`, the records of `stages`, at last
    the `Program`. With `verify` (None: as the setting of that name says) the rules of the level are checked after the
    passes that could break them.

    Raises the errors of the instructions' rules, E0501 and E0502 when memory is too small, E0901 for a bug of a pass.
    """
    seen = observe or (lambda name, artifact: None)
    checks = config.get("verify") if verify is None else verify
    costs = Costs(target)

    kernel = legalize(kernel, target)  # first, so that later passes meet legal instructions with a use only
    seen("legalize", kernel)
    placed = place(kernel, target)  # before the dependencies, since reuse of memory adds some
    if checks:
        _check("place", lambda: verify_kernel(placed.kernel, target, stage="place"))
    seen("place", placed)
    dependencies = find_dependencies(placed)  # by address: order of the program, and reuse of memory
    seen("find_dependencies", dependencies)
    plan = schedule(placed, dependencies, costs)  # engines and their order, now that all constraints are known
    seen("schedule", plan)
    sync = synchronize(placed, dependencies, plan, target)  # needs the streams: only what they do not order
    seen("synchronize", sync)
    program = emit(placed, plan, sync)  # last: it only puts together what was decided
    if checks:
        _check("emit", lambda: verify_program(program, target))
    seen("emit", program)
    return program


def _check(stage: str, check: Callable[[], None]) -> None:
    """Run a check of what a pass made: whatever rule it finds broken, the compiler broke it."""
    try:
        check()
    except RanvierError as broken:
        if broken.code == "E0901":
            raise
        message = f"after {stage}: {broken.code} {broken.message}"
        raise error("E0901", message, where=broken.where, notes=broken.notes) from broken
