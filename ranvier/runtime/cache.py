"""The compile cache: programs by what they were compiled from, without weights.

An entry is an artifact whose name is a hash of the graph, the target's facts, the dtype and ranvier's own source; so
nothing ever needs to be invalidated. An index (sqlite) counts sizes, uses and the fingerprints of models, through which
an entry is found without exporting the model. The index holds nothing that entries do not: if it is damaged it is
built anew. A damaged entry is removed, and the program compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ranvier import config
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Graph
from ranvier.runtime.artifact import FORMAT_VERSION, Artifact, load_artifact
from ranvier.target import Target

_SCHEMA = """
create table if not exists entries (key text primary key, size_bytes integer, hits integer, used real);
create table if not exists fingerprints (fingerprint text primary key, key text);
"""
_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One program in the cache. `used` is the time of its last use, in seconds since 1970."""

    key: str
    size_bytes: int
    hits: int
    used: float


@functools.lru_cache(maxsize=1)
def source_digest() -> str:
    """A hash of ranvier's own source: another compiler makes other programs."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def options_digest(target: Target, dtype: str) -> str:
    """A hash of all that a program depends on besides the model."""
    parts = (str(FORMAT_VERSION), source_digest(), target.digest(), dtype)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def graph_key(graph: Graph, target: Target, dtype: str) -> str:
    """The name of the entry for `graph`: source lines count, since a program refers to them."""
    return hashlib.sha256(f"{options_digest(target, dtype)}\0{graph}".encode()).hexdigest()


class CompileCache:
    """The cache in one folder. Several processes may use it at the same time."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int):
        self.folder, self.limit_bytes = Path(folder), limit_bytes
        try:
            (self.folder / "entries").mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise error("E0804", f"the cache folder {self.folder} cannot be made: {cause.strerror}",
                        fix="name another in RANVIER_CACHE_DIR, or set RANVIER_CACHE=0") from cause

    @classmethod
    def configured(cls) -> CompileCache | None:
        """The cache that the settings name; None if they turn it off."""
        return cls(config.get("cache_dir"), config.get("cache_limit_bytes")) if config.get("cache") else None

    def find(self, key: str) -> Artifact | None:
        """The entry `key`; None if there is none, or if it was damaged and therefore removed."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            artifact = load_artifact(path)
            _ = artifact.program  # a file may be whole and still not hold a program
        except RanvierError as damage:
            if damage.code not in ("E0701", "E0702", "E0703", "E0804"):
                raise
            self.remove(key)
            return None
        size_bytes = _size(path)
        if size_bytes is not None:
            with self._index() as index:
                index.execute(
                    "insert into entries values (?, ?, 1, ?) on conflict (key) do update set hits = hits + 1, used = ?",
                    (key, size_bytes, time.time(), time.time()),
                )
        return artifact

    def find_fingerprint(self, fingerprint: str, target: Target, dtype: str) -> Artifact | None:
        """The entry that was stored for a model of this fingerprint; None if there is none."""
        with self._index() as index:
            row = index.execute("select key from fingerprints where fingerprint = ?",
                                (_combined(fingerprint, target, dtype),)).fetchone()
        return self.find(row[0]) if row else None

    def store(self, key: str, artifact: Artifact) -> None:
        """Keep `artifact` under `key`; then drop entries, those used longest ago first, beyond the size limit."""
        path = self._path(key)
        artifact.save(path)
        size_bytes = _size(path)
        if size_bytes is not None:
            with self._index() as index:
                index.execute("insert or replace into entries values (?, ?, 0, ?)", (key, size_bytes, time.time()))
        self._shrink(keep=key)

    def link(self, fingerprint: str, target: Target, dtype: str, key: str) -> None:
        """Find the entry `key` by the fingerprint of a model from now on."""
        with self._index() as index:
            index.execute("insert or replace into fingerprints values (?, ?)",
                          (_combined(fingerprint, target, dtype), key))

    def remove(self, key: str) -> None:
        """Forget the entry `key`, if there is one."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as cause:
            raise error("E0804", f"the entry {path} of the cache cannot be removed: {cause.strerror}",
                        fix="remove it, or set RANVIER_CACHE=0") from cause
        with self._index() as index:
            index.execute("delete from entries where key = ?", (key,))
            index.execute("delete from fingerprints where key = ?", (key,))

    def entries(self) -> list[Entry]:
        """All entries, the one used last first."""
        with self._index() as index:
            rows = index.execute("select key, size_bytes, hits, used from entries order by used desc, key").fetchall()
        return [Entry(*row) for row in rows if self._path(row[0]).exists()]

    def _shrink(self, keep: str) -> None:
        entries = self.entries()
        total = sum(e.size_bytes for e in entries)
        for entry in reversed(entries):
            if total <= self.limit_bytes:
                return
            if entry.key != keep:
                self.remove(entry.key)
                total -= entry.size_bytes

    def _path(self, key: str) -> Path:
        return self.folder / "entries" / f"{key}.rvx"

    @contextlib.contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """The index inside a transaction; a damaged one is replaced by one of the entries that exist."""
        path = self.folder / "index.sqlite"
        connection = None
        try:
            connection = _connect(path)
        except sqlite3.OperationalError as cause:
            raise _unusable(path, cause) from cause
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            connection = _connect(path)
            files = [(f.stem, _size(f), time.time()) for f in self._path("x").parent.glob("*.rvx")]
            connection.executemany("insert into entries values (?, ?, 0, ?)", [f for f in files if f[1] is not None])
        try:
            with connection:
                yield connection
        except sqlite3.OperationalError as cause:
            raise _unusable(path, cause) from cause
        finally:
            connection.close()


def _unusable(path: Path, cause: sqlite3.OperationalError) -> RanvierError:
    """The index is locked, or cannot be written to."""
    return error("E0804", f"the index of the cache, {path}, cannot be used: {cause}",
                 fix="name another folder in RANVIER_CACHE_DIR, or set RANVIER_CACHE=0 to do without a cache")


def _size(path: Path) -> int | None:
    """Bytes of an entry; None if another process has removed it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _combined(fingerprint: str, target: Target, dtype: str) -> str:
    return hashlib.sha256(f"{options_digest(target, dtype)}\0{fingerprint}".encode()).hexdigest()
