"""Write the reference pages from the records, targets and errors that they describe.

    python docs/gen.py            write docs/reference/*.md
    python docs/gen.py --check    exit with 1 and the names of the pages that are out of date
"""

from __future__ import annotations

import enum
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ranvier.dtypes import DTYPES
from ranvier.errors import CODES
from ranvier.isa import REGISTRY
from ranvier.isa.access import AccessPattern
from ranvier.isa.act import ACT
from ranvier.isa.alu import ALU
from ranvier.isa.examples import build
from ranvier.isa.record import GENERIC_RULES, REQUIRED, Instruction, OperandSpec
from ranvier.isa.text import print_access
from ranvier.target import get, names
from ranvier.target.features import FEATURES
from ranvier.target.spec import Fact, Target

REFERENCE = Path(__file__).parent / "reference"
TARGETS = [get(name) for name in names()]
NOTE = "<!-- Written by docs/gen.py from the code; change it there. -->"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A Markdown table; bars within cells are escaped."""
    lines = [head, tuple("-" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


# Instructions -------------------------------------------------------------------------------------------------------


def _public(name: str) -> str:
    """The name that NKI gives to an enumeration: reduce_cmd for ReduceCmd."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _default(value: Any) -> str:
    return f"{_public(type(value).__name__)}.{value.name.lower()}" if isinstance(value, enum.Enum) else repr(value)


def _is_required(spec: OperandSpec) -> bool:
    return spec.default is REQUIRED and not spec.optional


def _signature(cls: type[Instruction]) -> str:
    parts = []
    for spec in cls.SPECS:
        if spec.role == "state":
            continue
        default = None if spec.default is REQUIRED else spec.default
        parts.append(spec.name if _is_required(spec) else f"{spec.name}={_default(default)}")
    return f"nki.isa.{cls.MNEMONIC}({', '.join([*parts, 'name=None'])})"


def _dtypes(spec: OperandSpec) -> str:
    if spec.role in ("attr", "state"):
        return ""
    if spec.dtypes is None:
        return "any"
    return ", ".join(d.name for d in spec.dtypes)


def _takes(spec: OperandSpec) -> str:
    if spec.role == "attr":
        return _public(spec.type.__name__) if issubclass(spec.type, enum.Enum) else spec.type.__name__
    if spec.role == "state":
        return f"hidden state `{spec.state}`"
    text = ", ".join(space.value for space in spec.spaces)
    text += ", [P, 1]" if spec.vector else ""
    text += " or a number" if spec.scalar else ""
    return text + (" or None" if spec.optional else "")


def _operand_rows(cls: type[Instruction]) -> list[tuple[str, ...]]:
    roles = {"dst": "written", "src": "read", "attr": "attribute", "state": "read, written"}
    return [(f"`{s.name}`", roles[s.role], _takes(s), _dtypes(s), s.doc) for s in cls.SPECS]


def _doc(cls: type[Instruction]) -> list[str]:
    text = cls.__doc__ or ""
    paragraphs = text.split("\n\n")
    return [line for p in paragraphs for line in (" ".join(p.split()), "")]


def _example_text(inst: Instruction) -> str:
    parts = []
    for spec in inst.SPECS:
        value = getattr(inst, spec.name)
        if isinstance(value, AccessPattern):
            shape = "x".join(str(n) for n in value.shape)
            strided = "" if value.is_contiguous else f" ({print_access(value)})"
            parts.append(f"{spec.name} {value.space.value} {shape} {value.dtype}{strided}")
        elif spec.role == "attr" and value != spec.default:
            parts.append(f"{spec.name} {value.name if isinstance(value, enum.Enum) else value}")
    return "; ".join(parts)


def _cost_rows(inst: Instruction, targets: list[Target]) -> list[tuple[str, ...]]:
    rows = []
    for target in targets:
        for engine in inst.legal_engines(target):
            cost = inst.cost(target, engine)
            estimated = cost.busy.estimated_ns / cost.busy.ns
            work = ""
            if cost.dma is not None:
                d = cost.dma
                work = f"{d.descriptors} x {d.descriptor_bytes} bytes, {d.engines} DMA engines, {d.mode}"
            latency = "" if cost.dma is not None else f"{cost.latency.ns:.0f}"
            rows.append((target.name, engine.name.lower(), f"{cost.busy.ns:.0f}", latency, f"{estimated:.0%}", work))
    return rows


def _instruction(cls: type[Instruction]) -> list[str]:
    example = next(e for e in cls.EXAMPLES if e.rule is None)
    inst = build(cls, example)
    targets = [t for t in TARGETS if all(t.has(f) for f in (cls.FEATURE, example.feature) if f)]
    lines = [f"## {cls.MNEMONIC}", "", f"    {_signature(cls)}", "", *_doc(cls)]
    lines += table(("operand", "", "takes", "dtypes", ""), _operand_rows(cls))
    trigger = ", which trigger the DMA engines" if cls.IS_DMA else ""
    lines += ["", f"Engines: {', '.join(e.name.lower() for e in cls.ENGINES)}{trigger}."]
    if cls.FEATURE:
        lines += [f"Only on {', '.join(t.name for t in TARGETS if t.has(cls.FEATURE))}."]
    if cls.RULES:
        lines += ["", *table(("rule", "error", "what must hold"), [(i, r.code, r.text) for i, r in cls.RULES.items()])]
    lines += ["", f"Time of: {_example_text(inst)}", ""]
    lines += table(("target", "engine", "busy ns", "latency ns", "estimated", "transfer"), _cost_rows(inst, targets))
    return [*lines, "", f"Source: {cls.SOURCE}. Cost: {cls.COST_SOURCE}.", ""]


def _families() -> dict[str, list[type[Instruction]]]:
    found: dict[str, list[type[Instruction]]] = {}
    for cls in REGISTRY.values():
        found.setdefault(cls.__module__.rpartition(".")[2], []).append(cls)
    return {module: sorted(found[module], key=lambda c: c.MNEMONIC) for module in sorted(found)}


_ISA_TEXT = (
    "Every instruction takes `name`, a label. `busy` is how long it occupies its engine, `latency` the time from its",
    "start to its result; `estimated` is the part of `busy` that rests on facts which are carried over or assumed.",
    "",
)


def isa_page() -> str:
    """The page of all instructions, ALU operations and activation functions."""
    lines = ["# Instructions", "", NOTE, "", *_ISA_TEXT]
    families = _families()
    for module, found in families.items():
        lines.append(f"- `{module}`: {', '.join(f'[{c.MNEMONIC}](#{c.MNEMONIC})' for c in found)}")
    lines += ["", "## Rules of all instructions", ""]
    lines += table(("rule", "error", "what must hold"), [(i, r.code, r.text) for i, r in GENERIC_RULES.items()])
    lines.append("")
    for found in families.values():
        for cls in found:
            lines += _instruction(cls)
    lines += ["## ALU operations", ""]
    rows: list[tuple[str, ...]] = []
    for op in ALU.values():
        identity = "" if op.identity is None else str(op.identity)
        unary = "unary" if op.unary else ""
        rows.append((f"`{op.name}`", op.kind, unary, identity, ", ".join(op.engines), op.feature or ""))
    lines += table(("operation", "kind", "", "identity of its reduction", "engines", "feature"), rows)
    lines += ["", "## Activation functions", ""]
    rows = []
    for fn in ACT.values():
        domain = "all" if fn.domain == (-math.inf, math.inf) else f"{fn.domain[0]:.4g} to {fn.domain[1]:.4g}"
        rows.append((f"`{fn.name}`", fn.table or "none", domain))
    lines += table(("function", "table set", "valid inputs"), rows)
    lines += ["", "## Data types", ""]
    rows = [(f"`{d.name}`", d.kind, str(d.itemsize)) for d in DTYPES.values() if d.on_device]
    return "\n".join([*lines, *table(("dtype", "kind", "bytes"), rows), ""])


# Targets ------------------------------------------------------------------------------------------------------------


_TARGETS_TEXT = (
    "Facts of one core (`chip.*`: of one chip). The letter says how well a number is known: d documented for this",
    "generation, m measured, e estimated. `ranvier targets NAME` prints the source of each.",
    "",
)


def _fact(fact: Fact | None) -> str:
    if fact is None:
        return ""
    value = f"{fact.value:,}" if isinstance(fact.value, int) else f"{fact.value:.6g}"
    return f"{value} {fact.confidence.value[0]}"


def targets_page() -> str:
    """The page of all facts and features of the targets."""
    lines = ["# Targets", "", NOTE, "", *_TARGETS_TEXT]
    facts = [dict(target.facts()) for target in TARGETS]
    paths = list(dict.fromkeys(path for found in facts for path in found))
    rows = []
    for path in paths:
        unit = next(found[path].unit for found in facts if path in found)
        rows.append((f"`{path}`", *(_fact(found.get(path)) for found in facts), "" if unit == "1" else unit))
    lines += table(("fact", *(t.name for t in TARGETS), "unit"), rows)
    lines += ["", "## Features", ""]
    rows = []
    for name, feature in FEATURES.items():
        has = ("yes" if t.has(name) else "" for t in TARGETS)
        rows.append((f"`{name}`", feature.title, *has, feature.source))
    return "\n".join([*lines, *table(("feature", "", *(t.name for t in TARGETS), "source"), rows), ""])


# Errors -------------------------------------------------------------------------------------------------------------

_RANGES = {
    "E01": "Kernel language", "E02": "Tensors and access patterns", "E03": "Rules of instructions",
    "E04": "Undefined behaviour found while simulating", "E05": "Resources of the core", "E06": "Graphs and front ends",
    "E07": "Artifacts and caches", "E08": "Settings, targets, command line", "E09": "Internal",
}  # fmt: skip


def errors_page() -> str:
    """The page of all errors, in the order of their codes."""
    lines = ["# Errors", "", NOTE, "", "`ranvier explain CODE` prints an entry.", ""]
    group = ""
    for code in sorted(CODES):
        spec = CODES[code]
        if code[:3] != group:
            group = code[:3]
            lines += [f"## {_RANGES[group]}", ""]
        lines += [f"### {code}: {spec.title}", "", f"*{spec.kind.value}.* {spec.page}", ""]
        if spec.fix:
            lines += [f"Way out: {spec.fix}", ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {"isa.md": isa_page, "targets.md": targets_page, "errors.md": errors_page}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that differ from what would be written."""
    REFERENCE.mkdir(exist_ok=True)
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text)
    if stale:
        print(("out of date: " if "--check" in arguments else "wrote ") + ", ".join(stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
