"""How long a kernel takes: recorded, compiled and timed on the simulated core, without a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.console import console
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.nki.jit import JitKernel
from ranvier.profile import Profile, profile_program
from ranvier.target import Target


@dataclass(frozen=True)
class BenchmarkResult:
    """Predicted time of a kernel and where it goes. Printed, it is the profile's report."""

    kernel: Kernel
    program: Program
    profile: Profile

    @property
    def latency_ns(self) -> float:
        """Time from the first instruction to the last result."""
        return self.profile.latency_ns

    def __str__(self) -> str:
        return str(self.profile)


def benchmark(kernel: Callable[..., Any], *, target: str | Target | None = None,
              show: bool = True) -> Callable[..., BenchmarkResult]:
    """A function that times `kernel` for arguments of given shapes and dtypes.

        ranvier.benchmark(softmax)(x)          # prints where the time goes, and returns the result

    Arguments are arrays, or `nki.TensorSpec` where there are no values: time does not depend on them. `target` is by
    default the one given to `nki.jit`, else the setting. With `show` false nothing is printed. Raises whatever the
    kernel breaks, at its own line.
    """
    made = kernel if isinstance(kernel, JitKernel) else JitKernel(kernel)
    chosen = made.target_for(target)

    def run(*args: Any, **kwargs: Any) -> BenchmarkResult:
        recorded = made.record(*args, target=chosen, **kwargs)
        program = lower_kernel(recorded, chosen)
        flops = sum(inst.flops() for inst in recorded.body)
        profile = profile_program(program, chosen, flops=flops or None, name=recorded.name)
        if show:
            console().print(profile.report())
        return BenchmarkResult(recorded, program, profile)

    return run
