"""A fingerprint of a model and its example inputs: equal fingerprints promise equal graphs, without exporting again.

It covers what an export can depend on: the code of the modules (files of the user's own code, followed through
imports and globals; versions of installed packages), their plain attributes, names, shapes and dtypes of parameters
and buffers, and the inputs. Where something cannot be covered there is no fingerprint, rather than one that may be
wrong.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import logging
import os
import re
import sys
import sysconfig
import types
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

_MAX_TENSOR_BYTES = 1 << 20  # larger tensors that are not parameters or buffers would take too long to read
_INSTALLED = tuple(
    os.path.realpath(p) + os.sep for p in {sysconfig.get_path(k) for k in ("purelib", "platlib", "stdlib")}
)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...), torch.dtype, torch.device, torch.layout,
          torch.memory_format, np.dtype, np.generic, PurePath, slice)
_OWN_MODULE_STATE = frozenset(vars(nn.Module())) - {"training"}
_ATTENTION = (None, "sdpa", "eager")


class _Unknown(Exception):
    """Raised for what a fingerprint cannot cover."""


def fingerprint(model: nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> str | None:
    """A content hash (64 hexadecimal digits) that determines the graph `import_model` gives, or None.

    It is stable across processes. Values of parameters and persistent buffers do not enter: the graph refers to them by
    name. None means that the model holds something that cannot be covered, such as hooks, objects without source or
    large tensors outside its parameters.
    """
    if torch.is_autocast_enabled("cpu"):
        return None
    walk = _Walk()
    try:
        walk.put("versions", torch.__version__, sys.version, str(torch.get_default_dtype()))
        walk.model(model)
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
        walk.put("inputs", repr(spec))
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                walk.put("tensor", str(leaf.dtype), tuple(leaf.shape))
            else:
                walk.value(leaf)
    except _Unknown:
        return None
    return walk.hash.hexdigest()


@functools.lru_cache(maxsize=4096)
def _digest_of_file(path: str, modified_ns: int, size_bytes: int) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


@functools.lru_cache(maxsize=256)
def _version(package: str) -> str:
    """The version of an installed package, or "" if it does not say (then its files are hashed)."""
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.lru_cache(maxsize=8192)
def _is_installed(path: str) -> bool:
    return os.path.realpath(path).startswith(_INSTALLED)


def _names(code: types.CodeType) -> set[str]:
    """All names of globals and attributes that `code`, or a function inside of it, mentions."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


class _Walk:
    """One fingerprint under way: the hash, and what has entered it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []  # ids are unique only among objects that live

    def put(self, *parts: Any) -> None:
        text = repr(parts).encode()
        self.hash.update(len(text).to_bytes(8, "little"))
        self.hash.update(text)

    def first(self, thing: Any) -> bool:
        """Whether `thing` is met for the first time; its number enters the hash, so that sharing does."""
        number = self.seen.get(id(thing))
        if number is not None:
            self.put("again", number)
            return False
        self.seen[id(thing)] = len(self.seen)
        self.keep.append(thing)
        return True

    # Modules ----------------------------------------------------------------------------------------------------------

    def model(self, model: nn.Module) -> None:
        self.put("model")
        self.module(model)
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        for name, tensor in tensors:
            self.put(name, str(tensor.dtype), tuple(tensor.shape))
            self.first(tensor)

    def module(self, module: nn.Module) -> None:
        """Class, attributes, children and constants of `module`. Raises `_Unknown` for hooks."""
        if not self.first(module):
            return
        self.cls(type(module))
        state = vars(module)
        for name, value in state.items():
            if "hooks" in name and value:
                raise _Unknown(name)
        for name in module._non_persistent_buffers_set:
            buffer = module._buffers[name]
            if buffer is not None:
                self.put("buffer", name)
                self.tensor(buffer)
        for name in sorted(state.keys() - _OWN_MODULE_STATE):
            self.put("attribute", name)
            self.value(state[name])
        for name, child in module._modules.items():
            self.put("child", name)
            if child is not None:
                self.module(child)

    def tensor(self, tensor: torch.Tensor) -> None:
        """A tensor whose values may become part of the graph."""
        if tensor.numel() * tensor.element_size() > _MAX_TENSOR_BYTES or tensor.device.type != "cpu":
            raise _Unknown("large tensor")
        self.put("values", str(tensor.dtype), tuple(tensor.shape), str(tensor.layout))
        self.hash.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())

    # Values -----------------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> None:
        """Any Python value that code can see."""
        if isinstance(value, _PLAIN):
            self.put(type(value).__name__, value)
        elif isinstance(value, torch.Tensor):
            if self.first(value):
                self.tensor(value)
        elif isinstance(value, np.ndarray):
            self.tensor(torch.from_numpy(np.ascontiguousarray(value)))
        elif isinstance(value, re.Pattern):
            self.put("pattern", value.pattern, value.flags)
        elif isinstance(value, enum.Enum):
            self.put(type(value).__qualname__, value.name)
        elif isinstance(value, list | tuple | dict | set | frozenset):
            self.container(value)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, type):
            self.cls(value)
        elif isinstance(value, nn.Module):
            self.module(value)
        else:
            self.other(value)

    def container(self, value: Any) -> None:
        if not self.first(value):
            return
        self.put(type(value).__name__, len(value))
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            self.value(key)
            self.value(item)

    def other(self, value: Any) -> None:
        """Objects: bound methods, partials, modules and instances with plain attributes."""
        if isinstance(value, types.MethodType):
            self.function(value.__func__)
            self.value(value.__self__)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.value(part)
        elif isinstance(value, types.ModuleType):
            self.source(value.__name__)
        elif isinstance(value, types.BuiltinFunctionType | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            self.put("builtin", str(getattr(value, "__module__", "")), str(value.__name__))
        elif isinstance(value, logging.Logger | logging.LoggerAdapter):
            self.put("logger")
        elif isinstance(value, torch.Generator) or not hasattr(value, "__dict__"):
            raise _Unknown(type(value).__name__)
        elif self.first(value):
            self.instance(value)

    def instance(self, value: Any) -> None:
        self.cls(type(value))
        state = vars(value)
        if dataclasses.is_dataclass(value):
            state = {**state, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}
        if state.get("_attn_implementation_internal") not in _ATTENTION:
            raise _Unknown("attention registered elsewhere")
        for name in sorted(state):
            self.put("field", name)
            self.value(state[name])

    # Code -------------------------------------------------------------------------------------------------------------

    def cls(self, cls: type) -> None:
        """A class: its name and the source of it and its bases."""
        if not self.first(cls):
            return
        for base in cls.__mro__:
            self.put("class", base.__module__, base.__qualname__)
            if base.__module__ == "builtins":
                continue
            self.source(base.__module__)
            for name, member in sorted(vars(base).items()):
                self.member(name, member, self.installed(base.__module__))

    def member(self, name: str, member: Any, installed: bool) -> None:
        """An entry of a class; of an installed class only what somebody put there from outside."""
        parts = [member.fget, member.fset] if isinstance(member, property) else [getattr(member, "__func__", member)]
        for part in parts:
            if isinstance(part, types.FunctionType):
                if not installed or not _is_installed(part.__code__.co_filename):
                    self.put("method", name)
                    self.function(part)
            elif not installed and not name.startswith(("__", "_abc_")):
                self.put("class attribute", name)
                self.value(part)

    def function(self, function: types.FunctionType) -> None:
        """A function: its code, defaults and closure, and the globals it mentions if it is the user's own."""
        code = function.__code__
        if not self.first(function):
            return
        self.put("function", function.__qualname__, code.co_firstlineno, code.co_code, repr(code.co_names))
        if _is_installed(code.co_filename):
            self.source(function.__module__)
        elif code.co_filename.startswith("<"):
            self._constants(code)
        else:
            self.file(code.co_filename)
        self.value(function.__defaults__)
        self.value(function.__kwdefaults__)
        if _is_installed(code.co_filename):
            return
        for cell in function.__closure__ or ():
            try:
                self.value(cell.cell_contents)
            except ValueError:
                raise _Unknown("empty cell") from None
        names = sorted(_names(code))
        for name in names:
            if name in function.__globals__:
                self.put("global", name)
                used = function.__globals__[name]
                self.value(used)
                if isinstance(used, types.ModuleType) and not self.installed(used.__name__):
                    for attribute in names:
                        if attribute in vars(used):
                            self.value(vars(used)[attribute])

    def _constants(self, code: types.CodeType) -> None:
        """The constants of generated code, which has no file; code inside of it included."""
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.put("code", constant.co_name, constant.co_code, repr(constant.co_names))
                self._constants(constant)
            else:
                self.value(constant)

    def installed(self, module_name: str) -> bool:
        """Whether a Python module comes from an installed package (or from the standard library)."""
        path = getattr(sys.modules.get(module_name), "__file__", None)
        return path is None or _is_installed(path)

    def source(self, module_name: str) -> None:
        """Where a Python module comes from: package and version, or the content of its file."""
        module = sys.modules.get(module_name)
        if module is None or not self.first(module):
            return
        path = getattr(module, "__file__", None)
        package = module_name.partition(".")[0]
        if path is None or package in sys.stdlib_module_names:
            self.put("builtin module", module_name)
        elif _is_installed(path) and _version(package):
            self.put("package", package, _version(package), module_name)
        else:
            self.file(path)

    def file(self, path: str) -> None:
        try:
            status = os.stat(path)
        except OSError:
            raise _Unknown(path) from None
        self.hash.update(_digest_of_file(path, status.st_mtime_ns, status.st_size))
