"""What the interpreter and the timing model cost per instruction.

    python benchmarks/interpreter.py

The interpreter's overhead is the time of its walk through a program less that of the same numpy calls written by hand
on the same arrays, measured in turns, the fastest of several each. What a run costs once (poisoning memory, copying
inputs and outputs) is shown apart. Limits: 15 us per instruction for the walk, 20 us for the timing model.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from ranvier import dtypes as dt
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Space
from ranvier.isa.act import act
from ranvier.isa.dma import DmaCopy
from ranvier.isa.scalar import Activation
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy
from ranvier.sim.interpreter import Interpreter
from ranvier.sim.machine import Memory
from ranvier.sim.timing import simulate
from ranvier.target import get

ROWS, COLUMNS = 32, 64
LIMIT_RUN_US, LIMIT_TIMING_US = 15.0, 20.0


def kernel(rounds: int) -> Kernel:
    """Load, matmul, exp, copy, store on small tiles, where overhead would show most."""
    x = Buffer("x", Space.HBM, (ROWS, COLUMNS), dt.float32, BufferKind.INPUT)
    y = Buffer("y", Space.HBM, (ROWS * rounds, COLUMNS), dt.float32, BufferKind.OUTPUT)
    buffers, body = [x, y], []
    for i in range(rounds):
        loaded = Buffer(f"loaded{i}", Space.SBUF, (ROWS, COLUMNS), dt.float32)
        product = Buffer(f"product{i}", Space.PSUM, (ROWS, COLUMNS), dt.float32)
        power = Buffer(f"power{i}", Space.SBUF, (ROWS, COLUMNS), dt.float32)
        copied = Buffer(f"copied{i}", Space.SBUF, (ROWS, COLUMNS), dt.float32)
        buffers += [loaded, product, power, copied]
        square = AccessPattern(loaded, 0, ((1, ROWS), (1, ROWS)), dt.float32)
        part = AccessPattern(y, i * ROWS * COLUMNS, ((COLUMNS, ROWS), (1, COLUMNS)), dt.float32)
        body += [
            DmaCopy(dst=loaded.all, src=x.all),
            NcMatmul(dst=product.all, stationary=square, moving=loaded.all, accumulate=False),
            Activation(dst=power.all, data=product.all, op=act("exp")),
            TensorCopy(dst=copied.all, src=power.all),
            DmaCopy(dst=part, src=copied.all),
        ]
    return Kernel("bench", "trn2", tuple(buffers), ("x",), ("y",), tuple(body))


def by_hand(rounds: int, memory: Memory, program: Program) -> Callable[[], None]:
    """The same computation in numpy, on the same arrays."""

    def view(name: str) -> np.ndarray:
        return memory.view(program.by_name[name].all)

    x, y = view("x"), view("y")
    tiles = [[view(f"{name}{i}") for name in ("loaded", "product", "power", "copied")] for i in range(rounds)]
    outs = [y[i * ROWS : (i + 1) * ROWS] for i in range(rounds)]

    def run() -> None:
        for (loaded, product, power, copied), out in zip(tiles, outs, strict=True):
            loaded[...] = x
            product[...] = loaded[:, :ROWS].T @ loaded
            power[...] = np.exp(product)
            copied[...] = power
            out[...] = copied

    return run


def fastest(functions: list[Callable[[], object]], repeats: int) -> list[float]:
    """CPU seconds of the fastest call of each function, all of them called in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - start)
    return best


def main() -> int:
    rounds, target = 400, get("trn2")
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32) * np.float32(0.1)
    program = lower_kernel(kernel(rounds), target)
    count = sum(1 for _ in program.slots())
    start = time.process_time()
    interpreter = Interpreter(program, target)
    result = interpreter.run([x])[0]
    first = time.process_time() - start
    memory = interpreter.memory
    assert memory is not None
    hand = by_hand(rounds, memory, program)
    hand()
    assert np.array_equal(memory.get(program.by_name["y"]), result)
    run, walk, bare, timing = fastest(
        [lambda: interpreter.run([x]), interpreter.walk, hand, lambda: simulate(program, target)], repeats=20
    )
    overhead, timing_us = (walk - bare) / count * 1e6, timing / count * 1e6
    print(f"{count} instructions")
    print(f"first run (order, checks, binding included)  {first / count * 1e6:8.1f} us per instruction")
    print(f"walk through the program                     {walk / count * 1e6:8.1f}")
    print(f"the same in numpy by hand                    {bare / count * 1e6:8.1f}")
    print(f"overhead of the walk                         {overhead:8.1f}   (limit {LIMIT_RUN_US})")
    print(f"timing model                                 {timing_us:8.1f}   (limit {LIMIT_TIMING_US})")
    print(f"poisoning, inputs and outputs of a run       {(run - walk) * 1e3:8.1f} ms")
    return int(overhead > LIMIT_RUN_US or timing_us > LIMIT_TIMING_US)


if __name__ == "__main__":
    sys.exit(main())
