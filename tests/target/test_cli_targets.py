"""`ranvier targets` shows every fact, and its JSON is the target's own."""

import json

import pytest
import typer
from typer.testing import CliRunner

from ranvier.cli.targets import targets
from ranvier.errors import RanvierError
from ranvier.target import get, names
from ranvier.target.features import FEATURES


def run(*arguments):
    app = typer.Typer()
    app.command()(targets)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "240"})
    if isinstance(result.exception, RanvierError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_list_names_every_target():
    output = run()
    for name in names():
        assert f" {name} " in output
    assert "78.6" in output and "157.3" in output and "28 MiB" in output


def test_one_target_shows_every_fact_and_feature():
    output = run("gen3")
    rows = {line.split()[1]: line for line in output.splitlines() if line.startswith("│")}
    for path, fact in get("trn2").facts():
        assert fact.confidence.value in rows[path], path
    assert "27.2" in rows["dma.bytes_per_ns"] and "bytes/ns" in rows["dma.bytes_per_ns"]
    assert set(FEATURES) <= set(rows)
    assert " yes " in rows["hwdge"] and " yes " not in rows["mx"]


def test_json():
    assert json.loads(run("trn2", "--json")) == get("trn2").to_json()
    assert set(json.loads(run("--json"))) == set(names())


def test_unknown_target():
    with pytest.raises(RanvierError) as caught:
        run("trn7")
    assert caught.value.code == "E0801"
