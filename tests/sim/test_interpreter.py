"""Programs compute what their kernels mean, in every order; mistakes of a program are found."""

import dataclasses

import numpy as np
import pytest
from helpers.kernels import mlp, random_kernel
from helpers.programs import Builder, random_array

from ranvier import dtypes as dt
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.errors import RanvierError
from ranvier.ir.kernel import Kernel, ParamSource
from ranvier.ir.program import Program
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.dma import DmaCopy
from ranvier.isa.vector import TensorCopy
from ranvier.sim.compare import compare_kernel_to_program, first_divergence
from ranvier.sim.interpreter import Interpreter, run_kernel, run_program
from ranvier.target import get
from ranvier.target.spec import Engine

TRN2 = get("trn2")


def changed(program: Program, order: int, **fields) -> Program:
    """`program` with fields of the slot with that order replaced."""
    streams = tuple(
        dataclasses.replace(
            stream, slots=tuple(dataclasses.replace(s, **fields) if s.order == order else s for s in stream.slots)
        )
        for stream in program.streams
    )
    return dataclasses.replace(program, streams=streams)


def mlp_inputs(kernel):
    scale = {"x": 1.0}
    return [
        dt.cast(random_array(kernel.by_name[n].shape, seed=i) * np.float32(scale.get(n, 0.1)), kernel.by_name[n].dtype)
        for i, n in enumerate(kernel.inputs)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_agree_with_their_kernels(seed):
    kernel = random_kernel(seed)
    program = lower_kernel(kernel, TRN2)
    source = random_array(kernel.by_name["source"].shape, seed=seed)
    expected = run_kernel(kernel, TRN2, [source])[0]
    for order in range(2):
        for dma in ("early", "late"):
            found = run_program(program, TRN2, {"source": source}, seed=order, dma=dma)["result"]
            assert found.tobytes() == expected.tobytes()


def test_mlp_is_right_and_repeatable():
    kernel = mlp(2, 256, 64, dtype="float32")
    inputs = mlp_inputs(kernel)
    x = inputs[0].astype(np.float64)
    from scipy import special

    for weight in inputs[1:]:
        product = weight.astype(np.float64).T @ x
        x = 0.5 * product * (1 + special.erf(product / np.sqrt(2))) + x
    interpreter = Interpreter(lower_kernel(kernel, TRN2), TRN2, dma="late")
    first = interpreter.run(inputs)[0]
    assert np.abs(first - x).max() < 1e-4
    other = interpreter.run([-inputs[0], *inputs[1:]])[0]
    assert not np.array_equal(first, other)
    assert interpreter.run(inputs)[0].tobytes() == first.tobytes()


def test_a_missing_wait_is_seen_and_its_first_victim_is_named():
    kernel = mlp(2, 256, 64)
    program, inputs = lower_kernel(kernel, TRN2), mlp_inputs(kernel)
    assert first_divergence(program, TRN2, inputs, dma="late") is None
    assert compare_kernel_to_program(kernel, program, TRN2, inputs) is None
    matmul = next(s for e, s in program.slots() if e is Engine.TENSOR and s.waits)
    broken = changed(program, matmul.order, waits=())
    with pytest.raises(RanvierError) as caught:
        run_program(broken, TRN2, inputs, dma="late")
    assert caught.value.code == "E0402" and "no semaphore" in str(caught.value) and "kernels.py" in str(caught.value)
    found = first_divergence(broken, TRN2, inputs, dma="late")
    assert found is not None and found.order == matmul.order and found.instruction is matmul.instruction
    assert np.isnan(found.actual) and found.differing > 0 and "kernels.py" in str(found)


def test_a_run_sees_nothing_of_the_run_before():
    kernel = mlp(1, 256, 64)
    program, inputs = lower_kernel(kernel, TRN2), mlp_inputs(kernel)
    for slot in [slot for engine, slot in program.slots() if engine is Engine.TENSOR]:
        program = changed(program, slot.order, waits=())  # matmuls do not wait for their operands
    interpreter = Interpreter(program, TRN2, dma="late", check_reads=False)
    first = interpreter.run(inputs)[0]
    assert np.isnan(first.astype(np.float32)).any()  # what came too late is poison, not the values of an earlier run
    assert interpreter.run(inputs)[0].tobytes() == first.tobytes()


def test_a_pass_that_changes_the_meaning_is_found():
    kernel = mlp(2, 256, 64)
    inputs = mlp_inputs(kernel)
    victim = next(i for i, inst in enumerate(kernel.body) if inst.MNEMONIC == "activation")
    wrong = dataclasses.replace(kernel.body[victim], scale=2.0)
    other = dataclasses.replace(kernel, body=(*kernel.body[:victim], wrong, *kernel.body[victim + 1 :]))
    found = compare_kernel_to_program(kernel, lower_kernel(other, TRN2), TRN2, inputs)
    assert found is not None and found.instruction.MNEMONIC == "activation"
    assert found.tensor == wrong.dst.buffer.name


def simple(**fields):
    """Load x, copy it, store it: (builder, tiles)."""
    b = Builder()
    x = b.buffer("x", "hbm", (128, 8), kind=BufferKind.INPUT)
    y = b.buffer("y", "hbm", (128, 8), kind=BufferKind.OUTPUT)
    s, t = b.buffer("s", "sbuf", (128, 8)), b.buffer("t", "sbuf", (128, 8), **fields)
    b.put(Engine.SYNC, DmaCopy(dst=s.all, src=x.all), signals={"q": 16}, queue="sync0")
    b.put(Engine.VECTOR, TensorCopy(dst=t.all, src=s.all), waits={"q": 16}, signals={"v": 1})
    b.put(Engine.SYNC, DmaCopy(dst=y.all, src=t.all), waits={"v": 1}, queue="sync0")
    return b


def test_capacity_and_places():
    with pytest.raises(RanvierError) as caught:
        run_program(simple(byte=TRN2.sbuf.usable_bytes_per_partition - 16).program(), TRN2, [random_array((128, 8))])
    assert caught.value.code == "E0501"
    with pytest.raises(RanvierError) as caught:
        run_program(simple(partition=1).program(), TRN2, [random_array((128, 8))])
    assert caught.value.code == "E0501" and "partitions 1 to 129" in str(caught.value)
    program = dataclasses.replace(simple().program(), placements=())
    with pytest.raises(RanvierError) as caught:
        run_program(program, TRN2, [random_array((128, 8))])
    assert caught.value.code == "E0901" and "no place" in str(caught.value)
    small = TRN2.replace("hbm.bytes", TRN2.hbm.reserved_bytes.value + 6000)
    with pytest.raises(RanvierError) as caught:
        run_program(simple().program(), small, [random_array((128, 8))])
    assert caught.value.code == "E0502"


def test_access_outside_its_buffer():
    b = simple()
    s = b.buffers["s"]
    wide = Buffer("s", Space.SBUF, (128, 16), dt.float32)
    b.put(Engine.VECTOR, TensorCopy(dst=b.buffers["t"].all, src=s.all.__class__(s, 8, ((1, 128), (1, 8)), s.dtype)))
    with pytest.raises(RanvierError) as caught:
        Interpreter(b.program(), TRN2)
    assert caught.value.code == "E0901" and "bytes 32 to 64" in str(caught.value)
    assert wide.bytes_per_partition == 64


def test_reads_of_nothing_are_errors_even_where_another_tile_was():
    b = simple()
    # u lies where s was written, but nothing ever wrote u itself
    u = b.buffer("u", "sbuf", (128, 8), byte=b.placements["s"].byte)
    b.put(Engine.VECTOR, TensorCopy(dst=b.buffers["t"].all, src=u.all))
    with pytest.raises(RanvierError) as caught:
        run_program(b.program(), TRN2, [random_array((128, 8))])
    assert caught.value.code == "E0401" and "tensor u" in str(caught.value)
    b = simple()
    b.buffer("z", "hbm", (128, 8), kind=BufferKind.OUTPUT)
    with pytest.raises(RanvierError) as caught:
        run_program(b.program(), TRN2, [random_array((128, 8))])
    assert caught.value.code == "E0401" and "output z" in str(caught.value)


def test_inputs_must_fit():
    interpreter = Interpreter(simple().program(), TRN2)
    for bad in (
        [], [random_array((128, 8)), random_array((128, 8))], [random_array((128, 9))],
        [random_array((128, 8), "bfloat16")], {"z": random_array((128, 8))},
    ):  # fmt: skip
        with pytest.raises(RanvierError) as caught:
            interpreter.run(bad)
        assert caught.value.code == "E0603"


def with_params():
    w = Buffer("w", Space.HBM, (16, 4), dt.bfloat16, BufferKind.PARAM)
    y = Buffer("y", Space.HBM, (16, 4), dt.bfloat16, BufferKind.OUTPUT)
    t = Buffer("t", Space.SBUF, (16, 4), dt.bfloat16)
    source = ParamSource("weight", rows=(2, 6), reshape=(4, 16), permute=(1, 0), dtype=dt.bfloat16)
    body = (DmaCopy(dst=t.all, src=w.all), DmaCopy(dst=y.all, src=t.all))
    return Kernel("params", "trn2", (w, y, t), (), ("y",), body, (("w", source),))


def test_parameters_are_sliced_reshaped_permuted_cast_and_bound_once():
    kernel = with_params()
    program = lower_kernel(kernel, TRN2)
    state = {"weight": random_array((8, 4, 4)), "other": np.zeros(3)}
    expected = dt.cast(state["weight"][2:6].reshape(4, 16).transpose(1, 0), dt.bfloat16)
    interpreter = Interpreter(program, TRN2)
    assert np.array_equal(interpreter.run([], state)[0], expected)
    calls = interpreter._calls
    interpreter.run([], dict(state))
    assert interpreter._calls is calls
    assert np.array_equal(interpreter.run([], {"weight": -state["weight"]})[0], -expected)
    assert interpreter._calls is not calls
    with pytest.raises(RanvierError) as caught:
        interpreter.run([], {"bias": state["weight"]})
    assert caught.value.code == "E0603" and "'weight'" in str(caught.value)
    assert np.array_equal(run_kernel(kernel, TRN2, [], state)[0], expected)


def test_parameters_are_never_written():
    b = Builder()
    w = b.buffer("w", "hbm", (16, 4), kind=BufferKind.PARAM)
    t = b.buffer("t", "sbuf", (16, 4))
    b.put(Engine.SYNC, DmaCopy(dst=t.all, src=w.all), queue="q")
    b.put(Engine.SYNC, DmaCopy(dst=w.all, src=t.all), queue="q")
    program = dataclasses.replace(b.program(), params=(("w", ParamSource("w")),))
    weight = random_array((16, 4))
    weight.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run_program(program, TRN2, [], {"w": weight})
