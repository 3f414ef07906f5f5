"""What the command line names: models as ``file.py:attribute``, kernels likewise, compiled files."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranvier.errors import RanvierError, error
from ranvier.loc import Loc

BUILT_IN = ("minilm",)


@dataclass(frozen=True)
class ModelSpec:
    """A model with its example inputs."""

    name: str
    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def need_torch(what: str) -> None:
    """Raise E0803 if torch is not installed; `what` needs it."""
    if importlib.util.find_spec("torch") is None:
        raise error("E0803", f"{what} needs torch, which is not installed",
                    fix="pip install torch==2.13.0 and then 'ranvier[demo]'")


def load_model(text: str) -> ModelSpec:
    """The model or kernel that `text` names: ``minilm``, or ``path/to/file.py:attribute``.

    The attribute is a function without parameters that returns (model, example_args) or (model, example_args,
    example_kwargs), or such a tuple. Raises E0804 for files and attributes that are not there or are something else,
    and for what the file raises.
    """
    if text in BUILT_IN:
        need_torch(f"the model {text}")
        from ranvier.frontends.torch.minilm import minilm

        model, args = minilm()
        return ModelSpec(text, model, args, {})
    made = load_attribute(text)
    if inspect.isfunction(made) and not inspect.signature(made).parameters:
        made = _executed(Path(text.rpartition(":")[0]).resolve(), made)
    if not isinstance(made, tuple) or not 2 <= len(made) <= 3:
        raise error("E0804", f"{text} gives a {type(made).__name__}, not (model, example_args[, example_kwargs])",
                    fix="name a function without parameters that returns the model or kernel and a tuple of inputs")
    model, args, kwargs = (*made, {})[:3]
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise error("E0804", f"{text} gives example inputs of type {type(args).__name__} and {type(kwargs).__name__}; "
                    "they are a tuple and a dictionary")
    return ModelSpec(text.rpartition(":")[2], model, tuple(args), kwargs)


def load_attribute(text: str) -> Any:
    """The attribute that ``path/to/file.py:attribute`` names. The file is executed. Raises E0804."""
    file, colon, attribute = text.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise error("E0804", f"{text!r} names no attribute of a Python file",
                    fix=f"write path/to/file.py:attribute, or one of the built-in models: {', '.join(BUILT_IN)}")
    path = Path(file).resolve()
    if not path.is_file():
        raise error("E0804", f"the file {file} does not exist")
    module_name = f"ranvier_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and inspect look there
    sys.path.insert(0, str(path.parent))  # as when the file is run as a script
    try:
        _executed(path, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    finally:
        sys.path.remove(str(path.parent))
    if not hasattr(module, attribute):
        public = ", ".join(n for n in vars(module) if not n.startswith("_"))
        raise error("E0804", f"{file} defines no {attribute!r}; it defines {public or 'nothing'}")
    return getattr(module, attribute)


def _executed(path: Path, run: Callable[[], Any]) -> Any:
    """What `run`, code of the user's file `path`, gives. What it raises becomes E0804 at the file's own line."""
    try:
        return run()
    except RanvierError:
        raise
    except Exception as failure:  # whatever the user's code raises
        where = None
        if isinstance(failure, SyntaxError) and failure.filename and failure.lineno:
            where = Loc(failure.filename, failure.lineno)
        for frame in traceback.extract_tb(failure.__traceback__):
            if frame.filename == str(path) and frame.lineno:
                where = Loc(frame.filename, frame.lineno, function=frame.name)
        raise error("E0804", f"{path.name} raised {type(failure).__name__}: {failure}", where=where,
                    fix="set RANVIER_TRACEBACK=1 to see the whole traceback") from failure


def is_artifact(text: str) -> bool:
    """Whether `text` names a compiled file rather than an attribute of a Python file."""
    return not text.rpartition(":")[0].endswith(".py") and text not in BUILT_IN
