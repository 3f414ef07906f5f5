"""Where an FX node comes from: the user's source line and the path of the module, from what torch recorded."""

from __future__ import annotations

import functools
import os
import re
from types import TracebackType

import torch
from torch import fx

from ranvier.loc import Loc

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_LOCAL = re.compile(r"^L\['\w+'\]\.?")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def _is_library(file: str) -> bool:
    return file.startswith((_TORCH, _OURS, "<")) or (file.startswith(_PYTHON) and "site-packages" not in file)


@functools.lru_cache(maxsize=4096)
def _innermost(stack_trace: str) -> tuple[str, int, str] | None:
    frames = [(m["file"], int(m["line"]), m["function"]) for m in _FRAME.finditer(stack_trace)]
    own = [f for f in frames if not _is_library(f[0])]
    return (own or frames or [None])[-1]


def module_path(node: fx.Node) -> str:
    """The dotted path of the module whose forward made `node`, or "" for the model itself."""
    stack = node.meta.get("nn_module_stack")
    # torch.compile writes the path as an expression that begins with the local variable of the model.
    return _LOCAL.sub("", list(stack.values())[-1][0]) if stack else ""


def place_of(node: fx.Node) -> Loc | None:
    """The innermost place of the user's source (not torch's own) that made `node`, in its module; None if unknown."""
    frame = _innermost(node.meta.get("stack_trace") or "")
    if frame is None:
        return None
    return Loc(frame[0], frame[1], function=frame[2], scope=module_path(node))


def place_of_exception(traceback: TracebackType | None) -> Loc | None:
    """The innermost place of the user's source in a traceback; None if it is torch's own code all the way."""
    place = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not _is_library(code.co_filename):
            place = Loc(code.co_filename, traceback.tb_lineno, function=code.co_name)
        traceback = traceback.tb_next
    return place
