"""A small classifier through torch.compile, and the same model compiled ahead of time and profiled.

    python examples/mlp_torch_compile.py
"""

import torch
from torch import nn

import ranvier


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layers(images.flatten(1)), dim=-1)


def main() -> None:
    torch.manual_seed(0)
    model, images = Classifier().eval(), torch.rand(64, 1, 28, 28)

    compiled = torch.compile(model, backend="ranvier", options={"target": "trn2", "dtype": "bfloat16"})
    with torch.no_grad():
        ours, theirs = compiled(images), model(images)
    print(f"largest difference from PyTorch: {(ours - theirs).abs().max():.2g}")
    print(f"same class for {int((ours.argmax(1) == theirs.argmax(1)).sum())} of {len(images)} images")

    exe = ranvier.compile(model, (images,), target="trn2", dtype="bfloat16")
    print(exe.profile())


if __name__ == "__main__":
    main()
