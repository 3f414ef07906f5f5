"""Kernels for tests: a small multi-layer perceptron, and random ones."""

from __future__ import annotations

import random
import sys

from ranvier import dtypes as dt
from ranvier.ir.kernel import Kernel
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Space
from ranvier.isa.act import act
from ranvier.isa.alu import alu
from ranvier.isa.dma import DmaCopy
from ranvier.isa.record import Instruction
from ranvier.isa.scalar import Activation
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy, TensorTensor
from ranvier.loc import Loc


class KernelBuilder:
    """Collects buffers and instructions in program order. `scope` is the part of the model that these belong to."""

    def __init__(self, name: str = "test", target: str = "trn2"):
        self.name, self.target, self.scope = name, target, ""
        self.buffers: list[Buffer] = []
        self.body: list[Instruction] = []

    def buffer(self, space: str, shape, dtype="float32", kind: str = "temp", name: str = "") -> Buffer:
        name = name or f"{space[0]}{len(self.buffers)}"
        self.buffers.append(Buffer(name, Space(space), tuple(shape), dt.dtype(dtype), BufferKind(kind)))
        return self.buffers[-1]

    def add(self, kind: type[Instruction], **fields) -> None:
        frame = sys._getframe(1)
        loc = Loc(frame.f_code.co_filename, frame.f_lineno, function=frame.f_code.co_name, scope=self.scope)
        self.body.append(kind(loc=loc, **fields))

    def kernel(self) -> Kernel:
        names = {kind: tuple(b.name for b in self.buffers if b.kind is kind) for kind in BufferKind}
        return Kernel(
            self.name, self.target, tuple(self.buffers), names[BufferKind.INPUT], names[BufferKind.OUTPUT],
            tuple(self.body),
        )  # fmt: skip


def columns(buffer: Buffer, first: int, count: int, partitions: int | None = None) -> AccessPattern:
    """Columns of a 2-D buffer on chip, or of a matrix in HBM."""
    rows = partitions or buffer.shape[0]
    stride = 1 if buffer.space.on_chip else buffer.shape[1]
    return AccessPattern(buffer, first, ((stride, rows), (1, count)), buffer.dtype)


def mlp(layers: int = 2, width: int = 256, rows: int = 128, dtype: str = "bfloat16", target: str = "trn2") -> Kernel:
    """x -> gelu(x @ w) + x, `layers` times, on [rows <= 512, width] stored as [width, rows], features on partitions."""
    b = KernelBuilder("mlp", target)
    x = b.buffer("hbm", (width, rows), dtype, "input", "x")
    y = b.buffer("hbm", (width, rows), dtype, "output", "y")
    weights = [b.buffer("hbm", (width, width), dtype, "input", f"w{i}") for i in range(layers)]
    tiles = width // 128
    state = []
    for k in range(tiles):
        state.append(b.buffer("sbuf", (128, rows), dtype))
        b.add(DmaCopy, dst=state[k].all, src=_rows(x, k))
    for i, weight in enumerate(weights):
        b.scope = f"layers.{i}.linear"
        held = [b.buffer("sbuf", (128, width), dtype) for _ in range(tiles)]
        for k in range(tiles):
            b.add(DmaCopy, dst=held[k].all, src=_rows(weight, k))
        following = []
        for m in range(tiles):
            b.scope = f"layers.{i}.linear"
            product = b.buffer("psum", (128, rows))
            for k in range(tiles):
                stationary = columns(held[k], m * 128, 128)
                b.add(NcMatmul, dst=product.all, stationary=stationary, moving=state[k].all, accumulate=k > 0)
            b.scope = f"layers.{i}.gelu"
            active, total = b.buffer("sbuf", (128, rows), dtype), b.buffer("sbuf", (128, rows), dtype)
            b.add(Activation, dst=active.all, data=product.all, op=act("gelu"))
            b.add(TensorTensor, dst=total.all, data1=active.all, data2=state[m].all, op=alu("add"))
            following.append(total)
        state = following
    b.scope = ""
    for k in range(tiles):
        b.add(DmaCopy, dst=_rows(y, k), src=state[k].all)
    return b.kernel()


def _rows(buffer: Buffer, tile: int) -> AccessPattern:
    width = buffer.shape[1]
    return AccessPattern(buffer, tile * 128 * width, ((width, 128), (1, width)), buffer.dtype)


def random_kernel(seed: int, instructions: int = 30, target: str = "trn2") -> Kernel:
    """Loads, copies, sums, activations and matmuls on tiles chosen at random, which all come together in the output."""
    rng = random.Random(seed)
    b = KernelBuilder(f"random{seed}", target)
    width = rng.choice((64, 128, 256))
    source = b.buffer("hbm", (128, width), "float32", "input", "source")
    result = b.buffer("hbm", (128, width), "float32", "output", "result")
    live = []

    def fresh(space: str = "sbuf") -> Buffer:
        return b.buffer(space, (128, width))

    for _ in range(instructions):
        choice = rng.random()
        if not live or choice < 0.15:
            live.append(fresh())
            b.add(DmaCopy, dst=live[-1].all, src=source.all)
        elif choice < 0.35:
            live.append(fresh())
            b.add(TensorCopy, dst=live[-1].all, src=rng.choice(live[:-1] or live[:1]).all)
        elif choice < 0.55:
            left, right = rng.choice(live), rng.choice(live)
            live.append(fresh())
            b.add(TensorTensor, dst=live[-1].all, data1=left.all, data2=right.all, op=alu("add"))
        elif choice < 0.7:
            data = rng.choice(live)
            live.append(fresh())
            b.add(Activation, dst=live[-1].all, data=data.all, op=act(rng.choice(("tanh", "sin", "relu"))))
        elif choice < 0.9 and width >= 128:
            stationary, moving, product = rng.choice(live), rng.choice(live), fresh("psum")
            held = columns(stationary, 0, 128)
            b.add(NcMatmul, dst=product.all, stationary=held, moving=moving.all, accumulate=False)
            live.append(fresh())
            b.add(Activation, dst=live[-1].all, data=product.all, op=act("tanh"))
        else:  # overwrite a tile that others have read: an ordering to keep
            b.add(Activation, dst=rng.choice(live).all, data=rng.choice(live).all, op=act("tanh"))
    total = live[0]
    for tile in live[1:]:
        joined = fresh()
        b.add(TensorTensor, dst=joined.all, data1=total.all, data2=tile.all, op=alu("add"))
        total = joined
    b.add(DmaCopy, dst=result.all, src=total.all)
    return b.kernel()
