"""Targets are data: complete, copyable, hashable, and honest about what is not known."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier.errors import RanvierError
from ranvier.kernels import sizes
from ranvier.target import Confidence, Engine, Fact, Target, from_json, get, names
from ranvier.target.fact import carry_over, documented
from ranvier.target.features import FEATURES

UNITS = {"1", "GHz", "bytes", "bytes/ns", "ns", "cycles", "cycles/element", "cycles/column"}
PATHS = [(name, path) for name in names() for path, _ in get(name).facts()]


def code_of(call, *args):
    with pytest.raises(RanvierError) as caught:
        call(*args)
    return caught.value.code


@pytest.mark.parametrize("name", names())
def test_every_number_is_a_fact_with_unit_and_source(name):
    def check(record, path):
        for field in dataclasses.fields(record):
            value, here = getattr(record, field.name), f"{path}.{field.name}"
            if isinstance(value, Fact):
                assert value.unit in UNITS, here
                assert value.source and isinstance(value.confidence, Confidence), here
                assert value.value >= 0, here
                for suffix, unit in (("_ns", "ns"), ("_cycles", "cycles"), ("_bytes", "bytes"), ("_ghz", "GHz")):
                    if field.name.endswith(suffix) and not field.name.endswith("_per_ns"):
                        assert value.unit == unit, here
            elif value is not None:
                check(value, here)

    target = get(name)
    parts = {field.name: getattr(target, field.name) for field in dataclasses.fields(target)}
    records = {part: value for part, value in parts.items() if dataclasses.is_dataclass(value)}
    assert len(records) == 12
    for part, record in records.items():
        check(record, part)


def test_assumptions_are_estimated_and_nothing_else_is():
    for name in names():
        for path, fact in get(name).facts():
            if fact.source.startswith("assumption"):
                assert fact.confidence is Confidence.ESTIMATED, (name, path)
            if fact.confidence is Confidence.MEASURED:
                origins = ("profil", "trace", "probe", "performance guide")
                assert any(origin in fact.source for origin in origins), (name, path)


def test_measurements_belong_to_their_generation():
    for path, fact in get("trn3").facts():
        assert fact.confidence is not Confidence.MEASURED, path
    for path, fact in get("trn1").facts():
        if fact.confidence is not Confidence.ESTIMATED:
            assert "v3" not in fact.source, path


def test_names_and_aliases():
    assert names() == ("trn1", "inf2", "trn2", "trn3")
    assert get("gen3") is get("trainium2") is get("TRN2") is get(get("trn2"))
    assert [get(name).core_version for name in names()] == [2, 2, 3, 4]
    with pytest.raises(RanvierError, match="near: trn2") as caught:
        get("trn22")
    assert caught.value.code == "E0801"


def test_memories():
    sizes = {name: (get(name).sbuf.bytes >> 20, get(name).psum.bytes >> 20) for name in names()}
    assert sizes == {"trn1": (24, 2), "inf2": (24, 2), "trn2": (28, 2), "trn3": (32, 2)}
    for name in names():
        target = get(name)
        assert target.sbuf.usable_bytes_per_partition == target.sbuf.bytes_per_partition.value - 16384
        assert target.hbm.bytes.value * target.chip.cores.value == target.chip.hbm_bytes.value
        assert target.hbm.bytes_per_ns.value * target.chip.cores.value == target.chip.hbm_bytes_per_ns.value
        assert target.dma.engines.value * target.chip.cores.value == target.chip.dma_engines.value


def test_features_are_listed_and_used():
    used = set().union(*(get(name).features for name in names()))
    assert used == set(FEATURES)
    assert get("trn2").has("hwdge") and not get("trn1").has("hwdge")
    assert code_of(get("trn2").has, "hwdgee") == "E0805"


def test_features_agree_with_optional_records():
    for name in names():
        target = get(name)
        assert target.has("hwdge") == (target.dma.hwdge is not None) == ("hwdge" in target.dma.modes)
        assert target.has("mx") == (target.tensor.mx is not None)
        assert target.has("mx") == (target.vector.quantize_mx_cycles_per_element is not None)
        assert target.has("fp8_double_row") == (target.tensor.double_row is not None)
        assert target.has("exponential") == (target.vector.exponential_cycles_per_element is not None)
        assert target.has("dma_priority") == (target.dma.priorities.value > 1)
        assert target.has("logical_cores") == (target.chip.cores_per_logical_core.value > 1)


@settings(max_examples=60, deadline=None)
@given(which=st.sampled_from(PATHS), factor=st.sampled_from([2, 3, 8]))
def test_replace_changes_one_fact(which, factor):
    name, path = which
    target = get(name)
    before = dict(target.facts())
    old = before[path]
    value = old.value * factor + (old.value == 0)
    after_target = target.replace(path, value)
    after = dict(after_target.facts())
    assert after.keys() == before.keys()
    assert {p for p in after if after[p] != before[p]} == {path}
    assert (after[path].value, after[path].unit, after[path].source) == (value, old.unit, "user")
    assert after[path].confidence is Confidence.ESTIMATED
    assert after_target.digest() != target.digest()
    assert after_target.replace(path, old.value).digest() == target.digest()


@pytest.mark.parametrize(("path", "value", "code"), [
    ("dma.byte_per_ns", 30, "E0805"), ("dma", 30, "E0805"), ("name", 30, "E0805"),
    ("dma.bytes_per_ns", -1, "E0802"), ("dma.bytes_per_ns", 0, "E0802"), ("dma.bytes_per_ns", float("nan"), "E0802"),
    ("dma.bytes_per_ns", "fast", "E0802"), ("dma.engines", 1.5, "E0802"), ("dma.engines", True, "E0802"),
])
def test_replace_refuses(path, value, code):
    assert code_of(get("trn2").replace, path, value) == code


def test_digest_ignores_sources_only():
    target = get("trn2")
    renamed = dataclasses.replace(target, psum=dataclasses.replace(
        target.psum, banks=dataclasses.replace(target.psum.banks, source="somewhere else")))
    assert renamed != target and renamed.digest() == target.digest()
    assert dataclasses.replace(target, features=frozenset()).digest() != target.digest()
    assert len({get(name).digest() for name in names()}) == len(names())


def test_json_holds_every_fact():
    for name in names():
        target = get(name)
        loaded = json.loads(json.dumps(target.to_json()))
        for path, fact in target.facts():
            node = loaded
            for part in path.split("."):
                node = node[part]
            assert node == {"value": fact.value, "unit": fact.unit, "source": fact.source,
                            "confidence": fact.confidence.value}
        assert loaded["features"] == sorted(target.features)


@pytest.mark.parametrize("name", names())
def test_json_round_trip(name):
    target = get(name).replace("dma.bytes_per_ns", 30.0)
    again = from_json(json.loads(json.dumps(target.to_json())))
    assert again == target and again.digest() == target.digest()


def damage_missing(content):
    del content["dma"]["engines"]


def damage_unknown(content):
    content["psum"]["colour"] = content["psum"]["banks"]


def damage_confidence(content):
    content["tensor"]["bf16"]["passes"]["confidence"] = "certain"


def damage_record(content):
    content["tensor"]["bf16"] = 3


def damage_name(content):
    content["name"] = 7


def damage_feature(content):
    content["features"].append("teleport")


@pytest.mark.parametrize("damage", [
    damage_missing, damage_unknown, damage_confidence, damage_record, damage_name, damage_feature,
])
def test_damaged_json_is_refused(damage):
    content = json.loads(json.dumps(get("trn2").to_json()))
    damage(content)
    assert code_of(from_json, content) == "E0805"


def test_clocks_and_modes():
    target = get("trn2")
    clocks = {engine.name: target.clock_ghz(engine) for engine in Engine if engine not in (Engine.DMA, Engine.UNKNOWN)}
    assert clocks == {"TENSOR": 2.4, "SCALAR": 1.2, "GPSIMD": 1.2, "VECTOR": 0.96, "SYNC": 1.2}
    assert code_of(target.clock_ghz, Engine.DMA) == "E0805"
    assert target.dma.mode("hwdge") is target.dma.hwdge
    assert code_of(get("trn1").dma.mode, "hwdge") == "E0307"
    assert code_of(target.dma.mode, "engines") == "E0307"
    assert code_of(target.tensor.rate, "int8") == "E0305"
    assert target.peak_flops("float16") == target.peak_flops("bfloat16") == 4 * target.peak_flops("float32")


def test_targets_are_keys():
    assert len({get("trn2"), get("trn2").replace("dma.bytes_per_ns", 30.0), get("trn1")}) == 3


def test_carry_over_refuses_unknown_fields():
    def carry():
        return carry_over(get("trn2").psum, "assumption", bank=documented(1, "1", "x"))

    assert code_of(carry) == "E0805"


def test_unknown_features_are_refused():
    assert code_of(lambda: dataclasses.replace(get("trn2"), features=frozenset({"teleport"}))) == "E0805"
    assert isinstance(get("trn2"), Target)


def test_sizes_that_kernels_are_written_for_hold_on_all_targets():
    for target in map(get, names()):
        assert sizes.PARTITIONS == target.sbuf.partitions.value == target.psum.partitions.value
        assert target.tensor.stationary_fmax.value == sizes.STATIONARY_COLUMNS
        assert target.tensor.moving_fmax.value == sizes.MOVING_COLUMNS
        assert target.psum.bank_bytes.value // 4 == sizes.BANK_COLUMNS
        assert target.limits.bn_stats_fmax.value == sizes.STATISTICS_COLUMNS
