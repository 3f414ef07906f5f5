"""A target back from its JSON form, so that a saved program carries the numbers it was made for."""

from __future__ import annotations

import dataclasses
import types
import typing

from ranvier.errors import error
from ranvier.target.fact import Confidence, Fact
from ranvier.target.spec import Target


def from_json(content: dict) -> Target:
    """The target that `Target.to_json` wrote. Raises E0805 when a fact is missing, unknown or not of the right form."""
    return _record(Target, content, "")


def _record(kind: type, content: object, path: str):
    fields = dataclasses.fields(kind)
    if not isinstance(content, dict) or content.keys() != {field.name for field in fields}:
        expected = ", ".join(field.name for field in fields)
        found = ", ".join(content) if isinstance(content, dict) else repr(content)
        raise error("E0805", f"{path or 'a target'} consists of {expected}; found {found}")
    hints = typing.get_type_hints(kind)
    return kind(**{
        field.name: _value(hints[field.name], content[field.name], f"{path}.{field.name}".lstrip("."))
        for field in fields
    })


def _value(kind, content, path: str):
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if content is None:
            return None
        (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is frozenset:
        return frozenset(content)
    if kind is Fact:
        return _fact(content, path)
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast(type, kind), content, path)
    if not isinstance(content, kind):
        raise error("E0805", f"{path} is a {kind.__name__}; found {content!r}")
    return content


def _fact(content, path: str) -> Fact:
    known = {confidence.value for confidence in Confidence}
    match content:
        case {"value": int() | float() as value, "unit": str(unit), "source": str(source), "confidence": str(known_as)}:
            if known_as in known and not isinstance(value, bool):
                return Fact(value, unit, source, Confidence(known_as))
    parts = f"value, unit, source and confidence ({', '.join(sorted(known))})"
    raise error("E0805", f"{path} is a fact: {parts}; found {content!r}")
