"""The graph level: pure tensor operations, their reference meaning, and a builder for graphs."""

from ranvier.graph.attention import Attention
from ranvier.graph.builder import GraphBuilder
from ranvier.graph.composite import (
    BatchNorm,
    Gelu,
    GroupNorm,
    LayerNorm,
    Linear,
    LogSoftmax,
    RmsNorm,
    Rope,
    Silu,
    Softmax,
)
from ranvier.graph.contract import Conv, MatMul, Pool
from ranvier.graph.core import (
    CONSTANT_LIMIT_BYTES,
    Constant,
    Graph,
    Node,
    Op,
    Param,
    TensorType,
    Value,
    infer_types,
)
from ranvier.graph.elementwise import Binary, Cast, Clamp, Compare, Select, Unary
from ranvier.graph.evaluate import convert_integer, evaluate_graph
from ranvier.graph.indexing import Full, Iota, ScatterAlong, Sort, Take, TakeAlong, TopK
from ranvier.graph.movement import Broadcast, Concat, Pad, Reshape, Reverse, Slice, Transpose
from ranvier.graph.ops import ALL_OPS
from ranvier.graph.reduce import ArgReduce, CumSum, Reduce
from ranvier.graph.text import parse_graph, print_graph
from ranvier.graph.verify import verify

__all__ = [
    "ALL_OPS",
    "CONSTANT_LIMIT_BYTES",
    "ArgReduce",
    "Attention",
    "BatchNorm",
    "Binary",
    "Broadcast",
    "Cast",
    "Clamp",
    "Compare",
    "Concat",
    "Constant",
    "Conv",
    "CumSum",
    "Full",
    "Gelu",
    "Graph",
    "GraphBuilder",
    "GroupNorm",
    "Iota",
    "LayerNorm",
    "Linear",
    "LogSoftmax",
    "MatMul",
    "Node",
    "Op",
    "Pad",
    "Param",
    "Pool",
    "Reduce",
    "Reshape",
    "Reverse",
    "RmsNorm",
    "Rope",
    "ScatterAlong",
    "Select",
    "Silu",
    "Slice",
    "Softmax",
    "Sort",
    "Take",
    "TakeAlong",
    "TensorType",
    "TopK",
    "Transpose",
    "Unary",
    "Value",
    "convert_integer",
    "evaluate_graph",
    "infer_types",
    "parse_graph",
    "print_graph",
    "verify",
]
