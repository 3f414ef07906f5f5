"""convert_precision: which values change their dtype, which keep it, and what stays representable."""

import ml_dtypes
import numpy as np
import pytest
from helpers.graph_samples import arrays_for, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes
from ranvier.compiler.graph.convert_precision import convert_precision, main_dtype
from ranvier.errors import RanvierError
from ranvier.graph import parse_graph, print_graph, verify


def graph_of(body: str):
    return verify(parse_graph("graph @g {" + body + "}"))


def check(before: str, expected: str, dtype="bfloat16") -> None:
    result, wanted = verify(convert_precision(graph_of(before), dtype), "convert_precision"), graph_of(expected)
    assert result == wanted, print_graph(result)


MODEL = """
    input %x: float32[2,8]
    param %w: float32[8,8] = "w"
    %0: float32[2,8] = linear(%x, %w)
    %half: float32[] = full() {shape=(), value=0.1, dtype=float32}
    %1: float32[2,8] = mul(%0, %half)
    %2: float32[2,8] = add(%1, %x)
    %3: float32[2,8] = softmax(%2) {axis=1}
    return %3, %3"""


def test_values_and_parameters_become_bfloat16():
    check(MODEL, """
        input %x: float32[2,8]
        param %w: bfloat16[8,8] = "w"
        %0: bfloat16[2,8] = cast(%x) {dtype=bfloat16}
        %1: bfloat16[2,8] = linear(%0, %w)
        %half: bfloat16[] = full() {shape=(), value=0.1, dtype=bfloat16}
        %2: bfloat16[2,8] = mul(%1, %half)
        %3: bfloat16[2,8] = add(%2, %0)
        %4: bfloat16[2,8] = softmax(%3) {axis=1}
        %5: float32[2,8] = cast(%4) {dtype=float32}
        return %5, %5""")


def test_nothing_to_do():
    graph = graph_of(MODEL)
    assert convert_precision(graph, "float32") is graph
    assert convert_precision(graph, dtypes.float32) is graph
    integers = graph_of("input %x: int64[2]\n%0: int64[2] = add(%x, %x)\nreturn %0")
    assert main_dtype(integers) is None and convert_precision(integers, "bfloat16") is integers


def test_a_model_in_bfloat16_computes_in_float32():
    check("""
        input %x: bfloat16[2,8]
        param %w: bfloat16[8] = "w"
        %0: bfloat16[2,8] = rms_norm(%x, %w) {eps=1e-06}
        return %0""", """
        input %x: bfloat16[2,8]
        param %w: float32[8] = "w"
        %0: float32[2,8] = cast(%x) {dtype=float32}
        %1: float32[2,8] = rms_norm(%0, %w) {eps=1e-06}
        %2: bfloat16[2,8] = cast(%1) {dtype=bfloat16}
        return %2""", "float32")


def test_the_authors_own_float32_stays_in_a_bfloat16_model():
    text = """
        input %x: bfloat16[2,8]
        param %w: bfloat16[8,8] = "w"
        %0: bfloat16[2,8] = linear(%x, %w)
        %1: float32[2,8] = cast(%0) {dtype=float32}
        %2: float32[2,8] = exp(%1)
        return %2"""
    check(text, text)


def test_float64_becomes_float32():
    check("""
        input %x: float64[2,8]
        param %w: float32[8,8] = "w"
        %0: float32[2,8] = cast(%x) {dtype=float32}
        %1: float32[2,8] = linear(%0, %w)
        %2: float64[2,8] = cast(%1) {dtype=float64}
        %3: float64[2,8] = exp(%2)
        %4: float32[2,8] = cast(%3) {dtype=float32}
        return %4""", """
        input %x: float64[2,8]
        param %w: float32[8,8] = "w"
        %0: float32[2,8] = cast(%x) {dtype=float32}
        %1: float32[2,8] = cast(%0) {dtype=float32}
        %2: float32[2,8] = linear(%1, %w)
        %3: float32[2,8] = cast(%2) {dtype=float32}
        %4: float32[2,8] = exp(%3)
        %5: float32[2,8] = cast(%4) {dtype=float32}
        return %5""", "float32")


def test_angles_and_parameter_arithmetic_stay_in_float32():
    check("""
        input %x: float32[4,2]
        input %position: int32[4,1]
        param %w: float32[2] = "w"
        param %frequency: float32[2] = "frequency"
        %0: float32[4,1] = cast(%position) {dtype=float32}
        %1: float32[4,2] = mul(%0, %frequency)
        %2: float32[4,2] = cos(%1)
        %3: float32[4,2] = mul(%x, %2)
        %4: float32[2] = rsqrt(%w)
        %5: float32[4,2] = mul(%3, %4)
        return %5""", """
        input %x: float32[4,2]
        input %position: int32[4,1]
        param %w: float32[2] = "w"
        param %frequency: float32[2] = "frequency"
        %0: float32[4,1] = cast(%position) {dtype=float32}
        %1: float32[4,2] = mul(%0, %frequency)
        %2: float32[4,2] = cos(%1)
        %3: bfloat16[4,2] = cast(%x) {dtype=bfloat16}
        %4: bfloat16[4,2] = cast(%2) {dtype=bfloat16}
        %5: bfloat16[4,2] = mul(%3, %4)
        %6: float32[2] = rsqrt(%w)
        %7: bfloat16[2] = cast(%6) {dtype=bfloat16}
        %8: bfloat16[4,2] = mul(%5, %7)
        %9: float32[4,2] = cast(%8) {dtype=float32}
        return %9""")


def test_angles_of_a_network_are_followed_to_its_products_only():
    result = convert_precision(graph_of("""
        input %x: float32[4,8]
        param %w: float32[8,8] = "w"
        %0: float32[4,8] = linear(%x, %w)
        %1: float32[4,8] = neg(%0)
        %2: float32[4,8] = sin(%1)
        %3: float32[4,8] = linear(%2, %w)
        return %3"""), "bfloat16")
    assert [str(n.outputs[0].dtype) for n in result.nodes if n.op.mnemonic in ("linear", "neg", "sin")] == [
        "bfloat16", "float32", "float32", "bfloat16"]


LOWEST = float(np.finfo(np.float32).min)


def test_masks_stay_finite():
    """The lowest float32 would be -inf in bfloat16, and a row of it NaN."""
    graph = graph_of(f"""
        input %x: float32[2,4]
        input %keep: bool[2,4]
        param %w: float32[4] = "w"
        constant %c: float32[4] = [{LOWEST}, 0.0, -inf, 1.0]
        %low: float32[] = full() {{shape=(), value={LOWEST}, dtype=float32}}
        %none: float32[] = full() {{shape=(), value=-inf, dtype=float32}}
        %0: float32[2,4] = select(%keep, %x, %low)
        %1: float32[2,4] = softmax(%0) {{axis=1}}
        %2: float32[2,4] = clamp(%0) {{min={LOWEST}, max=inf}}
        %3: float32[2,5] = pad(%x) {{low=(0, 0), high=(0, 1), value={LOWEST}}}
        %4: float32[2,4] = select(%keep, %x, %none)
        %5: float32[2,4] = maximum(%0, %c)
        return %1, %2, %3, %4, %5""")
    result = verify(convert_precision(graph, "bfloat16"))
    x, keep = np.ones((2, 4), np.float32), np.array([[True, False, True, True], [False] * 4])
    soft, clamped, padded, chosen, largest = result.evaluate([x, keep], {"w": x[0]})
    lowest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
    np.testing.assert_array_equal(soft[1], [0.25] * 4)
    assert clamped[1, 0] == padded[0, 4] == largest[1, 0] == largest[1, 2] == lowest
    assert chosen[1, 0] == -np.inf


def test_other_dtypes_are_refused():
    with pytest.raises(RanvierError, match="bfloat16 or float32, not 'float16'") as caught:
        convert_precision(graph_of(MODEL), "float16")
    assert caught.value.code == "E0802"


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float32", "bfloat16"]))
def test_the_interface_stays(seed, dtype):
    graph = random_graph(seed, 10)
    result = verify(convert_precision(graph, dtype), "convert_precision")
    assert result.input_types == graph.input_types and result.output_types == graph.output_types
    assert {p.key for p in result.params} == {p.key for p in graph.params}
    params = dict(zip((p.key for p in graph.params), arrays_for(None, [p.value.type for p in graph.params], seed),
                      strict=True))
    try:
        arrays = result.evaluate(arrays_for(None, graph.input_types, seed), params)
    except RanvierError as problem:  # a random index that lies outside
        assert problem.code == "E0608"
        return
    assert [(a.shape, a.dtype) for a in arrays] == [(t.shape, t.dtype.np) for t in graph.output_types]
