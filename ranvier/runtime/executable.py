"""A compiled model: called like the model, run on the simulated core, profiled, saved."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ranvier import config
from ranvier.errors import error
from ranvier.graph.core import Graph
from ranvier.ir.kernel import Kernel, ParamSource
from ranvier.ir.program import Program
from ranvier.runtime.artifact import Artifact, load_artifact
from ranvier.runtime.calling import ArrayCalling, Calling, as_array
from ranvier.runtime.state import check_params, from_device, full_state, to_device, weight_array
from ranvier.sim.compare import as_kernel
from ranvier.sim.interpreter import Interpreter
from ranvier.target import Target

if TYPE_CHECKING:
    from ranvier.profile import Profile
    from ranvier.runtime.inspect import Inspection


class LiveParams(Protocol):
    """The parameters of a model that lives in this process and may change."""

    def version(self) -> object:
        """Something that differs from what it was before whenever a parameter has changed since."""
        ...

    def arrays(self) -> Mapping[str, np.ndarray]:
        """The parameters by key, as they are now, sharing the model's memory."""
        ...


@dataclass(frozen=True)
class FixedParams:
    """Parameters that stay what they are."""

    by_key: Mapping[str, np.ndarray]

    def version(self) -> object:
        return None

    def arrays(self) -> Mapping[str, np.ndarray]:
        return self.by_key


class _Bound:
    """The core's own copies of the parameters, for one version of them, and the simulated core that holds them."""

    def __init__(self, version: object, weights: dict[str, np.ndarray], interpreter: Interpreter):
        self.version, self.weights, self.interpreter = version, weights, interpreter


@dataclass(frozen=True, eq=False)
class Executable:
    """A program with all that is needed to call it. Made by `ranvier.compile` and `ranvier.load`.

    `graph` is the model as it was imported, `device_graph` what the core computes, `prologue` what is computed once
    from the parameters. `live` holds the model's parameters by reference: the core's copies are made at the first call,
    and made anew when a parameter of the model has changed. `manifest` says where the program comes from.
    """

    program: Program
    target: Target
    graph: Graph
    device_graph: Graph
    prologue: Graph | None
    calling: Calling
    live: LiveParams
    manifest: Mapping[str, Any]
    stages: tuple[tuple[str, float], ...] = ()
    """Seconds that each stage of the compiler took; empty if the program came from the cache or a file."""
    lowered: Kernel | None = field(default=None, repr=False)
    artifact: Artifact | None = field(default=None, repr=False)
    """The file this was loaded from."""

    def __repr__(self) -> str:
        count = sum(len(stream.slots) for stream in self.program.streams)
        return f"<Executable {self.program.name} for {self.target.name} in {self.dtype}: {count} instructions>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns for these arguments, computed on the simulated core.

        A compiled model takes and gives what the model does; a loaded one takes and gives numpy arrays. Raises E0603
        for arguments of other structure, shape or dtype than those the program was compiled for.
        """
        return self.calling.unflatten(self.run_arrays(self.calling.flatten(args, kwargs)))

    def run_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of the graph, in order, for its inputs, in order. Raises E0603 for what does not fit."""
        given = to_device(self.program, self.graph.input_types, arrays)
        bound = self._bound()
        outputs = bound.interpreter.run(given, bound.weights)
        return from_device(self.program, self.graph.output_types, outputs)

    @property
    def dtype(self) -> str:
        """The dtype that the model is computed in."""
        return self.manifest["dtype"]

    @cached_property
    def kernel(self) -> Kernel:
        """The instructions in program order, before they were placed and scheduled.

        Of a program from a file or the cache: the scheduled ones in the order they had before, spills included.
        """
        return self.lowered if self.lowered is not None else as_kernel(self.program)

    @property
    def params(self) -> Mapping[str, np.ndarray]:
        """The model's parameters by key, as they are now; none for a program from a file."""
        return self.live.arrays()

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The arrays of the program's parameter buffers, in the form the core takes, by buffer name."""
        return self._bound().weights

    def _bound(self) -> _Bound:
        version = self.live.version()
        bound = self._kept.get("bound")
        if bound is None or bound.version != version:
            plain = tuple((name, ParamSource(name)) for name, _ in self.program.params)
            core = Interpreter(dataclasses.replace(self.program, params=plain), self.target, seed=config.get("seed"))
            bound = self._kept["bound"] = _Bound(version, self._make_weights(), core)
        return bound

    @cached_property
    def _kept(self) -> dict[str, _Bound]:
        return {}

    def _make_weights(self) -> dict[str, np.ndarray]:
        if self.artifact is not None:
            self.artifact.check_weights()
            return dict(self.artifact.weights)
        params = self.live.arrays()
        check_params(self.graph, params)
        state = full_state(params, self.prologue)
        made: dict[ParamSource, np.ndarray] = {}
        for _, source in self.program.params:
            if source not in made:
                made[source] = weight_array(source, state)
        return {name: made[source] for name, source in self.program.params}

    def with_params(self, params: Mapping[str, np.ndarray]) -> Executable:
        """The same program with other parameters by key: arrays of numpy, or tensors of the model's framework.

        Raises E0603 for a missing key, and for a wrong shape or dtype.
        """
        if not isinstance(params, Mapping):
            raise error("E0603", f"params is a {type(params).__name__}; it is a dictionary of arrays by key")
        given = {}
        for p in self.graph.params:
            if p.key in params:
                given[p.key] = as_array(params[p.key], f"the parameter {p.key}")
        check_params(self.graph, given)
        return dataclasses.replace(self, live=FixedParams(given), artifact=None)

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Where the time of one run goes, on the target.

        Time does not depend on values, so inputs may be left out; given ones are checked as in a call. Raises E0603.
        """
        from ranvier.profile import profile_program

        if args or kwargs:
            self.calling.flatten(args, kwargs)

        return profile_program(self.program, self.target, flops=self.device_graph.flops(), name=self.program.name)

    def inspect(self) -> Inspection:
        """Provenance, instruction mix, memory map and cost per layer."""
        from ranvier.runtime.inspect import inspect_executable

        return inspect_executable(self)

    def save(self, path: str | os.PathLike[str], *, weights: bool = True) -> None:
        """Write the program to one file that `ranvier.load` reads, by default with its weights.

        Raises E0704 if inputs or outputs cannot be described, E0804 if the file cannot be written.
        """
        self.to_artifact(weights=weights).save(path)

    def to_artifact(self, *, weights: bool) -> Artifact:
        """The artifact that `save` writes."""
        return Artifact.of(
            program=self.program, target=self.target, graph=self.graph, device_graph=self.device_graph,
            prologue=self.prologue, manifest={**self.manifest, "has_weights": weights}, call=self.calling.describe(),
            weights=self.weights if weights else None,
        )


def load(path: str | os.PathLike[str]) -> Executable:
    """The executable that `Executable.save` wrote to `path`. It takes and gives numpy arrays, and needs no framework.

    Weights are mapped from the file and checked at the first call. Raises E0701 to E0703 for files that are not whole
    artifacts of a known version, E0804 if the file cannot be opened. A file without weights gives an executable that
    `with_params` completes.
    """
    artifact = load_artifact(path)
    return executable_of(artifact, calling=ArrayCalling(artifact.call), live=FixedParams({}),
                         file=artifact if artifact.manifest["has_weights"] else None)


def executable_of(artifact: Artifact, *, calling: Calling, live: LiveParams,
                  file: Artifact | None = None) -> Executable:
    """The executable of a saved program, called by `calling`."""
    return Executable(artifact.program, artifact.target, artifact.graph, artifact.device_graph, artifact.prologue,
                      calling, live, artifact.manifest, artifact=file)
