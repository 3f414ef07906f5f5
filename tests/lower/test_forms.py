"""Forms that sizes or attributes make special: what does not fit on chip, groups of channels, odd windows, integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from helpers.agreement import require_agreement
from helpers.models import Model

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.graph import (
    Attention,
    Conv,
    Gelu,
    GroupNorm,
    LogSoftmax,
    Pool,
    Rope,
    ScatterAlong,
    Sort,
    TakeAlong,
    TensorType,
    TopK,
    Value,
)

Case = Callable[[Model], "Value | Sequence[Value]"]


def agree(case: Case, dtype: str = "float32") -> None:
    model = Model()
    made = case(model)
    graph = model.b.build([made] if isinstance(made, Value) else made)
    require_agreement(graph, model.inputs, model.params, dtype)


def conv(m: Model, x: Value, out: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1) -> Value:
    n = len(x.shape) - 2
    op = Conv((stride,) * n, ((padding, padding),) * n, (1,) * n, groups)
    return m.b.emit(op, x, m.param(out, x.shape[1] // groups, *(kernel,) * n))


def turned_conv(m: Model) -> Value:
    op = Conv((2, 1, 2), ((1, 1), (0, 1), (1, 0)), (1, 2, 1), 2, True, (1, 0, 0))
    return m.b.emit(op, m.input(1, 4, 5, 6, 7), m.param(4, 3, 2, 3, 3), m.param(6))


def cropped_turned_conv(m: Model) -> Value:
    """More padding than the window reaches: part of the operand is cut off."""
    op = Conv((1, 1), ((2, 1), (0, 2)), (1, 1), 1, True, (0, 0))
    return m.b.emit(op, m.input(1, 3, 9, 8), m.param(3, 4, 2, 2))


def pool(kind: str, kernel, stride, padding, ceil: bool = True) -> Pool:
    return Pool(kind, kernel, stride, padding, ceil, False)


FORMS: dict[str, Case] = {
    # more than fits on chip at once
    "linear of many rows": lambda m: m.b.linear(m.input(9000, 40), m.param(24, 40), m.param(24)),
    "linear by a long activation": lambda m: m.b.linear(m.input(20, 64), m.b.mul(m.input(9000, 64), 0.5)),
    "linear of long and wide": lambda m: m.b.gelu(m.b.linear(m.input(1030, 1500), m.param(70, 1500))),
    "matmul of large batches": lambda m: m.b.matmul(m.input(2, 8, 600, 40), m.input(2, 8, 40, 130)),
    "softmax of long rows": lambda m: m.b.softmax(m.input(130, 9000)),
    "log softmax of long rows": lambda m: m.b.emit(LogSoftmax(1), m.input(5, 10001)),
    "layer norm of long rows": lambda m: m.b.layer_norm(m.input(5, 9001), m.param(9001), m.param(9001), 1e-5),
    "layer norm of long rows, bias only": lambda m: m.b.layer_norm(m.input(5, 9001), None, m.param(9001), 1e-5),
    "rms norm of long rows": lambda m: m.b.rms_norm(m.input(5, 9000), m.param(9000), 1e-5),
    "group norm of large images": lambda m: m.b.emit(GroupNorm(2, 1e-5), m.input(2, 8, 50, 50), m.param(8), m.param(8)),
    "elements of long rows": lambda m: m.b.tanh(m.b.mul(m.input(20, 60000), m.param(60000))),
    "a long broadcast operand": lambda m: m.b.mul(m.input(3, 20, 20000), m.input(20, 20000)),
    "sum of all": lambda m: m.b.sum(m.input(300, 400)),
    "mean of long rows of odd length": lambda m: m.b.mean(m.input(3, 20011), 1),
    "sum of long columns": lambda m: m.b.sum(m.input(9000, 17), 0),
    "wide rows of a table": lambda m: m.b.take(m.input(7, 20000), m.indices(5, below=7)),
    "position of the largest of many": lambda m: m.b.argmax(m.input(5, 20000), 1),
    "largest of many": lambda m: m.b.emit(TopK(11, 1, True), m.input(5, 20000)),
    "running sum of long rows": lambda m: m.b.cumsum(m.input(3, 9000), 1),
    "elements from long rows": lambda m: m.b.emit(TakeAlong(1), m.input(130, 20000), m.indices(130, 2, below=20000)),
    "a large image": lambda m: m.b.relu(conv(m, m.input(1, 3, 150, 150), 20, 7, 2, 3)),
    "a large image, each channel by itself": lambda m: conv(m, m.input(1, 5, 120, 120), 5, 3, 1, 1, 5),
    "a large image, pooled": lambda m: m.b.emit(pool("max", (3, 3), (2, 2), ((1, 1), (1, 1))), m.input(1, 4, 160, 160)),
    "more tiles than fit together": lambda m: m.b.emit(Rope(), *(m.input(30000, 66) for _ in range(3))),
    "rotary embedding of all heads at once": lambda m: m.b.emit(
        Rope(), m.input(1, 2, 1030, 64), m.param(1030, 64), m.param(1030, 64)
    ),
    # windows
    "rows of more than 512 positions": lambda m: conv(m, m.input(1, 4, 5, 1100), 8, 3, 1, 1),
    "one dimension": lambda m: conv(m, m.input(2, 20, 700), 40, 5, 2, 2),
    "three dimensions": lambda m: m.b.add(conv(m, m.input(2, 4, 6, 9, 9), 8, 3, 2, 1, 2), m.param(8, 1, 1, 1)),
    "groups of four channels": lambda m: conv(m, m.input(2, 256, 7, 7), 256, 3, 1, 1, 64),
    "groups across chunks": lambda m: conv(m, m.input(1, 300, 5, 5), 150, 3, 1, 1, 3),
    "several filters for each channel": lambda m: conv(m, m.input(1, 130, 7, 7), 260, 3, 1, 1, 130),
    "transposed": turned_conv,
    "transposed and cropped": cropped_turned_conv,
    "a large window": lambda m: m.b.emit(pool("avg", (40, 30), (5, 5), ((3, 2), (1, 1))), m.input(1, 5, 64, 70)),
    "maximum in three dimensions": lambda m: m.b.emit(
        pool("max", (2, 3, 3), (2, 1, 2), ((1, 0), (1, 1), (0, 1))), m.input(1, 5, 7, 9, 10)
    ),
    "average in three dimensions": lambda m: m.b.emit(
        pool("avg", (2, 3, 3), (2, 1, 2), ((1, 0), (1, 1), (0, 1))), m.input(2, 5, 7, 9, 10)
    ),
    # other
    "values wider than a bank": lambda m: m.b.attention(
        m.input(1, 2, 40, 16), m.input(1, 2, 50, 16), m.input(1, 2, 50, 600)
    ),
    "heads of more than 128": lambda m: m.b.attention(*(m.input(1, 2, 40, 300) for _ in range(3)), causal=True),
    "pairs side by side": lambda m: m.b.emit(
        Rope(True), m.input(2, 30, 4, 64), m.param(2, 30, 1, 64), m.param(2, 30, 1, 64)
    ),
    "one matrix for a batch": lambda m: m.b.matmul(m.input(30, 40, 64), m.input(64, 96)),
    "an empty part": lambda m: m.b.concat([m.b.slice_axis(m.input(2, 4, 8), 1, 0, 0), m.input(2, 5, 8)], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_form(name):
    agree(FORMS[name])


@pytest.mark.parametrize("name", ["linear of many rows", "softmax of long rows", "groups of four channels"])
def test_form_in_bfloat16(name):
    agree(FORMS[name], "bfloat16")


OUTPUTS: dict[str, Case] = {
    "one value twice": lambda m: (lambda x: [x, x, m.b.tanh(x)])(m.b.mul(m.input(3, 4), 2.0)),
    "inputs": lambda m: (lambda x: [x, x, m.b.transpose(x, (1, 0))])(m.input(3, 4)),
    "a parameter": lambda m: [m.param(3, 4), m.b.mul(m.param(5), m.input(3, 5))],
    "literals": lambda m: [m.input(2), m.b.full((3, 4), 2.5, dt.float32), m.b.iota((300, 2), 0, dt.int32)],
    "scalars": lambda m: [m.b.sum(m.input(3)), m.b.add(m.input(), 1.0), m.b.compare("gt", m.input(), 0.0)],
    "a value inside": lambda m: (lambda h: [h, m.b.relu(h)])(m.b.linear(m.input(7, 8), m.param(9, 8))),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    agree(OUTPUTS[name])


def integers(m: Model, low: int, high: int, *shape: int, dtype: dt.DType = dt.int32) -> Value:
    m.inputs.append(m.random.integers(low, high, shape, endpoint=True).astype(dtype.np))
    return m.b.input(TensorType(shape, dtype), f"n{len(m.inputs)}")


LARGE = 2**31 - 1
WORDS: dict[str, Case] = {
    "add": lambda m: m.b.add(integers(m, -LARGE, LARGE, 5, 7), integers(m, -LARGE, LARGE, 7)),
    "multiply": lambda m: m.b.mul(integers(m, -LARGE, LARGE, 5, 7), integers(m, -9, 9, 5, 1)),
    "compare neighbours": lambda m: (lambda x: [m.b.compare(k, x, m.b.add(x, 1)) for k in ("lt", "eq")])(
        integers(m, 2**25, 2**26, 40)
    ),
    "largest of two": lambda m: m.b.maximum(integers(m, 2**29, 2**29 + 9, 300), integers(m, 2**29, 2**29 + 9, 300)),
    "limit": lambda m: m.b.clamp(integers(m, -LARGE, LARGE, 300), -(2**28) - 1, 2**28 + 1),
    "limit by fractions": lambda m: m.b.clamp(integers(m, -9, 9, 300), -2.5, 3.5),
    "shift of negative numbers": lambda m: m.b.binary("right_shift", integers(m, -LARGE, LARGE, 300), 3),
    "shift of a number": lambda m: m.b.binary("left_shift", 3, integers(m, 0, 5, 30)),
    "narrow results wrap around": lambda m: m.b.add(*(integers(m, -128, 127, 300, dtype=dt.int8) for _ in range(2))),
    "unsigned results wrap around": lambda m: m.b.sub(*(integers(m, 0, 255, 300, dtype=dt.uint8) for _ in range(2))),
    "sum": lambda m: m.b.sum(integers(m, -LARGE, LARGE, 5, 5000), 1),
    "product": lambda m: m.b.reduce("prod", integers(m, -9, 9, 5, 13), 1),
    "largest": lambda m: [m.b.reduce(k, integers(m, -LARGE, LARGE, 50, 130), 1) for k in ("max", "min")],
    "position of the largest": lambda m: m.b.argmax(integers(m, 2**30, 2**30 + 50, 50, 130), 1),
    "running sum": lambda m: m.b.cumsum(integers(m, -LARGE, LARGE, 5, 5000), 1),
    "select": lambda m: m.b.select(m.flags(300), LARGE, integers(m, -LARGE, LARGE, 300)),
    **{
        f"{kind} by {what}": lambda m, kind=kind, low=low: m.b.binary(
            kind, integers(m, -LARGE, LARGE, 20, 300), m.b.add(integers(m, 0, 1, 20, 300), low)
        )
        for kind in ("floor_div", "mod", "fmod")
        for what, low in (("small numbers", 1), ("negative numbers", -3), ("large numbers", 2**29))
    },
    "scatter": lambda m: m.b.emit(
        ScatterAlong(1, "add"), integers(m, -LARGE, LARGE, 5, 9), m.indices(5, 4, below=9), integers(m, 0, LARGE, 5, 4)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_integers_are_exact(name):
    agree(WORDS[name])


def values(m: Model, *numbers: float) -> Value:
    m.inputs.append(np.asarray(numbers, np.float32))
    return m.b.input(TensorType((len(numbers),), dt.float32), f"v{len(m.inputs)}")


INFINITE = (1.0, -np.inf, 3.0, np.inf, -2.0, 0.0, 1e30, -1e30, 5.0)
SPECIAL: dict[str, Case] = {
    "is not a number": lambda m: m.b.unary("isnan", values(m, 1.0, np.nan, np.inf)),
    "is infinite": lambda m: m.b.unary("isinf", values(m, 1.0, np.nan, np.inf, -np.inf)),
    "minus infinity as a mask": lambda m: m.b.softmax(m.b.select(m.flags(4, 50), m.input(4, 50), -np.inf)),
    "division by zero": lambda m: m.b.div(values(m, 1.0, -2.0, 0.0), 0.0),
    "order": lambda m: m.b.emit(Sort(0, False), values(m, *INFINITE)),
    "largest": lambda m: m.b.emit(TopK(9, 0, True), values(m, *INFINITE)),
    "position among infinities": lambda m: m.b.argmax(values(m, *[-np.inf] * 10), 0),
    "rounding of large numbers": lambda m: [
        m.b.unary(k, values(m, 1e20, -3e9, 2.5, -2.5, 0.5, np.inf)) for k in ("floor", "ceil", "round", "trunc")
    ],
    "small differences": lambda m: [m.b.unary(k, values(m, 1e-8, -1e-6, 1e-4)) for k in ("expm1", "log1p")],
    "far angles": lambda m: [m.b.unary(k, values(m, 300.0, -1000.0, 2000.5)) for k in ("sin", "cos")],
    "exact remainders": lambda m: [
        m.b.binary(k, values(m, 10.3, -7.7, 1000.1, 5.0), values(m, 0.1, 0.7, -3.3, 2.5))
        for k in ("mod", "fmod", "floor_div")
    ],
    "all quadrants": lambda m: m.b.binary(
        "atan2", values(m, 1.0, -1.0, 3.0, -3.0, 0.0, 2.0), values(m, 3.0, -3.0, -1.0, 1.0, -1.0, 0.0)
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    agree(SPECIAL[name])


def test_a_cast_rounds():
    agree(lambda m: m.b.cast(values(m, 0.5, 1.5, 2.5, -1.5, 1.75, -0.25, 300.0), dt.int32))
    agree(lambda m: m.b.cast(values(m, 0.5, 1.5, 300.0, -1.0), dt.uint8))


def test_attention_merged_by_a_reversed_consumer():
    """The transposed result of attention is there in place of the result itself; views of it start from there."""

    def case(m: Model) -> Value:
        result = m.b.emit(Attention(1.0), *(m.input(2, 2, n, 5) for n in (129, 3, 3)))
        return m.b.slice_axis(m.b.transpose(result, (0, 2, 1, 3)), 1, 5, 100, 3)

    agree(case)


def test_a_square_of_a_product():
    """Both operands would lie in PSUM."""
    agree(lambda m: (lambda h: m.b.mul(h, h))(m.b.linear(m.input(7, 8), m.param(9, 8))))
    agree(lambda m: m.b.pow(m.b.linear(m.input(7, 8), m.param(9, 8)), 3.0))
    agree(lambda m: m.b.cast(m.b.unary("isnan", m.b.linear(m.input(7, 8), m.param(9, 8))), dt.float32))


REFUSED: dict[str, Case] = {
    "has no elements": lambda m: m.b.tanh(m.b.slice_axis(m.input(2, 3), 0, 0, 0)),
    "multiplies floats": lambda m: m.b.matmul(m.indices(3, 4, below=5), m.indices(4, 3, below=5)),
    "at most 4096 elements": lambda m: m.b.emit(Sort(0, True), m.input(5000)),
    "are not ordered": lambda m: m.b.emit(TopK(3, 0, True), integers(m, -LARGE, LARGE, 50)),
    "at most 12288 elements": lambda m: m.b.emit(
        ScatterAlong(0), m.input(20000), m.indices(2, below=9), m.b.emit(Gelu(), m.input(2))
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(why):
    with pytest.raises(RanvierError, match=why) as caught:
        agree(REFUSED[why])
    assert caught.value.code == "E0604"
