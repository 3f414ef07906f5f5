"""Settings: every one typed, documented, with the name of its environment variable.

``current()`` gives the settings in force: defaults, then the environment, then `override`. Nothing is read at import, so
a test or a program may change the environment at any time.

    with config.override(cache=False):
        ranvier.compile(model, inputs)
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ranvier.errors import error

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _setting(default: Any, environment: str, doc: str) -> Any:
    metadata = {"environment": environment, "doc": doc}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ranvier"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. Field metadata holds the environment name and the documentation of each."""

    target: str = _setting("trn2", "RANVIER_TARGET", "the target that is compiled for when none is named")
    dtype: str = _setting("bfloat16", "RANVIER_DTYPE", "the dtype models are computed in: bfloat16 or float32")
    cache: bool = _setting(True, "RANVIER_CACHE", "whether compiled programs are kept in the compile cache")
    cache_dir: Path = _setting(_default_cache_dir, "RANVIER_CACHE_DIR", "folder of the compile cache")
    cache_limit_bytes: int = _setting(
        10 << 30, "RANVIER_CACHE_LIMIT_BYTES", "size at which the entries used longest ago leave the compile cache")
    dump: Path | None = _setting(None, "RANVIER_DUMP", "folder that receives a snapshot after each pass")
    verify: bool = _setting(True, "RANVIER_VERIFY", "whether the rules of a level are checked after each pass")
    traceback: bool = _setting(False, "RANVIER_TRACEBACK", "whether the command line shows Python's traceback of an error")


def _bool(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(f"one of {', '.join(_TRUE + _FALSE)}")
    return text.lower() in _TRUE


def _count(text: str) -> int:
    if not text.isdigit():
        raise ValueError("a whole number, not negative")
    return int(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError("a name")
    return text


def _path(text: str) -> Path:
    if not text:
        raise ValueError("a path")
    return Path(text).expanduser()


_READERS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"str": _text, "bool": _bool, "int": _count, "Path": _path, "Path | None": _path})
_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"str": (str,), "bool": (bool,), "int": (int,), "Path": (Path,), "Path | None": (Path, type(None))})
_OVERRIDES: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "ranvier_config", default=MappingProxyType({}))


def current() -> Config:
    """The settings in force. Raises E0802 for an environment variable with a value that its setting does not take."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        name = field.metadata["environment"]
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            values[field.name] = _READERS[str(field.type)](text)
        except ValueError as wanted:
            raise error("E0802", f"{name}={text!r} in the environment: {field.name} takes {wanted}") from None
    return Config(**{**values, **_OVERRIDES.get()})


@contextlib.contextmanager
def override(**changes: Any) -> Iterator[Config]:
    """The settings `changes` hold inside the ``with`` block. Raises E0802 for an unknown name or a wrong type."""
    known = {field.name: field for field in dataclasses.fields(Config)}
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise error("E0802", f"no setting is called {name!r}; known are {', '.join(known)}")
        kind = str(known[name].type)
        if "Path" in kind and isinstance(value, str):
            value = Path(value)
        if not isinstance(value, _TYPES[kind]) or (kind == "int" and (isinstance(value, bool) or value < 0)):
            raise error("E0802", f"the setting {name} is {value!r}; it takes {kind}")
        checked[name] = value
    token = _OVERRIDES.set(MappingProxyType({**_OVERRIDES.get(), **checked}))
    try:
        yield current()
    finally:
        _OVERRIDES.reset(token)
