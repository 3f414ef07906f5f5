"""From a program to its profile: simulate its time, and add up."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict

from ranvier.ir.program import Program
from ranvier.isa.record import Instruction
from ranvier.profile import bounds
from ranvier.profile.critical_path import COMPLETION, LAUNCH, TRANSFER, TRIGGER, Segment, critical_path
from ranvier.profile.metrics import EngineUse, Hot, Layer, Profile, Stall
from ranvier.sim.timing import simulate
from ranvier.sim.trace import Kind, Reason, Timeline
from ranvier.target.spec import Target

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_REASONS = {
    Reason.SEMAPHORE: "semaphore", Reason.DEPENDENCY: "dependency", Reason.PORT: "memory port",
}  # fmt: skip


def profile_program(
    program: Program, target: Target, *, flops: int | None = None, name: str | None = None, throttle: bool = False
) -> Profile:
    """The profile of `program` on `target`.

    `flops` is the work the model asks for, which MFU is measured by (default: that of the program's matmuls, which may
    do more); `name` is what the profile is called; `throttle` as for `simulate`. Raises E0404 for a program that never
    ends.
    """
    timeline = simulate(program, target, throttle=throttle)
    path = critical_path(timeline)
    work = bounds.work_of(program)
    latency = timeline.total_ns
    compute, memory = bounds.compute_ns(work, target), bounds.memory_ns(work, target)
    peak, bandwidth = target.peak_flops(work.main_dtype), bounds.hbm_bytes_per_ns(target)
    once = work.read_bytes + work.written_bytes
    flops = work.total_flops if flops is None else flops
    shares = _shares(path, latency)
    critical = _by_slot(path, timeline)
    return Profile(
        name=name or program.name,
        target=target.name,
        latency_ns=latency,
        head_ns=float(target.program.head_ns.value),
        tail_ns=float(target.program.tail_ns.value),
        host_launch_ns=float(target.program.host_launch_ns.value),
        bound="compute" if compute >= memory else "memory",
        bound_ns=max(compute, memory),
        compute_bound_ns=compute,
        memory_bound_ns=memory,
        flops=flops,
        flops_dtype=work.main_dtype,
        peak_flops=peak,
        hbm_bytes_per_ns=bandwidth,
        once_bytes=once,
        moved_bytes=work.moved_bytes,
        mfu=flops / peak * 1e9 / latency if latency else 0.0,
        mbu=once / bandwidth / latency if latency else 0.0,
        estimated_share=sum(s.estimated_ns for s in path) / latency if latency else 0.0,
        engines=_engines(timeline),
        stalls=_stalls(timeline),
        transfer_wait_ns=_transfer_wait_ns(timeline),
        layers=(layers := _layers(timeline, critical)),
        parts=_parts(layers),
        hot=_hot(timeline, critical),
        critical_shares=shares,
        verdict=_verdict(shares),
        path=path,
        timeline=timeline,
        program=program,
        hardware=target,
    )


def _engines(timeline: Timeline) -> tuple[EngineUse, ...]:
    c, total = timeline.columns, timeline.total_ns
    busy = timeline.busy_ns
    stall, last, count = defaultdict(float), defaultdict(float), defaultdict(int)
    for track, kind, start, ready, end in zip(c.track, c.kind, c.start_ns, c.ready_ns, c.end_ns, strict=True):
        if kind != Kind.TRANSFER:
            name = timeline.tracks[track]
            stall[name] += start - ready
            last[name] = end  # the events of an engine are in order
            count[name] += kind != Kind.TABLE_LOAD
    uses = [
        EngineUse(name, busy[name], busy[name] / total, count[name], stall[name], total - last[name]) for name in busy
    ]
    transfers = sum(kind == Kind.TRANSFER for kind in c.kind)
    if transfers:
        mean = sum(timeline.dma_busy_ns) / len(timeline.dma_busy_ns)
        uses.append(EngineUse("dma", mean, mean / total, transfers, 0.0, 0.0))
    return tuple(uses)


def _stalls(timeline: Timeline) -> tuple[Stall, ...]:
    c = timeline.columns
    found: dict[tuple[str, str, str], list] = defaultdict(lambda: [0.0, 0])
    for i in range(len(timeline)):
        waited = c.start_ns[i] - c.ready_ns[i]
        if waited <= 0 or c.kind[i] == Kind.TRANSFER:
            continue
        reason = Reason(c.reason[i])
        on = timeline.tracks[c.track[c.cause[i]]] if c.cause[i] >= 0 and reason is not Reason.DEPENDENCY else ""
        entry = found[timeline.tracks[c.track[i]], _REASONS[reason], on]
        entry[0] += waited
        entry[1] += 1
    rows = [Stall(engine, reason, on, ns, count) for (engine, reason, on), (ns, count) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.engine, row.on)))


def _transfer_wait_ns(timeline: Timeline) -> float:
    """How long a transfer waits on average until a DMA engine begins with it."""
    c = timeline.columns
    waits = [c.start_ns[i] - c.ready_ns[i] for i in range(len(timeline)) if c.kind[i] == Kind.TRANSFER]
    return sum(waits) / len(waits) if waits else 0.0


def _shares(path: tuple[Segment, ...], total: float) -> dict[str, float]:
    """Share of the critical path by category, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for segment in path:
        sums[segment.category] += segment.ns
    return {name: ns / total for name, ns in sorted(sums.items(), key=lambda item: -item[1])}


def _verdict(shares: dict[str, float]) -> str:
    """One sentence that says what the program is bound by."""
    groups: dict[str, float] = defaultdict(float)
    for category, share in shares.items():
        groups[_group(category)] += share
    if not groups:
        return "nothing to do"
    ranked = sorted(groups.items(), key=lambda item: -item[1])
    top, share = ranked[0]
    text = f"bound by {top}: {share:.0%} of the critical path"
    if len(ranked) > 1 and ranked[1][1] >= 0.1:
        text += f"; then {ranked[1][0]} ({ranked[1][1]:.0%})"
    return text


def _group(category: str) -> str:
    if category == TRANSFER:
        return "DMA bandwidth"
    if category in (LAUNCH, COMPLETION, TRIGGER):
        return "DMA latency"
    engine, _, what = category.rpartition(" ")
    return f"the {engine} engine" if what in ("work", "latency") else category


def _by_slot(path: tuple[Segment, ...], timeline: Timeline) -> dict[int, float]:
    """Time on the critical path by slot."""
    sums: dict[int, float] = defaultdict(float)
    for segment in path:
        sums[timeline.columns.slot[segment.event]] += segment.ns
    return sums


def _layers(timeline: Timeline, critical: dict[int, float]) -> tuple[Layer, ...]:
    c = timeline.columns
    count, flops, path = defaultdict(int), defaultdict(int), defaultdict(float)
    busy: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    moving, hbm = defaultdict(float), defaultdict(int)
    scopes = [slot.instruction.loc.scope if slot.instruction.loc else "" for _, slot in timeline.slots]
    for index, (_, slot) in enumerate(timeline.slots):
        count[scopes[index]] += 1
        flops[scopes[index]] += slot.instruction.flops()
        path[scopes[index]] += critical.get(index, 0.0)
    for i, slot_index in enumerate(c.slot):
        scope, ns = scopes[slot_index], c.end_ns[i] - c.start_ns[i]
        if c.kind[i] == Kind.TRANSFER:
            moving[scope] += ns
            hbm[scope] += c.hbm_bytes[i]
        else:
            busy[scope][timeline.tracks[c.track[i]]] += ns
    rows = [Layer(s, 1, count[s], dict(busy[s]), moving[s], hbm[s], flops[s], path[s]) for s in count]
    return tuple(sorted(rows, key=lambda row: (-row.critical_ns, row.scope)))


def _parts(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers that differ only in a number of their path, as one."""
    groups: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        groups[_NUMBER.sub("*", layer.scope)].append(layer)
    rows = []
    for scope, same in groups.items():
        engines = {engine for layer in same for engine in layer.busy_ns}
        rows.append(
            Layer(
                scope if len(same) > 1 else same[0].scope,
                len(same),
                sum(layer.instructions for layer in same),
                {engine: sum(layer.busy_ns.get(engine, 0.0) for layer in same) for engine in sorted(engines)},
                sum(layer.transfer_ns for layer in same),
                sum(layer.hbm_bytes for layer in same),
                sum(layer.flops for layer in same),
                sum(layer.critical_ns for layer in same),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.critical_ns, row.scope)))


def _hot(timeline: Timeline, critical: dict[int, float]) -> tuple[Hot, ...]:
    c = timeline.columns
    spent: dict[int, float] = defaultdict(float)
    for i, slot_index in enumerate(c.slot):
        spent[slot_index] += c.end_ns[i] - c.start_ns[i]
    groups: dict[tuple[str, str, str, str], list] = defaultdict(lambda: [0, 0.0, 0.0])
    for index, (engine, slot) in enumerate(timeline.slots):
        entry = groups[slot.instruction.MNEMONIC, engine.name.lower(), *_place(slot.instruction)]
        entry[0] += 1
        entry[1] += spent[index]
        entry[2] += critical.get(index, 0.0)
    rows = [Hot(*key, *entry) for key, entry in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.critical_ns, -row.busy_ns, row.instruction, row.place)))


def _place(inst: Instruction) -> tuple[str, str]:
    """File and line, and the line itself."""
    if inst.loc is None:
        return "", ""
    return f"{inst.loc.file}:{inst.loc.line}", linecache.getline(inst.loc.file, inst.loc.line).strip()
