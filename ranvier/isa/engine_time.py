"""Time of data-path instructions, engine by engine: what records of several files share in `cost`.

An instruction occupies its engine for ``max(elements * cycles_per_element + overhead, least interval)`` cycles, and its
result is visible the engine's latency later. Every number is a fact of the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from ranvier.isa.access import AccessPattern, Space
from ranvier.isa.record import Cost, Time, ns
from ranvier.target.spec import Fact, Target


def is_strided(operands: Sequence[AccessPattern], threshold: Fact) -> bool:
    """Whether the innermost elements of an operand lie further apart than `threshold` bytes."""
    return any(abs(ap.inner_stride or 0) * ap.dtype.itemsize > threshold.value for ap in operands)


def _elements(count: int, rate: Fact, clock: Fact, operands, threshold: Fact, factor: Fact, speedup: Fact | None) -> Time:
    facts = (rate, factor) if is_strided(operands, threshold) else (rate,)
    return ns(count, *facts, clock=clock, rate=speedup)


def _cost(elements: Time, overheads: Sequence[Fact], least: Fact, clock: Fact, latency: Fact, table: str | None) -> Cost:
    busy = elements
    for overhead in overheads:
        busy = busy + ns(1, overhead, clock=clock)
    busy = busy.at_least(ns(1, least, clock=clock))
    return Cost(busy, busy + ns(1, latency), table)


def vector_time(
    target: Target, reads: Sequence[AccessPattern], writes: Sequence[AccessPattern], count: int, rate: Fact,
    *, speedup: Fact | None = None, extra: Sequence[Fact] = (),
) -> Cost:
    """`count` elements per partition at `rate` cycles each on the vector engine. `reads` and `writes` decide the overhead
    (PSUM costs more) and whether strides slow it down; `extra` are overheads in cycles on top of it."""
    v = target.vector
    from_psum = any(ap.space is Space.PSUM for ap in reads)
    to_psum = any(ap.space is Space.PSUM for ap in writes)
    overhead = v.overhead_psum_cycles if from_psum and to_psum else v.overhead_sbuf_cycles
    if from_psum != to_psum:
        overhead = v.overhead_mixed_cycles
    operands = (*reads, *writes)
    time = _elements(count, rate, v.clock_ghz, operands, v.strided_threshold_bytes, v.strided_factor, speedup)
    return _cost(time, (overhead, *extra), v.min_ii_cycles, v.clock_ghz, v.latency_ns, None)


def scalar_time(
    target: Target, operands: Sequence[AccessPattern], count: int, rate: Fact, overhead: Fact,
    *, speedup: Fact | None = None, extra: Sequence[Fact] = (), table: str | None = None,
) -> Cost:
    """`count` elements per partition at `rate` cycles each on the scalar engine, plus `overhead` and `extra` cycles."""
    s = target.scalar
    time = _elements(count, rate, s.clock_ghz, operands, s.strided_threshold_bytes, s.strided_factor, speedup)
    return _cost(time, (overhead, *extra), s.min_ii_cycles, s.clock_ghz, s.latency_ns, table)


def gpsimd_time(target: Target, count: float, rate: Fact) -> Cost:
    """`count` elements per partition at `rate` cycles each on gpsimd, after the start of its program."""
    g = target.gpsimd
    busy = ns(1, g.start_cycles, clock=g.clock_ghz) + ns(count, rate, clock=g.clock_ghz)
    return Cost(busy, busy + ns(1, g.latency_ns))
