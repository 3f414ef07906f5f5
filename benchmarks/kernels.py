"""Predicted times of the kernels of the library, beside what arithmetic and data alone would take.

    python benchmarks/kernels.py [--target trn2] [--profile KERNEL]

The bound is the larger of the tensor engine's time for the products at its peak and the time to move each tensor once;
the ratio is bound over predicted time. Fails when a ratio is below its limit.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from ranvier.kernels import library
from ranvier.nki import JitKernel, TensorSpec
from ranvier.runtime.benchmark import BenchmarkResult, benchmark

BF16 = "bfloat16"


def tensor(*shape: int, dtype: str = BF16) -> TensorSpec:
    return TensorSpec(shape, dtype)


@dataclass(frozen=True)
class Case:
    """A kernel with arguments, and the least ratio of bound to predicted time on trn2."""

    name: str
    kernel: JitKernel
    args: tuple[Any, ...]
    options: dict[str, Any]
    least: float


def case(name: str, kernel: JitKernel, *args: Any, least: float, **options: Any) -> Case:
    return Case(name, kernel, args, options, least)


CASES = (
    case("matmul 2048 x 2048 x 2048", library.matmul, tensor(2048, 2048), tensor(2048, 2048), least=0.9),
    case("matmul 1024 x 1024 x 1024", library.matmul, tensor(1024, 1024), tensor(1024, 1024), least=0.7),
    case("matmul 4096 x 4096 x 2048", library.matmul, tensor(4096, 4096), tensor(4096, 2048), least=0.93),
    case("matmul 1000 x 1500 x 900", library.matmul, tensor(1500, 1000), tensor(1500, 900), least=0.7),
    case("matmul 1024 x 1024 x 1024, float32", library.matmul, tensor(1024, 1024, dtype="float32"),
         tensor(1024, 1024, dtype="float32"), least=0.88),
    case("mlp 512 x 1024 x 4096, gelu", library.mlp, tensor(512, 1024), tensor(1024, 4096), tensor(4096, 1024),
         tensor(4096), tensor(1024), least=0.8),
    case("mlp 512 x 2048 x 5632, gated silu", library.mlp, tensor(512, 2048), tensor(2048, 5632), tensor(5632, 2048),
         w_gate=tensor(2048, 5632), activation="silu", least=0.9),
    case("attention 16 heads of 64, 512 positions", library.attention, *[tensor(1, 16, 512, 64)] * 3, least=0.13),
    case("attention 8 of 2 heads of 128, 1024, causal", library.attention, tensor(1, 8, 1024, 128),
         *[tensor(1, 2, 1024, 128)] * 2, causal=True, least=0.2),
    case("rope 2048 positions, 16 heads of 128", library.rope, tensor(1, 16, 2048, 128), tensor(2048, 128),
         tensor(2048, 128), least=0.16),
    case("layer_norm 4096 x 1024", library.layer_norm, tensor(4096, 1024), tensor(1024), tensor(1024), least=0.19),
    case("rms_norm 4096 x 2048", library.rms_norm, tensor(4096, 2048), tensor(2048), least=0.24),
    case("softmax 4096 x 2048", library.softmax, tensor(4096, 2048), least=0.36),
    case("log_softmax 512 x 8192", library.log_softmax, tensor(512, 8192), least=0.28),
    case("embedding 4096 of 50000 rows of 1024", library.embedding, tensor(50000, 1024), tensor(4096, dtype="int32"),
         least=0.42),
)  # fmt: skip


def measure(item: Case, target: str) -> BenchmarkResult:
    return benchmark(item.kernel, target=target, show=False)(*item.args, **item.options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--profile", metavar="KERNEL", help="print the profiles of cases whose name begins so, instead")
    options = parser.parse_args()
    if options.profile:
        for item in CASES:
            if item.name.startswith(options.profile):
                print(measure(item, options.target))
        return 0
    print(f"{'':46} predicted us   bound us  bound is   ratio   busiest engine")
    below = []
    for item in CASES:
        profile = measure(item, options.target).profile
        ratio = profile.bound_ns / profile.latency_ns
        busiest = max(profile.engines, key=lambda engine: engine.busy_ns)
        print(
            f"{item.name:46} {profile.latency_ns / 1e3:12.1f} {profile.bound_ns / 1e3:10.1f}  {profile.bound:8} "
            f"{ratio:6.2f}   {busiest.engine} {busiest.busy_share:.0%}"
        )
        if ratio < item.least and options.target == "trn2":
            below.append(f"{item.name}: ratio {ratio:.2f} is below {item.least}")
    print("\n".join(below))
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
