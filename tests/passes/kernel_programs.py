"""Random kernels for the tests of the kernel-level passes, and small ones built by hand."""

from __future__ import annotations

import random

import numpy as np

from ranvier import dtypes as dt
from ranvier.ir.kernel import Kernel
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Space
from ranvier.isa.alu import alu
from ranvier.isa.dma import DmaCopy
from ranvier.isa.record import Instruction
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy, TensorTensor
from ranvier.target import get
from ranvier.target.spec import Engine, Target

DMA_ENGINES = (Engine.UNKNOWN, Engine.UNKNOWN, Engine.SYNC, Engine.SCALAR, Engine.GPSIMD)


def tiny_target(sbuf_bytes: int = 1024, name: str = "trn2") -> Target:
    """A target with so little SBUF that memory is reused and spilled."""
    full = get(name)
    return full.replace("sbuf.bytes_per_partition", int(full.sbuf.reserved_bytes_per_partition.value) + sbuf_bytes)


def columns(buffer: Buffer, start: int, count: int, *, step: int = 1, rows: int | None = None) -> AccessPattern:
    """`count` columns of a 2-D tensor from `start` on, every `step`-th."""
    rows = buffer.shape[0] if rows is None else rows
    first = (1, rows) if buffer.space.on_chip else (buffer.shape[1], rows)
    return AccessPattern(buffer, start, (first, (step, count)), buffer.dtype)


class Maker:
    """Collects buffers and instructions into a kernel."""

    def __init__(self, target: Target):
        self.target = target
        self.buffers: list[Buffer] = []
        self.body: list[Instruction] = []

    def buffer(self, space: Space, shape: tuple[int, ...], dtype=dt.float32, kind=BufferKind.TEMP, name="") -> Buffer:
        made = Buffer(name or f"{space.value}{len(self.buffers)}", space, shape, dtype, kind)
        self.buffers.append(made)
        return made

    def add(self, inst: Instruction) -> None:
        self.body.append(inst)

    def kernel(self) -> Kernel:
        names = {k: tuple(b.name for b in self.buffers if b.kind is k) for k in BufferKind}
        ends = names[BufferKind.INPUT], names[BufferKind.OUTPUT]
        return Kernel("made", self.target.name, tuple(self.buffers), *ends, tuple(self.body))


class RandomKernel(Maker):
    """A random kernel: loads, copies, sums, products, matmuls, stores on tiles of random sizes, written in pieces."""

    def __init__(self, rng: random.Random, target: Target, length: int):
        super().__init__(target)
        self.rng = rng
        self.live: list[Buffer] = []  # tiles that are written everywhere
        self.psum: list[Buffer] = []
        self.inputs = [self._hbm(f"in{i}", BufferKind.INPUT) for i in range(3)]
        self.temps: list[Buffer] = []
        self.outputs = 0
        steps = (self.load, self.load_temp, *[self.compute] * 3, self.matmul, self.store, self.update)
        for _ in range(length):
            rng.choice(steps)()
        for tile in rng.sample(self.live, min(12, len(self.live))):
            self.store_output(tile)

    def _hbm(self, name: str, kind: BufferKind) -> Buffer:
        shape = self.rng.choice((16, 64, 128)), self.rng.choice((8, 24, 64))
        return self.buffer(Space.HBM, shape, kind=kind, name=name)

    def _tile(self, rows: int, count: int) -> Buffer:
        return self.buffer(Space.SBUF, (rows, count))

    def _split(self, count: int) -> list[tuple[int, int, int]]:
        """(start, count, step) of pieces that together are all columns."""
        kind = self.rng.randrange(4)
        if kind == 0 and count % 2 == 0:
            return [(0, count // 2, 2), (1, count // 2, 2)]
        if kind == 1 and count >= 4:
            at = self.rng.randrange(1, count)
            return [(0, at, 1), (at, count - at, 1)]
        return [(0, count, 1)]

    def _fill(self, tile: Buffer, source: Buffer) -> None:
        for start, count, step in self._split(tile.shape[1]):
            to, of = columns(tile, start, count, step=step), columns(source, start, count, step=step)
            self.add(DmaCopy(dst=to, src=of, engine=self.rng.choice(DMA_ENGINES)))

    def load(self) -> None:
        source = self.rng.choice(self.inputs)
        tile = self._tile(source.shape[0], source.shape[1])
        self._fill(tile, source)
        self.live.append(tile)

    def load_temp(self) -> None:
        if self.temps:
            source = self.rng.choice(self.temps)
            tile = self._tile(source.shape[0], source.shape[1])
            self._fill(tile, source)
            self.live.append(tile)

    def store(self) -> None:
        if self.live:
            tile = self.rng.choice(self.live)
            same = [t for t in self.temps if t.shape == tile.shape]
            if same and self.rng.random() < 0.5:
                to = self.rng.choice(same)
            else:
                to = self.buffer(Space.HBM, tile.shape)
                self.temps.append(to)
            for start, count, step in self._split(tile.shape[1]):
                there, here = columns(to, start, count, step=step), columns(tile, start, count, step=step)
                self.add(DmaCopy(dst=there, src=here, engine=self.rng.choice(DMA_ENGINES)))

    def store_output(self, tile: Buffer) -> None:
        to = self.buffer(Space.HBM, tile.shape, kind=BufferKind.OUTPUT, name=f"out{self.outputs}")
        self.outputs += 1
        self.add(DmaCopy(dst=to.all, src=tile.all))

    def _pair(self) -> tuple[Buffer, Buffer] | None:
        if not self.live:
            return None
        a = self.rng.choice(self.live)
        return a, self.rng.choice([b for b in self.live if b.shape == a.shape])

    def compute(self) -> None:
        pair = self._pair()
        if pair is not None:
            a, b = pair
            tile = self._tile(*a.shape)
            for start, count, step in self._split(a.shape[1]):
                x, y, z = (columns(t, start, count, step=step) for t in (a, b, tile))
                if self.rng.random() < 0.4:
                    self.add(TensorCopy(dst=z, src=x, engine=self.rng.choice(self._copy_engines(z, x))))
                else:
                    self.add(TensorTensor(dst=z, data1=x, data2=y, op=alu(self.rng.choice(("add", "maximum")))))
            self.live.append(tile)

    def _copy_engines(self, to: AccessPattern, source: AccessPattern) -> list[Engine]:
        return [Engine.UNKNOWN, *TensorCopy(dst=to, src=source).legal_engines(self.target)]

    def update(self) -> None:
        """Overwrite part of a tile in place."""
        pair = self._pair()
        if pair is not None:
            a, b = pair
            start, count, step = self.rng.choice(self._split(a.shape[1]))
            x, y = columns(a, start, count, step=step), columns(b, start, count, step=step)
            self.add(TensorTensor(dst=x, data1=x, data2=y, op=alu("maximum")))

    def matmul(self) -> None:
        stationary = [t for t in self.live if t.shape[1] <= 128]
        if not stationary:
            return
        a = self.rng.choice(stationary)
        b = self.rng.choice([t for t in self.live if t.shape[0] == a.shape[0]])
        out = self.buffer(Space.PSUM, (a.shape[1], b.shape[1]))
        for k in range(self.rng.randrange(1, 4)):
            self.add(NcMatmul(dst=out.all, stationary=a.all, moving=b.all, accumulate=k > 0))
        self.psum.append(out)
        for waiting in self.psum[: len(self.psum) - self.rng.randrange(7)]:
            self.psum.remove(waiting)
            tile = self._tile(*waiting.shape)
            self.add(TensorCopy(dst=tile.all, src=waiting.all))
            self.live.append(tile)


def random_kernel(seed: int, target: Target, length: int = 40) -> Kernel:
    return RandomKernel(random.Random(seed), target, length).kernel()


def random_inputs(kernel: Kernel, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    # Small integers: sums and products of matmuls stay finite, and any lost update shows.
    return [rng.integers(-2, 3, kernel.by_name[n].shape).astype(np.float32) for n in kernel.inputs]
