"""Text of graphs: what is printed parses back; what does not parse says where."""

import pytest
from helpers.graph_samples import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier.errors import RanvierError
from ranvier.graph import Graph, parse_graph, print_graph, verify


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_text_parses_back(seed):
    graph = random_graph(seed)
    again = verify(parse_graph(str(graph)))
    assert again == graph and hash(again) == hash(graph) and again.digest() == graph.digest()
    assert [n.loc for n in again.nodes] == [n.loc for n in graph.nodes]
    assert str(again) == str(graph)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_text_without_locations(seed):
    graph = random_graph(seed)
    again = parse_graph(print_graph(graph, locations=False))
    assert again.canonical() == graph.canonical(locations=False)
    assert again.digest() == graph.digest()


TEXT = """graph @main {
  input %ids: int32[1,8] given int64
  param %table: float32[100,16] = "embedding.weight"
  constant %shift: float32[1] = [-0.0]
  %0: float32[1,8,16] = take(%table, %ids) {axis=0} loc("model.py":12:8:12:31 "forward" "embedding")
  %1: float32[1,8,16] = add(%0, %shift)
  %2: float32[1,8,2], %3: int64[1,8,2] = top_k(%1) {k=2, axis=2}
  %4: float32[1,8,16] = clamp(%1) {min=-inf, max=None}
  return %2, %3 given int32, %4
}"""


def test_the_documented_form():
    graph = verify(parse_graph(TEXT))
    assert str(graph) == TEXT
    assert graph.nodes[0].loc is not None and graph.nodes[0].loc.scope == "embedding"
    assert [str(t) for t in graph.input_types] == ["int64[1,8]"]
    assert [t.dtype.name for t in graph.output_types] == ["float32", "int32", "float32"]


def test_graphs_differ_by_what_they_are():
    graph = parse_graph(TEXT)
    for old, new in (("k=2", "k=3"), ("-0.0", "0.0"), ('"embedding.weight"', '"w"'), ("given int64", ""),
                     ("return %2, %3 given int32, %4", "return %3, %2, %4"), ('"forward"', '"f"')):  # fmt: skip
        assert old in TEXT and parse_graph(TEXT.replace(old, new)) != graph
    assert parse_graph(TEXT.replace("%shift", "%other")) == graph
    assert graph != "text" and isinstance(graph, Graph)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("int32[1,8]", "int31[1,8]", "line 2, column 15: expected a dtype, found 'int31[1,8]'"),
        ("take(%table", "grab(%table", "line 5, column 25: expected an operation, found 'grab(%table,'"),
        ("%1: float32[1,8,16] = add", "%0: float32[1,8,16] = add", "line 6, column 3: expected a value that is not"),
        ("add(%0, %shift)", "add(%0, %gone)", "line 6, column 33: expected a defined value, found '%gone)'"),
        ("{k=2, axis=2}", "{k=2}", "expected top_k with attributes k, axis, largest, index_dtype"),
        ("{k=2, axis=2}", "{k=2, axis=2, j=1}", "expected top_k with attributes k, axis, largest, index_dtype"),
        ("= [-0.0]", "= [1, 2]", "expected 1 elements"),
        ("= [-0.0]", '= hex "00"', "expected 4 bytes in hexadecimal"),
        ("\n}", "", "expected ','"),
        ("[100,16]", "[100;16]", "line 3, column 28: expected a token, found ';16]'"),
        ("[1,8,2], %3", "[1,8.5,2], %3", "expected an integer"),
    ],
)
def test_errors_say_where(old, new, message):
    assert old in TEXT
    with pytest.raises(RanvierError) as caught:
        parse_graph(TEXT.replace(old, new))
    assert caught.value.code == "E0605"
    assert message in caught.value.message
