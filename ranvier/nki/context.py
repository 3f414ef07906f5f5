"""Which builder is current: the kernel that is being run or recorded in this thread of control."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from ranvier import config
from ranvier import target as targets
from ranvier.errors import error
from ranvier.loc import capture
from ranvier.target.spec import Target

if TYPE_CHECKING:
    from ranvier.nki.builder import Builder

_CURRENT: contextvars.ContextVar[Builder | None] = contextvars.ContextVar("ranvier_builder", default=None)


def current() -> Builder:
    """The builder of the kernel that is being run or recorded. Raises E0101 outside of one."""
    builder = _CURRENT.get()
    if builder is None:
        raise error("E0101", "there is no kernel that is being run or recorded", where=capture())
    return builder


def maybe_current() -> Builder | None:
    """The current builder, or None outside a kernel."""
    return _CURRENT.get()


def current_target() -> Target:
    """The target of the current builder; outside a kernel, the one that the settings choose."""
    builder = _CURRENT.get()
    return targets.get(config.get("target")) if builder is None else builder.target


def enter(builder: Builder) -> contextvars.Token:
    """Make `builder` current; give the token to `leave`."""
    return _CURRENT.set(builder)


def leave(token: contextvars.Token) -> None:
    _CURRENT.reset(token)
