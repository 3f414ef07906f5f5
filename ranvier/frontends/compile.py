"""`ranvier.compile`: a model of any supported framework to an executable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranvier.compiler.pipeline import GraphPass
from ranvier.errors import RanvierError, error
from ranvier.graph.core import Graph
from ranvier.nki.jit import JitKernel
from ranvier.runtime.check import CheckReport, check_graph, check_kernel
from ranvier.runtime.compile import ImportedGraph, Options, Progress, compile_with, options
from ranvier.runtime.executable import Executable, executable_of
from ranvier.target import Target

if TYPE_CHECKING:
    from torch import nn

_LATER = {"jax": "JAX", "jaxlib": "JAX", "flax": "JAX", "tensorflow": "TensorFlow", "keras": "TensorFlow",
          "onnx": "ONNX"}


def compile(model: Any, example_inputs: Sequence[Any] = (), example_kwargs: Mapping[str, Any] | None = None, *,
            target: str | Target | None = None, dtype: str | None = None, cache: bool = True,
            dump: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Executable:
    """Compile `model`, called with the example inputs, for one core of `target`.

    `model` is a ``torch.nn.Module``, or a `Graph` of this package, whose inputs have types and need no examples (its
    parameters are given to `Executable.with_params`). Shapes and dtypes of the program are those of the examples.
    `dtype`, "bfloat16" or "float32", is what is computed in; inputs and outputs keep their own. `target` and `dtype`
    default to the settings. With `cache` the compile cache is used and filled. `dump` is a folder for a snapshot after
    each pass; the compiler then runs in any case. ``progress(stage, seconds)`` is called after each stage.

    Raises E0607 if torch cannot export the model, E0602 for operators without support, E0604 for forms that the
    compiler has no lowering for, E0501 and E0502 where memory does not suffice, E0801 and E0802 for unknown names.
    """
    chosen = options(target, dtype, cache, dump, progress)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _compile_torch(model, *_examples(example_inputs, example_kwargs), chosen)
    if isinstance(model, Graph):
        return compile_with(ImportedGraph(model), chosen)[0]
    raise _no_model(model)


def check(model: Any, example_inputs: Sequence[Any] = (), example_kwargs: Mapping[str, Any] | None = None, *,
          target: str | Target | None = None, dtype: str | None = None,
          extra_passes: tuple[tuple[str, GraphPass], ...] = ()) -> CheckReport:
    """Compare every stage of compiling `model` with its reference, on the example inputs.

    The imported graph is compared with the model, each pass with the stage before it, the kernel with the graph, and
    the scheduled program with the kernel. An NKI kernel is compared with its own scheduled program. `extra_passes` are
    graph passes of one's own (name and function), run after the others.

    The report names the first stage that differs, the value or instruction, its source line and an element;
    `CheckReport.raise_if_failed` makes it an E0606. Raises what `compile` raises.
    """
    chosen = options(target, dtype, cache=False)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from ranvier.frontends.torch.import_fx import import_model

        args, kwargs = _examples(example_inputs, example_kwargs)
        imported = import_model(model, args, kwargs)
        with torch.no_grad():
            expected = imported.calling().arrays_of(model(*args, **kwargs))
        return check_graph(imported.graph, imported.calling().flatten(args, kwargs), imported.param_arrays(),
                           target=chosen.target, dtype=chosen.dtype, reference=expected, extra_passes=extra_passes)
    if callable(model) and not isinstance(model, type):
        return check_kernel(model, *example_inputs, target=target)
    raise error("E0602", f"a {type(model).__name__} is not a model or kernel that can be checked")


def _no_model(model: Any) -> RanvierError:
    kind = model if isinstance(model, type) else type(model)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(model, type):
        return error("E0602", f"the class {name} is not a model that can be compiled", fix="give an instance of it")
    if isinstance(model, JitKernel):
        return error("E0602", f"{model!r} is not a model that can be compiled",
                     fix="call the kernel, or time it with ranvier.benchmark")
    framework = _LATER.get(kind.__module__.partition(".")[0])
    known = f"; models of {framework} cannot be compiled yet" if framework else ""
    exported = kind.__name__ == "ExportedProgram"
    return error("E0602", f"a {name} is not a model that can be compiled{known}",
                 fix="give its .module()" if exported else "give a torch.nn.Module and example inputs")


def _examples(inputs: Any, named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs as arguments of a call. A tensor is a sequence too, so types are looked at."""
    if not isinstance(inputs, tuple | list):
        raise error("E0607", f"example_inputs is a {type(inputs).__name__}; it is a tuple of the model's arguments",
                    fix="write (x,) for a single one, and give named ones as example_kwargs")
    if named is not None and not isinstance(named, Mapping):
        raise error("E0607", f"example_kwargs is a {type(named).__name__}; it is a dictionary of named arguments",
                    fix="leave it out if there are none")
    return tuple(inputs), dict(named or {})


def _compile_torch(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], chosen: Options) -> Executable:
    from ranvier.frontends.torch.calling import ModuleParams, restore
    from ranvier.frontends.torch.fingerprint import fingerprint
    from ranvier.frontends.torch.import_fx import import_model

    mark = fingerprint(model, args, kwargs) if chosen.cache is not None else None
    if mark is not None and chosen.cache is not None:
        found = chosen.cache.find_fingerprint(mark, chosen.target, chosen.dtype)
        calling = restore(found.call) if found is not None else None
        live = ModuleParams.of(model, [p.key for p in found.graph.params]) if found is not None else None
        if found is not None and calling is not None and live is not None:
            return executable_of(found, calling=calling, live=live)
    start = time.perf_counter()
    imported = import_model(model, args, kwargs)
    if chosen.progress is not None:
        chosen.progress("export", time.perf_counter() - start)
    # A graph may refer to tensors that are neither parameters nor buffers: those only an export finds.
    live = ModuleParams.of(model, [p.key for p in imported.graph.params])
    executable, key = compile_with(imported, chosen, live)
    if mark is not None and key is not None and live is not None and chosen.cache is not None:
        chosen.cache.link(mark, chosen.target, chosen.dtype, key)
    return executable
