"""Whole models of several architectures, compiled for bfloat16 and float32 and run on the simulated core."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.utils._pytree import tree_leaves  # noqa: E402

import ranvier  # noqa: E402
from ranvier.frontends.torch.minilm import SentenceEncoder  # noqa: E402


def bert(hidden: int, heads: int, length: int, batch: int = 2):
    """An encoder with a padding mask (the first row is padded in its second half)."""
    config = transformers.BertConfig(
        hidden_size=hidden, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=4 * hidden,
        vocab_size=1000,
    )  # fmt: skip
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2 + 1 :] = 0
    return transformers.BertModel(config), (torch.randint(0, 1000, (batch, length)), mask)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    model = transformers.ResNetModel(config)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # statistics of a trained model are not 0 and 1
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model, (torch.randn(1, 3, 64, 64),)


def vit():
    config = transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=768, image_size=64, patch_size=16
    )
    return transformers.ViTModel(config), (torch.randn(2, 3, 64, 64),)


class LastHiddenState(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).last_hidden_state


def llama():
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=688, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=1000, max_position_embeddings=256,
    )  # fmt: skip
    return LastHiddenState(transformers.LlamaModel(config)), (torch.randint(0, 1000, (1, 100)),)


MODELS = {
    "resnet18": resnet,
    "vit": vit,
    "llama": llama,
    "bert-96-17": lambda: bert(96, 12, 17),
    "bert-384-300": lambda: bert(384, 12, 300, batch=1),
    "bert-520-300": lambda: bert(520, 8, 300, batch=1),
}


def build(name: str):
    torch.manual_seed(0)
    model, args = MODELS[name]()
    return model.eval(), args


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype,tolerance", [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_agrees_with_pytorch(name, dtype, tolerance):
    model, args = build(name)
    with torch.no_grad():
        wanted = tree_leaves(model(*args))
    executable = ranvier.compile(model, args, target="trn2", dtype=dtype, cache=False)
    result = executable(*args)
    with torch.no_grad():
        assert type(result) is type(model(*args))
    got = tree_leaves(result)
    assert len(got) == len(wanted)
    for result, reference in zip(got, wanted, strict=True):
        assert result.dtype == reference.dtype and result.shape == reference.shape
        assert float((result - reference).abs().max() / reference.abs().max()) <= tolerance
    profile = executable.profile(*args)
    assert profile.latency_ns >= profile.bound_ns > 0


@pytest.mark.parametrize("hidden,heads", [(96, 12), (384, 12), (520, 8)])
@pytest.mark.parametrize("length", [1, 17, 128, 300])
def test_sentence_embeddings_of_random_weights(hidden, heads, length):
    torch.manual_seed(hidden + length)
    model, args = bert(hidden, heads, length)
    encoder = SentenceEncoder(model).eval()
    with torch.no_grad():
        wanted = encoder(*args)
    for dtype, tolerance in (("float32", 1e-4), ("bfloat16", 2e-2)):
        got = ranvier.compile(encoder, args, target="trn2", dtype=dtype, cache=False)(*args)
        assert float((got - wanted).abs().max()) <= tolerance


@pytest.mark.parametrize("name", ["resnet18", "vit", "llama", "bert-96-17"])
def test_every_stage_agrees_with_its_reference(name):
    model, args = build(name)
    report = ranvier.check(model, args, target="trn2", dtype="bfloat16")
    report.raise_if_failed()
    assert len(report.stages) > 8


@pytest.mark.parametrize("target", ["trn1", "inf2", "trn3"])
def test_other_generations(target):
    model, args = build("bert-96-17")
    with torch.no_grad():
        wanted = tree_leaves(model(*args))
    got = tree_leaves(ranvier.compile(model, args, target=target, dtype="bfloat16", cache=False)(*args))
    for result, reference in zip(got, wanted, strict=True):
        assert float((result - reference).abs().max() / reference.abs().max()) <= 2e-2


def test_compiling_twice_gives_the_same_bytes(tmp_path):
    model, args = build("bert-96-17")
    for name in ("a.rvx", "b.rvx"):
        ranvier.compile(model, args, target="trn2", dtype="bfloat16", cache=False).save(tmp_path / name)
    assert (tmp_path / "a.rvx").read_bytes() == (tmp_path / "b.rvx").read_bytes()


def test_what_lies_behind_the_mask_has_no_influence():
    model, args = build("bert-96-17")
    ids, mask = args
    executable = ranvier.compile(model, args, target="trn2", dtype="float32", cache=False)
    first = executable(ids, mask).last_hidden_state
    other = ids.clone()
    other[0, 9:] = 7
    second = executable(other, mask).last_hidden_state
    torch.testing.assert_close(second[0, :9], first[0, :9], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(second[0, 9:], first[0, 9:])
