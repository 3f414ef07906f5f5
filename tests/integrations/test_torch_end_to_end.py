"""Models of the usual shapes from PyTorch to the simulated core: values beside float64, times above their bounds."""

import copy

import pytest
import torch
import torch_models
import transformers
from torch.utils import _pytree as pytree

import ranvier

TOKENS = 500


def bert():
    config = transformers.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=TOKENS,
                                     intermediate_size=256)
    ids = torch.randint(0, TOKENS, (2, 32))
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    return transformers.BertModel(config), (), {"input_ids": ids, "attention_mask": mask}


def llama():
    config = transformers.LlamaConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=8, vocab_size=TOKENS,
                                      num_key_value_heads=2, intermediate_size=256, max_position_embeddings=64)
    ids = torch.randint(0, TOKENS, (2, 32))
    return transformers.LlamaForCausalLM(config), (), {"input_ids": ids, "use_cache": False}


def vit():
    config = transformers.ViTConfig(hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192,
                                    image_size=64, patch_size=16)
    return transformers.ViTModel(config), (torch.randn(2, 3, 64, 64),), {}


def resnet():
    return torch_models.ResNet18(), (torch.randn(2, 3, 64, 64),), {}


MODELS = {f.__name__: f for f in (bert, llama, vit, resnet)}
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}
"""Largest difference from float64 relative to the largest value. bfloat16 has eight bits; these models have some ten
roundings in a row on each path."""


@pytest.fixture(scope="module", params=MODELS)
def example(request):
    """Model, arguments, and the results in float64."""
    torch.manual_seed(0)
    model, args, kwargs = MODELS[request.param]()
    model.eval()
    exact = copy.deepcopy(model).double()
    wide = [a.double() if a.is_floating_point() else a for a in args]
    with torch.no_grad():
        results = pytree.tree_leaves(exact(*wide, **kwargs))
    return model, args, kwargs, results


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_and_time(example, dtype):
    model, args, kwargs, expected = example
    exe = ranvier.compile(model, args, kwargs, dtype=dtype, cache=False)
    result = exe(*args, **kwargs)
    with torch.no_grad():
        assert type(result) is type(model(*args, **kwargs))
    for ours, exact in zip(pytree.tree_leaves(result), expected, strict=True):
        assert (ours.double() - exact).abs().max() <= TOLERANCE[dtype] * exact.abs().max()
    profile = exe.profile()
    assert 0 < profile.bound_ns <= profile.latency_ns
    assert profile.engines


def test_every_stage_beside_its_reference(example):
    model, args, kwargs, _ = example
    report = ranvier.check(model, args, kwargs, dtype="bfloat16")
    report.raise_if_failed()
    assert len(report.stages) > 8


@pytest.mark.parametrize("target", ["trn1", "inf2", "trn3"])
def test_other_generations_give_the_same(target):
    torch.manual_seed(1)
    model, args, kwargs = bert()
    model.eval()
    exe = ranvier.compile(model, args, kwargs, dtype="float32", target=target, cache=False)
    assert exe.target.name == target
    with torch.no_grad():
        torch.testing.assert_close(exe(*args, **kwargs).last_hidden_state, model(*args, **kwargs).last_hidden_state,
                                   rtol=1e-4, atol=1e-5)


def test_a_padded_batch_is_what_single_sentences_are():
    """What lies behind the mask has no influence."""
    torch.manual_seed(2)
    model, _, kwargs = bert()
    exe = ranvier.compile(model.eval(), (), kwargs, dtype="float32", cache=False)
    ids = kwargs["input_ids"].clone()
    first = exe(**kwargs).last_hidden_state
    ids[1, 20:] = 7
    other = exe(input_ids=ids, attention_mask=kwargs["attention_mask"]).last_hidden_state
    torch.testing.assert_close(other[1, :20], first[1, :20], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(other[1, 20:], first[1, 20:])
