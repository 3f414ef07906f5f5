"""Lowering: a fused graph with layouts to a kernel, by calling the kernel library under a recording builder."""

from __future__ import annotations

from collections.abc import Callable

from ranvier import dtypes as dt
from ranvier import loc as locations
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout
from ranvier.compiler.lower.along import lower_cum_sum, lower_scatter_along, lower_take_along
from ranvier.compiler.lower.attention import lower_attention
from ranvier.compiler.lower.context import Lowering, device_dtype
from ranvier.compiler.lower.contract import lower_linear, lower_matmul
from ranvier.compiler.lower.convolution import lower_conv, lower_pool
from ranvier.compiler.lower.movement import lower_movement
from ranvier.compiler.lower.pointwise import lower_pointwise
from ranvier.compiler.lower.reduce import lower_reduce
from ranvier.compiler.lower.rowwise import lower_rope, lower_row_function, lower_take
from ranvier.compiler.lower.search import lower_arg_reduce, lower_top_k
from ranvier.compiler.lower.view import HbmView
from ranvier.errors import error
from ranvier.graph.attention import Attention
from ranvier.graph.composite import LayerNorm, Linear, LogSoftmax, RmsNorm, Rope, Softmax
from ranvier.graph.contract import Conv, MatMul, Pool
from ranvier.graph.core import Graph, Op, Value
from ranvier.graph.indexing import Full, Iota, ScatterAlong, Sort, Take, TakeAlong, TopK
from ranvier.graph.movement import Broadcast, Concat, Pad, Reshape, Reverse, Slice, Transpose
from ranvier.graph.reduce import ArgReduce, CumSum, Reduce
from ranvier.ir.kernel import Kernel
from ranvier.nki.builder import RecordingBuilder
from ranvier.target.spec import Target

HANDLERS: dict[type[Op], Callable[[Lowering, Group], None]] = {
    Linear: lower_linear,
    MatMul: lower_matmul,
    Attention: lower_attention,
    Conv: lower_conv,
    Pool: lower_pool,
    LayerNorm: lower_row_function,
    RmsNorm: lower_row_function,
    Softmax: lower_row_function,
    LogSoftmax: lower_row_function,
    Rope: lower_rope,
    Reduce: lower_reduce,
    Take: lower_take,
    TakeAlong: lower_take_along,
    ScatterAlong: lower_scatter_along,
    CumSum: lower_cum_sum,
    ArgReduce: lower_arg_reduce,
    TopK: lower_top_k,
    Sort: lower_top_k,
    **dict.fromkeys((Reshape, Transpose, Broadcast, Slice, Reverse, Concat, Pad, Full, Iota), lower_movement),
}


def lower(graph: Graph, groups: tuple[Group, ...], layouts: dict[Value, Layout], target: Target) -> Kernel:
    """The kernel of a graph. Raises E0604 for an operation that has no lowering in this form."""
    _require_tensors(graph)
    builder = RecordingBuilder(target, graph.name)
    producers = graph.producers()
    with builder, locations.pinned(None):
        ctx = Lowering(graph, layouts, builder, target)
        for i, value in enumerate(graph.inputs):
            tensor = builder.input(value.name or f"input{i}", value.shape or (1,), device_dtype(value.dtype))
            ctx.put_view(value, _shaped(HbmView.whole(tensor.access.buffer), value.shape))
        for group in groups:
            with locations.pinned(group.last.loc or group.nodes[0].loc):
                _lower_group(ctx, group)
        for i, value in enumerate(graph.outputs):
            with locations.pinned(producers[value].loc if value in producers else None):
                tensor = builder.output(f"output{i}", value.shape or (1,), device_dtype(value.dtype))
                _write_output(ctx, value, _shaped(HbmView.whole(tensor.access.buffer), value.shape))
    return builder.finish()


def _require_tensors(graph: Graph) -> None:
    """No instruction covers nothing, and no engine has float64. Empty operands of concatenations are gone already."""
    producers = graph.producers()
    for value in graph.values():
        if value.type.elements == 0:
            problem, fix = "has no elements", "leave tensors without elements out of the model"
        elif value.dtype is dt.float64:
            problem, fix = "is float64, which the core lacks", "call float() on the model and on its inputs"
        else:
            continue
        node = producers.get(value)
        name = value.name or (node.op.mnemonic if node else "")
        raise error(
            "E0604", f"the tensor %{name}: {value.type} {problem}", where=node.loc if node else None, fix=fix,
        )  # fmt: skip


def _shaped(view: HbmView, shape: tuple[int, ...]) -> HbmView:
    found = view.reshape(shape)
    assert found is not None
    return found


def _lower_group(ctx: Lowering, group: Group) -> None:
    anchor = group.anchor
    if anchor is None:
        lower_pointwise(ctx, group)
        return
    handler = HANDLERS.get(type(anchor.op))
    if handler is None:
        shapes = ", ".join(str(v.type) for v in anchor.inputs)
        raise error("E0604", f"no lowering for {anchor.op} on {shapes}", where=anchor.loc)
    handler(ctx, group)


def _write_output(ctx: Lowering, value: Value, view: HbmView) -> None:
    for layout in ctx.has_tiles(value):
        if view.regroup((layout.a, layout.b, layout.c)) is not None:
            ctx.store(ctx.tiles(value, layout), view)
            return
    ctx.copy_view(view, ctx.view(value))
