"""Settings: defaults, environment, override, and what they refuse."""

import os

import pytest

from ranvier import config
from ranvier.errors import UserError


def test_defaults_then_environment_then_override(monkeypatch, tmp_path):
    monkeypatch.delenv("RANVIER_CACHE", raising=False)
    assert config.get("cache") is True
    assert config.get("dtype") == "bfloat16"
    monkeypatch.setenv("RANVIER_CACHE", "0")
    monkeypatch.setenv("RANVIER_CACHE_DIR", "~/elsewhere")
    monkeypatch.setenv("RANVIER_CACHE_LIMIT_BYTES", "1000")
    assert config.get("cache") is False
    assert config.get("cache_dir") == os.path.expanduser("~/elsewhere")
    assert config.get("cache_limit_bytes") == 1000
    with config.override(cache=True, cache_dir=str(tmp_path)):
        assert config.get("cache") is True
        with config.override(verify=False):
            assert config.get("cache_dir") == str(tmp_path)
            assert config.get("verify") is False
        assert config.get("verify") is True
    assert config.get("cache") is False


@pytest.mark.parametrize("setting, name, text", [
    ("cache", "RANVIER_CACHE", "maybe"), ("cache_limit_bytes", "RANVIER_CACHE_LIMIT_BYTES", "-3"),
    ("dtype", "RANVIER_DTYPE", "int8"), ("seed", "RANVIER_SEED", "soon"),
])
def test_environment_that_is_not_a_value_is_refused(monkeypatch, setting, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(UserError) as caught:
        config.get(setting)
    assert caught.value.code == "E0802"
    assert name in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"cash": True}, {"cache": "perhaps"}, {"cache_limit_bytes": True}, {"dtype": None}])
def test_override_checks_names_and_types(changes):
    with pytest.raises(UserError) as caught, config.override(**changes):
        pass
    assert caught.value.code == "E0802"
    assert next(iter(changes)) in str(caught.value)
