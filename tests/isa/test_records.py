"""Every record keeps the promises of `ranvier.isa.record`: complete, its examples true, its cost made of facts."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from pathlib import Path

import numpy as np
import pytest

from ranvier import dtypes as dt
from ranvier import isa
from ranvier.errors import CODES, RanvierError
from ranvier.isa import REGISTRY
from ranvier.isa.access import AccessPattern
from ranvier.isa.examples import build
from ranvier.isa.record import GENERIC_RULES, Example, Instruction, OperandSpec, instruction, verify
from ranvier.sim.machine import Memory, bind, check_written
from ranvier.target import get, names
from ranvier.target.spec import Engine, Target

RECORDS = sorted(REGISTRY)
TARGETS = [get(name) for name in names()]
VALID = [(name, i) for name in RECORDS for i, e in enumerate(REGISTRY[name].EXAMPLES) if e.rule is None]
INVALID = [(name, i) for name in RECORDS for i, e in enumerate(REGISTRY[name].EXAMPLES) if e.rule is not None]


def example_of(name: str, index: int) -> tuple[Example, Instruction]:
    example = REGISTRY[name].EXAMPLES[index]
    return example, build(REGISTRY[name], example)


def having(name: str, example: Example) -> list[Target]:
    """The targets on which an example says something."""
    features = [f for f in (REGISTRY[name].FEATURE, example.feature) if f is not None]
    return [t for t in TARGETS if all(t.has(f) for f in features)]


def prepared(inst: Instruction, example: Example) -> Memory:
    """A memory in which everything that `inst` reads is written: the contents the example asks for, or ones."""
    memory = Memory({})
    operands = {id(ap): spec.name for role in ("src", "dst") for spec, ap in inst.operands(role)}
    for ap in inst.reads():
        make = example.contents.get(operands.get(id(ap), ""), np.ones)
        memory.set(ap.buffer, dt.cast(np.asarray(make(ap.buffer.shape), np.float32), ap.buffer.dtype))
    return memory


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_complete(name):
    cls = REGISTRY[name]
    assert name == cls.MNEMONIC
    assert cls.__doc__ is not None and len(cls.__doc__.split()) >= 6
    assert cls.SOURCE and cls.COST_SOURCE
    assert cls.ENGINES
    assert any(e.rule is None for e in cls.EXAMPLES), "no valid example"
    shown = {e.rule for e in cls.EXAMPLES}
    assert set(cls.RULES) <= shown, f"rules without an example: {sorted(set(cls.RULES) - shown)}"
    for rule_id, rule in cls.RULES.items():
        assert rule.code in CODES and rule.code.startswith("E03")
        assert rule.text.strip() and rule_id not in GENERIC_RULES


def test_rule_ids_belong_to_one_record():
    owners: dict[str, str] = {}
    for name in RECORDS:
        for rule_id in REGISTRY[name].RULES:
            assert owners.setdefault(rule_id, name) == name


@pytest.mark.parametrize(("name", "index"), VALID)
def test_valid_examples_are_legal_where_they_say(name, index):
    example, inst = example_of(name, index)
    targets = having(name, example)
    assert targets, "no target has the feature"
    for target in targets:
        verify(inst, target)
        legal = inst.legal_engines(target)
        assert legal and set(legal) <= set(inst.ENGINES)
        assert inst.engine_on(target) in legal


@pytest.mark.parametrize(("name", "index"), INVALID)
def test_invalid_examples_break_their_rule(name, index):
    example, inst = example_of(name, index)
    rules = REGISTRY[name].RULES | GENERIC_RULES
    broken = 0
    for target in having(name, example):
        try:
            verify(inst, target)
        except RanvierError as failure:
            assert failure.rule == example.rule
            assert failure.code == rules[example.rule].code
            broken += 1
        else:
            assert example.feature is None, f"legal on {target.name}, which has {example.feature}"
    assert broken, "legal everywhere"


@pytest.mark.parametrize(("name", "index"), VALID)
def test_valid_examples_run_on_the_machine(name, index):
    example, inst = example_of(name, index)
    for target in having(name, example):
        memory = prepared(inst, example)
        check_written(inst, memory)
        bind(inst, memory, target)()
        again = prepared(inst, example)
        check_written(inst, again)
        bind(inst, again, target)()
        for ap in inst.writes():
            first, second = memory.view(ap.buffer.all), again.view(ap.buffer.all)
            assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(("name", "index"), VALID)
def test_costs_are_positive_and_scale_with_the_clock(name, index):
    example, inst = example_of(name, index)
    for target in having(name, example):
        for engine in inst.legal_engines(target):
            cost = inst.cost(target, engine)
            assert 0 < cost.busy.ns < 1e7
            assert cost.busy.ns <= cost.latency.ns
            assert 0 <= cost.busy.estimated_ns <= cost.busy.ns * (1 + 1e-9)
            if inst.IS_DMA:
                assert cost.dma is not None and cost.dma.descriptors > 0 and cost.dma.descriptor_bytes > 0
                assert 1 <= cost.dma.engines <= target.dma.engines.value
                assert cost.dma.mode in target.dma.modes and 0 < cost.dma.efficiency <= 1
                continue
            path = f"{engine.name.lower()}.clock_ghz"
            fast = target.replace(path, 2 * target.clock_ghz(engine))
            assert inst.cost(fast, engine).busy.ns == pytest.approx(cost.busy.ns / 2)


@pytest.mark.parametrize("name", RECORDS)
def test_costs_hold_no_numbers(name):
    tree = ast.parse(textwrap.dedent(inspect.getsource(REGISTRY[name].cost)))
    compared = {id(c) for node in ast.walk(tree) if isinstance(node, ast.Compare) for c in ast.walk(node)}
    constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in compared]
    numbers = {n.value for n in constants if isinstance(n.value, (int, float))}
    assert numbers <= {0, 1}, "a number in a cost belongs into the target"


@pytest.mark.parametrize("name", RECORDS)
def test_flops_are_those_of_a_product(name):
    inst = build(REGISTRY[name], next(e for e in REGISTRY[name].EXAMPLES if e.rule is None))
    assert inst.flops() == (2 * 128 * 128 * 512 if name == "nc_matmul" else 0)


@pytest.mark.parametrize("name", RECORDS)
def test_an_operand_in_the_wrong_memory_is_an_error(name):
    cls = REGISTRY[name]
    example = next(e for e in cls.EXAMPLES if e.rule is None)
    inst = build(cls, example)
    target = having(name, example)[-1]
    for role in ("dst", "src"):
        for spec, ap in inst.operands(role):
            for space in {*type(ap.space)} - set(spec.spaces):
                moved = AccessPattern(_moved(ap, space), 0, ap.pattern, ap.dtype)
                value = getattr(inst, spec.name)
                other = moved if value is ap else tuple(moved if v is ap else v for v in value)
                with pytest.raises(RanvierError) as failure:
                    verify(_with(inst, spec, other), target)
                assert failure.value.rule == "ISA-1"
                assert spec.name in failure.value.message


def _moved(ap: AccessPattern, space):
    return type(ap.buffer)("moved", space, ap.buffer.shape, ap.buffer.dtype)


def _with(inst: Instruction, spec: OperandSpec, value) -> Instruction:
    fields = {s.name: getattr(inst, s.name) for s in inst.SPECS if s.role != "state"}
    return type(inst)(**(fields | {spec.name: value}))


def test_an_incomplete_record_is_refused():
    with pytest.raises(RanvierError, match="lacks semantics, cost") as failure:

        @instruction(engines=(Engine.VECTOR,), source="none", cost_source="none")
        class Nothing(Instruction):
            """Does nothing."""

    assert failure.value.code == "E0902"
    assert "nothing" not in REGISTRY


def test_every_module_of_records_is_imported():
    modules = {module.name for module in pkgutil.iter_modules(isa.__path__)}
    with_records = {cls.__module__.rpartition(".")[2] for cls in REGISTRY.values()}
    instructions = {name for name in modules if "@instruction(" in (Path(isa.__path__[0]) / f"{name}.py").read_text()}
    assert instructions - {"record"} == with_records == set(isa.__all__) - {"REGISTRY"}
