"""Kernels that import `nki` run without a change: this package under that name."""

from __future__ import annotations

import importlib.util
import sys

from ranvier.errors import error

_OURS = "ranvier.nki"


def install() -> None:
    """Make this package importable as `nki`: `import nki`, `import nki.language as nl`, and so on.

    Calling it again does nothing. Raises E0806 when another package of that name is installed or imported already.
    """
    ours = sys.modules[_OURS]
    found = sys.modules.get("nki")
    if found is ours:
        return
    if found is not None or importlib.util.find_spec("nki") is not None:
        spec = found.__spec__ if found is not None else importlib.util.find_spec("nki")
        raise error("E0806", f"the name nki belongs to {spec.origin if spec else found!r}")
    for name, module in list(sys.modules.items()):
        if name == _OURS or name.startswith(f"{_OURS}."):
            sys.modules[f"nki{name.removeprefix(_OURS)}"] = module
