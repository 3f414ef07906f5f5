"""Artifacts: round trip, equal bytes, and every way in which a file can be wrong."""

import json
import struct

import numpy as np
import pytest
import small_program
from small_program import inputs

from ranvier.errors import RanvierError
from ranvier.isa import REGISTRY
from ranvier.isa.examples import tiles
from ranvier.runtime import artifact as artifacts
from ranvier.runtime.encode import decode, encode, value_of, value_row
from ranvier.runtime.executable import load


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("artifacts") / "small.rvx"
    small_program.executable().save(path)
    return path


def code_of(path):
    with pytest.raises(RanvierError) as caught:
        load(path)(*inputs())
    return caught.value.code


def test_program_survives_text(saved):
    program = small_program.executable().program
    text = json.dumps(encode(program))
    again = decode(json.loads(text))
    assert again == program
    assert [s.instruction.loc for _, s in again.slots()] == [s.instruction.loc for _, s in program.slots()]


def test_loaded_program_computes_the_same(saved):
    exe = small_program.executable()
    loaded = load(saved)
    assert loaded.program == exe.program
    assert loaded.graph == exe.graph
    assert loaded.device_graph == exe.device_graph
    assert loaded.prologue == exe.prologue
    assert loaded.target.digest() == exe.target.digest()
    for mine, theirs in zip(loaded(*inputs()), exe(*inputs()), strict=True):
        assert np.array_equal(mine, theirs)
    weight = loaded.weights["w"]
    assert isinstance(weight.base, np.memmap) or isinstance(weight, np.memmap)
    assert not weight.flags.writeable


def test_equal_programs_have_equal_bytes(saved, tmp_path):
    for name in ("a.rvx", "b.rvx"):
        small_program.executable().save(tmp_path / name)
    load(saved).save(tmp_path / "c.rvx")
    expected = saved.read_bytes()
    assert [(tmp_path / f"{n}.rvx").read_bytes() == expected for n in "abc"] == [True] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.rvx", "b.rvx", "c.rvx"], "temporary files are left"


def test_without_weights_parameters_are_given_later(tmp_path):
    exe = small_program.executable()
    exe.save(tmp_path / "bare.rvx", weights=False)
    bare = load(tmp_path / "bare.rvx")
    with pytest.raises(RanvierError) as caught:
        bare(*inputs())
    assert caught.value.code == "E0603"
    assert np.array_equal(bare.with_params(exe.params)(*inputs())[0], exe(*inputs())[0])


def test_foreign_file_is_no_artifact(tmp_path):
    for content in (b"", b"\x89PNG\r\n\x1a\n" + bytes(100), b"PK\x03\x04", artifacts.MAGIC.replace(b"\r\n", b"\n")):
        (tmp_path / "foreign").write_bytes(content)
        assert code_of(tmp_path / "foreign") == "E0701"


def test_newer_format_is_refused(saved, tmp_path):
    content = bytearray(saved.read_bytes())
    content[8:12] = struct.pack("<I", artifacts.FORMAT_VERSION + 1)
    (tmp_path / "newer.rvx").write_bytes(content)
    assert code_of(tmp_path / "newer.rvx") == "E0702"


def test_every_truncation_is_noticed(saved, tmp_path):
    content = saved.read_bytes()
    cut = tmp_path / "cut.rvx"
    for length in [8, 10, 20, 100, *range(2000, len(content), 1777), len(content) - 1]:
        cut.write_bytes(content[:length])
        assert code_of(cut) == "E0703", f"cut to {length} bytes"


def test_every_flipped_bit_is_noticed_or_harmless(saved, tmp_path):
    content = saved.read_bytes()
    artifact = artifacts.load_artifact(saved)
    flipped_path = tmp_path / "flipped.rvx"
    (weight,) = artifact.stored
    rng = np.random.default_rng(0)
    places = [12, 30, weight.offset, weight.offset + weight.size_bytes - 1,
              *rng.integers(20, len(content), 40).tolist()]
    noticed = 0
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        flipped_path.write_bytes(flipped)
        if _is_padding(content, place):
            continue
        assert code_of(flipped_path) in ("E0703", "E0702"), f"bit flipped at {place}"
        noticed += 1
    assert noticed >= 20


def _is_padding(content, place):
    table_length = struct.unpack_from("<I", content, 12)[0]
    if place < 20 + table_length:
        return False
    table = json.loads(content[20 : 20 + table_length])
    inside = [(o, o + n) for _, o, n, _ in table["sections"]] + [(table["weights"][0], sum(table["weights"]))]
    return not any(low <= place < high for low, high in inside)


def test_inconsistent_program_is_damage_and_not_a_crash(saved):
    good = encode(small_program.executable().program)
    for change in (
        lambda c: c.pop("streams"), lambda c: c["patterns"].clear(), lambda c: c["buffers"][0].__setitem__(1, "disk"),
        lambda c: c["instructions"][0].__setitem__(0, "no_such"), lambda c: c["streams"][0][1][0].pop(),
        lambda c: c["constants"][0].__setitem__(3, "%%%"), lambda c: c["values"].__setitem__(0, ["pickle", "x"]),
    ):
        content = json.loads(json.dumps(good))
        change(content)
        with pytest.raises(RanvierError) as caught:
            decode(content)
        assert caught.value.code == "E0703"


def test_missing_file_and_unwritable_folder(tmp_path):
    assert code_of(tmp_path / "none.rvx") == "E0804"
    with pytest.raises(RanvierError) as caught:
        small_program.executable().save(tmp_path / "no" / "such" / "folder.rvx")
    assert caught.value.code == "E0804"


def test_attributes_of_every_example_survive_text():
    """Whatever any record's examples use as an attribute has a text form."""
    count = 0
    for record in REGISTRY.values():
        for example in record.EXAMPLES:
            if example.rule is not None:
                continue
            inst = record(**example.make(tiles()))
            for spec in record.SPECS:
                value = getattr(inst, spec.name)
                if spec.role == "attr":
                    again = value_of(json.loads(json.dumps(value_row(value))))
                    assert again == value or again is value
                    count += 1
    assert count > 20


def test_attribute_without_text_form_is_refused():
    with pytest.raises(RanvierError) as caught:
        value_row(object())
    assert caught.value.code == "E0901"
