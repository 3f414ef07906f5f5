"""The compile cache: hits, what is part of the key, damage, size."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import small_program

from ranvier import config, target
from ranvier.errors import RanvierError
from ranvier.runtime import cache as caching
from ranvier.runtime.cache import CompileCache, graph_key

TRN2 = target.get("trn2")


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "cache", 1 << 30)


@pytest.fixture(scope="module")
def artifact():
    return small_program.executable().to_artifact(weights=False)


def test_stored_programs_are_found_by_key_and_by_fingerprint(cache, artifact):
    assert cache.find("k") is None
    assert cache.find_fingerprint("model", TRN2, "float32") is None
    cache.store("k", artifact)
    cache.link("model", TRN2, "float32", "k")
    for found in (cache.find("k"), cache.find_fingerprint("model", TRN2, "float32")):
        assert found.program == artifact.program
    assert cache.find_fingerprint("model", TRN2, "bfloat16") is None
    assert cache.find_fingerprint("other", TRN2, "float32") is None
    assert cache.find_fingerprint("model", target.get("trn1"), "float32") is None
    (entry,) = cache.entries()
    assert (entry.key, entry.hits) == ("k", 2)
    assert entry.size_bytes > 1000


def test_key_covers_graph_target_dtype_and_compiler(monkeypatch):
    whole, device, _ = small_program.graphs()
    key = graph_key(whole, TRN2, "bfloat16")
    assert key == graph_key(whole, TRN2, "bfloat16")
    faster = TRN2.replace("hbm.bytes_per_ns", 2 * TRN2.hbm.bytes_per_ns.value)
    others = [graph_key(device, TRN2, "bfloat16"), graph_key(whole, TRN2, "float32")]
    others.append(graph_key(whole, faster, "bfloat16"))
    monkeypatch.setattr(caching, "source_digest", lambda: "other compiler")
    others.append(graph_key(whole, TRN2, "bfloat16"))
    assert len({key, *others}) == 5


@pytest.mark.parametrize("damage", [
    lambda content: content[:-10], lambda content: b"", lambda content: content[:200] + b"?" + content[201:],
    lambda content: b"not an artifact",
])
def test_damaged_entries_are_removed_and_can_be_stored_again(cache, artifact, damage):
    cache.store("k", artifact)
    path = cache.folder / "entries" / "k.rvx"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache.find("k") is None
    assert not path.exists()
    cache.store("k", artifact)
    assert path.read_bytes() == whole
    assert cache.find("k") is not None


def test_damaged_index_is_built_from_the_entries(cache, artifact):
    cache.store("k", artifact)
    cache.link("model", TRN2, "float32", "k")
    (cache.folder / "index.sqlite").write_bytes(b"this is no database, whatever its name says" * 40)
    assert [e.key for e in cache.entries()] == ["k"]
    assert cache.find("k") is not None
    assert cache.find_fingerprint("model", TRN2, "float32") is None
    with sqlite3.connect(cache.folder / "index.sqlite") as index:
        assert index.execute("select count(*) from entries").fetchone() == (1,)


def test_entries_used_longest_ago_leave_first(tmp_path, artifact, monkeypatch):
    CompileCache(tmp_path, 1 << 30).store("size", artifact)
    size = (tmp_path / "entries" / "size.rvx").stat().st_size
    cache = CompileCache(tmp_path / "small", 3 * size)
    clock = iter(range(1, 100))
    monkeypatch.setattr(caching.time, "time", lambda: next(clock))
    for key in ("a", "b", "c"):
        cache.store(key, artifact)
    assert cache.find("a") is not None
    cache.store("d", artifact)
    assert [e.key for e in cache.entries()] == ["d", "a", "c"]
    assert cache.find("b") is None


def test_the_newest_entry_stays_even_if_it_is_larger_than_the_limit(tmp_path, artifact):
    cache = CompileCache(tmp_path, 1)
    for key in ("a", "b"):
        cache.store(key, artifact)
        assert [e.key for e in cache.entries()] == [key] and cache.find(key) is not None


COMPETING = """
import sys
import small_program
from ranvier.runtime.cache import CompileCache

cache, artifact = CompileCache(sys.argv[1], 1), small_program.executable().to_artifact(weights=False)
for i in range(60):
    key = f"k{i % 5}"
    if cache.find(key) is None:
        cache.store(key, artifact)
"""


def test_processes_share_a_cache_that_is_too_small(tmp_path):
    """Each removes what the others are just storing or reading."""
    path = str(Path(__file__).parent)
    runs = [subprocess.Popen([sys.executable, "-c", COMPETING, str(tmp_path)], env={**os.environ, "PYTHONPATH": path},
                             stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [run.communicate(timeout=120)[1] for run in runs] == [""] * 3


def test_index_that_cannot_be_written(cache, artifact, monkeypatch):
    cache.store("k", artifact)
    monkeypatch.setattr(caching, "_WAIT_S", 0.05)
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as writer:
        writer.execute("begin immediate")
        with pytest.raises(RanvierError, match="cannot be used: database is locked") as caught:
            cache.find("k")
    assert caught.value.code == "E0804" and "RANVIER_CACHE=0" in caught.value.fix
    assert cache.find("k") is not None


def test_entry_that_cannot_be_removed(cache, artifact):
    cache.store("k", artifact)
    (cache.folder / "entries" / "k.rvx").unlink()
    (cache.folder / "entries" / "k.rvx").mkdir()
    with pytest.raises(RanvierError, match="cannot be removed") as caught:
        cache.find("k")
    assert caught.value.code == "E0804"


def test_settings_turn_the_cache_off_and_place_it(tmp_path):
    with config.override(cache=False):
        assert CompileCache.configured() is None
    with config.override(cache=True, cache_dir=str(tmp_path / "here"), cache_limit_bytes=5):
        assert CompileCache.configured().folder == tmp_path / "here"
        assert CompileCache.configured().limit_bytes == 5


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RanvierError) as caught:
        CompileCache(tmp_path / "file", 1)
    assert caught.value.code == "E0804"
    assert "RANVIER_CACHE_DIR" in str(caught.value)
