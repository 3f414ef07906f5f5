"""narrow_integers: int32 inside, int64 for the caller."""

import numpy as np
import pytest
from helpers.graph_samples import arrays_for, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes
from ranvier.compiler.graph.narrow_integers import narrow_integers
from ranvier.errors import RanvierError
from ranvier.graph import parse_graph, print_graph, verify


def graph_of(body: str):
    return verify(parse_graph("graph @g {" + body + "}"))


BEFORE = """
    input %x: int64[2,8]
    param %w: int64[8] = "w"
    constant %c: int64[8] = [0, 1, 2, 3, 4, 5, 6, 2147483647]
    %0: int64[2,8] = add(%x, %w)
    %1: int64[2,8] = minimum(%0, %c)
    %2: float32[2,8] = cast(%1) {dtype=float32}
    %3: int64[2] = argmax(%2) {axis=1, keepdims=False}
    %4: int64[2,8] = iota() {shape=(2, 8), axis=1, dtype=int64}
    return %3, %4, %2"""


def test_integers_are_narrow_inside():
    graph = graph_of(BEFORE)
    result = verify(narrow_integers(graph), "narrow_integers")
    assert result == graph_of("""
        input %x: int32[2,8] given int64
        param %w: int32[8] = "w"
        constant %c: int32[8] = [0, 1, 2, 3, 4, 5, 6, 2147483647]
        %0: int32[2,8] = add(%x, %w)
        %1: int32[2,8] = minimum(%0, %c)
        %2: float32[2,8] = cast(%1) {dtype=float32}
        %3: int32[2] = argmax(%2) {axis=1, keepdims=False, dtype=int32}
        %4: int32[2,8] = iota() {shape=(2, 8), axis=1, dtype=int32}
        return %3 given int64, %4 given int64, %2"""), print_graph(result)
    x, w = np.arange(16).reshape(2, 8), {"w": np.arange(8)[::-1].copy()}
    for a, b in zip(result.evaluate([x], w), graph.evaluate([x], w), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_nothing_to_do():
    graph = graph_of("input %x: int32[2]\n%0: int32[2] = add(%x, %x)\nreturn %0")
    assert narrow_integers(graph) is graph
    narrowed = narrow_integers(graph_of(BEFORE))
    assert narrow_integers(narrowed) is narrowed


def test_elements_that_do_not_fit_are_refused_when_bound():
    graph = narrow_integers(graph_of(BEFORE))
    big = np.full((2, 8), 2**31)
    for x, w, what in ((big, np.zeros(8, np.int64), "input x"), (big * 0, big[0], "parameter 'w'")):
        with pytest.raises(RanvierError, match=f"{what} has elements from 2147483648") as caught:
            graph.evaluate([x], {"w": w})
        assert caught.value.code == "E0603"


@pytest.mark.parametrize(
    "body",
    ["constant %c: int64[2] = [0, 2147483648]\nreturn %c",
     '%0: int64[] = full() {shape=(), value=-2147483649, dtype=int64} loc("m.py":3)\nreturn %0'],
)
def test_constants_that_do_not_fit_are_refused(body):
    with pytest.raises(RanvierError, match="does not fit in the 32 bits") as caught:
        narrow_integers(graph_of(body))
    assert caught.value.code == "E0604"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_meaning_stays(seed):
    graph = random_graph(seed, 10)
    result = verify(narrow_integers(graph), "narrow_integers")
    assert not any(v.dtype is dtypes.int64 for v in result.values())
    assert result.input_types == graph.input_types and result.output_types == graph.output_types
    inputs = arrays_for(None, graph.input_types, seed)
    weights = arrays_for(None, [p.value.type for p in graph.params], seed)
    params = {p.key: w for p, w in zip(graph.params, weights, strict=True)}
    try:
        expected = graph.evaluate(inputs, params)
    except RanvierError as problem:  # a random index that lies outside
        assert problem.code == "E0608"
        return
    for a, b in zip(result.evaluate(inputs, params), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
