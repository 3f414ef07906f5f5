"""Models of the shapes that people compile, small and with seeded random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut, as in ResNet-18."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class ResNet18(nn.Module):
    """ResNet-18 of any width; 64 is the real one."""

    def __init__(self, width: int = 8, classes: int = 10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        layers: list[nn.Module] = []
        for i, stride in enumerate((1, 2, 2, 2)):
            channels_in, channels = width * 2 ** max(0, i - 1), width * 2**i
            layers += [BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width * 8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class UNetBlock(nn.Module):
    """A diffusion block: group norm, time embedding, self and cross attention, GEGLU, upsampling twice."""

    def __init__(self, channels: int = 16, context: int = 12, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(8, channels))
        self.norm3, self.norm4, self.norm5 = (nn.LayerNorm(channels) for _ in range(3))
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.q, self.kv = nn.Linear(channels, channels), nn.Linear(context, 2 * channels)
        self.out1, self.out2 = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.geglu, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, 2)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, time: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(h)))
        b, c, height, width = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = (self.split(t) for t in self.qkv(self.norm3(tokens)).chunk(3, -1))
        tokens = tokens + self.out1(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        k, v = (self.split(t) for t in self.kv(context).chunk(2, -1))
        q = self.split(self.q(self.norm4(tokens)))
        tokens = tokens + self.out2(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        value, gate = self.geglu(self.norm5(tokens)).chunk(2, -1)
        tokens = tokens + self.down(value * F.gelu(gate))
        x = tokens.transpose(1, 2).reshape(b, c, height, width)
        return self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
