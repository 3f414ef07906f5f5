"""Errors of kernels: code, rule, values, and the caret under the user's own argument."""

import inspect

import numpy as np
import pytest

import ranvier.nki.isa as nisa
import ranvier.nki.language as nl
from ranvier import nki
from ranvier.errors import CODES, Kind, NkiValidationError, RanvierError, UndefinedBehavior

X = np.ones((128, 512), np.float32)


def partition_size(x):
    return nl.ndarray((192, 512), dtype=nl.float32, buffer=nl.sbuf)


def partition_size_by_name(x):
    return nl.zeros(dtype=nl.float32, shape=(192, 512))


def psum_overflow(x):
    return nl.ndarray((128, 5000), nl.float32, buffer=nl.psum)


def sbuf_overflow(x):
    return nl.ndarray((128, 200, 1024), nl.bfloat16)


def one_dimension(x):
    return nl.ndarray((128,), nl.float32)


def mismatched_shapes(x):
    a, b = nl.load(x), nl.load(x[:, 0:100])
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)


def mismatched_by_position(x):
    a, b = nl.load(x), nl.load(x[:, 0:100])
    nisa.tensor_tensor(a, a, b, nl.add)


def mismatched_in_the_language(x):
    a, b = nl.load(x), nl.load(x[:, 0:100])
    return nl.add(a, y=b)


def never_written(x):
    a = nl.ndarray((128, 512), nl.float32)
    nl.store(x, nl.add(a, 1.0)) if x is None else nisa.tensor_copy(dst=nl.load(x), src=a)


def partly_written(x):
    a = nl.ndarray((128, 512), nl.float32)
    nisa.memset(dst=a[:, 0:511], value=0.0)
    nisa.tensor_copy(dst=nl.load(x), src=a)


def out_of_bounds(x):
    return nl.load(x[0:128, 256:768])


def wrong_memory(x):
    a = nl.load(x)
    nisa.tensor_copy(dst=a, src=x)


def wrong_memory_of_matmul(x):
    a = nl.load(x[:, 0:128])
    nisa.nc_matmul(dst=a, stationary=a, moving=a)


def wrong_dtype(x):
    a = nl.load(x[:, 0:64])
    b = nl.ndarray((128, 64), nl.float16)
    nisa.memset(b, value=1.0)
    out = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(out, stationary=a, moving=b)


def unknown_dtype(x):
    return nl.ndarray((128, 64), dtype="float128")


def dtype_of_graphs(x):
    return nl.full((128, 64), 0, dtype=np.float64)


def engine_not_legal(x):
    a = nl.load(x)
    nisa.tensor_tensor(a, a, a, op=nl.subtract, engine=nisa.engine.gpsimd)


def generation_lacks_it(x):
    a = nl.load(x)
    nisa.tensor_tensor(a, a, a, op=nl.abs_max)


def start_partition(x):
    a = nl.load(x)
    nisa.tensor_copy(dst=a[0:32], src=a[16:48])


def bank_border(x):
    a = nl.load(x[:, 0:128])
    acc = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc[:, 448:576], stationary=a, moving=a)


def too_wide(x):
    a = nl.load(x)
    acc = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(acc, a, a)


def bad_value(x):
    a = nl.load(x)
    nisa.memset(a.view(nl.uint8), value=300)


def bad_axis(x):
    return nl.sum(nl.load(x), axis=0)


def fixed_address(x):
    return nl.ndarray((128, 4), nl.float32, address=(0, 64))


def not_a_buffer(x):
    return nl.ndarray((128, 4), nl.float32, "sbuf")


def not_available(x):
    return nl.fori_loop(0, 4, print)


def not_an_argument(x):
    return nl.ndarray((128, 4), nl.float32, memory=nl.sbuf)


def store_from_psum(x):
    out = nl.ndarray((128, 128), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x[:, 0:128])))


def run_time_bounds(x):
    for _ in nl.affine_range(nl.load(x)):
        pass


def bias_that_is_the_result(x):
    a = nl.load(x)
    nisa.activation(dst=a, op=nl.exp, data=a, bias=a)


def shape_that_is_none(x):
    return nl.ndarray(None, nl.float32)


def dtype_that_is_none(x):
    return nl.ndarray((128, 4), dtype=None)


def name_that_is_a_number(x):
    return nl.ndarray((128, 4), nl.float32, name=3)


def fill_with_text(x):
    return nl.full((128, 4), "1", nl.float32)


def operation_of_the_other_kind(x):
    a = nl.load(x)
    nisa.tensor_tensor(a, a, a, op=nl.sin)


def added(x):
    return nl.load(x) + 1.0


def added_from_the_left(x):
    return X + nl.load(x)


def compared(x):
    return nl.load(x) if nl.load(x) == 0 else None


def numpy_function(x):
    return np.exp(nl.load(x))


def as_a_number(x):
    return float(nl.load(x[0:1, 0:1]))


def array_in_the_kernel(x):
    return nl.sqrt(X)


def first_nki(x):
    return nl.load(x)[nl.arange(128)[:, None], 0:512]


CASES = {
    bias_that_is_the_result: ("E0304", "ISA-7", "bias has shape (128, 512); with dst of shape (128, 512) it must be "
                              "(128, 1)", "a"),
    shape_that_is_none: ("E0103", None, "the shape (None,) is not made of positive integers", "None"),
    dtype_that_is_none: ("E0305", None, "None is not a dtype", "None"),
    name_that_is_a_number: ("E0103", None, "name is 3; it takes a string", "3"),
    fill_with_text: ("E0103", None, "fill_value is '1'; it takes a number", '"1"'),
    operation_of_the_other_kind: ("E0309", None, "sin is not an ALU operation", "nl.sin"),
    added: ("E0104", None, "the operator + on a tensor", None),
    added_from_the_left: ("E0104", None, "numpy's add on a tensor", None),
    compared: ("E0104", None, "the operator == on a tensor", None),
    numpy_function: ("E0104", None, "numpy's exp on a tensor", None),
    as_a_number: ("E0104", None, "float() on a tensor", None),
    array_in_the_kernel: ("E0103", None, "x is an array of shape (128, 512); it takes a tensor", "X"),
    first_nki: ("E0104", None, "nki.language.arange", None),
    partition_size: ("E0202", "MEM-1", "a tile of shape (192, 512) needs 192 partitions, SBUF has 128", "(192, 512)"),
    partition_size_by_name: ("E0202", "MEM-1", "needs 192 partitions", "(192, 512)"),
    psum_overflow: ("E0202", "MEM-2",
                    "a float32 tile of shape (128, 5000) needs 20000 bytes per partition, PSUM has 16384",
                    "(128, 5000)"),
    sbuf_overflow: ("E0202", "MEM-2", "needs 409600 bytes per partition, SBUF has", "(128, 200, 1024)"),
    one_dimension: ("E0103", None, "at least one free dimension, not shape (128,)", "(128,)"),
    mismatched_shapes: ("E0304", "ISA-9", "tensor_tensor: data2 has shape (128, 100), dst has shape (128, 512)", "b"),
    mismatched_by_position: ("E0304", "ISA-9", "data2 has shape (128, 100)", "b"),
    mismatched_in_the_language: ("E0304", None, "x has shape (128, 512), y has shape (128, 100)", "b"),
    never_written: ("E0401", None,
                    "tensor_copy reads sbuf tensor sbuf (shape (128, 512)), part of which nothing has written",
                    "a"),
    partly_written: ("E0401", None, "part of which nothing has written", "a"),
    out_of_bounds: ("E0201", None, "slice 256:768 reaches outside: dimension 1 of x has 512 elements",
                    "x[0:128, 256:768]"),
    wrong_memory: ("E0301", "ISA-1", "tensor_copy: src is in hbm; it can be in sbuf or psum", "x"),
    wrong_memory_of_matmul: ("E0301", "ISA-1", "nc_matmul: dst is in sbuf; it can be in psum", "a"),
    wrong_dtype: ("E0305", "MM-5", "stationary is float32, moving is float16", "b"),
    unknown_dtype: ("E0305", None, "'float128' is not a dtype", '"float128"'),
    dtype_of_graphs: ("E0305", None, "the core has no float64", "np.float64"),
    engine_not_legal: ("E0306", "ISA-5", "engine gpsimd does not run this; vector can", "nisa.engine.gpsimd"),
    generation_lacks_it: ("E0307", "ISA-6", "lacks the operation abs_max", None),
    start_partition: ("E0303", "ISA-3", "src starts at partition 16; 32 partitions start at a multiple of 32",
                      "a[16:48]"),
    bank_border: ("E0310", "MM-6", "dst covers bytes 1792 to 2304", "acc[:, 448:576]"),
    too_wide: ("E0308", "MM-2", "stationary has 512 free elements; at most 128 fit", "a"),
    bad_value: ("E0309", "MS-1", "value is 300, dst is uint8", "300"),
    bad_axis: ("E0103", None, "axis is 0; it takes the last free axes of x, which has shape (128, 512)", "0"),
    fixed_address: ("E0104", None, "a tensor at the fixed address (0, 64)", "(0, 64)"),
    not_a_buffer: ("E0103", None, "buffer is 'sbuf'; it is nl.sbuf", '"sbuf"'),
    not_available: ("E0104", None, "nki.language.fori_loop", None),
    not_an_argument: ("E0103", None, "nl.ndarray: got an unexpected keyword argument 'memory'", None),
    store_from_psum: ("E0301", None, "value is in psum; store moves a tile in sbuf to HBM",
                      "nl.transpose(nl.load(x[:, 0:128]))"),
    run_time_bounds: ("E0104", None, "a loop whose bounds are read at run time", None),
}  # fmt: skip


def failing(fn, run):
    with pytest.raises(RanvierError) as caught:
        run()
    found = caught.value
    source, first = inspect.getsourcelines(fn)
    assert found.where.file == __file__ and found.where.function == fn.__name__
    assert first < found.where.line < first + len(source)
    return found


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_error(fn):
    code, rule, text, marked = CASES[fn]
    found = failing(fn, lambda: nki.jit(fn)(X))
    assert (found.code, found.rule) == (code, rule)
    assert text in found.message and found.fix
    lines = str(found).splitlines()
    assert lines[0].startswith(f"{code} {found.message}")
    assert lines[1] == f"  {__file__}, line {found.where.line}, in {fn.__name__}"
    source, caret = lines[2], lines[3]
    start = caret.index("^")
    under = source[start : start + caret.count("^")]
    if marked is not None:
        assert under == marked, str(found)
    kind = CODES[code].kind
    assert isinstance(found, NkiValidationError) == (kind is Kind.USER)
    assert isinstance(found, UndefinedBehavior) == (kind is Kind.UNDEFINED)


RECORDED_TOO = [fn for fn, case in CASES.items() if case[0] != "E0401"]


@pytest.mark.parametrize("fn", RECORDED_TOO, ids=lambda fn: fn.__name__)
def test_recording_finds_the_same_error(fn):
    code, rule, text, _ = CASES[fn]
    found = failing(fn, lambda: nki.jit(fn).record(X))
    assert (found.code, found.rule) == (code, rule) and text in found.message


def test_the_place_where_the_tensor_was_made_is_noted():
    found = failing(never_written, lambda: nki.jit(never_written)(X))
    assert any("the tensor was made at test_nki_errors.py:" in note for note in found.notes)


def test_call_over_several_lines():
    def spread(x):
        a, b = nl.load(x), nl.load(x[:, 0:100])
        nisa.tensor_tensor(
            a,
            a,
            data2=b,
            op=nl.add,
        )

    found = failing(spread, lambda: nki.jit(spread)(X))
    lines = str(found).splitlines()
    assert lines[2].strip() == "data2=b," and lines[3].strip() == "^"
    assert lines[2][lines[3].index("^")] == "b"


def test_every_rule_of_the_text_is_in_the_catalogue():
    assert {case[0] for case in CASES.values()} <= set(CODES)
