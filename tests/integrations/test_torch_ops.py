"""Every rule of the PyTorch front end, against eager PyTorch: in float64 to 1e-12, sums in float32 to 1e-5 too."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ranvier import dtypes  # noqa: E402
from ranvier.frontends.torch.import_fx import import_model  # noqa: E402
from ranvier.frontends.torch.ops_nn import NN  # noqa: E402
from ranvier.frontends.torch.ops_reduce import REDUCE  # noqa: E402
from ranvier.frontends.torch.table import all_rules  # noqa: E402
from ranvier.frontends.torch.tensors import to_numpy  # noqa: E402


@dataclass(frozen=True)
class In:
    """A tensor operand: random of `shape`; `kind` says of what range or dtype."""

    shape: tuple[int, ...]
    kind: str = "normal"

    def make(self, dtype: torch.dtype, seed: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(seed)
        x = torch.randn(self.shape, generator=source, dtype=torch.float64)
        return {
            "normal": lambda: x.to(dtype),
            "positive": lambda: (x.abs() + 0.25).to(dtype),
            "unit": lambda: torch.tanh(x).mul(0.9).to(dtype),
            "special": lambda: torch.where(x > 0.7, math.inf, torch.where(x < -0.7, math.nan, x)).to(dtype),
            "int": lambda: torch.randint(-9, 10, self.shape, generator=source),
            "count": lambda: torch.randint(1, 5, self.shape, generator=source),
            "int32": lambda: torch.randint(-9, 10, self.shape, generator=source, dtype=torch.int32),
            "bool": lambda: x > 0,
            "distinct": lambda: torch.randperm(math.prod(self.shape), generator=source).reshape(self.shape).to(dtype),
        }[self.kind]() if not self.kind.startswith("index") else torch.randint(
            0, int(self.kind[5:]), self.shape, generator=source)


@dataclass(frozen=True)
class Case:
    """One call of an operator. `take` chooses among several results."""

    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    take: int | None = None


def call(*args: Any, take: int | None = None, **kwargs: Any) -> Case:
    return Case(args, kwargs, take)


X, Y, ROW, COLUMN = In((3, 4)), In((3, 4)), In((4,)), In((3, 1))
POSITIVE, N, B = In((3, 4), "positive"), In((3, 4), "int"), In((3, 4), "bool")
COUNT, IMAGE, SEQUENCE = In((3, 4), "count"), In((2, 4, 6, 6)), In((2, 3, 8))
DISTINCT = In((3, 4), "distinct")
Q, K, V = In((2, 4, 5, 8)), In((2, 4, 6, 8)), In((2, 4, 6, 8))


def _simple() -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for name in ("abs", "absolute", "neg", "negative", "exp", "expm1", "special_expm1", "square", "tanh", "sigmoid",
                 "erf", "special_erf", "sin", "cos", "tan", "relu", "sign", "sgn", "floor", "ceil", "round", "trunc",
                 "fix", "exp2", "erfc", "gelu", "silu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu",
                 "elu", "softplus", "log_sigmoid", "mish", "positive"):
        cases[f"{name}.default"] = [call(X)]
    for name in ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal"):
        cases[f"{name}.default"] = [call(POSITIVE)]
    for name in ("abs", "exp", "neg", "floor", "relu", "erf", "rsqrt"):
        cases[f"{name}.default"].append(call(COUNT))
    for name in ("isnan", "isinf", "isfinite"):
        cases[f"{name}.default"] = [call(In((3, 4), "special")), call(N)]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        cases[f"{name}.Tensor"] = [call(X, Y), call(X, N), call(N, N)]
        cases[f"{name}.Scalar"] = [call(X, 0.25), call(N, 2), call(N, 1.5)]
    for name in ("logical_and", "logical_or", "logical_xor"):
        cases[f"{name}.default"] = [call(B, B), call(X, N)]
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        cases[f"{name}.Tensor"] = [call(N, N), call(B, B)]
        cases[f"{name}.Scalar"] = [call(N, 5)]
        short = f"__{name.split('_')[1]}__"
        cases[f"{short}.Tensor"] = [call(B, B)]
        cases[f"{short}.Scalar"] = [call(N, 5)]
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        cases[f"{name}.Tensor"] = [call(COUNT, COUNT)]
        cases[f"{name}.Tensor_Scalar"] = [call(COUNT, 2)]
    for name in ("maximum.default", "minimum.default", "max.other", "min.other"):
        cases[name] = [call(X, Y), call(X, ROW), call(X, N)]
    for name in ("clone", "contiguous", "alias", "detach", "lift_fresh_copy", "lift_fresh", "lift", "resolve_conj",
                 "resolve_neg"):
        cases[f"{name}.default"] = [call(X)]
    for name in ("sum", "mean", "prod"):
        cases[f"{name}.default"] = [call(X)]
    for name in ("amax", "amin"):
        cases[f"{name}.default"] = [call(X), call(X, [1]), call(X, [-1], True), call(In((2, 3, 4)), [0, -1])]
    for name in ("max", "min"):
        cases[f"{name}.default"] = [call(X)]
        cases[f"{name}.dim"] = [call(X, 1, take=0), call(DISTINCT, -1, True, take=1)]
        cases[f"arg{name}.default"] = [call(X), call(DISTINCT, 1), call(DISTINCT, 0, True)]
    for name in ("any", "all"):
        cases[f"{name}.default"] = [call(B), call(X)]
        cases[f"{name}.dim"] = [call(B, 1), call(In((3, 4), "index2"), -1, True)]
        cases[f"{name}.dims"] = [call(B, [0, 1])]
    for name in ("zeros", "ones"):
        cases[f"{name}.default"] = [call([2, 3])]
        cases[f"{name}_like.default"] = [call(X), call(X, dtype=torch.int32)]
        cases[f"new_{name}.default"] = [call(X, [2, 2])]
    return cases


CASES: dict[str, list[Case]] = _simple() | {
    "add.Tensor": [call(X, Y), call(X, ROW, alpha=2), call(X, N), call(N, 2.5), call(B, B), call(X, 2),
                   call(COLUMN, ROW)],
    "add.Scalar": [call(X, 2.5), call(N, 2, 3)],
    "sub.Tensor": [call(X, Y), call(X, Y, alpha=3), call(N, N)],
    "sub.Scalar": [call(X, 1.5)],
    "subtract.Tensor": [call(X, Y)],
    "rsub.Tensor": [call(X, Y)],
    "rsub.Scalar": [call(X, 1.0), call(N, 1), call(X, 2, 3)],
    "mul.Tensor": [call(X, Y), call(X, 0.5), call(B, X), call(B, B), call(N, N)],
    "mul.Scalar": [call(X, 2), call(N, 0.5)],
    "div.Tensor": [call(X, POSITIVE), call(N, COUNT), call(X, 3), call(N, 4)],
    "div.Scalar": [call(X, 3)],
    "true_divide.Tensor": [call(N, COUNT)],
    "div.Tensor_mode": [call(X, POSITIVE, rounding_mode=m) for m in ("floor", "trunc", None)]
    + [call(N, COUNT, rounding_mode=m) for m in ("floor", "trunc")],
    "div.Scalar_mode": [call(X, 0.7, rounding_mode="floor"), call(N, 3, rounding_mode="trunc")],
    "remainder.Tensor": [call(X, POSITIVE), call(N, COUNT)],
    "remainder.Scalar": [call(X, 0.7), call(N, 3), call(N, -3)],
    "fmod.Tensor": [call(X, POSITIVE), call(N, COUNT)],
    "fmod.Scalar": [call(X, 0.7), call(N, 3)],
    "floor_divide.default": [call(X, POSITIVE), call(N, COUNT)],
    "floor_divide.Scalar": [call(N, 3)],
    "atan2.default": [call(X, Y)],
    "bitwise_not.default": [call(N), call(B)],
    "logical_not.default": [call(B), call(N), call(X)],
    "__lshift__.Scalar": [call(COUNT, 2)],
    "__rshift__.Scalar": [call(N, 1)],
    "pow.Tensor_Scalar": [call(X, 2), call(POSITIVE, 0.5), call(POSITIVE, -0.5), call(X, 3), call(POSITIVE, -1),
                          call(N, 2),
                          call(X, 1), call(POSITIVE, 1.7)],
    "pow.Tensor_Tensor": [call(POSITIVE, X), call(N, COUNT)],
    "pow.Scalar": [call(10000.0, X), call(2, COUNT)],
    "lerp.Scalar": [call(X, Y, 0.3)],
    "lerp.Tensor": [call(X, Y, In((3, 4), "unit"))],
    "addcmul.default": [call(X, Y, X, value=0.5)],
    "addcdiv.default": [call(X, Y, POSITIVE, value=0.5)],
    "clamp.default": [call(X, -0.5, 0.5), call(X, 0), call(X, None, 0.1), call(N, -2, 3)],
    "clamp_min.default": [call(X, 0.1)],
    "clamp_max.default": [call(X, 0.1)],
    "clip.default": [call(X, -0.1, 0.1)],
    "clamp.Tensor": [call(X, ROW, None), call(X, None, COLUMN)],
    "clamp_min.Tensor": [call(X, Y)],
    "clamp_max.Tensor": [call(X, Y)],
    "where.self": [call(B, X, Y), call(B, X, N), call(In((4,), "bool"), X, COLUMN)],
    "where.ScalarOther": [call(B, X, 0.0)],
    "where.ScalarSelf": [call(B, -math.inf, X)],
    "where.Scalar": [call(B, 1.0, 2.0)],
    "masked_fill.Scalar": [call(X, B, -math.inf), call(N, B, 3)],
    "masked_fill.Tensor": [call(X, B, In(()))],
    "nan_to_num.default": [call(In((3, 4), "special")), call(In((3, 4), "special"), 1.0, 5.0, -5.0)],
    "prelu.default": [call(IMAGE, In((4,)))],
    "_prelu_kernel.default": [call(X, In((1, 4)))],
    "glu.default": [call(X), call(In((4, 3)), 0)],
    "dropout.default": [call(X, 0.5, False), call(X, 0.0, True)],
    "native_dropout.default": [call(X, 0.5, False, take=0)],
    "feature_dropout.default": [call(IMAGE, 0.5, False)],
    # views
    "to.dtype": [call(X, torch.int64), call(N, torch.float32), call(X, torch.bool), call(X, torch.float32)],
    "to.device": [call(X, "cpu", torch.int32)],
    "to.dtype_layout": [call(X, dtype=torch.int32)],
    "to.other": [call(N, X)],
    "to.prim_Device": [call(X, "cpu")],
    "to.prim_dtype": [call(X, torch.int64)],
    "_to_copy.default": [call(X, dtype=torch.int64), call(X)],
    "type_as.default": [call(N, X)],
    "view.default": [call(X, [2, 6]), call(X, [-1])],
    "_unsafe_view.default": [call(X, [12])],
    "reshape.default": [call(X, [6, -1])],
    "view_as.default": [call(X, In((12,)))],
    "reshape_as.default": [call(X, In((12,)))],
    "flatten.using_ints": [call(IMAGE, 1), call(IMAGE, 1, 2)],
    "unflatten.int": [call(X, 1, [2, 2])],
    "squeeze.default": [call(In((1, 3, 1)))],
    "squeeze.dim": [call(In((1, 3, 1)), -1), call(In((1, 3, 1)), 1)],
    "squeeze.dims": [call(In((1, 3, 1)), [0, 2])],
    "unsqueeze.default": [call(X, 0), call(X, -1)],
    "permute.default": [call(IMAGE, [0, 2, -1, 1])],
    "transpose.int": [call(IMAGE, 1, -1), call(In(()), 0, 0)],
    "swapaxes.default": [call(X, 0, 1)],
    "swapdims.default": [call(X, 0, 1)],
    "t.default": [call(X), call(ROW)],
    "numpy_T.default": [call(X)],
    "mT.default": [call(IMAGE)],
    "movedim.int": [call(IMAGE, 1, -1)],
    "movedim.intlist": [call(IMAGE, [0, 1], [2, 3])],
    "moveaxis.int": [call(IMAGE, 0, 2)],
    "expand.default": [call(COLUMN, [3, 4]), call(ROW, [2, -1]), call(COLUMN, [-1, 5])],
    "expand_as.default": [call(COLUMN, X)],
    "broadcast_to.default": [call(ROW, [3, 4])],
    "select.int": [call(X, 0, 1), call(X, -1, -1)],
    "slice.Tensor": [call(X, 1, 1, 3), call(X, 0, -2), call(X, 1, None, None, 2), call(X, 1, 0, 9223372036854775807)],
    "narrow.default": [call(X, 1, 1, 2), call(X, 1, -2, 2)],
    "split.Tensor": [call(X, 3, 1, take=1)],
    "split_with_sizes.default": [call(X, [1, 3], 1, take=1)],
    "split.sizes": [call(X, [1, 3], -1, take=0)],
    "split_copy.Tensor": [call(X, 2, take=1)],
    "split_with_sizes_copy.default": [call(X, [1, 2], take=1)],
    "chunk.default": [call(X, 2, 1, take=1)],
    "unsafe_split.Tensor": [call(X, 2, take=1)],
    "unsafe_chunk.default": [call(X, 2, take=1)],
    "unbind.int": [call(X, 1, take=2)],
    "cat.default": [call([X, Y]), call([X, COLUMN], -1), call([X, N])],
    "concat.default": [call([X, Y])],
    "concatenate.default": [call([X, Y], 1)],
    "stack.default": [call([X, Y]), call([X, Y], -1)],
    "repeat.default": [call(X, [2, 1]), call(ROW, [2, 3]), call(X, [2, 1, 3])],
    "tile.default": [call(X, [2]), call(X, [2, 2])],
    "repeat_interleave.self_int": [call(X, 3, 1), call(X, 2)],
    "flip.default": [call(X, [1]), call(X, [-1, 0])],
    "roll.default": [call(X, [1], [1]), call(X, [-1, 2], [0, 1]), call(X, [5])],
    "constant_pad_nd.default": [call(X, [1, 2]), call(X, [-1, 1, 2, 0], 3.0)],
    "pad.default": [call(X, [1, 1, 2, 2]), call(IMAGE, [1, 2, 2, 1], "reflect"), call(IMAGE, [1, 2, 0, 1], "replicate"),
                    call(IMAGE, [2, 1, 1, 1], "circular")],
    "reflection_pad1d.default": [call(SEQUENCE, [2, 1])],
    "reflection_pad2d.default": [call(IMAGE, [2, 1, 1, 0])],
    "replication_pad1d.default": [call(SEQUENCE, [2, 1])],
    "replication_pad2d.default": [call(IMAGE, [2, 1, 1, 0])],
    "pixel_shuffle.default": [call(IMAGE, 2)],
    "pixel_unshuffle.default": [call(IMAGE, 2)],
    "select_scatter.default": [call(X, ROW, 0, 1), call(X, In((3,)), 1, -1)],
    "slice_scatter.default": [call(X, In((3, 2)), 1, 1, 3), call(X, X)],
    "diff.default": [call(X), call(N, 2, 0), call(X, 1, -1, COLUMN), call(B)],
    # reductions
    "sum.dim_IntList": [call(X, [1]), call(X, [-1], True), call(N, [0]), call(B, [1]), call(X, None), call(X, [0, 1])],
    "mean.dim": [call(X, [1]), call(X, [-1], True), call(IMAGE, [2, 3])],
    "prod.dim_int": [call(X, 1), call(COUNT, 0, True)],
    "count_nonzero.default": [call(B), call(In((3, 4), "index3"), 1)],
    "count_nonzero.dim_IntList": [call(In((3, 4), "index3"), [0])],
    "logsumexp.default": [call(X, [1]), call(X, [0], True)],
    "var.correction": [call(X, [1]), call(X, [1], correction=0, keepdim=True), call(X)],
    "var.dim": [call(X, [1], False), call(X, [1], True, True)],
    "var.default": [call(X), call(X, False)],
    "std.correction": [call(X, [1], correction=0)],
    "std.dim": [call(X, [1])],
    "std.default": [call(X)],
    "var_mean.correction": [call(X, [1], correction=0, take=0), call(X, [1], keepdim=True, take=1),
                            call(X, [1], take=1)],
    "var_mean.dim": [call(X, [1], take=0)],
    "linalg_vector_norm.default": [call(X), call(X, 1, [1]), call(X, math.inf, [0], True), call(X, 3, [1]),
                                   call(X, 0, [1])],
    "norm.ScalarOpt_dim": [call(X, 2, [1], True), call(X, None, [1])],
    "norm.Scalar": [call(X, 2)],
    "norm.ScalarOpt_dim_dtype": [call(X, 2, [1], False, dtype=torch.float64)],
    "cumsum.default": [call(X, 1), call(N, -1), call(B, 0)],
    "topk.default": [call(DISTINCT, 2, take=0), call(DISTINCT, 2, 0, take=1), call(DISTINCT, 2, 1, False, take=1)],
    "sort.default": [call(X, take=0), call(X, 0, True, take=1)],
    "sort.stable": [call(In((3, 4), "index3"), stable=True, dim=1, descending=True, take=1)],
    "argsort.default": [call(DISTINCT, 0)],
    "argsort.stable": [call(DISTINCT, stable=True, dim=1, descending=True)],
    # creation and indexing
    "full.default": [call([2, 3], 1.5), call([2], 7, dtype=torch.int32), call([2], -math.inf)],
    "full_like.default": [call(X, 2.0), call(X, 3, dtype=torch.int64)],
    "new_full.default": [call(X, [2], 3.0)],
    "scalar_tensor.default": [call(2.5), call(3, dtype=torch.int64)],
    "fill.Scalar": [call(X, 2.0)],
    "fill.Tensor": [call(X, In(()))],
    "copy.default": [call(X, ROW), call(X, N)],
    "arange.default": [call(5), call(5.0), call(5, dtype=torch.float32)],
    "arange.start": [call(2, 7)],
    "arange.start_step": [call(0, 10, 3), call(9, 0, -2), call(0.0, 1.0, 0.3)],
    "linspace.default": [call(0.0, 1.0, 7)],
    "zero.default": [call(X)],
    "eye.default": [call(3)],
    "eye.m": [call(3, 4, dtype=torch.int64)],
    "tril.default": [call(X), call(In((2, 3, 4)), 1), call(N, -1)],
    "triu.default": [call(X), call(X, 1), call(B)],
    "one_hot.default": [call(In((3, 2), "index4"), 4)],
    "embedding.default": [call(In((10, 4)), In((2, 3), "index10")), call(In((10, 4)), In((2,), "index10"), 0)],
    "index_select.default": [call(X, 1, In((5,), "index4"))],
    "index.Tensor": [call(X, [In((2, 5), "index3")]), call(X, [None, In((5,), "index4")]),
                     call(X, [In((5,), "index3"), In((5,), "index4")]),
                     call(In((5, 3, 4)), [In((6, 1), "index5"), In((7,), "index3")]),
                     call(In((5, 3, 4)), [In((6,), "index5"), None, In((6,), "index4")]),
                     call(In((10, 4)), [In((3,), "int")])],
    "_unsafe_index.Tensor": [call(X, [In((2,), "index3")])],
    "gather.default": [call(X, 1, In((3, 2), "index4")), call(X, 0, In((2, 3), "index3"))],
    "scatter.src": [call(X, 1, In((3, 1), "index4"), In((3, 2)))],
    "scatter_add.default": [call(X, 1, In((3, 6), "index4"), In((3, 6)))],
    "scatter.value": [call(X, 0, In((1, 4), "index3"), 5.0)],
    "index_put.default": [
        call(X, [B], In(())), call(X, [In((1, 1), "index3"), In((1, 1), "index4")], In((1, 1))),
        call(X, [None, In((1,), "index4")], In((3, 1))), call(In((10, 3, 2)), [In((1,), "int")], In((3, 2))),
        call(In((2, 3, 4)), [In((5,), "index2"), None, In((5,), "index4")], In((5, 3)), True),
        call(In((2, 3, 4)), [None, In((2, 5), "index3")], In((4,)), True)],
    "index_copy.default": [call(X, 1, In((1,), "index4"), In((3, 1)))],
    "index_add.default": [call(X, 0, In((5,), "index3"), In((5, 4))),
                          call(X, 1, In((2,), "index4"), In((3, 2)), alpha=2)],
    "_unsafe_index_put.default": [call(X, [In((3,), "bool")], In((1,)))],
    "upsample_nearest1d.vec": [call(SEQUENCE, None, [2.0])],
    "upsample_nearest1d.default": [call(SEQUENCE, [11])],
    "upsample_nearest2d.vec": [call(IMAGE, None, [2.0, 2.0]), call(IMAGE, [9, 4], None)],
    "upsample_nearest2d.default": [call(IMAGE, [12, 18])],
    "upsample_linear1d.vec": [call(SEQUENCE, [11], False, None)],
    "upsample_bilinear2d.vec": [call(IMAGE, None, False, [2.0, 1.5]), call(IMAGE, [9, 4], True, None)],
    "upsample_bilinear2d.default": [call(IMAGE, [3, 3], False)],
    # networks
    "linear.default": [call(SEQUENCE, In((5, 8)), In((5,))), call(X, In((5, 4))), call(X, In((4,)))],
    "matmul.default": [call(X, In((4, 5))), call(Q, In((8, 3))), call(ROW, In((4, 3))), call(X, ROW), call(ROW, ROW),
                       call(In((2, 1, 3, 4)), In((5, 4, 2)))],
    "linalg_matmul.default": [call(X, In((4, 5)))],
    "mm.default": [call(X, In((4, 5)))],
    "bmm.default": [call(In((2, 3, 4)), In((2, 4, 5)))],
    "mv.default": [call(X, ROW)],
    "dot.default": [call(ROW, ROW)],
    "addmm.default": [call(In((5,)), X, In((4, 5))), call(In((3, 5)), X, In((4, 5)), beta=0.5, alpha=2)],
    "baddbmm.default": [call(In((2, 3, 5)), In((2, 3, 4)), In((2, 4, 5)), beta=0)],
    "addmv.default": [call(In((3,)), X, ROW)],
    "outer.default": [call(ROW, In((3,)))],
    "ger.default": [call(ROW, In((3,)))],
    "conv1d.default": [call(SEQUENCE, In((5, 3, 3)), In((5,)), [2], [1])],
    "conv1d.padding": [call(SEQUENCE, In((5, 3, 4)), None, [1], "same")],
    "conv2d.default": [call(IMAGE, In((8, 2, 3, 3)), In((8,)), [2, 1], [1, 0], [1, 2], 2),
                       call(IMAGE, In((5, 4, 1, 1))),
                       call(In((4, 6, 6)), In((5, 4, 3, 3)))],
    "conv2d.padding": [call(IMAGE, In((5, 4, 3, 3)), None, [1, 1], "valid")],
    "conv3d.default": [call(In((1, 2, 4, 4, 4)), In((3, 2, 2, 2, 2)))],
    "conv3d.padding": [call(In((1, 2, 4, 4, 4)), In((3, 2, 3, 3, 3)), None, [1, 1, 1], "same")],
    "convolution.default": [call(IMAGE, In((8, 4, 3, 3)), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
                            call(IMAGE, In((4, 3, 2, 2)), In((3,)), [2, 2], [0, 0], [1, 1], True, [0, 0], 1)],
    "conv_transpose1d.default": [call(SEQUENCE, In((3, 4, 3)), None, [2], [1], [1])],
    "conv_transpose2d.input": [call(IMAGE, In((4, 3, 3, 3)), In((6,)), [2, 2], [1, 1], [1, 1], 2)],
    "max_pool1d.default": [call(SEQUENCE, [2])],
    "max_pool2d.default": [call(IMAGE, [3, 3], [2, 2], [1, 1]), call(In((4, 6, 6)), [2, 2]),
                           call(IMAGE, [3, 3], [2, 2], 0, 1, True)],
    "max_pool3d.default": [call(In((1, 2, 4, 4, 4)), [2, 2, 2])],
    "max_pool1d_with_indices.default": [call(SEQUENCE, [2], take=0)],
    "max_pool2d_with_indices.default": [call(IMAGE, [2, 2], take=0)],
    "max_pool3d_with_indices.default": [call(In((1, 2, 4, 4, 4)), [2, 2, 2], take=0)],
    "avg_pool1d.default": [call(SEQUENCE, [2])],
    "avg_pool2d.default": [call(IMAGE, [3, 3], [2, 2], [1, 1]), call(IMAGE, [3, 3], [2, 2], [1, 1], False, False),
                           call(IMAGE, [3, 3], [2, 2], [0, 0], True)],
    "avg_pool3d.default": [call(In((1, 2, 4, 4, 4)), [2, 2, 2])],
    "adaptive_avg_pool1d.default": [call(SEQUENCE, [4]), call(SEQUENCE, [3])],
    "adaptive_avg_pool2d.default": [call(IMAGE, [1, 1]), call(IMAGE, [3, 2]), call(IMAGE, [4, 5]),
                                    call(In((4, 6, 6)), [3, 3])],
    "_adaptive_avg_pool2d.default": [call(IMAGE, [2, 2])],
    "adaptive_max_pool1d.default": [call(SEQUENCE, [4], take=0)],
    "adaptive_max_pool2d.default": [call(IMAGE, [3, 2], take=0)],
    "batch_norm.default": [call(IMAGE, ROW, ROW, ROW, In((4,), "positive"), False, 0.1, 1e-5, True),
                           call(IMAGE, None, None, ROW, In((4,), "positive"), False, 0.1, 1e-3, True)],
    "_native_batch_norm_legit_no_training.default": [
        call(IMAGE, ROW, ROW, ROW, In((4,), "positive"), 0.1, 1e-5, take=0)],
    "native_batch_norm.default": [call(IMAGE, ROW, ROW, ROW, In((4,), "positive"), False, 0.1, 1e-5, take=0)],
    "_batch_norm_no_update.default": [call(IMAGE, ROW, ROW, ROW, In((4,), "positive"), 0.1, 1e-5, take=0)],
    "layer_norm.default": [call(SEQUENCE, [8], In((8,)), In((8,)), 1e-5), call(SEQUENCE, [3, 8]), call(X, [4], ROW)],
    "native_layer_norm.default": [call(SEQUENCE, [8], In((8,)), In((8,)), 1e-5, take=0)],
    "rms_norm.default": [call(SEQUENCE, [8], In((8,)), 1e-6), call(SEQUENCE, [3, 8]),
                         call(SEQUENCE, [3, 8], In((3, 8)), 1e-6)],
    "_fused_rms_norm.default": [call(SEQUENCE, [8], In((8,)), 1e-6, take=0)],
    "group_norm.default": [call(IMAGE, 2, ROW, ROW), call(IMAGE, 4)],
    "native_group_norm.default": [call(IMAGE, ROW, ROW, 2, 4, 36, 2, 1e-5, take=0)],
    "instance_norm.default": [call(IMAGE, ROW, ROW, None, None, True, 0.1, 1e-5, True),
                              call(IMAGE, ROW, ROW, ROW, In((4,), "positive"), False, 0.1, 1e-5, True)],
    "softmax.int": [call(X, 1), call(X, 0, torch.float64)],
    "_softmax.default": [call(X, -1, False)],
    "_safe_softmax.default": [call(X, 1)],
    "log_softmax.int": [call(X, 1)],
    "_log_softmax.default": [call(X, -1, False)],
    "scaled_dot_product_attention.default": [
        call(Q, K, V), call(Q, K, V, In((5, 6))), call(Q, K, V, In((2, 1, 5, 6), "mask")),
        call(Q, Q, Q, None, 0.0, True),
        call(Q, K, V, scale=0.5), call(In((4, 5, 8)), In((4, 6, 8)), In((4, 6, 8))),
        call(Q, In((2, 2, 6, 8)), In((2, 2, 6, 8)), enable_gqa=True), call(In((2, 3, 2, 5, 8)), In((2, 3, 2, 6, 8)),
                                                                            In((2, 3, 2, 6, 8)), In((3, 1, 5, 6)))],
    "_scaled_dot_product_flash_attention_for_cpu.default": [call(Q, K, V, take=0), call(Q, Q, Q, 0.0, True, take=0)],
    "_scaled_dot_product_attention_math.default": [call(Q, K, V, In((5, 6)), take=0)],
}
CASES["gelu.default"].append(call(X, approximate="tanh"))
CASES["hardtanh.default"].append(call(X, -0.5, 0.7))
CASES["leaky_relu.default"].append(call(X, 0.3))
CASES["elu.default"].append(call(X, 0.7, 1.2, 0.9))
CASES["softplus.default"].append(call(X, 3, 1))

# torch leaves their results undefined.
UNDEFINED = {"empty.memory_format": call([2, 3]), "empty_like.default": call(X), "new_empty.default": call(X, [2]),
             "empty_strided.default": call([2, 3], [3, 1]), "empty_permuted.default": call([2, 3], [0, 1])}
# Not reachable as a call of its own.
SPELLINGS = {"float.default", "prims.convert_element_type.default"}


class Call(torch.nn.Module):
    """Calls one operator; its tensor operands are the inputs."""

    def __init__(self, name: str, case: Case):
        super().__init__()
        packet, overload = name.split(".")
        self.operator = getattr(getattr(torch.ops.aten, packet), overload)
        self.case = case

    def forward(self, *tensors: torch.Tensor):
        rest = iter(tensors)

        def fill(value: Any) -> Any:
            if isinstance(value, In):
                return next(rest)
            return [fill(v) for v in value] if isinstance(value, list) else value

        result = self.operator(*(fill(a) for a in self.case.args), **self.case.kwargs)
        return result if self.case.take is None else result[self.case.take]


def operands(case: Case, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    found: list[In] = []
    for arg in case.args:
        found += [v for v in (arg if isinstance(arg, list) else [arg]) if isinstance(v, In)]
    made = []
    for seed, each in enumerate(found):
        if each.kind == "mask":  # no query without any key
            made.append(In(each.shape, "bool").make(dtype, seed).index_fill(-1, torch.tensor(0), True))
        else:
            made.append(each.make(dtype, seed))
    return tuple(made)


def compare(ours: np.ndarray, theirs: torch.Tensor, tolerance: float) -> None:
    reference = to_numpy(theirs)
    assert ours.shape == reference.shape
    assert ours.dtype == reference.dtype
    np.testing.assert_allclose(ours.astype(np.float64), reference.astype(np.float64), rtol=tolerance, atol=tolerance)


ALL = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), ALL, ids=[f"{n}-{i}" for n, i in ALL])
def test_rule_agrees_with_eager(name: str, number: int):
    case = CASES[name][number]
    # Each export takes its time. Float32 matters where much is added up.
    summing = number == 0 and f"aten.{name}" in {**REDUCE.rules, **NN.rules}
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5))[: 2 if summing else 1]:
        model, inputs = Call(name, case), operands(case, dtype)
        expected = model(*inputs)
        imported = import_model(model, inputs)
        (result,) = imported.graph.evaluate([to_numpy(t) for t in imported.signature.flatten(inputs)])
        single = dtype is torch.float32 or any(v.dtype is dtypes.float32 for v in imported.graph.values())
        compare(result, expected, 1e-5 if single else tolerance)


def test_every_rule_has_a_case():
    tested = CASES.keys() | UNDEFINED.keys() | SPELLINGS
    assert {name.removeprefix("aten.") for name in all_rules()} == tested
