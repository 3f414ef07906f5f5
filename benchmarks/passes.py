"""Speed of the kernel-level passes: microseconds per instruction, pass by pass.

    python benchmarks/passes.py [instructions]

The kernel is a stack of tiled linear layers with an activation and a residual sum, weights streamed from HBM.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise

from ranvier import dtypes as dt
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.ir.kernel import Kernel
from ranvier.ir.verify import verify_program
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Space
from ranvier.isa.act import act
from ranvier.isa.alu import alu
from ranvier.isa.dma import DmaCopy
from ranvier.isa.record import Instruction
from ranvier.isa.scalar import Activation
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy, TensorTensor
from ranvier.target import get
from ranvier.target.spec import Engine

WIDTH, TOKENS, TILE = 1024, 512, 128


def _piece(buffer: Buffer, row: int, rows: int, column: int, columns: int) -> AccessPattern:
    if buffer.space.on_chip:
        return AccessPattern(buffer, column, ((1, rows), (1, columns)), buffer.dtype, row)
    return AccessPattern(buffer, row * buffer.shape[1] + column, ((buffer.shape[1], rows), (1, columns)), buffer.dtype)


def layers(instructions: int) -> Kernel:
    """A kernel of about so many instructions: x = x + gelu(x W), activations transposed ([width, tokens]) on chip."""
    buffers: list[Buffer] = []
    body: list[Instruction] = []

    def buffer(space: Space, shape: tuple[int, ...], dtype=dt.bfloat16, kind=BufferKind.TEMP) -> Buffer:
        buffers.append(Buffer(f"{space.value}{len(buffers)}", space, shape, dtype, kind))
        return buffers[-1]

    def add(cls: type[Instruction], **fields) -> None:
        body.append(cls(**fields))

    x_hbm = buffer(Space.HBM, (WIDTH, TOKENS), kind=BufferKind.INPUT)
    y_hbm = buffer(Space.HBM, (WIDTH, TOKENS), kind=BufferKind.OUTPUT)
    tiles = [buffer(Space.SBUF, (TILE, TOKENS)) for _ in range(WIDTH // TILE)]
    for k, tile in enumerate(tiles):
        add(DmaCopy, dst=tile.all, src=_piece(x_hbm, k * TILE, TILE, 0, TOKENS))
    params = []
    while len(body) < instructions:
        weight = buffer(Space.HBM, (WIDTH, WIDTH), kind=BufferKind.INPUT)
        params.append(weight.name)
        rows = []
        for k in range(WIDTH // TILE):
            row = buffer(Space.SBUF, (TILE, WIDTH))
            add(DmaCopy, dst=row.all, src=_piece(weight, k * TILE, TILE, 0, WIDTH))
            rows.append(row)
        results = []
        for m in range(WIDTH // TILE):
            psum = buffer(Space.PSUM, (TILE, TOKENS), dt.float32)
            for k, tile in enumerate(tiles):
                stationary = _piece(rows[k], 0, TILE, m * TILE, TILE)
                add(NcMatmul, dst=psum.all, stationary=stationary, moving=tile.all, accumulate=k > 0)
            hidden, total = buffer(Space.SBUF, (TILE, TOKENS)), buffer(Space.SBUF, (TILE, TOKENS))
            add(Activation, dst=hidden.all, op=act("gelu"), data=psum.all)
            for half in range(2):
                at = (0, TILE, half * TOKENS // 2, TOKENS // 2)
                old, new = _piece(tiles[m], *at), _piece(hidden, *at)
                add(TensorTensor, dst=_piece(total, *at), data1=old, data2=new, op=alu("add"))
            copy = buffer(Space.SBUF, (TILE, TOKENS))
            add(TensorCopy, dst=copy.all, src=total.all, engine=Engine.UNKNOWN)
            results.append(copy)
        tiles = results
    for k, tile in enumerate(tiles):
        add(DmaCopy, dst=_piece(y_hbm, k * TILE, TILE, 0, TOKENS), src=tile.all)
    inputs = (x_hbm.name, *params)
    return Kernel("layers", "trn2", tuple(buffers), inputs, (y_hbm.name,), tuple(body))


def main() -> None:
    """Print one line per pass."""
    kernel = layers(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
    count = len(kernel.body)
    marks = [("start", time.process_time())]

    def observe(name: str, _: object) -> None:
        marks.append((name, time.process_time()))

    program = lower_kernel(kernel, get("trn2"), observe=observe, verify=False)
    for (_, before), (name, after) in pairwise(marks):
        print(f"{name:20} {(after - before) / count * 1e6:7.1f} us per instruction")
    print(f"{'all':20} {(marks[-1][1] - marks[0][1]) / count * 1e6:7.1f} us per instruction, {count} instructions")
    start = time.process_time()
    verify_program(program, get("trn2"))
    print(f"{'verify_program':20} {(time.process_time() - start) / count * 1e6:7.1f} us per instruction")
    waits = sum(len(slot.waits) for _, slot in program.slots())
    print(f"{waits / count:.2f} waits per instruction, {len(program.semaphores)} semaphores")


if __name__ == "__main__":
    main()
