"""check: finds planted errors in every kind of stage, and names the place."""

import dataclasses

import numpy as np
import pytest
import small_program
import torch
from torch import nn

import ranvier
from ranvier import dtypes as dt
from ranvier import nki
from ranvier.compiler.lower import lower as lowering
from ranvier.errors import RanvierError, UserError
from ranvier.graph import Binary, Graph, GraphBuilder, TensorType, Unary
from ranvier.ir.program import Placement
from ranvier.isa.act import act
from ranvier.isa.vector import TensorTensor
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.runtime import check as checking
from ranvier.runtime.check import CheckReport, check_graph


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(32, 48), nn.Linear(48, 16)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h * h)


@pytest.fixture(scope="module")
def x():
    torch.manual_seed(1)
    return torch.randn(20, 32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_right_compiler_passes(x, dtype):
    report = ranvier.check(Model(), (x,), dtype=dtype)
    assert report.passed
    assert [s.name for s in report.stages][:2] == ["import", "simplify"]
    assert [s.name for s in report.stages][-2:] == ["lower", "schedule"]
    assert report.stages[-1].difference == 0
    assert 0 < report.stages[-2].difference < (3e-2 if dtype == "bfloat16" else 1e-5)
    report.raise_if_failed()


def wrong_rewrite(graph: Graph) -> Graph:
    """tanh becomes sigmoid."""
    nodes = tuple(
        dataclasses.replace(n, op=Unary("sigmoid")) if n.op == Unary("tanh") else n for n in graph.nodes)
    return dataclasses.replace(graph, nodes=nodes)


def test_wrong_rewrite_is_found_with_pass_value_and_line(x):
    report = ranvier.check(Model(), (x,), dtype="float32", extra_passes=(("speed-up", wrong_rewrite),))
    assert not report.passed
    assert [s.name for s in report.stages if not s.passed] == ["speed-up"]
    found = report.divergence
    assert found.stage == "speed-up"
    assert "sigmoid" in found.what
    assert found.loc.file == __file__
    assert len(found.index) == 2
    with pytest.raises(UserError) as caught:
        report.raise_if_failed()
    assert caught.value.code == "E0606"
    text = str(caught.value)
    assert "after speed-up" in text
    assert "torch.tanh" in text
    assert f"{found.expected:.9g}" in text


def test_harmless_rewrite_passes(x):
    def swap(graph):
        nodes = tuple(dataclasses.replace(n, inputs=n.inputs[::-1]) if n.op == Binary("mul") else n
                      for n in graph.nodes)
        return dataclasses.replace(graph, nodes=nodes)

    assert ranvier.check(Model(), (x,), dtype="float32", extra_passes=(("swap", swap),)).passed


def test_model_in_bfloat16_may_round_the_constants_that_a_pass_folds():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            return (self.linear(x) * 0.3333 + 0.1) * (torch.arange(64) * 0.37).cos().to(x.dtype)

    torch.manual_seed(0)
    model = Scaled().to(torch.bfloat16).eval()
    report = ranvier.check(model, (torch.randn(20, 64, dtype=torch.bfloat16),), dtype="bfloat16")
    report.raise_if_failed()
    assert any(stage.difference > checking.PASS_TOLERANCE for stage in report.stages if stage.name == "simplify")


def test_wrong_import_is_found(x):
    graph, inputs, params = simple_graph()
    right = graph.evaluate(inputs, params)
    good = check_graph(graph, inputs, params, target=target(), dtype="float32", reference=right)
    assert good.passed
    bad = check_graph(graph, inputs, params, target=target(), dtype="float32", reference=[right[0] * 1.01])
    assert bad.divergence.stage == "import"


def target():
    from ranvier.target import get

    return get("trn2")


def simple_graph():
    b = GraphBuilder("simple")
    x = b.input(TensorType((16, 32), dt.float32), "x")
    w = b.param("w", TensorType((32, 8), dt.float32))
    hidden = b.exp(b.mul(x, b.constant(np.full((1,), 0.5, np.float32))))
    graph = b.build([b.add(b.matmul(hidden, w), b.constant(np.ones((1,), np.float32)))])
    rng = np.random.default_rng(2)
    return graph, [rng.standard_normal((16, 32), np.float32)], {"w": rng.standard_normal((32, 8), np.float32)}


def test_wrong_lowering_is_found_by_cutting_the_graph(monkeypatch):
    graph, inputs, params = simple_graph()
    right = lowering.lower

    def wrong(cut, groups, layouts, target):
        """The scalar engine computes sin for exp, as a wrong entry of a table would make it."""
        kernel = right(cut, groups, layouts, target)
        body = tuple(
            dataclasses.replace(inst, op=act("sin")) if getattr(inst, "op", None) is act("exp") else inst
            for inst in kernel.body)
        assert any(n.op == Unary("exp") for n in cut.nodes) == (body != kernel.body)
        return dataclasses.replace(kernel, body=body)

    monkeypatch.setattr("ranvier.compiler.pipeline.lower", wrong)
    monkeypatch.setattr(checking, "lower", wrong)
    report = check_graph(graph, inputs, params, target=target(), dtype="float32")
    assert [s.name for s in report.stages if not s.passed] == ["lower"]
    assert "exp" in report.divergence.what


def test_wrong_placement_is_found_with_the_instruction(monkeypatch):
    graph, inputs, params = simple_graph()
    from ranvier.compiler import pipeline

    right = pipeline.lower_kernel

    def wrong(kernel, target, **options):
        program = right(kernel, target, **options)
        chip = [name for name, _ in program.placements if program.by_name[name].space.value == "sbuf"]
        moved = tuple((n, Placement(0, 0) if n in chip else p) for n, p in program.placements)
        return dataclasses.replace(program, placements=moved)

    monkeypatch.setattr(pipeline, "lower_kernel", wrong)
    report = check_graph(graph, inputs, params, target=target(), dtype="float32")
    assert report.divergence.stage == "schedule"
    assert "number" in report.divergence.what
    assert not report.passed


def test_kernel_against_its_program(monkeypatch):
    @nki.jit
    def total(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=tile, data1=nl.load(a), data2=nl.load(b), op=nl.add)
        nl.store(out, tile)
        return out

    left, right = (np.random.default_rng(i).standard_normal((64, 32), np.float32) for i in (0, 1))
    assert ranvier.check(total, (left, right)).passed
    real = TensorTensor.semantics
    calls = []

    def unstable(self, data1, data2):
        calls.append(1)
        return real(self, data1, data2) + (len(calls) > 1)

    monkeypatch.setattr(TensorTensor, "semantics", unstable)
    report = ranvier.check(total, (left, right))
    assert isinstance(report, CheckReport)
    assert not report.passed


def test_kernels_take_numbers_and_containers():
    @nki.jit
    def scaled(tensors, factor, bias=0.0):
        result = nl.ndarray(tensors["x"].shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(result, nl.add(nl.multiply(nl.load(tensors["x"]), factor), nl.add(nl.load(tensors["y"]), bias)))
        return result

    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal((64, 32)).astype(np.float32) for name in "xy"}
    assert checking.check_kernel(scaled, tensors, 3.0).passed
    assert checking.check_kernel(scaled, {n: torch.tensor(a) for n, a in tensors.items()}, 3.0, 1.0).passed
    with pytest.raises(RanvierError, match="E0102"):
        checking.check_kernel(scaled, {n: nki.TensorSpec((64, 32), "float32") for n in "xy"}, 3.0)


def test_hand_built_executable_is_consistent():
    exe = small_program.executable()
    x, ids = small_program.inputs()
    assert np.array_equal(exe(x, ids)[0], exe.graph.evaluate([x, ids], exe.params)[0])
