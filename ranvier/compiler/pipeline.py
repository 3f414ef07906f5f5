"""The compiler from a graph to a program: the order of its passes, one line of reason each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ranvier import config
from ranvier.compiler.graph.assign_layouts import assign_layouts
from ranvier.compiler.graph.convert_precision import convert_precision
from ranvier.compiler.graph.fold_batch_norm import fold_batch_norm
from ranvier.compiler.graph.fuse import fuse
from ranvier.compiler.graph.hoist_parameters import hoist_parameters
from ranvier.compiler.graph.narrow_integers import narrow_integers
from ranvier.compiler.graph.recognize import recognize
from ranvier.compiler.graph.rewrite_for_core import rewrite_for_core
from ranvier.compiler.graph.simplify import simplify
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.compiler.lower.lower import lower
from ranvier.graph.core import Graph
from ranvier.graph.verify import verify
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.target.spec import Target

Observer = Callable[[str, object], None]


@dataclass(frozen=True)
class Compiled:
    """All that compiling a graph gives.

    `graph` is as it was imported, `device_graph` what the core computes, `prologue` what is computed once on the host
    when parameters are loaded (its output i is parameter "derived.i"), `kernel` the instructions in order, `program`
    the scheduled streams.
    """

    graph: Graph
    device_graph: Graph
    prologue: Graph | None
    kernel: Kernel
    program: Program
    target: Target


GraphPass = Callable[[Graph], Graph]


def graph_passes(dtype: str) -> list[tuple[str, GraphPass]]:
    """The passes from an imported graph to the one that is lowered, in order."""
    return [
        ("simplify", simplify),  # what exporters leave behind hides patterns
        ("recognize", recognize),  # whole composites have kernels; their pieces would be lowered one by one
        ("fold_batch_norm", fold_batch_norm),  # a scale in the weights costs nothing; in float32, as weights are
        ("rewrite_for_core", rewrite_for_core),  # forms without a kernel; what they make of weights stays float32
        ("convert_precision", lambda g: convert_precision(g, dtype)),  # before lowering chooses dtypes of tiles
        ("narrow_integers", narrow_integers),  # the core has no 64-bit integers
        ("simplify-again", simplify),  # casts and reshapes that the rewrites left
    ]


def compile_graph(
    graph: Graph,
    *,
    target: Target,
    dtype: str,
    observe: Observer | None = None,
    extra_passes: tuple[tuple[str, GraphPass], ...] = (),
) -> Compiled:
    """Compile `graph` for one core of `target`, computing in `dtype` ("bfloat16" or "float32").

    `observe(name, artifact)` is called after every stage. `extra_passes` run after the others, as passes of one's own.
    Raises E0604 for operations without a lowering, E0501 and E0502 where memory does not suffice.
    """
    see = observe or (lambda name, artifact: None)
    check = verify if config.get("verify") else (lambda graph: None)
    verify(graph)  # what comes from outside is checked in any case
    see("import", graph)
    current = graph
    for name, apply in [*graph_passes(dtype), *extra_passes]:
        current = apply(current)
        check(current)
        see(name, current)
    body, prologue = hoist_parameters(current)  # last, so that everything the passes made of weights is moved out
    check(body)
    see("hoist_parameters", body)
    if prologue is not None:
        see("prologue", prologue)
    groups = fuse(body)
    layouts = assign_layouts(body, groups)
    kernel = lower(body, groups, layouts, target)
    see("lower", kernel)
    program = lower_kernel(kernel, target, observe=see)
    return Compiled(graph, body, prologue, kernel, program, target)
