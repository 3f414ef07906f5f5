"""Executables: calls, conversions at the boundary, parameters by reference."""

import numpy as np
import pytest
import small_program
from small_program import COLUMNS, ROWS, inputs

from ranvier.errors import RanvierError
from ranvier.runtime.calling import ArrayCalling, constant_leaf, describe_tree
from ranvier.runtime.executable import load
from ranvier.runtime.state import to_device


def test_call_gives_what_the_graph_means():
    exe = small_program.executable()
    x, ids = inputs()
    y, n = exe(x, ids)
    expected = exe.graph.evaluate([x, ids], exe.params)
    assert np.array_equal(y, expected[0])
    assert np.array_equal(n, expected[1])
    assert (y.dtype, n.dtype) == (np.float32, np.int64)


def test_arguments_by_name_and_repeated_calls():
    exe = small_program.executable()
    x, ids = inputs()
    first = exe(x, ids)
    other = exe(*inputs(1))
    again = exe(ids=ids, x=x)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("change, words", [
    (lambda x, n: (x[:4], n), ["x has shape (4, 32)", "(16, 32)"]),
    (lambda x, n: (x.astype(np.float64), n), ["x is float64", "float32"]),
    (lambda x, n: (x,), ["the inputs are x", "x, ids"]),
    (lambda x, n: (x, n, n), ["3 by position"]),
    (lambda x, n: (x, n + (1 << 40)), ["input ids holds", "does not fit in int32"]),
    (lambda x, n: (x, None), ["ids is a NoneType"]),
    (lambda x, n: (x.astype(np.complex64), n), ["x is complex64", "float32"]),
    (lambda x, n: (x.astype(">f4"), n), ["x is >f4", "float32"]),
    (lambda x, n: ("x", n), ["x is a str"]),
    (lambda x, n: ([[1.0], [1.0, 2.0]], n), ["x is a list, and no array"]),
])
def test_what_does_not_fit_is_refused_with_both_sides(change, words):
    exe = small_program.executable()
    with pytest.raises(RanvierError) as caught:
        exe(*change(*inputs()))
    assert caught.value.code == "E0603"
    for word in words:
        assert word in str(caught.value)


def test_int64_at_the_limits_of_int32_passes():
    exe = small_program.executable()
    x, ids = inputs()
    ids[0, :2] = (np.iinfo(np.int32).min, np.iinfo(np.int32).max - 7)
    x, given = to_device(exe.program, exe.graph.input_types, [x, ids])
    assert given.dtype == np.int32
    assert np.array_equal(given, ids)


def test_other_parameters_without_compiling_again():
    exe = small_program.executable()
    x, ids = inputs()
    changed = exe.with_params({"scale": np.ones((COLUMNS, ROWS), np.float32)})
    assert np.array_equal(changed(x, ids)[0], x + 2)
    assert not np.array_equal(exe(x, ids)[0], x + 2)
    assert changed.program is exe.program
    for wrong, words in (
        ({}, "scale is missing"), ({"scale": np.ones((ROWS, COLUMNS), np.float32)}, "scale has shape"),
        ({"scale": np.ones((COLUMNS, ROWS))}, "scale is float64"), ({"scale": "1"}, "scale is a str"),
        (None, "params is a NoneType"),
    ):
        with pytest.raises(RanvierError) as caught:
            exe.with_params(wrong)
        assert caught.value.code == "E0603"
        assert words in str(caught.value)


def test_parameters_may_be_tensors_of_a_framework():
    import torch

    x, ids = inputs()
    changed = small_program.executable().with_params({"scale": torch.ones(COLUMNS, ROWS)})
    assert np.array_equal(changed(x, ids)[0], x + 2)


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path(path):
    for use in (load, small_program.executable().save):
        with pytest.raises(RanvierError, match="is not a path") as caught:
            use(path)
        assert caught.value.code == "E0804"


def test_a_folder_is_not_written_over(tmp_path):
    exe = small_program.executable()
    for write in (exe.save, exe.profile().save_html, exe.profile().save_perfetto, exe.profile().save_csv):
        with pytest.raises(RanvierError, match="it is a folder") as caught:
            write(tmp_path)
        assert caught.value.code == "E0804"
    assert not list(tmp_path.iterdir())


def leaf(i, path):
    return {"tensor": i, "path": path, "shape": [2], "dtype": "float32"}


NESTED = {
    "names": ["batch", "flag"],
    "args": [{"dict": [["mask", leaf(0, "batch['mask']")], ["states", {"list": [leaf(1, "s0"), leaf(2, "s1")]}]]}],
    "kwargs": [["flag", {"constant": True, "path": "flag"}]],
    "result": {"record": "somewhere.Output", "dict": [["last", leaf(1, "last")], ["both", {"tuple": [
        leaf(0, "x"), {"constant": None, "path": "y"}, leaf(1, "last")]}]]},
}


def test_nested_containers_in_and_out():
    calling = ArrayCalling(NESTED)
    a, b, c = (np.full(2, i, np.float32) for i in range(3))
    given = {"mask": a, "states": [b, c]}
    assert [x[0] for x in calling.flatten((given,), {"flag": True})] == [0, 1, 2]
    assert [x[0] for x in calling.flatten((), {"flag": True, "batch": given})] == [0, 1, 2]
    assert [x[0] for x in calling.flatten((given, True), {})] == [0, 1, 2]
    result = calling.unflatten([a, b])
    assert list(result) == ["last", "both"]
    assert result["last"] is b
    assert result["both"][0] is a
    assert result["both"][1] is None
    assert [x["path"] for x in calling.inputs()] == ["batch['mask']", "s0", "s1"]
    assert [x["tensor"] for x in calling.outputs()] == [0, 1]


@pytest.mark.parametrize("batch, flag, words", [
    ({"mask": 1}, True, "batch is a dictionary of mask"),
    ({"mask": np.zeros(2, np.float32), "states": [np.zeros(2, np.float32)]}, True, "batch['states'] is a list of 1"),
    ({"mask": np.zeros(2, np.float32), "states": [np.zeros(2, np.float32)] * 2}, 1, "flag is 1"),
    ("text", True, "batch is a str"),
])
def test_wrong_structure_names_the_place(batch, flag, words):
    with pytest.raises(RanvierError) as caught:
        ArrayCalling(NESTED).flatten((batch,), {"flag": flag})
    assert caught.value.code == "E0603"
    assert words in str(caught.value)


def test_what_has_no_description_is_refused():
    for value in (object(), {1.5j: 3}, {"x": {1, 2}}):
        with pytest.raises(RanvierError) as caught:
            describe_tree(value, lambda part: constant_leaf(part, "x") if isinstance(part, int | set) else None)
        assert caught.value.code == "E0704"
