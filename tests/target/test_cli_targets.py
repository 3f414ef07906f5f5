"""`ranvier targets` shows every fact, and its JSON is the target's own."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from ranvier.cli.targets import targets
from ranvier.errors import RanvierError
from ranvier.target import get, names
from ranvier.target.features import FEATURES


def run(*arguments, columns=240):
    app = typer.Typer()
    app.command()(targets)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)})
    if isinstance(result.exception, RanvierError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("columns", [80, 240])
def test_list_names_every_target(columns):
    rows = {line[:18].strip(): line[18:].split() for line in run(columns=columns).splitlines()}
    assert rows[""] == list(names())
    assert rows["bf16 TFLOP/s"][2] == "78.6" and rows["fp8 TFLOP/s"][2] == "157.3"
    assert rows["SBUF of a core"][4:6] == ["28", "MiB"]
    assert rows["generation"] == [get(name).generation for name in names()]


@pytest.mark.parametrize("columns", [80, 240])
def test_one_target_shows_every_fact_and_feature(columns):
    output = run("gen3", columns=columns)
    assert "…" not in output
    rows = {line.split()[0]: line for line in output.splitlines() if line.strip()}
    sources = dict(re.findall(r"^ *(\d+)  (\S.*)$", output, re.MULTILINE))
    for path, fact in get("trn2").facts():
        assert fact.confidence.value in rows[path], path
        assert fact.source.startswith(sources[rows[path].split()[-1]].strip()), path
    assert "27.2 bytes/ns" in re.sub(" +", " ", rows["dma.bytes_per_ns"])
    assert set(FEATURES) <= set(rows)
    assert " yes " in rows["hwdge"] and " yes " not in rows["mx"]


def test_json():
    assert json.loads(run("trn2", "--json")) == get("trn2").to_json()
    assert set(json.loads(run("--json"))) == set(names())


def test_unknown_target():
    with pytest.raises(RanvierError) as caught:
        run("trn7")
    assert caught.value.code == "E0801"
