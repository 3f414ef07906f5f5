"""A cached property without the lock that `functools.cached_property` takes in Python 3.11 (a microsecond a time)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """A property that is computed once and then lies in the instance's dictionary, also of a frozen dataclass.

    Two threads may both compute it; they get equal values, since instances do not change.
    """

    def __init__(self, compute: Callable[[Any], T]):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> lazy[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
