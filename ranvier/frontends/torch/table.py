"""All rules together, and the list of supported operators for ``ranvier ops torch``."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ranvier.frontends.torch.ops_elementwise import ELEMENTWISE
from ranvier.frontends.torch.ops_index import INDEX
from ranvier.frontends.torch.ops_nn import NN
from ranvier.frontends.torch.ops_reduce import REDUCE
from ranvier.frontends.torch.ops_view import VIEW
from ranvier.frontends.torch.rules import Rule

FAMILIES = {"elementwise": ELEMENTWISE, "reduction": REDUCE, "view": VIEW, "index": INDEX, "network": NN}

# Checks that torch leaves in an exported graph. Shapes and dtypes are fixed, so they were decided while exporting.
DROPPED = frozenset({
    "aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default",
    "aten._assert_scalar.default", "aten.sym_constrain_range.default",
})


@dataclass(frozen=True, slots=True)
class SupportedOp:
    """One row: the ATen operator, the graph operations that it may become, its family, and what to know about it."""

    name: str
    graph_ops: tuple[str, ...]
    family: str
    note: str


@functools.lru_cache(maxsize=1)
def all_rules() -> dict[str, Rule]:
    """Every rule, by the name of its operator overload."""
    return {name: rule for table in FAMILIES.values() for name, rule in table.rules.items()}


def supported_ops() -> list[SupportedOp]:
    """The operators that are imported directly, sorted by name; others are decomposed into these if torch knows how."""
    rows = [SupportedOp(name, rule.emits, family, rule.note)
            for family, table in FAMILIES.items() for name, rule in table.rules.items()]
    rows += [SupportedOp(name, (), "check", "dropped: decided while exporting") for name in DROPPED]
    return sorted(rows, key=lambda row: row.name)
