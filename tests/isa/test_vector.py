"""Element-wise instructions of the vector engine: values against float64, bits, rules, engines, time."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import ALL, TRN1, TRN2, TRN3, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import NkiValidationError
from ranvier.isa.alu import ALU
from ranvier.isa.record import verify
from ranvier.isa.vector import Memset, Reciprocal, ScalarTensorTensor, TensorCopy, TensorScalar, TensorTensor
from ranvier.target.spec import Engine

ADD, SUB, MUL = ALU["add"], ALU["subtract"], ALU["multiply"]
FLOATS = ["float32", "bfloat16", "float16"]
EPSILON = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}
shapes = st.tuples(st.integers(1, 128), st.integers(1, 9), st.integers(1, 5))
operations = st.sampled_from([ADD, SUB, MUL, ALU["maximum"], ALU["minimum"], ALU["greater"], ALU["logical_and"]])


def numbers(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).uniform(-4, 4, shape).astype(np.float32)
    return values.astype(dt.dtype(dtype).np)


def wide(op, a, b):
    """The operation in float64."""
    return op.fn(np.asarray(a, np.float64), np.asarray(b, np.float64))


def close(result, expected, dtype):
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, rtol=EPSILON[dtype], atol=EPSILON[dtype])


# tensor_copy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD])
def test_copy_of_equal_dtypes_keeps_bits(engine):
    tiles = Tiles()
    words = np.random.default_rng(0).integers(0, 2**32, (128, 16), np.uint32)
    src = tiles.holding(words.view(np.float32))  # any bits: NaN payloads and denormal numbers too
    copy = TensorCopy(dst=tiles("sbuf", (128, 4, 4), "float32"), src=src, engine=engine)
    assert (run(copy, tiles).view(np.uint32).reshape(words.shape) == words).all()


@given(shape=shapes, source=st.sampled_from(FLOATS), to=st.sampled_from([*FLOATS, "int32", "uint8"]))
@settings(max_examples=25, deadline=None)
def test_copy_converts(shape, source, to):
    tiles, values = Tiles(), numbers(shape, source)
    result = run(TensorCopy(dst=tiles("psum", shape, to), src=tiles.holding(values)), tiles)
    if to in FLOATS:
        close(result, values.astype(np.float64), to)
    else:
        info = np.iinfo(dt.dtype(to).np)
        assert (result == np.clip(np.rint(values.astype(np.float64)), info.min, info.max)).all()


def test_copy_of_a_strided_view():
    tiles, values = Tiles(), numbers((64, 32))
    base = tiles("sbuf", (64, 32), "float32", slice(1, 32, 3))
    tiles.values[base.buffer.name] = values
    result = run(TensorCopy(dst=tiles("sbuf", (64, 11), "float32"), src=base), tiles)
    assert (result == values[:, 1::3]).all()


def test_copy_engines_by_generation():
    tiles = Tiles()
    sbuf = TensorCopy(dst=tiles("sbuf", (8, 8), "float32"), src=tiles("sbuf", (8, 8), "float32"))
    psum = TensorCopy(dst=tiles("sbuf", (8, 8), "float32"), src=tiles("psum", (8, 8), "float32"))
    assert sbuf.legal_engines(TRN1) == (Engine.VECTOR, Engine.GPSIMD)
    assert sbuf.legal_engines(TRN2) == (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
    assert psum.legal_engines(TRN2) == (Engine.VECTOR, Engine.SCALAR)


# tensor_tensor --------------------------------------------------------------------------------------------------------


@given(shape=shapes, op=operations, dtypes=st.tuples(*[st.sampled_from(FLOATS)] * 3), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_tensor_tensor(shape, op, dtypes, seed):
    tiles = Tiles()
    a, b = numbers(shape, dtypes[0], seed), numbers(shape, dtypes[1], seed + 1)
    inst = TensorTensor(
        dst=tiles("sbuf", shape, dtypes[2]), data1=tiles.holding(a, "psum"), data2=tiles.holding(b), op=op
    )
    close(run(inst, tiles), wide(op, a, b), dtypes[2])


WORDS = st.sampled_from([np.int32, np.uint32])


@given(a=WORDS, b=WORDS, to=WORDS, op=st.sampled_from([ADD, SUB, MUL]), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_integers_are_exact_and_wrap_on_gpsimd(a, b, to, op, seed):
    tiles, rng = Tiles(), np.random.default_rng(seed)
    x, y = (rng.integers(np.iinfo(t).min, np.iinfo(t).max, (16, 8), t) for t in (a, b))
    inst = TensorTensor(
        dst=tiles("sbuf", (16, 8), np.dtype(to).name), data1=tiles.holding(x), data2=tiles.holding(y), op=op
    )
    assert inst.engine_on(TRN2) is Engine.GPSIMD
    expected = op.fn(x.astype(object), y.astype(object)) & 0xFFFFFFFF
    assert ((run(inst, tiles).astype(object) & 0xFFFFFFFF) == expected).all()


def test_integers_pass_through_float32_on_the_vector_engine():
    tiles = Tiles()
    x, y = np.full((4, 4), 2**24, np.int32), np.ones((4, 4), np.int32)
    operands = dict(dst=tiles("sbuf", (4, 4), "int32"), data1=tiles.holding(x), data2=tiles.holding(y), op=ADD)
    assert (run(TensorTensor(**operands), tiles) == 2**24 + 1).all()
    assert (run(TensorTensor(**operands, engine=Engine.VECTOR), tiles) == 2**24).all()


def test_integers_in_psum_go_to_the_vector_engine():
    tiles = Tiles()
    inst = TensorTensor(
        dst=tiles("sbuf", (4, 4), "int32"), data1=tiles("psum", (4, 4), "int32"),
        data2=tiles("sbuf", (4, 4), "int32"), op=ADD,
    )
    assert inst.legal_engines(TRN2) == (Engine.VECTOR,) and inst.arithmetic == "float32"


def test_comparison_of_large_integers_on_gpsimd():
    tiles = Tiles()
    x, y = np.array([[2**31 - 1, 5]], np.int32), np.array([[2**31 - 2, 5]], np.int32)
    inst = TensorTensor(
        dst=tiles("sbuf", (1, 2), "int32"), data1=tiles.holding(x), data2=tiles.holding(y), op=ALU["greater"]
    )
    assert run(inst, tiles).tolist() == [[1, 0]]


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_bitwise_keeps_bits(name, dtype):
    tiles, rng = Tiles(), np.random.default_rng(0)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (8, 8), dtype)
    y = rng.integers(0, 8, (8, 8), dtype)
    unsigned = np.dtype(f"u{x.itemsize}")
    inst = TensorTensor(
        dst=tiles("sbuf", (8, 8), unsigned.name), data1=tiles.holding(x), data2=tiles.holding(y), op=ALU[name]
    )
    expected = getattr(np, name)(x.view(unsigned), y.view(unsigned))
    assert (run(inst, tiles) == expected).all()


@pytest.mark.parametrize("name", ["power", "subtract"])
def test_tensor_tensor_engines(name):
    tiles = Tiles()
    inst = TensorTensor(**{n: tiles("sbuf", (8, 8), "float32") for n in ("dst", "data1", "data2")}, op=ALU[name])
    assert inst.legal_engines(TRN2) == ((Engine.GPSIMD,) if name == "power" else (Engine.VECTOR,))


def test_power():
    tiles, x = Tiles(), np.abs(numbers((8, 8))) + 0.5
    y = numbers((8, 8), seed=3)
    inst = TensorTensor(
        dst=tiles("sbuf", (8, 8), "float32"), data1=tiles.holding(x), data2=tiles.holding(y), op=ALU["power"]
    )
    np.testing.assert_allclose(run(inst, tiles), x.astype(np.float64) ** y.astype(np.float64), rtol=1e-5)


# tensor_scalar, scalar_tensor_tensor ----------------------------------------------------------------------------------


@given(
    shape=shapes, op0=operations, op1=st.none() | operations, vectors=st.tuples(st.booleans(), st.booleans()),
    reverse=st.tuples(st.booleans(), st.booleans()), to=st.sampled_from(FLOATS),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_tensor_scalar(shape, op0, op1, vectors, reverse, to):
    tiles, data = Tiles(), numbers(shape, "bfloat16")
    operands = [numbers((shape[0], 1), seed=k + 5) if vectors[k] else 1.25 * (k + 1) for k in (0, 1)]
    made = [tiles.holding(o) if isinstance(o, np.ndarray) else o for o in operands]
    inst = TensorScalar(
        dst=tiles("sbuf", shape, to), data=tiles.holding(data), op0=op0, operand0=made[0], reverse0=reverse[0],
        op1=op1, operand1=None if op1 is None else made[1], reverse1=reverse[1],
    )  # fmt: skip
    expected = np.asarray(data, np.float64)
    for op, operand, swapped in ((op0, operands[0], reverse[0]), (op1, operands[1], reverse[1])):
        if op is not None:
            value = operand[:, :, None] if isinstance(operand, np.ndarray) else operand
            expected = wide(op, value, expected) if swapped else wide(op, expected, value)
    close(run(inst, tiles), expected, to)


def test_tensor_scalar_bits():
    tiles, data = Tiles(), np.arange(256, dtype=np.uint8).reshape(4, 64)
    inst = TensorScalar(
        dst=tiles("sbuf", (4, 64), "uint8"), data=tiles.holding(data), op0=ALU["right_shift"], operand0=4,
        op1=ALU["bitwise_and"], operand1=0x103,
    )  # fmt: skip
    assert (run(inst, tiles) == (data >> 4 & 3)).all()


def test_bitwise_result_is_not_saturated():
    tiles, data = Tiles(), np.array([[-1, -2]], np.int32)
    inst = TensorScalar(dst=tiles("sbuf", (1, 2), "uint32"), data=tiles.holding(data), op0=ALU["invert"])
    assert run(inst, tiles).tolist() == [[0, 1]]
    inst = TensorScalar(
        dst=tiles("sbuf", (1, 2), "uint32"), data=tiles.holding(data), op0=ALU["bitwise_or"], operand0=0
    )
    assert run(inst, tiles).tolist() == [[2**32 - 1, 2**32 - 2]]


def test_rsqrt_after_add_runs_on_gpsimd():
    tiles, data = Tiles(), np.abs(numbers((16, 8)))
    inst = TensorScalar(
        dst=tiles("sbuf", (16, 8), "float32"), data=tiles.holding(data), op0=ADD, operand0=1e-5, op1=ALU["rsqrt"]
    )
    assert inst.legal_engines(TRN2) == (Engine.GPSIMD,)
    np.testing.assert_allclose(run(inst, tiles), (data.astype(np.float64) + 1e-5) ** -0.5, rtol=2e-6)


@pytest.mark.parametrize(
    "op0, op1, on", [(MUL, ADD, TRN2), (MUL, None, TRN2), (ADD, None, TRN2), (SUB, ALU["maximum"], TRN3)]
)
def test_tensor_scalar_on_the_scalar_engine(op0, op1, on):
    tiles = Tiles()
    inst = TensorScalar(
        dst=tiles("psum", (8, 8), "float32"), data=tiles("sbuf", (8, 8), "float32"), op0=op0, operand0=2.0, op1=op1,
        operand1=None if op1 is None else 3.0, engine=Engine.SCALAR,
    )  # fmt: skip
    verify(inst, on)
    older = TRN2 if on is TRN3 else TRN1
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, older)
    assert caught.value.rule == "ISA-5" and "scalar does not run this" in str(caught.value)


def test_the_scalar_engine_has_just_three_pairs_before_the_last_generation():
    tiles = Tiles()
    operands = dict(dst=tiles("sbuf", (8, 8), "float32"), data=tiles("sbuf", (8, 8), "float32"), operand0=1.0)
    found = set()
    for first in ALU.values():
        for second in (None, *ALU.values()):
            inst = TensorScalar(**operands, op0=first, op1=second, operand1=1.0)
            if Engine.SCALAR in inst.legal_engines(TRN2):
                found.add((first, second))
            assert Engine.SCALAR not in inst.legal_engines(TRN1)
    assert found == {(MUL, ADD), (MUL, None), (ADD, None)}


def test_operation_of_a_later_generation():
    tiles = Tiles()
    inst = TensorScalar(dst=tiles("sbuf", (8, 8), "float32"), data=tiles("sbuf", (8, 8), "float32"), op0=ALU["square"])
    verify(inst, TRN3)
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, TRN2)
    assert (caught.value.rule, caught.value.code) == ("ISA-6", "E0307")


@given(
    shape=shapes, ops=st.tuples(operations, operations), vector=st.booleans(), to=st.sampled_from(FLOATS),
    reverse=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_scalar_tensor_tensor(shape, ops, vector, to, reverse):
    tiles, data, tensor = Tiles(), numbers(shape, "float16"), numbers(shape, "bfloat16", 8)
    value = numbers((shape[0], 1), seed=9) if vector else -0.75
    inst = ScalarTensorTensor(
        dst=tiles("sbuf", shape, to), data=tiles.holding(data, "psum"), op0=ops[0],
        operand0=tiles.holding(value) if isinstance(value, np.ndarray) else value, op1=ops[1],
        operand1=tiles.holding(tensor), reverse0=reverse[0], reverse1=reverse[1],
    )  # fmt: skip
    operand = value[:, :, None] if isinstance(value, np.ndarray) else value
    inner = wide(ops[0], operand, data) if reverse[0] else wide(ops[0], data, operand)
    expected = wide(ops[1], tensor, inner) if reverse[1] else wide(ops[1], inner, tensor)
    close(run(inst, tiles), expected, to)


# reciprocal, memset ---------------------------------------------------------------------------------------------------


def test_reciprocal():
    tiles, data = Tiles(), np.array([[0.5, -4.0, 0.0, 3.0]], np.float32)
    inst = Reciprocal(dst=tiles("sbuf", (1, 4), "float32"), data=tiles.holding(data))
    np.testing.assert_allclose(run(inst, tiles), [[2.0, -0.25, np.inf, 1 / 3]], rtol=1e-7)


@pytest.mark.parametrize(
    "dtype, value, expected",
    [("float32", 1.5, 1.5), ("bfloat16", 1 / 3, float(ml_dtypes.bfloat16(1 / 3))), ("int8", -128, -128),
     ("uint32", 2**32 - 1, 2**32 - 1), ("int32", 2**24 + 1, 2**24 + 1), ("float8_e4m3", 2, 2.0)],
)  # fmt: skip
def test_memset(dtype, value, expected):
    result = run(Memset(dst=Tiles()("sbuf", (3, 4, 5), dtype), value=value))
    assert result.shape == (3, 4, 5) and (result.astype(np.float64) == expected).all()


@pytest.mark.parametrize("dtype, value", [("int8", 128), ("uint8", -1), ("int32", 1.0), ("float32", "0")])
def test_memset_refuses_what_dst_cannot_hold(dtype, value):
    with pytest.raises(NkiValidationError) as caught:
        verify(Memset(dst=Tiles()("sbuf", (3, 4), dtype), value=value), TRN2)
    assert caught.value.rule == "MS-1" and repr(value) in str(caught.value)


# time -----------------------------------------------------------------------------------------------------------------


def cost(cls, on, engine=Engine.VECTOR, **fields):
    tiles = Tiles()
    made = {name: tiles(*value) if isinstance(value, tuple) else value for name, value in fields.items()}
    inst = cls(**made)
    verify(inst, on)
    return inst.cost(on, engine)


def sbuf(n, dtype="float32", columns=None):
    return ("sbuf", (128, n), dtype, columns)


def psum(n, dtype="float32"):
    return ("psum", (128, n), dtype)


TIMES = [
    # id, record, target, what of the cost, fields, published ns, relative tolerance
    ("copy fp32", TensorCopy, TRN2, "busy", dict(dst=sbuf(512), src=sbuf(512)), 343, 0.03),
    ("copy fp32 to the end", TensorCopy, TRN2, "latency", dict(dst=sbuf(512), src=sbuf(512)), 420, 0.05),
    ("copy from PSUM", TensorCopy, TRN2, "busy", dict(dst=sbuf(512), src=psum(512)), 598, 0.03),
    ("tensor_tensor with PSUM", TensorTensor, TRN2, "busy",
     dict(dst=sbuf(512), data1=sbuf(512), data2=psum(512), op=ADD), 604, 0.03),
    ("tensor_tensor on trn1", TensorTensor, TRN1, "latency",
     dict(dst=sbuf(8192), data1=sbuf(8192), data2=sbuf(8192), op=ADD), 14975, 0.02),
    ("tensor_scalar fp32, operand from memory", TensorScalar, TRN2, "busy",
     dict(dst=sbuf(512), data=sbuf(512), op0=SUB, operand0=sbuf(1)), 395.5, 0.03),
    ("tensor_scalar to fp8", TensorScalar, TRN2, "latency",
     dict(dst=sbuf(16384, "float8_e4m3"), data=sbuf(16384, "bfloat16"), op0=MUL, operand0=sbuf(1)), 8800, 0.02),
    ("tensor_scalar on trn1", TensorScalar, TRN1, "busy",
     dict(dst=sbuf(2048), data=sbuf(2048), op0=MUL, operand0=2.0), 1894, 0.1),
    ("reciprocal", Reciprocal, TRN2, "busy", dict(dst=sbuf(512), data=sbuf(512)), 4270, 0.03),
]  # fmt: skip


@pytest.mark.parametrize("case", TIMES, ids=[case[0] for case in TIMES])
def test_published_times(case):
    _, record, on, what, fields, published_ns, tolerance = case
    assert getattr(cost(record, on, **fields), what).ns == pytest.approx(published_ns, rel=tolerance)


def elements_per_cycle(record, on, n=4096, **fields):
    """How many elements per cycle more elements take; what does not depend on them cancels out."""
    small = {k: (v[0], (128, n), *v[2:]) if isinstance(v, tuple) else v for k, v in fields.items()}
    large = {k: (v[0], (128, 2 * n), *v[2:]) if isinstance(v, tuple) else v for k, v in fields.items()}
    grown = cost(record, on, **large).busy.ns - cost(record, on, **small).busy.ns
    return n / (grown * on.vector.clock_ghz.value)


def tile(space="sbuf", dtype="bfloat16"):
    return (space, (0, 0), dtype)


MODES = [
    (TensorCopy, TRN2, dict(dst=tile(), src=tile()), 4),
    (TensorCopy, TRN2, dict(dst=tile(dtype="float16"), src=tile()), 4),
    (TensorCopy, TRN2, dict(dst=tile(dtype="float32"), src=tile(dtype="float32")), 2),
    (TensorCopy, TRN2, dict(dst=tile("psum"), src=tile()), 2),
    (TensorCopy, TRN2, dict(dst=tile("psum", "float32"), src=tile()), 1),
    (TensorCopy, TRN2, dict(dst=tile("psum"), src=tile("psum")), 1),
    (TensorCopy, TRN2, dict(dst=tile(dtype="float8_e4m3"), src=tile()), 2),
    (TensorCopy, TRN3, dict(dst=tile(dtype="float8_e4m3"), src=tile()), 4),
    (TensorCopy, TRN1, dict(dst=tile(), src=tile()), 1),
    (TensorScalar, TRN2, dict(dst=tile(), data=tile(), op0=MUL, operand0=2.0), 4),
    (TensorTensor, TRN2, dict(dst=tile(), data1=tile(), data2=tile(), op=ADD), 1),
    (TensorTensor, TRN2, dict(dst=tile(dtype="float32"), data1=tile(), data2=tile(), op=ADD), 0.5),
    (TensorTensor, TRN2, dict(dst=tile(), data1=tile(), data2=tile(), op=ALU["maximum"]), 1),
    (TensorTensor, TRN1, dict(dst=tile(), data1=tile(), data2=tile(), op=ALU["maximum"]), 0.5),
    (TensorTensor, TRN1, dict(dst=tile(), data1=tile(), data2=tile(), op=ADD), 1),
    (TensorTensor, TRN2, dict(dst=tile(dtype="float32"), data1=tile("psum", "float32"), data2=tile(), op=ADD), 1),
    (ScalarTensorTensor, TRN2, dict(dst=tile(), data=tile(), op0=SUB, operand0=1.0, op1=MUL, operand1=tile()), 1),
    (ScalarTensorTensor, TRN2, dict(dst=tile(), data=tile(), op0=MUL, operand0=1.0, op1=ADD, operand1=tile()), 0.5),
    (Reciprocal, TRN3, dict(dst=tile(), data=tile()), 1 / 8),
    (Memset, TRN2, dict(dst=tile(), value=0.0), 2),
    (Memset, TRN2, dict(dst=tile(), value=1.0), 1),
    (Memset, TRN2, dict(dst=tile(dtype="float32"), value=0.0), 1),
]


@pytest.mark.parametrize("record, on, fields, expected", MODES)
def test_elements_per_cycle(record, on, fields, expected):
    assert elements_per_cycle(record, on, 1024, **fields) == pytest.approx(expected, rel=1e-6)


def test_strides():
    def busy(step, dtype, on=TRN2):
        return cost(TensorCopy, on, dst=sbuf(1024, dtype), src=sbuf(1024 * step, dtype, slice(0, None, step))).busy.ns

    assert busy(2, "bfloat16") > 1.5 * busy(1, "bfloat16")  # 16-bit, not contiguous: half of the fast mode
    assert busy(8, "bfloat16") == busy(2, "bfloat16")  # 16 bytes apart: still
    assert busy(9, "bfloat16") > 1.5 * busy(2, "bfloat16")  # more than 16 bytes apart: half the rate
    assert busy(5, "float32", TRN1) > 1.8 * busy(4, "float32", TRN1)


def test_other_engines():
    fields = dict(dst=sbuf(1024), src=sbuf(1024))
    assert cost(TensorCopy, TRN2, Engine.SCALAR, **fields).busy.ns == pytest.approx((1024 + 46) / 1.2)
    assert cost(TensorCopy, TRN2, Engine.GPSIMD, **fields).busy.ns == pytest.approx((150 + 1024) / 1.2)
    half = dict(dst=sbuf(1024, "bfloat16"), src=sbuf(1024, "bfloat16"))
    assert cost(TensorCopy, TRN3, Engine.SCALAR, **half).busy.ns == pytest.approx((512 + 46) / 1.2)


@pytest.mark.parametrize("on", ALL)
def test_time_has_a_least_interval_and_does_not_depend_on_partitions(on):
    tiles = Tiles()
    one = TensorCopy(dst=tiles("sbuf", (1, 1), "float32"), src=tiles("sbuf", (1, 1), "float32"))
    many = TensorCopy(dst=tiles("sbuf", (128, 1), "float32"), src=tiles("sbuf", (128, 1), "float32"))
    assert one.cost(on, Engine.VECTOR) == many.cost(on, Engine.VECTOR)
    assert one.cost(on, Engine.VECTOR).busy.ns >= on.vector.min_ii_cycles.value / on.vector.clock_ghz.value


# Limits of all operands -----------------------------------------------------------------------------------------------


def broken_rule(inst, on=TRN2):
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, on)
    return caught.value.rule


def test_elements_per_partition_are_limited():
    tiles = Tiles()
    verify(Memset(dst=tiles("psum", (8, 4096), "float32"), value=0.0), TRN2)
    assert broken_rule(Memset(dst=tiles("psum", (8, 4097), "bfloat16"), value=0.0)) == "ISA-10"
    verify(Memset(dst=tiles("sbuf", (8, 65536), "int8"), value=0), TRN2)
    assert broken_rule(Memset(dst=tiles("sbuf", (8, 65537), "int8"), value=0)) == "ISA-10"


def test_strides_are_limited():
    tiles = Tiles()
    whole = tiles("sbuf", (8, 2, 3, 2, 3, 2, 3), "float32")
    assert whole.free_dims == 1
    verify(Memset(dst=whole, value=0.0), TRN2)
    four = dataclasses.replace(whole, pattern=((1, 8), (81, 2), (27, 2), (9, 2), (3, 2), (1, 1)))
    assert four.free_dims == 4
    verify(Memset(dst=four, value=0.0), TRN2)
    five = dataclasses.replace(whole, pattern=((1, 8), (81, 2), (27, 2), (9, 2), (3, 2), (1, 2)))
    assert broken_rule(Memset(dst=five, value=0.0)) == "ISA-11"
