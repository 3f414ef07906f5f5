"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ranvier.errors import CODES
from ranvier.isa import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"


def _gen():
    spec = importlib.util.spec_from_file_location("docs_gen", DOCS / "gen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GEN = _gen()


@pytest.mark.parametrize("name", sorted(GEN.PAGES))
def test_pages_are_up_to_date(name):
    text = (DOCS / "reference" / name).read_text()
    assert text == GEN.PAGES[name](), "run `python docs/gen.py` and commit what it writes"


def test_pages_cover_everything():
    isa, errors = GEN.PAGES["isa.md"](), GEN.PAGES["errors.md"]()
    for name, cls in REGISTRY.items():
        assert f"\n## {name}\n" in isa
        for rule in cls.RULES:
            assert f"| {rule} |" in isa
    for code in CODES:
        assert f"\n### {code}: " in errors


def test_tables_have_one_cell_for_each_column():
    for page in GEN.PAGES.values():
        width = 0
        for line in page().splitlines():
            cells = line.replace("\\|", "").count("|")
            assert not line.startswith("|") or not width or cells == width
            width = cells if line.startswith("|") else 0


def test_check_names_stale_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(GEN, "REFERENCE", tmp_path / "reference")
    assert GEN.main([]) == 0
    assert GEN.main(["--check"]) == 0
    (tmp_path / "reference" / "isa.md").write_text("old")
    capsys.readouterr()
    assert GEN.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: isa.md\n"
