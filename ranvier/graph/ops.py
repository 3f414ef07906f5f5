"""All operations of the graph level, by family, and how text spells them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ranvier.graph import attention, composite, contract, elementwise, indexing, movement, reduce
from ranvier.graph.core import Op, snake_case

ALL_OPS: tuple[type[Op], ...] = (
    *elementwise.OPS,
    *reduce.OPS,
    *contract.OPS,
    *movement.OPS,
    *indexing.OPS,
    *composite.OPS,
    *attention.OPS,
)


@functools.lru_cache(maxsize=1)
def mnemonics() -> Mapping[str, tuple[type[Op], dict[str, Any]]]:
    """For each spelling in text, the class and the attributes that the spelling says."""
    table: dict[str, tuple[type[Op], dict[str, Any]]] = {}
    for cls in ALL_OPS:
        form = cls.mnemonic_form or snake_case(cls.__name__)
        spelled = {form.format(kind=k): {"kind": k} for k in cls.kinds} if "{kind}" in form else {form: {}}
        for word, attributes in spelled.items():
            assert word not in table, f"two operations are spelled {word}"
            table[word] = (cls, attributes)
    return MappingProxyType(table)
