"""How long it takes to record one instruction: the call, the views of its operands, verification, and the handle.

    python benchmarks/recording.py [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

from ranvier import target
from ranvier.isa.access import Space
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.builder import RecordingBuilder

COUNT = 1000
TARGET = target.get("trn2")


def matmul(builder: RecordingBuilder) -> None:
    """nc_matmul on sliced operands, accumulate inferred."""
    x = builder.alloc((128, 8, 512), "bfloat16", Space.SBUF)
    for _ in range(COUNT // 8):
        acc = builder.alloc((128, 512), "float32", Space.PSUM)
        for k in range(8):
            nisa.nc_matmul(dst=acc, stationary=x[:, k, 0:128], moving=x[:, k, 0:512])


def tensor_tensor(builder: RecordingBuilder) -> None:
    """tensor_tensor on whole tiles, a new one for each result."""
    x = builder.alloc((128, 512), "bfloat16", Space.SBUF)
    for _ in range(COUNT):
        y = builder.alloc((128, 512), "bfloat16", Space.SBUF)
        nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)


def tensor_scalar(builder: RecordingBuilder) -> None:
    """tensor_scalar with two operations on slices."""
    x = builder.alloc((128, 8, 512), "bfloat16", Space.SBUF)
    s = builder.alloc((128, 8), "float32", Space.SBUF)
    for i in range(COUNT):
        k = i % 8
        nisa.tensor_scalar(x[:, k, :], x[:, k, :], nl.multiply, s[:, k : k + 1], op1=nl.add, operand1=1.0)


def dma_copy(builder: RecordingBuilder) -> None:
    """dma_copy of a slice of an HBM tensor into a whole tile."""
    h = builder.input("h", (128 * 16, 2048), "bfloat16")
    t = builder.alloc((128, 512), "bfloat16", Space.SBUF)
    for i in range(COUNT):
        row, column = 128 * (i % 16), 512 * (i % 4)
        nisa.dma_copy(dst=t, src=h[row : row + 128, column : column + 512])


CASES: tuple[Callable[[RecordingBuilder], None], ...] = (matmul, tensor_tensor, tensor_scalar, dma_copy)


def measure(case: Callable[[RecordingBuilder], None]) -> float:
    """Microseconds of processor time per instruction, best of twenty: the machine may be busy with other things."""
    best = float("inf")
    for _ in range(20):
        with RecordingBuilder(TARGET, case.__name__) as builder:
            start = time.process_time()
            case(builder)
            best = min(best, time.process_time() - start)
        kernel = builder.finish()
        assert len(kernel.body) == COUNT, len(kernel.body)
    return best / COUNT * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    if parser.parse_args().profile:
        with cProfile.Profile() as profile, RecordingBuilder(TARGET, "all") as builder:
            for case in CASES:
                case(builder)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return
    for case in CASES:
        print(f"{case.__name__:16} {measure(case):6.1f} us per instruction   {case.__doc__}")


if __name__ == "__main__":
    main()
