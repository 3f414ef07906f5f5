"""Settings: defaults, environment, override, and what they refuse."""

from pathlib import Path

import pytest

from ranvier import config
from ranvier.errors import UserError


def test_defaults_then_environment_then_override(monkeypatch, tmp_path):
    monkeypatch.delenv("RANVIER_CACHE", raising=False)
    monkeypatch.delenv("RANVIER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.current().cache is True
    assert config.current().cache_dir == tmp_path / "ranvier"
    monkeypatch.setenv("RANVIER_CACHE", "0")
    monkeypatch.setenv("RANVIER_CACHE_DIR", "~/elsewhere")
    assert config.current().cache is False
    assert config.current().cache_dir == Path.home() / "elsewhere"
    with config.override(cache=True, cache_dir=str(tmp_path)) as inside:
        assert inside.cache is True
        with config.override(verify=False):
            assert config.current().cache_dir == tmp_path
            assert config.current().verify is False
        assert config.current().verify is True
    assert config.current().cache is False


@pytest.mark.parametrize("name, text", [("RANVIER_CACHE", "maybe"), ("RANVIER_CACHE_LIMIT_BYTES", "-3"),
                                        ("RANVIER_TARGET", "")])
def test_environment_that_is_not_a_value_is_refused(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(UserError) as caught:
        config.current()
    assert caught.value.code == "E0802"
    assert name in str(caught.value)


@pytest.mark.parametrize("changes", [{"cash": True}, {"cache": "yes"}, {"cache_limit_bytes": True}, {"dtype": None}])
def test_override_checks_names_and_types(changes):
    with pytest.raises(UserError) as caught, config.override(**changes):
        pass
    assert caught.value.code == "E0802"
    assert next(iter(changes)) in str(caught.value)
