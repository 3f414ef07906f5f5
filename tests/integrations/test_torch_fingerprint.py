"""Fingerprints: equal for equal models, in other processes too; different for what changes graphs; None if unsure."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ranvier.frontends.torch.fingerprint import fingerprint  # noqa: E402

X = torch.zeros(2, 3)


class Scaled(nn.Module):
    def __init__(self, scale: float = 2.0, width: int = 3):
        super().__init__()
        self.layer = nn.Linear(3, width)
        self.scale = scale
        self.options = {"axes": [0, 1], "mode": "mean"}
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, x):
        return self.layer(x + self.table) * self.scale


def test_equal_models_have_equal_fingerprints():
    first = fingerprint(Scaled(), (X,))
    assert first is not None
    assert len(first) == 64
    assert fingerprint(Scaled(), (X,)) == first  # other weights, same graph


def change_scale(model):
    model.scale = 3.0


def change_table(model):
    model.table[0] = 9.0


def change_option(model):
    model.options["axes"].append(2)


def change_mode(model):
    model.train()


def change_child(model):
    model.layer = nn.Linear(3, 4)


def change_activation(model):
    model.extra = nn.ReLU()


def change_dtype(model):
    model.double()


@pytest.mark.parametrize("change", [change_scale, change_table, change_option, change_mode, change_child,
                                    change_activation, change_dtype])
def test_what_changes_the_graph_changes_the_fingerprint(change):
    model = Scaled().eval()
    before = fingerprint(model, (X,))
    change(model)
    assert fingerprint(model, (X,)) not in (before, None)


def test_inputs_enter():
    model = Scaled()
    prints = [fingerprint(model, args, kwargs) for args, kwargs in (
        ((X,), {}), ((), {"x": X}), ((X.double(),), {}), ((torch.zeros(4, 3),), {}), ((X, 1), {}), ((X, 2), {}))]
    assert None not in prints
    assert len(set(prints)) == len(prints)


def test_tied_parameters_differ_from_equal_ones():
    class Two(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            if tied:
                self.b.weight = self.a.weight

        def forward(self, x):
            return self.a(x) + self.b(x)

    assert fingerprint(Two(True), (X,)) != fingerprint(Two(False), (X,))


def test_closures_and_globals_enter():
    def build(factor):
        class Inner(nn.Module):
            def forward(self, x):
                return x * factor

        return Inner()

    prints = {fingerprint(build(f), (X,)) for f in (1.0, 2.0)}
    assert None not in prints
    assert len(prints) == 2


def test_replaced_methods_enter():
    class Plain(nn.Module):
        def forward(self, x):
            return self.step(x)

        def step(self, x):
            return x + 1

    before = fingerprint(Plain(), (X,))
    Plain.step = lambda self, x: x + 2
    assert fingerprint(Plain(), (X,)) not in (before, None)


class Opaque:
    __slots__ = ("state",)


def with_hook(model):
    model.register_forward_hook(lambda *_: None)


def with_opaque(model):
    model.something = Opaque()


def with_large_tensor(model):
    model.something = torch.zeros(1 << 20)


@pytest.mark.parametrize("change", [with_hook, with_opaque, with_large_tensor])
def test_what_cannot_be_covered_gives_none(change):
    model = Scaled()
    change(model)
    assert fingerprint(model, (X,)) is None


SOURCE = """
import torch
from torch import nn
from helper import double
LIMIT = {limit}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
    def forward(self, x):
        return double(self.layer(x)).clamp(max=LIMIT)
"""


def in_another_process(folder, limit: float, helper: str) -> str:
    (folder / "helper.py").write_text(f"def double(x):\n    return {helper}\n")
    (folder / "user_model.py").write_text(SOURCE.format(limit=limit))
    program = textwrap.dedent("""
        import torch
        from user_model import Model
        from ranvier.frontends.torch.fingerprint import fingerprint
        print(fingerprint(Model(), (torch.zeros(2, 3),)))
    """)
    result = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True,
                            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"})
    return result.stdout.strip()


def test_stable_across_processes_and_follows_imported_code(tmp_path):
    first = in_another_process(tmp_path, 1.0, "x * 2")
    assert len(first) == 64
    assert in_another_process(tmp_path, 1.0, "x * 2") == first
    assert in_another_process(tmp_path, 1.0, "x + x") not in (first, "None")
