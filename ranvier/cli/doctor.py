"""`ranvier doctor`: is this installation whole?"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement

from ranvier import __version__, config
from ranvier.cli.output import print_json, size
from ranvier.errors import RanvierError

_LOW_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `state` is "ok", "missing" (optional, with `note` saying what for) or "broken"."""

    what: str
    state: str
    note: str


def doctor(json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Check versions, packages, settings, cache and a program; exit code 1 if something is broken."""
    findings = [*_python(), *_packages(), *_settings(), *_cache(), *_program()]
    if json:
        print_json([dataclasses.asdict(f) for f in findings])
    else:
        for f in findings:
            typer.echo(f"{f.state:8} {f.what}: {f.note}" if f.note else f"{f.state:8} {f.what}")
    if any(f.state == "broken" for f in findings):
        raise typer.Exit(1)


def _python() -> Iterator[Finding]:
    right = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield Finding(f"ranvier {__version__}", "ok", str(Path(__file__).parents[1]))
    note = platform.platform() if right else "ranvier needs Python 3.11 to 3.13"
    yield Finding(f"Python {platform.python_version()}", "ok" if right else "broken", note)


def _packages() -> Iterator[Finding]:
    """Each requirement of the package: of the core, and of the extras."""
    seen: set[str] = set()
    for text in importlib.metadata.requires("ranvier") or ():
        requirement = Requirement(text)
        extra = next((e for e in ("torch", "demo", "jax", "tensorflow", "onnx", "dev")
                      if requirement.marker and requirement.marker.evaluate({"extra": e})), None)
        if extra == "dev" or (requirement.marker and extra is None):
            continue
        if requirement.name in seen:  # several extras need it
            continue
        seen.add(requirement.name)
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            state, note = ("missing", f"for ranvier[{extra}]") if extra else ("broken", "the core needs it")
            yield Finding(requirement.name, state, f"{note}: pip install {requirement.name}")
            continue
        if requirement.specifier.contains(version, prereleases=True):
            yield Finding(f"{requirement.name} {version}", "ok", "")
        else:
            yield Finding(f"{requirement.name} {version}", "broken", f"ranvier needs {requirement.specifier}")


def _settings() -> Iterator[Finding]:
    for name, setting in config.SETTINGS.items():
        given = os.environ.get(setting.environment)
        try:
            value = config.get(name)
        except RanvierError as failure:
            yield Finding(f"setting {name}", "broken", failure.message)
        else:
            if given is not None:
                yield Finding(f"setting {name}", "ok", f"{value} from {setting.environment}")


def _cache() -> Iterator[Finding]:
    from ranvier.runtime.cache import CompileCache

    try:
        cache = CompileCache.configured()
        if cache is None:
            yield Finding("compile cache", "ok", "turned off")
            return
        entries = cache.entries()
        probe = cache.folder / f".probe{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except (RanvierError, OSError) as failure:
        yield Finding("compile cache", "broken", str(failure).split("\n")[0])
        return
    free = shutil.disk_usage(cache.folder).free
    used = sum(e.size_bytes for e in entries)
    note = f"{len(entries)} programs, {size(used)}, in {cache.folder}; {size(free)} free on the disk"
    yield Finding("compile cache", "ok" if free > _LOW_BYTES else "broken", note)


def _program() -> Iterator[Finding]:
    """A small graph through the whole compiler, on every target."""
    import numpy as np

    from ranvier import target as targets
    from ranvier.dtypes import float32
    from ranvier.graph import GraphBuilder, TensorType
    from ranvier.runtime.compile import ImportedGraph, compile_imported

    b = GraphBuilder("probe")
    x = b.input(TensorType((128, 64), float32), "x")
    y = b.input(TensorType((64, 32), float32), "y")
    graph = b.build([b.matmul(x, y)])
    left = np.arange(128 * 64, dtype=np.float32).reshape(128, 64) % 7
    right = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 5
    for name in targets.names():
        exe = compile_imported(ImportedGraph(graph), target=name, dtype="float32", cache=False)
        right_result = np.array_equal(exe(left, right), left @ right)
        yield Finding(f"a matmul on {name}", "ok" if right_result else "broken",
                      f"{exe.profile().latency_ns / 1e3:.1f} us" if right_result else "gives wrong values")
