"""Every setting: typed, documented, with the environment variable that sets it and a `with` override.

    config.get("target")                      # override, else environment, else default
    with config.override(target="trn1"): ...

Settings that the vendor's tools name keep that name and meaning; the others begin with RANVIER_.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ranvier import target as targets
from ranvier.dtypes import COMPUTE_DTYPES
from ranvier.errors import RanvierError, error


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return known[text.strip().lower()]


def _target(name: str) -> str:
    return targets.get(name).name


def _path(text: str) -> str:
    return os.path.abspath(os.path.expanduser(text))


def _dtype(text: str) -> str:
    return {name: name for name in COMPUTE_DTYPES}[text]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _dump(text: str) -> str:
    return _path(text) if text else ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `parse` makes a value from text (KeyError, ValueError or an error of this package if it cannot);
    `takes` says in words what it accepts."""

    name: str
    environment: str
    default: Any
    parse: Callable[[str], Any]
    takes: str
    doc: str


SETTINGS: Mapping[str, Setting] = MappingProxyType({
    s.name: s
    for s in (
        Setting("target", "NEURON_PLATFORM_TARGET_OVERRIDE", "trn2", _target,
                "trn1, inf2, gen2, trn2, gen3, trn3 or gen4",
                "The hardware that kernels are run and compiled for when the call does not say."),
        Setting("precise_fp", "NKI_PRECISE_FP", True, _flag, "1 or 0",
                "Keep low-precision tensors in their own dtype. Only 1 is available."),
        Setting("simulator", "NKI_SIMULATOR", True, _flag, "1 or 0",
                "Run kernels on the simulator. Only 1 is available: there is no other device."),
        Setting("cache_dir", "RANVIER_CACHE_DIR", _path("~/.cache/ranvier"), _path, "a directory",
                "Where compiled programs are kept."),
        Setting("cache", "RANVIER_CACHE", True, _flag, "1 or 0",
                "Use compiled programs from the cache, and put new ones there."),
        Setting("seed", "RANVIER_SEED", 0, int, "an integer",
                "Chooses among the legal orders in which the simulator may run engines and data movement."),
        Setting("verify", "RANVIER_VERIFY", True, _flag, "1 or 0",
                "Check the rules of a level after each compiler pass."),
        Setting("dtype", "RANVIER_DTYPE", "bfloat16", _dtype, " or ".join(COMPUTE_DTYPES),
                "The dtype that models are computed in when the call does not say."),
        Setting("cache_limit_bytes", "RANVIER_CACHE_LIMIT_BYTES", 4 << 30, _count, "a number of bytes",
                "Above this size the cache gives up the programs that were used longest ago."),
        Setting("dump", "RANVIER_DUMP", "", _dump, "a directory, or nothing",
                "Where the state after each compiler pass is written; nothing is written if this is empty."),
        Setting("traceback", "RANVIER_TRACEBACK", False, _flag, "1 or 0",
                "Show Python's traceback when a command fails."),
    )
})  # fmt: skip

_OVERRIDES: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "ranvier_settings", default=MappingProxyType({})
)


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise error("E0802", f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
    return SETTINGS[name]


def _parsed(setting: Setting, text: str, origin: str) -> Any:
    try:
        return setting.parse(text)
    except (KeyError, ValueError, RanvierError):
        raise error("E0802", f"{origin} is {text!r}; {setting.name} takes {setting.takes}") from None


def get(name: str) -> Any:
    """The value of setting `name`: from the innermost `override`, else the environment, else the default.

    Raises E0802 for an unknown setting or a value that it does not take.
    """
    setting = _setting(name)
    overrides = _OVERRIDES.get()
    if name in overrides:
        return overrides[name]
    text = os.environ.get(setting.environment)
    if text is None:
        return setting.default
    return _parsed(setting, text, f"the environment variable {setting.environment}")


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Set settings for the code inside, whatever the environment says."""
    made = dict(_OVERRIDES.get())
    for name, value in values.items():
        setting = _setting(name)
        made[name] = _parsed(setting, value, f"override({name}=...)") if isinstance(value, str) else value
        if type(made[name]) is not type(setting.default):
            raise error("E0802", f"override({name}=...) is {value!r}; {name} takes {setting.takes}")
    token = _OVERRIDES.set(MappingProxyType(made))
    try:
        yield
    finally:
        _OVERRIDES.reset(token)
