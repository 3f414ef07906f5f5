"""Running and recording kernels: arrays in and out, eager against recorded, what kernels take and return."""

import collections
import gc
import importlib
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import ranvier.nki.language as nl
from ranvier import config, nki, target
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.errors import RanvierError, UndefinedBehavior, Unsupported, UserError
from ranvier.ir.kernel import verify_kernel
from ranvier.ir.text import parse_kernel, print_kernel
from ranvier.isa.access import BufferKind
from ranvier.nki.builder import RecordingBuilder
from ranvier.nki.context import current
from ranvier.sim.interpreter import run_kernel, run_program

EXAMPLES = Path(__file__).parents[2] / "examples"
RNG = np.random.default_rng(3)


@nki.jit
def scale(x, factor=2.0):
    """x times factor."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), factor))
    return out


def example(name):
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", ["vector_add", "rms_norm", "matmul_tiled"])
def test_examples(name, capsys):
    example(name).main()
    assert name.split("_")[0] in capsys.readouterr().out


@pytest.mark.parametrize("chip", ["trn1", "inf2", "trn2", "trn3"])
@pytest.mark.parametrize("name", ["vector_add", "rms_norm", "matmul_tiled"])
def test_recorded_and_scheduled_kernels_equal_the_eager_run(name, chip):
    bf16 = ml_dtypes.bfloat16
    arguments = {
        "vector_add": (normal(200, 700), normal(200, 700)),
        "rms_norm": (normal(130, 256, dtype=bf16), normal(1, 256)),
        "matmul_tiled": (normal(256, 128, dtype=bf16), normal(256, 512, dtype=bf16)),
    }[name]
    kernel = getattr(example(name), name)
    recorded = kernel.record(*arguments, target=chip)
    verify_kernel(recorded, target.get(chip))
    assert recorded.name == name and recorded.target == chip
    assert parse_kernel(print_kernel(recorded)) == recorded
    eager = nki.simulate(kernel, target=chip)(*arguments)
    (replayed,) = run_kernel(recorded, target.get(chip), list(arguments))
    assert replayed.dtype == eager.dtype and np.array_equal(replayed, eager)
    program = lower_kernel(recorded, target.get(chip))
    for seed in range(3):
        (scheduled,) = run_program(program, target.get(chip), list(arguments), seed=seed, dma="late").values()
        assert np.array_equal(scheduled, eager)


def test_numpy_in_and_out():
    x = normal(64, 32)
    before = x.copy()
    result = scale(x, factor=3.0)
    assert type(result) is np.ndarray and np.array_equal(result, x * np.float32(3))
    assert np.array_equal(x, before)
    x.flags.writeable = False
    assert np.array_equal(nki.simulate(scale)(x), x * np.float32(2))
    assert np.array_equal(scale[1](x[::2]), x[::2] * np.float32(2))


TORCH_DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_torch_in_and_out(dtype):
    x = torch.arange(64 * 32).reshape(64, 32).remainder(31).to(dtype)
    before = x.clone()
    result = scale(x)
    assert isinstance(result, torch.Tensor) and result.dtype is dtype
    assert torch.equal(result.to(torch.float64), x.to(torch.float64) * 2)
    assert torch.equal(x.to(torch.float64), before.to(torch.float64))
    assert torch.equal(scale(x.T).to(torch.float64), x.T.to(torch.float64) * 2)


def test_torch_is_not_imported():
    code = (
        "import sys, numpy as np\n"
        "from ranvier import nki\nfrom ranvier.nki import language as nl\n"
        "def copy(x):\n"
        "    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n"
        "    return out\n"
        "k = nki.jit(copy)\n"
        "k(np.ones((2, 2), np.float32))\n"
        "assert 'torch' not in sys.modules and 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_structures_of_results():
    @nki.jit
    def both(pair, names):
        a, b = (scale(t) for t in pair)
        return {"sum": a, "rest": [b, None]} if names == "dict" else (a, b)

    x, y = normal(8, 4), normal(8, 4)
    result = both((x, y), "dict")
    assert set(result) == {"sum", "rest"} and result["rest"][1] is None
    assert np.array_equal(result["rest"][0], y * np.float32(2))
    first, second = both((x, y), names="tuple")
    assert np.array_equal(first, x * np.float32(2)) and np.array_equal(second, y * np.float32(2))
    kernel = both.record((x, y), "dict")
    assert kernel.inputs == ("pair_0", "pair_1") and len(kernel.outputs) == 2
    assert {kernel.by_name[n].kind for n in kernel.outputs} == {BufferKind.OUTPUT}


def test_record_takes_specifications():
    kernel = scale.record(nki.TensorSpec((16, 8), "bfloat16"), 4.0, target="gen2")
    assert kernel.target == "trn1" and kernel.by_name["x"].shape == (16, 8) and kernel.by_name["x"].dtype is nl.bfloat16
    assert scale.record(nki.TensorSpec([16, 8], np.float32)).by_name["x"].dtype is nl.float32
    assert scale.record(torch.empty(16, 8, device="meta")).by_name["x"].dtype is nl.float32
    for inst in kernel.body:
        assert inst.loc.file == __file__ and inst.loc.function in ("scale", "<lambda>")


def test_target_comes_from_argument_decorator_or_setting(monkeypatch):
    @nki.jit(target="trn3")
    def newest(x):
        return scale(x)

    x = normal(4, 4)
    assert newest.record(x).target == "trn3" and newest.record(x, target="trn1").target == "trn1"
    assert scale.record(x).target == "trn2"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen4")
    assert scale.record(x).target == "trn3"
    with config.override(target="inf2"):
        assert scale.record(x).target == "inf2"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(UserError, match="NEURON_PLATFORM_TARGET_OVERRIDE is 'trn9'") as caught:
        scale(x)
    assert caught.value.code == "E0802"


def test_settings_that_ask_for_what_there_is_not(monkeypatch):
    for name in ("NKI_PRECISE_FP", "NKI_SIMULATOR"):
        monkeypatch.setenv(name, "0")
        with pytest.raises(Unsupported, match=f"{name}=0"):
            scale(normal(4, 4))
        monkeypatch.delenv(name)


def refused(code, match, call, kind=RanvierError):
    with pytest.raises(kind, match=match) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.where is not None and caught.value.where.file == __file__
    return caught.value


def test_arguments_that_kernels_do_not_take():
    x = normal(4, 4)
    refused("E0102", "x is float64, which the core lacks", lambda: scale(x.astype(np.float64)))
    refused("E0102", "x is int64, which the core lacks", lambda: scale(torch.ones(4, 4, dtype=torch.int64)))
    refused("E0102", "x has dtype complex64", lambda: scale(x.astype(np.complex64)))
    refused("E0102", "x is a set", lambda: scale({1, 2}))
    refused("E0102", "which has no values", lambda: scale(nki.TensorSpec((4, 4), "float32")))
    refused("E0103", "missing a required argument: 'x'", lambda: scale())
    refused("E0103", "scale: got an unexpected keyword argument 'y'", lambda: scale(x, y=3))
    refused("E0103", "nki.jit has no option mode", lambda: nki.jit(mode="trace"))
    refused("E0104", r"scale\[2\]", lambda: scale[2](x))


def test_results_that_kernels_cannot_have():
    x = normal(4, 4)
    on_chip = nki.jit(lambda x: nl.load(x))
    part = nki.jit(lambda x: scale(x)[0:2])
    same = nki.jit(lambda x: x)
    number = nki.jit(lambda x: 3)
    cases = {"which is in sbuf": on_chip, "a part or another view": part, "not its own": same, "returns 3": number}
    for match, kernel in cases.items():
        refused("E0102", match, lambda kernel=kernel: kernel(x))
        refused("E0102", match, lambda kernel=kernel: kernel.record(x))


def test_results_must_be_written():
    @nki.jit
    def half(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:2], nl.load(x[0:2]))
        return out

    refused("E0401", "has not written all of it", lambda: half(normal(4, 4)), UndefinedBehavior)


def test_recorded_kernels_give_something():
    def nothing(x):
        nl.load(x)

    def unwritten(x):
        return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)

    assert nki.jit(nothing)(normal(4, 4)) is None
    for fn, code, text in ((nothing, "E0102", "nothing returns no tensor"), (unwritten, "E0401", "has not written")):
        with pytest.raises(RanvierError, match=text) as caught:
            nki.jit(fn).record(normal(4, 4))
        assert caught.value.code == code


def test_kernels_as_methods():
    class Scaling:
        def __init__(self, factor):
            self.factor = factor

        @nki.jit(target="trn1")
        def run(self, x):
            return scale(x, self.factor)

        @staticmethod
        @nki.jit
        def twice(x):
            return scale(x)

    x = normal(8, 16)
    assert np.array_equal(Scaling(3.0).run(x), 3 * x) and np.array_equal(Scaling.twice(x), 2 * x)
    assert Scaling(3.0).run.record(x).target == "trn1" and Scaling.run.name == "run"


def test_named_tuples_keep_their_type():
    Pair = collections.namedtuple("Pair", "left right")

    @nki.jit
    def swap(pair):
        assert isinstance(pair, Pair)
        return Pair(scale(pair.right, 1.0), scale(pair.left, 1.0))

    x, y = normal(4, 4), normal(4, 4)
    result = swap(Pair(x, y))
    assert isinstance(result, Pair) and np.array_equal(result.left, y) and np.array_equal(result.right, x)


@pytest.mark.parametrize("what", [3, int, np.add, "kernel"])
def test_kernels_are_functions(what):
    for make in (nki.jit, nki.simulate):
        with pytest.raises(UserError, match="a kernel is a Python function") as caught:
            make(what)
        assert caught.value.code == "E0103"


@pytest.mark.parametrize("name", sorted(nki.NOT_AVAILABLE))
def test_names_of_other_versions_say_what_to_use(name):
    with pytest.raises(RanvierError, match=f"nki.{name}") as caught:
        exec(f"from ranvier.nki import {name}")
    assert caught.value.code == "E0104" and caught.value.where.file == "<string>"


def test_inputs_are_not_written():
    @nki.jit
    def in_place(x):
        nl.store(x, nl.load(x))

    x = normal(4, 4)
    found = refused("E0105", "dma_copy writes x", lambda: in_place(x), Unsupported)
    assert found.where.function == "in_place"
    refused("E0105", "dma_copy writes x", lambda: in_place.record(x), Unsupported)


def test_values_are_not_known_while_recording():
    @nki.jit
    def look(x):
        nl.device_print("x", nl.load(x))
        return scale(x)

    refused("E0104", "has no values yet", lambda: look.record(normal(4, 4)))
    kernel = nki.jit(lambda x: nl.no_reorder().__enter__())
    refused("E0104", "no_reorder", lambda: kernel.record(normal(4, 4)))
    with pytest.raises(RanvierError):
        nki.jit(lambda x: str(nl.load(x)) and nl.load(x).numpy()).record(normal(4, 4))


def test_device_print(capsys):
    @nki.jit
    def look(x):
        nl.device_print("tile:", nl.load(x))
        with nl.no_reorder():
            return scale(x)

    look(np.array([[1, 2]], np.int32))
    assert capsys.readouterr().out == "tile: [[1 2]]\n"


def test_constants_are_shared():
    def kernel(x):
        a = nl.shared_identity_matrix(4, dtype=nl.float32)
        b = nl.shared_identity_matrix(4, dtype=nl.float32)
        c = nl.load(nl.shared_constant(np.eye(4, dtype=np.float32)))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.add(a, b), nl.add(c, nl.load(x))))
        return out

    x = normal(4, 4)
    assert np.array_equal(nki.jit(kernel)(x), np.eye(4, dtype=np.float32) * 2 + (np.eye(4, dtype=np.float32) + x))
    recorded = nki.jit(kernel).record(x)
    assert [c.array().tolist() for _, c in recorded.constants] == [np.eye(4).tolist()]
    (again,) = run_kernel(recorded, target.get("trn2"), [x])
    assert np.array_equal(again, nki.jit(kernel)(x))


def test_constants_from_files(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, np.arange(8, dtype=np.float32).reshape(2, 4))

    @nki.jit
    def kernel(where):
        table = nl.load(nl.shared_constant(where))
        out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
        nl.store(out, table)
        return out

    assert np.array_equal(kernel(str(path)), np.load(path))
    refused("E0103", "cannot be read as an array", lambda: kernel(str(tmp_path / "other.npy")))


def test_builder_names_are_unique_and_params_known():
    from ranvier.ir.kernel import ParamSource

    with RecordingBuilder(target.get("trn2"), "k") as builder:
        names = [builder.alloc((2, 2), "float32", name=n).name for n in ("t", "t", "t.1", "t", "")]
        assert len(set(names)) == 5 and names[0] == "t"
        weight = builder.param("w", (4, 4), "bfloat16", ParamSource("layer.weight", permute=(1, 0)))
        out = builder.output("y", (4, 4), "bfloat16")
        nl.store(out, nl.load(weight))
    kernel = builder.finish()
    verify_kernel(kernel, target.get("trn2"))
    assert kernel.params == (("w", ParamSource("layer.weight", permute=(1, 0))),) and kernel.outputs == ("y",)
    assert kernel.by_name["w"].kind is BufferKind.PARAM


def test_nested_builders_restore_the_outer_one():
    with RecordingBuilder(target.get("trn2"), "outer") as outer:
        with RecordingBuilder(target.get("trn2"), "inner") as inner:
            nl.zeros((2, 2), nl.float32)
        nl.ones((2, 2), nl.float32)
    assert len(outer.finish().body) == len(inner.finish().body) == 1


def test_filling_hbm_tensors():
    @nki.jit
    def filled(x):
        shapes = ((5,), (3, 700), (130, 513), (2, 128, 512))
        return [nl.full(shape, 3, dtype=nl.float32, buffer=nl.shared_hbm) for shape in shapes]

    for result in filled(normal(1, 1)):
        assert (result == 3).all()


def test_tiles_that_nothing_names_are_given_back():
    live = []

    @nki.jit
    def kernel(x):
        for _ in range(200):
            nl.add(nl.load(x), 1.0)
        gc.collect()
        live.append(len(current().memory.storages))
        return scale(x)

    kernel(normal(4, 4))
    assert live[0] <= 4  # the input, and what the last iteration left


INSTALL = """
import sys
sys.modules.pop("nki", None)
from ranvier import nki as ours
ours.install()
ours.install()
import nki
import nki.isa as nisa
import nki.language as nl
import nki.typing as nt
from nki.isa import NkiValidationError
import numpy as np

@nki.jit
def twice(x: nt.tensor[4, 4]):
    tile = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nl.store(dst=out, value=tile)
    return out

assert nki is ours and nisa is ours.isa
assert (nki.simulate(twice)(np.ones((4, 4), np.float32)) == 2).all()
try:
    nki.collectives
except Exception as failure:
    assert failure.code == "E0104", failure
else:
    raise AssertionError
"""


def test_install():
    subprocess.run([sys.executable, "-c", INSTALL], check=True, timeout=60)


def test_install_gives_way_to_another_package(tmp_path, monkeypatch):
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert "nki" not in sys.modules
    with pytest.raises(UserError, match="the name nki belongs to") as caught:
        nki.install()
    assert caught.value.code == "E0806" and str(tmp_path) in str(caught.value)
    assert "nki" not in sys.modules
