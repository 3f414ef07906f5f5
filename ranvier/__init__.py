"""Ranvier: compiler, kernel language, machine model and profiler for Trainium- and Inferentia-class accelerators.

    exe = ranvier.compile(model, (inputs,), target="trn2")   # a PyTorch model
    exe(inputs)                                              # what the model gives, on a simulated core
    exe.profile().report()                                   # where the time goes
    exe.save("model.rvx"); ranvier.load("model.rvx")

Kernels are written in `ranvier.nki`. Names are imported when they are first used, so ``import ranvier`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ranvier import nki
    from ranvier.errors import RanvierError
    from ranvier.frontends.compile import check, compile
    from ranvier.nki import simulate
    from ranvier.profile import Profile
    from ranvier.runtime.benchmark import benchmark
    from ranvier.runtime.executable import Executable, load
    from ranvier.target import Target

__all__ = ["Executable", "Profile", "RanvierError", "Target", "__version__", "benchmark", "check", "compile", "load",
           "nki", "simulate"]


def __getattr__(name: str) -> Any:
    homes = {
        "Executable": "ranvier.runtime.executable", "Profile": "ranvier.profile", "RanvierError": "ranvier.errors",
        "Target": "ranvier.target", "benchmark": "ranvier.runtime.benchmark", "check": "ranvier.frontends.compile",
        "compile": "ranvier.frontends.compile", "load": "ranvier.runtime.executable", "simulate": "ranvier.nki",
    }
    if name == "nki":
        return importlib.import_module("ranvier.nki")
    if name not in homes:
        raise AttributeError(f"module 'ranvier' has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
