"""From an imported model to an executable: the compile cache, then the compiler."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

import ranvier
from ranvier import config
from ranvier import target as targets
from ranvier.compiler.pipeline import compile_graph, graph_passes
from ranvier.dtypes import COMPUTE_DTYPES
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Graph
from ranvier.runtime.cache import CompileCache, graph_key
from ranvier.runtime.calling import ArrayCalling, Calling, describe_graph
from ranvier.runtime.dump import Dump
from ranvier.runtime.executable import Executable, FixedParams, LiveParams, executable_of
from ranvier.target import Target

Progress = Callable[[str, float], None]
"""``progress(stage, seconds)`` is called after each stage of a compilation."""


class ImportedModel(Protocol):
    """What a front end makes of a model."""

    @property
    def graph(self) -> Graph: ...

    def param_arrays(self) -> Mapping[str, np.ndarray]:
        """The model's parameters by key, sharing its memory."""
        ...

    def calling(self) -> Calling:
        """How the model is called."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedGraph:
    """A bare graph with its parameters as an imported model: called with arrays, by position or by name."""

    graph: Graph
    params: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def param_arrays(self) -> Mapping[str, np.ndarray]:
        return self.params

    def calling(self) -> Calling:
        return ArrayCalling(describe_graph(self.graph))


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a compilation is asked for. Made by `options`, which fills in the settings."""

    target: Target
    dtype: str
    cache: CompileCache | None
    dump: str | os.PathLike[str] | None
    progress: Progress | None


def options(target: str | Target | None = None, dtype: str | None = None, cache: bool = True,
            dump: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Options:
    """The options of a compilation, from the settings where None. Raises E0801 and E0802 for unknown names."""
    dtype = dtype or config.get("dtype")
    if dtype not in COMPUTE_DTYPES:
        raise error("E0802", f"dtype is {dtype!r}; models are computed in {' or '.join(COMPUTE_DTYPES)}")
    dump = dump or config.get("dump") or None
    # Snapshots show the passes at work, so with them the compiler runs.
    used = CompileCache.configured() if cache and dump is None else None
    return Options(targets.get(target or config.get("target")), dtype, used, dump, progress)


def compile_imported(imported: ImportedModel, *, target: str | Target | None = None, dtype: str | None = None,
                     cache: bool = True, dump: str | os.PathLike[str] | None = None,
                     progress: Progress | None = None) -> Executable:
    """The executable of an imported model; arguments as for `ranvier.compile`."""
    executable, _ = compile_with(imported, options(target, dtype, cache, dump, progress))
    return executable


def compile_with(imported: ImportedModel, chosen: Options,
                 live: LiveParams | None = None) -> tuple[Executable, str | None]:
    """The executable of an imported model, and its key in the cache (None if it is not there).

    `live` gives the parameters where they may change; by default they are what they are now.
    """
    calling, params = imported.calling(), live or FixedParams(imported.param_arrays())
    if chosen.cache is None:
        return _compile(imported.graph, calling, params, chosen), None
    key = graph_key(imported.graph, chosen.target, chosen.dtype)
    found = chosen.cache.find(key)
    if found is not None:
        return executable_of(found, calling=calling, live=params), key
    made = _compile(imported.graph, calling, params, chosen)
    try:
        chosen.cache.store(key, made.to_artifact(weights=False))
    except RanvierError as refused:
        if refused.code != "E0704":
            raise
        return made, None  # called in a way that only its framework can describe: such programs are not kept
    return made, key


def _compile(graph: Graph, calling: Calling, live: LiveParams, chosen: Options) -> Executable:
    stages: list[tuple[str, float]] = []
    dump = None if chosen.dump is None else Dump(chosen.dump)
    last = time.perf_counter()

    def observe(name: str, made: object) -> None:
        nonlocal last
        seconds = time.perf_counter() - last
        stages.append((name, seconds))
        if dump is not None:
            dump(name, made)
        if chosen.progress is not None:
            chosen.progress(name, seconds)
        last = time.perf_counter()

    compiled = compile_graph(graph, target=chosen.target, dtype=chosen.dtype, observe=observe)
    return Executable(
        program=compiled.program, target=chosen.target, graph=graph, device_graph=compiled.device_graph,
        prologue=compiled.prologue, calling=calling, live=live, manifest=_manifest(graph, chosen),
        stages=tuple(stages), lowered=compiled.kernel,
    )


def _manifest(graph: Graph, chosen: Options) -> dict[str, Any]:
    """Where a program comes from. No times and no paths: equal programs have equal files."""
    return {
        "ranvier": ranvier.__version__, "model": graph.name, "graph": graph.digest(), "target": chosen.target.name,
        "target_digest": chosen.target.digest(), "dtype": chosen.dtype,
        "graph_passes": [name for name, _ in graph_passes(chosen.dtype)],
    }
