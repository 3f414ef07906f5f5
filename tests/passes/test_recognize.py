"""recognize: composites come back from their decompositions, and from the forms in which models write them."""

import numpy as np
import pytest
from helpers.graph_samples import arrays_for, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes
from ranvier.compiler.graph.recognize import recognize
from ranvier.graph import (
    Attention,
    Gelu,
    GraphBuilder,
    LayerNorm,
    Linear,
    LogSoftmax,
    RmsNorm,
    Rope,
    Silu,
    Softmax,
    TensorType,
    parse_graph,
    print_graph,
    verify,
)

F32, BF16 = dtypes.float32, dtypes.bfloat16


@pytest.mark.parametrize("cls", [Softmax, LogSoftmax, LayerNorm, RmsNorm, Gelu, Silu, Linear, Rope, Attention],
                         ids=lambda c: c.__name__)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_decompositions_are_recognized(cls, seed):
    """The meaning stays; and where no axis has one element (simpler forms win then), one node comes back."""
    op, types, arrays = sample(cls, seed)
    b = GraphBuilder()
    inputs = [b.input(t) for t in types]
    graph = b.build([op.decompose(b, *inputs)])
    result = verify(recognize(graph), "recognize")
    expected = graph.evaluate(arrays, precision="float64")
    for a, e in zip(result.evaluate(arrays, precision="float64"), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-10)
    plain = all(n > 1 for t in types for n in t.shape)
    masked = cls is Attention and op.has_mask  # rows without keys have select operations that softmax does not
    interleaved = cls is Rope and op.interleaved
    if plain and not masked and not interleaved and types[0].rank > 1:
        (node,) = result.nodes
        assert type(node.op) is cls
        if not (cls is Attention and op.causal):
            assert repr(node.op) == repr(op)


def graph_of(body: str):
    return verify(parse_graph("graph @g {" + body + "}"))


def check(before: str, expected: str) -> None:
    result, wanted = verify(recognize(graph_of(before)), "recognize"), graph_of(expected)
    assert result == wanted, print_graph(result)


def test_rms_norm_of_a_model_in_bfloat16():
    """As written for Llama: in float32, cast back, then the weight."""
    check("""
        input %x: bfloat16[2,8]
        param %w: bfloat16[8] = "w"
        %0: float32[2,8] = cast(%x) {dtype=float32}
        %two: float32[] = full() {shape=(), value=2, dtype=float32}
        %1: float32[2,8] = pow(%0, %two)
        %2: float32[2,1] = reduce_mean(%1) {axes=(1), keepdims=True}
        %eps: float32[] = full() {shape=(), value=1e-06, dtype=float32}
        %3: float32[2,1] = add(%2, %eps)
        %4: float32[2,1] = rsqrt(%3)
        %5: float32[2,8] = mul(%0, %4)
        %6: bfloat16[2,8] = cast(%5) {dtype=bfloat16}
        %7: bfloat16[2,8] = mul(%w, %6)
        return %7""", """
        input %x: bfloat16[2,8]
        param %w: bfloat16[8] = "w"
        %0: bfloat16[2,8] = rms_norm(%x, %w) {eps=1e-06}
        return %0""")


def test_layer_norm_with_sums():
    check("""
        input %x: float32[2,8]
        param %w: float32[8] = "w"
        param %b: float32[8] = "b"
        %n: float32[] = full() {shape=(), value=8.0, dtype=float32}
        %0: float32[2,1] = reduce_sum(%x) {axes=(1), keepdims=True}
        %1: float32[2,1] = div(%0, %n)
        %2: float32[2,8] = sub(%x, %1)
        %3: float32[2,8] = mul(%2, %2)
        %4: float32[2,1] = reduce_mean(%3) {axes=(1), keepdims=True}
        %eps: float32[] = full() {shape=(), value=0.001, dtype=float32}
        %5: float32[2,1] = add(%4, %eps)
        %6: float32[2,1] = sqrt(%5)
        %7: float32[2,8] = div(%2, %6)
        %8: float32[2,8] = mul(%w, %7)
        %9: float32[2,8] = add(%b, %8)
        return %9""", """
        input %x: float32[2,8]
        param %w: float32[8] = "w"
        param %b: float32[8] = "b"
        %0: float32[2,8] = layer_norm(%x, %w, %b) {axes=(1), eps=0.001}
        return %0""")


def test_a_norm_that_is_used_elsewhere_keeps_its_weight_apart():
    text = """
        input %x: float32[2,8]
        param %w: float32[8] = "w"
        %0: float32[2,8] = rms_norm(%x) {eps=1e-06}
        %1: float32[2,8] = mul(%0, %w)
        return %0, %1"""
    check(text, text)


def test_what_only_looks_like_a_norm():
    """The variance of another tensor; the mean along another axis; a square root without a mean."""
    for square_of, axes in (("%y", "(1)"), ("%x", "(0)")):
        text = f"""
            input %x: float32[2,8]
            input %y: float32[2,8]
            %0: float32[2,8] = square({square_of})
            %1: float32[{'2,1' if axes == '(1)' else '1,8'}] = reduce_mean(%0) {{axes={axes}, keepdims=True}}
            %eps: float32[] = full() {{shape=(), value=1e-06, dtype=float32}}
            %2: float32[{'2,1' if axes == '(1)' else '1,8'}] = add(%1, %eps)
            %3: float32[{'2,1' if axes == '(1)' else '1,8'}] = rsqrt(%2)
            %4: float32[2,8] = mul(%x, %3)
            return %4"""
        check(text, text)


@pytest.mark.parametrize("form", ["new", "fast", "divided"])
def test_gelu_as_models_write_it(form):
    b = GraphBuilder("g")
    x = b.input(TensorType((3, 4), F32), "x")
    if form == "new":
        cube = b.mul(b.pow(x, 3.0), 0.044715)
        y = b.mul(b.mul(x, 0.5), b.add(b.tanh(b.mul(b.add(x, cube), 0.7978845608028654)), 1.0))
    elif form == "fast":
        inner = b.mul(b.mul(x, 0.79788456), b.add(1.0, b.mul(b.mul(x, 0.044715), x)))
        y = b.mul(0.5, b.mul(x, b.add(1.0, b.tanh(inner))))
    else:
        y = b.div(b.mul(x, b.add(b.erf(b.div(x, 1.4142135623730951)), 1.0)), 2.0)
    (node,) = recognize(b.build([y])).nodes
    assert node.op == Gelu("none" if form == "divided" else "tanh") and node.inputs[0].name == "x"


def test_a_product_that_is_nearly_gelu():
    b = GraphBuilder("g")
    x, other = (b.input(TensorType((3, 4), F32), name) for name in "xy")
    for scale, inner, factor in ((0.5, x, 0.70), (0.4, x, 0.7071067811865476), (0.5, other, 0.7071067811865476)):
        y = b.mul(b.mul(x, scale), b.add(b.erf(b.mul(inner, factor)), 1.0))
        assert not any(isinstance(n.op, Gelu) for n in recognize(b.build([y])).nodes)


def attention_graph(mask: str, repeat: bool, rank: int = 4):
    """Attention written out, two query heads to a key head if `repeat`."""
    b = GraphBuilder("g")
    lead = (2, 4) if rank == 4 else (8,)
    q = b.input(TensorType((*lead, 5, 8), F32), "q")
    small = (2, 2) if repeat else lead
    k, v = (b.input(TensorType((*small, 5, 8), F32), name) for name in "kv")

    def repeated(x):
        spread = b.broadcast(b.reshape(x, (2, 2, 1, 5, 8)), (2, 2, 2, 5, 8))
        return b.reshape(spread, (2, 4, 5, 8))

    keys, values = (repeated(k), repeated(v)) if repeat else (k, v)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    scores = b.div(b.matmul(b.mul(q, 2.0), b.transpose(keys, perm)), 8.0)
    if mask == "added":
        scores = b.add(scores, b.input(TensorType((2, 1, 1, 5) if rank == 4 else (1, 1, 5), F32), "mask"))
    if mask == "causal":
        keep = b.compare("ge", b.iota((5, 1), 0, dtypes.int64), b.iota((1, 5), 1, dtypes.int64))
        scores = b.add(scores, b.select(keep, b.scalar(0.0, F32), b.scalar(float(np.finfo(np.float32).min), F32)))
    if mask == "chosen":
        scores = b.select(b.input(TensorType((2, 1, 1, 5), dtypes.bool_), "mask"), scores, float("-inf"))
    if mask == "causal and chosen":
        keep = b.compare("ge", b.iota((5, 1), 0, dtypes.int64), b.iota((1, 5), 1, dtypes.int64))
        both = b.binary("logical_and", keep, b.input(TensorType((2, 1, 1, 5), dtypes.bool_), "mask"))
        scores = b.select(b.unary("logical_not", both), float("-inf"), scores)
    return b.build([b.matmul(b.softmax(scores), values)])


@pytest.mark.parametrize("mask", ["none", "added", "causal", "chosen", "causal and chosen"])
@pytest.mark.parametrize("repeat", [False, True])
def test_attention_written_out(mask, repeat):
    graph = attention_graph(mask, repeat)
    result = verify(recognize(graph), "recognize")
    (node,) = result.nodes
    has_mask = mask not in ("none", "causal")
    assert node.op == Attention(0.25, "causal" in mask, has_mask)
    assert [v.name for v in node.inputs] == ["q", "k", "v"] + ["mask"] * has_mask
    arrays = arrays_for(None, graph.input_types, 3)
    if has_mask and mask != "added":
        arrays[3][..., 0] = True  # a row without keys is NaN in the written form
    np.testing.assert_allclose(result.evaluate(arrays)[0], graph.evaluate(arrays)[0], rtol=1e-5, atol=1e-6)


def test_attention_of_rank_3():
    graph = attention_graph("added", False, rank=3)
    result = verify(recognize(graph), "recognize")
    assert [n.op.mnemonic for n in result.nodes].count("attention") == 1
    arrays = arrays_for(None, graph.input_types, 3)
    np.testing.assert_allclose(result.evaluate(arrays)[0], graph.evaluate(arrays)[0], rtol=1e-5, atol=1e-6)


def test_a_finite_mask_value_that_matters_is_left_alone():
    """-100 leaves something of a score; it is no mask."""
    b = GraphBuilder("g")
    q = b.input(TensorType((1, 1, 4, 8), F32))
    keep = b.input(TensorType((4, 4), dtypes.bool_))
    scores = b.select(keep, b.matmul(q, b.transpose(q, (0, 1, 3, 2))), -100.0)
    result = recognize(b.build([b.matmul(b.softmax(scores), q)]))
    assert not any(isinstance(n.op, Attention) for n in result.nodes)


@pytest.mark.parametrize("change", [None, (0, 3), (3, 0)])
def test_only_the_causal_mask_is_causal(change):
    keep = np.tri(5, dtype=bool)
    if change:
        keep[change] ^= True
    b = GraphBuilder("g")
    q = b.input(TensorType((1, 2, 5, 8), F32), "q")
    graph = b.build([b.attention(q, q, q, b.constant(keep), scale=0.25)])
    result = recognize(graph)
    assert result.nodes[0].op == Attention(0.25, change is None, change is not None)
    (array,) = arrays_for(None, graph.input_types, 0)
    np.testing.assert_array_equal(result.evaluate([array])[0], graph.evaluate([array])[0])


def test_linear_layers():
    check("""
        input %x: float32[2,3,8]
        param %w: float32[8,4] = "w"
        param %b: float32[4] = "b"
        %0: float32[2,3,4] = matmul(%x, %w)
        %1: float32[2,3,4] = add(%b, %0)
        return %1""", """
        input %x: float32[2,3,8]
        param %w: float32[8,4] = "w"
        param %b: float32[4] = "b"
        %0: float32[4,8] = transpose(%w) {perm=(1, 0)}
        %1: float32[2,3,4] = linear(%x, %0, %b)
        return %1""")
    untouched = """
        input %x: float32[2,3,8]
        input %y: float32[8,4]
        %0: float32[2,3,4] = matmul(%x, %y)
        return %0"""
    check(untouched, untouched)
    scaled = """
        input %x: float32[2,3,8]
        input %s: float32[8,1]
        param %w: float32[8,4] = "w"
        %0: float32[8,4] = mul(%w, %s)
        %1: float32[2,3,4] = matmul(%x, %0)
        return %1"""
    check(scaled, scaled)  # the matrix depends on an input as well, so its transpose would be made at each run


def test_the_log_says_what_fired_where():
    log = []
    b = GraphBuilder("g")
    x = b.input(TensorType((3, 4), F32), "x")
    recognize(b.build([b.mul(x, b.sigmoid(x))]), log)
    assert [str(f).split(" at ")[0] for f in log] == ["recognize_silu: mul"]
    assert log[0].loc is not None and log[0].loc.file == __file__
