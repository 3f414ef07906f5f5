"""The torch.compile backend. The reference evaluation of the graph stands for the executable, by explicit argument."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ranvier.frontends.torch.backend import ranvier_backend  # noqa: E402
from ranvier.frontends.torch.import_fx import Imported  # noqa: E402
from ranvier.frontends.torch.tensors import to_numpy, to_torch  # noqa: E402


class Recorder:
    """Stands for the compiler: remembers what it was given and evaluates the graph."""

    def __init__(self) -> None:
        self.imported: list[Imported] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, imported: Imported, **options: Any):
        self.imported.append(imported)
        self.options.append(options)
        params = {key: array.copy() for key, array in imported.param_arrays().items()}

        def executable(*args: torch.Tensor) -> Any:
            inputs = [to_numpy(t) for t in imported.signature.flatten(args)]
            outputs = imported.graph.evaluate(inputs, params)
            return imported.signature.unflatten([to_torch(o) for o in outputs])

        return executable


@pytest.fixture
def recorder():
    torch._dynamo.reset()
    yield Recorder()
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 4)])
        self.norm = nn.LayerNorm(4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x, scale=2.0):
        h = nn.functional.gelu(self.parts[0](self.norm(x)))
        return {"out": self.parts[1](h) * scale + self.shift, "rest": [h.mean(), None, 3]}


def compiled(model: nn.Module, recorder: Recorder, **options: Any):
    return torch.compile(model, backend=functools.partial(ranvier_backend, compile=recorder), options=options or None)


def test_results_names_places_and_options(recorder):
    model, x = Block().eval(), torch.randn(3, 4)
    with torch.no_grad():
        result = compiled(model, recorder, target="trn2", dtype="bfloat16")(x)
        expected = model(x)
    torch.testing.assert_close(result["out"], expected["out"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result["rest"][0], expected["rest"][0], rtol=1e-5, atol=1e-5)
    assert result["rest"][1:] == [None, 3]
    (imported,), (options,) = recorder.imported, recorder.options
    assert options == {"target": "trn2", "dtype": "bfloat16"}
    assert set(imported.params) == set(model.state_dict())
    assert imported.params["parts.0.weight"] is model.parts[0].weight
    names = [node.op.name for node in imported.graph.nodes]
    assert names.count("linear") == 2
    assert {"layer_norm", "gelu"} <= set(names)  # composites stay whole
    linear = next(node for node in imported.graph.nodes if node.op.name == "linear")
    assert linear.loc is not None
    assert linear.loc.file == __file__
    assert linear.loc.scope == "parts.0"


def test_second_call_reuses_the_executable(recorder):
    model = Block().eval()
    run = compiled(model, recorder)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3, 4)
            torch.testing.assert_close(run(x)["out"], model(x)["out"], rtol=1e-5, atol=1e-5)
    assert len(recorder.imported) == 1


def test_changed_parameters_are_bound_anew(recorder):
    model, x = Block().eval(), torch.randn(3, 4)
    run = compiled(model, recorder)
    with torch.no_grad():
        run(x)
        model.parts[1].weight.mul_(2)
        torch.testing.assert_close(run(x)["out"], model(x)["out"], rtol=1e-5, atol=1e-5)
        model.parts[1].bias = nn.Parameter(torch.ones(4))
        torch.testing.assert_close(run(x)["out"], model(x)["out"], rtol=1e-5, atol=1e-5)


def test_each_shape_and_number_is_a_program_of_its_own(recorder):
    class Model(nn.Module):
        def forward(self, x, times):
            return (x * times).reshape(x.shape[0] * 2, -1)

    model, run = Model(), compiled(Model(), recorder)
    with torch.no_grad():
        for rows, times in ((3, 1), (5, 2), (6, 2), (3, 4), (5, 2)):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(run(x, times), model(x, times))
        x = torch.randn(4, 6).t()
        torch.testing.assert_close(run(x, 2), model(x, 2))
    assert {i.graph.input_types[0].shape for i in recorder.imported} == {(3, 4), (5, 4), (6, 4)}


def test_in_place_operators_and_views(recorder):
    class Model(nn.Module):
        def forward(self, x):
            y = x * 2
            y[:, 0] = 3
            return nn.functional.relu(y, inplace=True)

    model, x = Model(), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, recorder)(x), model(x))


def test_inference_mode(recorder):
    model, x = Block().eval(), torch.randn(3, 4)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(model, recorder)(x)["out"], model(x)["out"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("options", "grad", "text"), [
    ({}, True, "E0602 gradients are wanted"),
    ({"level": 3}, False, "E0802 the torch.compile backend does not take the option 'level'"),
])
def test_refusals(recorder, options, grad, text):
    model, x = Block().eval(), torch.randn(3, 4)
    with torch.set_grad_enabled(grad), pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        compiled(model, recorder, **options)(x)
    assert text in str(caught.value)


def test_changed_buffers_are_refused(recorder):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="changes an input or buffer"):
        compiled(Model(), recorder)(torch.zeros(1))


def test_by_name_the_model_runs_on_the_simulated_core(recorder):
    assert "ranvier" in torch._dynamo.list_backends()
    model, x = Block().eval(), torch.randn(3, 4)
    with torch.no_grad():
        result = torch.compile(model, backend="ranvier", options={"target": "trn2", "dtype": "float32"})(x)
        torch.testing.assert_close(result["out"], model(x)["out"], rtol=1e-4, atol=1e-4)
