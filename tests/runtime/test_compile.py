"""compile, load, check and benchmark of whole models, through the public names."""

import dataclasses
import os
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import ranvier
from ranvier import config, nki
from ranvier.errors import RanvierError, Unsupported, UserError
from ranvier.graph import GraphBuilder, TensorType
from ranvier.runtime import compile as compiling
from ranvier.runtime.cache import CompileCache


class Mlp(nn.Module):
    """Two linear layers with a gelu, and dictionaries in and out."""

    def __init__(self, width: int = 96):
        super().__init__()
        torch.manual_seed(3)
        self.up, self.down = nn.Linear(64, width), nn.Linear(width, 32)

    def forward(self, batch, scale: float = 1.0):
        hidden = nn.functional.gelu(self.up(batch["x"]))
        return {"y": self.down(hidden) * scale, "hidden": (hidden, None)}


@dataclasses.dataclass
class Unregistered:
    y: torch.Tensor


class Dataclasses(nn.Module):
    def forward(self, x):
        return Unregistered(x + 1)


def example():
    torch.manual_seed(5)
    return {"x": torch.randn(16, 64)}


@pytest.fixture
def cache_dir(tmp_path):
    with config.override(cache_dir=str(tmp_path), cache=True):
        yield tmp_path


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("bfloat16", 3e-2)])
def test_model_in_model_out(dtype, tolerance):
    model, batch = Mlp(), example()
    exe = ranvier.compile(model, (batch,), {"scale": 2.0}, dtype=dtype, cache=False)
    result = exe(batch, scale=2.0)
    expected = model(batch, scale=2.0)
    assert list(result) == ["y", "hidden"]
    assert result["hidden"][1] is None
    assert result["y"].dtype is torch.float32
    for ours, theirs in ((result["y"], expected["y"]), (result["hidden"][0], expected["hidden"][0])):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()
    if dtype == "bfloat16":
        assert not torch.equal(result["y"], expected["y"])
    assert exe.target.name == "trn2"
    assert exe.stages[0][0] == "import"


def test_wrong_inputs_name_the_argument():
    model, batch = Mlp(), example()
    exe = ranvier.compile(model, (batch,), cache=False)
    short, double = {"x": batch["x"][:3]}, {"x": batch["x"].double()}
    for wrong, words in (((short,), "x"), ((double,), "float64"), ((batch, 3.0), "")):
        with pytest.raises(UserError) as caught:
            exe(*wrong)
        assert caught.value.code == "E0603"
        assert words in str(caught.value)


def test_second_compile_comes_from_the_cache_without_an_export(cache_dir, monkeypatch):
    model, batch = Mlp(), example()
    first = ranvier.compile(model, (batch,))
    assert first.stages

    def forbidden(*args, **kwargs):
        raise AssertionError("exported or compiled again")

    monkeypatch.setattr(torch.export, "export", forbidden)
    monkeypatch.setattr(compiling, "compile_graph", forbidden)
    start = time.perf_counter()
    second = ranvier.compile(model, (batch,))
    assert time.perf_counter() - start < 2
    assert not second.stages
    assert second.program == first.program
    for a, b in zip(second(batch)["hidden"], first(batch)["hidden"], strict=True):
        assert a is b is None or torch.equal(a, b)


def test_weights_are_not_part_of_the_cache(cache_dir):
    model, batch = Mlp(), example()
    ranvier.compile(model, (batch,), dtype="float32")
    with torch.no_grad():
        model.down.bias += 1.0
    again = ranvier.compile(model, (batch,), dtype="float32")
    assert not again.stages
    torch.testing.assert_close(again(batch)["y"], model(batch)["y"], rtol=1e-5, atol=1e-5)
    (entry,) = CompileCache.configured().entries()
    assert entry.size_bytes < 400_000


def test_changed_weights_of_the_model_are_seen_at_the_next_call():
    """In place, by replacement, and for weights that are transposed or rounded for the core."""
    model, batch = Mlp(), example()
    exe = ranvier.compile(model, (batch,), dtype="float32", cache=False)
    first = exe(batch)["y"]
    kept = exe.weights
    assert exe.weights is kept
    with torch.no_grad():
        model.up.weight *= 2.0
    torch.testing.assert_close(exe(batch)["y"], model(batch)["y"], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(first, exe(batch)["y"])
    model.down = nn.Linear(96, 32)
    torch.testing.assert_close(exe(batch)["y"], model(batch)["y"], rtol=1e-5, atol=1e-5)
    model.load_state_dict(Mlp().state_dict())
    assert torch.equal(exe(batch)["y"], first)
    for write in (lambda w: w.data.mul_(3.0), lambda w: w.detach().numpy().fill(0.25),
                  lambda w: setattr(w, "data", torch.randn(96, 64))):  # of which torch counts none
        write(model.up.weight)
        torch.testing.assert_close(exe(batch)["y"], model(batch)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change, words", [
    (lambda m: setattr(m.up, "weight", nn.Parameter(torch.zeros(32, 64))), "up.weight has shape (32, 64)"),
    (lambda m: m.double(), "up.weight is float64; the program was compiled for float32"),
    (lambda m: delattr(m.up, "weight"), "the model has no parameter or buffer up.weight any more"),
    (lambda m: m.to("meta"), "a tensor on the meta device has no values"),
])
def test_weights_that_do_not_fit_any_more(change, words):
    model, batch = Mlp(), example()
    exe = ranvier.compile(model, (batch,), cache=False)
    change(model)
    with pytest.raises(UserError) as caught:
        exe(batch)
    assert caught.value.code == "E0603" and words in caught.value.message


def test_what_a_program_depends_on_makes_another_one(cache_dir):
    model, batch = Mlp(), example()
    ranvier.compile(model, (batch,))
    faster = ranvier.Target.replace(ranvier.compile(model, (batch,)).target, "hbm.bytes_per_ns", 9999.0)
    others = [
        ranvier.compile(Mlp(128), (batch,)), ranvier.compile(model, ({"x": batch["x"][:8]},)),
        ranvier.compile(model, (batch,), {"scale": 3.0}), ranvier.compile(model, (batch,), dtype="float32"),
        ranvier.compile(model, (batch,), target="trn1"), ranvier.compile(model, (batch,), target=faster),
    ]
    assert all(exe.stages for exe in others)


def test_damaged_cache_is_noticed_and_filled_again(cache_dir):
    model, batch = Mlp(), example()
    ranvier.compile(model, (batch,))
    (path,) = (cache_dir / "entries").iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = ranvier.compile(model, (batch,))
    assert again.stages
    assert not ranvier.compile(model, (batch,)).stages


def test_saved_model_runs_without_torch(tmp_path):
    model, batch = Mlp(), example()
    exe = ranvier.compile(model, (batch,), cache=False)
    exe.save(tmp_path / "m.rvx")
    np.save(tmp_path / "x.npy", batch["x"].numpy())
    np.save(tmp_path / "y.npy", exe(batch)["y"].numpy())
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np, ranvier\n"
        f"d = {str(tmp_path)!r}; exe = ranvier.load(d + '/m.rvx')\n"
        "out = exe({'x': np.load(d + '/x.npy')})\n"
        "assert list(out) == ['y', 'hidden'] and out['hidden'][1] is None\n"
        "assert np.array_equal(out['y'], np.load(d + '/y.npy')); print('same')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "same\n", run.stderr


def test_snapshots_of_every_stage(tmp_path):
    exe = ranvier.compile(Mlp(), (example(),), dump=tmp_path / "dump")
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert len(names) == len(exe.stages)
    assert names[0] == "01-import.txt"
    assert names[1] == "02-simplify.txt"
    assert names[-1].endswith("-emit.txt")
    assert "gelu" in (tmp_path / "dump" / names[0]).read_text()
    assert "nc_matmul" in (tmp_path / "dump" / names[-1]).read_text()
    ranvier.compile(Mlp(), (example(),), dump=tmp_path / "dump")
    assert len(list((tmp_path / "dump").iterdir())) == len(names)


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Swap(nn.Module):
    def forward(self, pair: Pair, ids: torch.Tensor):
        return Pair(pair.right + 1, pair.left * 2), ids > 3


def test_named_tuples_booleans_and_integers(tmp_path):
    pair = Pair(torch.randn(4, 8), torch.randn(4, 8))
    ids = torch.arange(12).reshape(3, 4)
    exe = ranvier.compile(Swap(), (pair, ids), dtype="float32", cache=False)
    (swapped, large) = exe(pair, ids)
    assert isinstance(swapped, Pair)
    assert torch.equal(swapped.right, pair.left * 2)
    assert large.dtype is torch.bool
    assert torch.equal(large, ids > 3)
    with pytest.raises(UserError) as caught:
        exe(pair, ids + 2**40)
    assert "does not fit in int32" in str(caught.value)
    exe.save(tmp_path / "swap.rvx")
    loaded = ranvier.load(tmp_path / "swap.rvx")
    again = loaded({"left": pair.left.numpy(), "right": pair.right.numpy()}, ids.numpy())
    assert np.array_equal(again[0]["left"], swapped.left.numpy())
    assert np.array_equal(again[1], large.numpy())


def test_graph_with_parameters_given_later():
    b = GraphBuilder("affine")
    x = b.input(TensorType((8, 16), ranvier_dtype("float32")), "x")
    w = b.param("w", TensorType((16, 4), ranvier_dtype("float32")))
    exe = ranvier.compile(b.build([b.matmul(x, w)]), dtype="float32", cache=False)
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 4), np.float32)
    np.testing.assert_allclose(exe.with_params({"w": right})(left), left @ right, rtol=1e-5, atol=1e-5)


def ranvier_dtype(name):
    from ranvier.dtypes import dtype

    return dtype(name)


@pytest.mark.parametrize("call, code, words", [
    (lambda: ranvier.compile("a model"), "E0602", "builtins.str"),
    (lambda: ranvier.compile(Mlp(), (example(),), target="gpu"), "E0801", "gpu"),
    (lambda: ranvier.compile(Mlp(), (example(),), dtype="int4"), "E0802", "int4"),
    (lambda: ranvier.compile(Mlp(), ({"x": torch.randn(2, 3)},)), "E0607", "Mlp"),
    (lambda: ranvier.check(3), "E0602", "int"),
    (lambda: ranvier.compile(Mlp, (example(),)), "E0602", "the class"),
    (lambda: ranvier.compile(nki.jit(lambda x: x), (example(),)), "E0602", "ranvier.benchmark"),
    (lambda: ranvier.compile(torch.export.export(Mlp(), (example(),)), (example(),)), "E0602", ".module()"),
    (lambda: ranvier.compile(nn.Linear(4, 4), torch.zeros(1, 4)), "E0607", "example_inputs is a Tensor; it is a tuple"),
    (lambda: ranvier.check(nn.Linear(4, 4), {"input": torch.zeros(1, 4)}), "E0607", "example_inputs is a dict"),
    (lambda: ranvier.compile(Mlp(), (example(),), 2.0), "E0607", "example_kwargs is a float"),
    (lambda: ranvier.compile(nn.BatchNorm1d(4), (torch.zeros(2, 4),)), "E0602", "call model.eval() first"),
    (lambda: ranvier.compile(Dataclasses(), (torch.zeros(2, 4),)), "E0607", "register_dataclass"),
    (lambda: ranvier.compile(Mlp()), "E0607", "missing a required argument: 'batch'"),
    (lambda: ranvier.compile(nn.Linear(4, 4).double(), (torch.zeros(1, 4).double(),)), "E0604", "is float64"),
])
def test_what_cannot_be_compiled(call, code, words):
    with pytest.raises(RanvierError) as caught:
        call()
    assert caught.value.code == code
    assert words in str(caught.value)


@dataclasses.dataclass
class Unknown:
    pass


def test_models_of_other_frameworks_are_refused_by_name():
    Unknown.__module__ = "jax.example"
    with pytest.raises(Unsupported) as caught:
        ranvier.compile(Unknown())
    assert "JAX" in str(caught.value)


@pytest.mark.parametrize("value, code, words", [
    (torch.empty(1, 4, device="meta"), "E0603", "no values"), (torch.zeros(1, 4).to_sparse(), "E0602", "to_dense"),
    (np.zeros((1, 4), np.float32), "E0603", "input is ndarray"),
])
def test_tensors_that_cannot_be_inputs(value, code, words):
    exe = ranvier.compile(nn.Linear(4, 4), (torch.zeros(1, 4),), cache=False)
    with pytest.raises(RanvierError) as caught:
        exe(value)
    assert caught.value.code == code and words in str(caught.value)


def test_profile_and_inspection():
    exe = ranvier.compile(Mlp(), (example(),), cache=False)
    profile = exe.profile()
    assert profile.latency_ns >= profile.bound_ns > 0
    found = exe.inspect()
    assert {row.instruction for row in found.instructions} >= {"nc_matmul", "dma_copy"}
    assert sum(row.count for row in found.instructions) == sum(len(s.slots) for s in exe.program.streams)
    memory = {use.memory: use for use in found.memories}
    assert 0 < memory["sbuf"].peak_bytes <= memory["sbuf"].capacity_bytes
    weights = sum(p.numel() for p in Mlp().parameters())
    assert found.hbm_bytes["param"] >= 2 * weights
    assert {"up", "down"} <= {layer.scope for layer in found.layers}
    assert found.manifest["model"] == "Mlp"


def test_torch_compile_backend_uses_the_runtime():
    model, batch = Mlp().eval(), example()
    compiled = torch.compile(model, backend="ranvier", options={"dtype": "float32"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(batch)["y"], model(batch)["y"], rtol=1e-5, atol=1e-5)


def test_same_program_from_another_process(tmp_path):
    """Nothing in a compilation depends on the process: hashes, addresses, order of sets."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_compile as t, ranvier\n"
        "ranvier.compile(t.Mlp(), (t.example(),), cache=False).save(sys.argv[2])\n"
    )
    ranvier.compile(Mlp(), (example(),), cache=False).save(tmp_path / "a")
    subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__), str(tmp_path / "b")], check=True,
                   env={**os.environ, "PYTHONHASHSEED": "12345"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
