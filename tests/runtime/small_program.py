"""A small executable, built by hand: y = float32(x + scale * 2) and n = ids + offset, with a prologue for the 2."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier import target as targets
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.graph import Graph, GraphBuilder, TensorType
from ranvier.ir.kernel import Constant, Kernel, ParamSource
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.alu import alu
from ranvier.isa.dma import DmaCopy
from ranvier.isa.vector import TensorTensor
from ranvier.loc import Loc
from ranvier.runtime.calling import ArrayCalling, describe_graph
from ranvier.runtime.executable import Executable, FixedParams

ROWS, COLUMNS = 16, 32


def graphs() -> tuple[Graph, Graph, Graph]:
    """The imported graph, the one for the core, and the prologue."""
    kind = TensorType((ROWS, COLUMNS), dt.float32)
    ids = TensorType((ROWS, COLUMNS), dt.int64)
    b = GraphBuilder("small")
    x, n = b.input(kind, "x"), b.input(ids, "ids")
    scale = b.param("scale", TensorType((COLUMNS, ROWS), dt.float32))
    two = b.constant(np.full((1,), 2.0, np.float32))
    offset = b.constant(np.full((ROWS, COLUMNS), 7, np.int64))
    whole = b.build([b.add(x, b.transpose(b.mul(scale, two), (1, 0))), b.add(n, offset)])
    b = GraphBuilder("small.prologue")
    scale = b.param("scale", TensorType((COLUMNS, ROWS), dt.float32))
    prologue = b.build([b.mul(scale, b.constant(np.full((1,), 2.0, np.float32)))])
    b = GraphBuilder("small")
    x, n = b.input(kind, "x"), b.input(TensorType(ids.shape, dt.int32), "ids")
    derived = b.param("derived.0", TensorType((COLUMNS, ROWS), dt.float32))
    offset = b.constant(np.full((ROWS, COLUMNS), 7, np.int32))
    device = b.build([b.add(x, b.transpose(derived, (1, 0))), b.add(n, offset)])
    return whole, device, prologue


def kernel() -> Kernel:
    """Loads, two sums, stores. The parameter is transposed while it is loaded."""
    def hbm(name, dtype, kind):
        return Buffer(name, Space.HBM, (ROWS, COLUMNS), dtype, kind)

    x, ids = hbm("x", dt.float32, BufferKind.INPUT), hbm("ids", dt.int32, BufferKind.INPUT)
    w, seven = hbm("w", dt.float32, BufferKind.PARAM), hbm("seven", dt.int32, BufferKind.CONSTANT)
    y, n = hbm("y", dt.float32, BufferKind.OUTPUT), hbm("n", dt.int32, BufferKind.OUTPUT)
    buffers, body = [x, ids, w, seven, y, n], []
    for a, b, out, name in ((x, w, y, "add_scale"), (ids, seven, n, "add_offset")):
        loc = Loc("model.py", 12, 4, 12, 20, "forward", f"layer.{name}")
        tiles = [Buffer(f"{name}_{i}", Space.SBUF, (ROWS, COLUMNS), a.dtype) for i in range(3)]
        buffers += tiles
        body += [DmaCopy(dst=tiles[i].all, src=source.all, loc=loc) for i, source in enumerate((a, b))]
        left, right, total = (tile.all for tile in tiles)
        body.append(TensorTensor(dst=total, data1=left, data2=right, op=alu("add"), name=name, loc=loc))
        body.append(DmaCopy(dst=out.all, src=tiles[2].all, loc=loc))
    return Kernel(
        "small", "trn2", tuple(buffers), ("x", "ids"), ("y", "n"), tuple(body),
        params=(("w", ParamSource("derived.0", permute=(1, 0))),),
        constants=(("seven", Constant.of(np.full((ROWS, COLUMNS), 7), dt.int32)),),
    )


def executable(scale: np.ndarray | None = None) -> Executable:
    """The executable, with `scale` of [COLUMNS, ROWS] (counting up by default)."""
    if scale is None:
        scale = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(COLUMNS, ROWS)
    target = targets.get("trn2")
    whole, device, prologue = graphs()
    made = kernel()
    return Executable(
        program=lower_kernel(made, target), target=target, graph=whole, device_graph=device, prologue=prologue,
        calling=ArrayCalling(describe_graph(whole)), live=FixedParams({"scale": scale}), lowered=made,
        manifest={"model": "small", "dtype": "float32", "target": target.name},
    )


def inputs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x (float32) and ids (int64)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((ROWS, COLUMNS), np.float32), rng.integers(-1000, 1000, (ROWS, COLUMNS))
