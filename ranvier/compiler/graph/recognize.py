"""Recognize composites in the primitive operations that exporters leave of them."""

from __future__ import annotations

from ranvier.compiler.graph.recognize_activation import ACTIVATION_RULES
from ranvier.compiler.graph.recognize_attention import ATTENTION_RULES
from ranvier.compiler.graph.recognize_norm import NORM_RULES
from ranvier.compiler.graph.simplify import RULES
from ranvier.graph.core import Graph
from ranvier.graph.rewriter import rewrite_graph
from ranvier.ir.rewrite import Firing


def recognize(graph: Graph, log: list[Firing] | None = None) -> Graph:
    """`graph` with composites for their patterns: norms, softmax, activations, rotary embedding, linear, attention.

    The graph is simplified at the same time, since one pattern is often the part of another. A composite rounds once
    where its parts rounded at each step, so that a result in 16 bits may come nearer to the exact one.
    """
    return rewrite_graph(graph, (*RULES, *NORM_RULES, *ACTIVATION_RULES, *ATTENTION_RULES), log)
