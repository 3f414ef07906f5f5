"""The numbers of each hardware generation, as facts with units, sources and confidence."""

from __future__ import annotations

import difflib
from types import MappingProxyType

from ranvier.errors import error
from ranvier.target import inf2, trn1, trn2, trn3
from ranvier.target.fact import Confidence, Fact
from ranvier.target.serialize import from_json
from ranvier.target.spec import Engine, Target

__all__ = ["Confidence", "Engine", "Fact", "Target", "from_json", "get", "names"]

_TARGETS = MappingProxyType({module.TARGET.name: module.TARGET for module in (trn1, inf2, trn2, trn3)})
_ALIASES = MappingProxyType({
    "gen2": "trn1", "trainium1": "trn1", "trainium": "trn1", "inferentia2": "inf2",
    "gen3": "trn2", "trainium2": "trn2",
    "gen4": "trn3", "trainium3": "trn3",
})


def names() -> tuple[str, ...]:
    """Names of the targets, oldest first; `get` also takes "gen3", "trainium2" and the like."""
    return tuple(_TARGETS)


def get(name: str | Target) -> Target:
    """The target called `name` (any case); a `Target` is returned as it is. Raises E0801 for an unknown name."""
    if isinstance(name, Target):
        return name
    key = str(name).lower()
    found = _TARGETS.get(_ALIASES.get(key, key))
    if found is None:
        near = difflib.get_close_matches(key, [*_TARGETS, *_ALIASES], n=3, cutoff=0.5)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise error("E0801", f"no target is called {name!r}{hint}; known are {', '.join(_TARGETS)}")
    return found
