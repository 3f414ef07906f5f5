"""Rewriting by rules: a driver that applies rules to operations in order, sweep after sweep, until none fires.

The driver knows nothing of a level but that its nodes have `op`, `inputs`, `outputs` and `loc`; the level's `Scope`
emits nodes and answers questions that rules ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ranvier.errors import error
from ranvier.loc import Loc


class Scope(Protocol):
    """Where one sweep puts its nodes."""

    def begin(self, node: Any) -> None:
        """What is emitted from now on replaces `node`."""

    def keep(self, node: Any, inputs: tuple) -> Sequence[Any]:
        """Puts `node`, with `inputs` for its own, into the scope; returns its results."""
        ...


Apply = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `apply(scope, node)` returns the values that replace the results of `node` (one value, or a sequence), or
    None if it does not match. It is tried on nodes whose op is of a class in `starts`.
    """

    name: str
    starts: tuple[type, ...]
    apply: Apply


def rule(*starts: type) -> Callable[[Apply], Rule]:
    """Decorator: the function is a rule for operations of classes `starts`, named as the function."""
    return lambda function: Rule(function.__name__, starts, function)


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule fired: its name, the mnemonic of the operation it began at, and where that comes from."""

    rule: str
    operation: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{self.rule}: {self.operation}" + (f" at {self.loc}" if self.loc else "")


def by_class(rules: Iterable[Rule]) -> Mapping[type, tuple[Rule, ...]]:
    """For each class of operation the rules that start at it, in the order given."""
    table: dict[type, tuple[Rule, ...]] = {}
    for each in rules:
        for cls in each.starts:
            table[cls] = (*table.get(cls, ()), each)
    return table


def sweep(
    nodes: Sequence[Any],
    rules: Mapping[type, Sequence[Rule]],
    scope: Scope,
    replaced: Mapping[Any, Any],
    log: list[Firing] | None = None,
) -> tuple[dict[Any, Any], int]:
    """Applies `rules` once to each of `nodes`, which come before their uses, and puts the outcome into `scope`.

    `replaced` says which values are replaced to begin with. Returns what replaces each replaced value in the end, and
    how many rules fired.
    """
    replaced = dict(replaced)
    fired = 0
    for node in nodes:
        inputs = tuple(replaced.get(v, v) for v in node.inputs)
        scope.begin(node)
        results = None
        current = node if inputs == node.inputs else replace(node, inputs=inputs)
        for each in rules.get(type(node.op), ()):
            outcome = each.apply(scope, current)
            if outcome is not None:
                results = tuple(outcome) if isinstance(outcome, list | tuple) else (outcome,)
                _check(each, current, results)
                fired += 1
                if log is not None:
                    log.append(Firing(each.name, node.op.mnemonic, node.loc))
                break
        if results is None:
            results = scope.keep(current, inputs)
        for old, new in zip(node.outputs, results, strict=True):
            if old is not new:
                replaced[old] = new
    return replaced, fired


def _check(each: Rule, node: Any, results: tuple) -> None:
    old, new = [str(v.type) for v in node.outputs], [str(v.type) for v in results]
    if old != new:
        raise error("E0901", f"rule {each.name} replaced {node.op.mnemonic} of type {', '.join(old)} by "
                    f"{', '.join(new)}", where=node.loc)
