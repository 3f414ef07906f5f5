"""A profile as a trace in Chrome's JSON format, which Perfetto reads: one track per engine and DMA queue."""

from __future__ import annotations

import json

from ranvier.isa.text import print_instruction
from ranvier.profile.metrics import Profile
from ranvier.sim.trace import Event, Kind, Timeline


def trace_text(profile: Profile) -> str:
    """The whole trace; times are in us, as the format wants."""
    timeline = profile.timeline
    lines = [_named("process_name", 0, f"{profile.name} on {profile.target}")]
    for track, name in enumerate(timeline.tracks):
        lines.append(_named("thread_name", track, name if name in timeline.engine_tracks else f"queue {name}"))
        lines.append(_event("M", "thread_sort_index", track, args={"sort_index": track}))
    numbers = {name: track for track, name in enumerate(timeline.tracks)}
    for event in timeline.events():
        # Both ends are rounded, not the duration: events that follow each other must not overlap.
        start, end = round(event.start_ns / 1e3, 6), round(event.end_ns / 1e3, 6)
        lines.append(
            _event(
                "X", event_name(timeline, event), numbers[event.track], ts=start, dur=round(end - start, 6),
                args=_details(timeline, event),
            )
        )  # fmt: skip
    return '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"


def event_name(timeline: Timeline, event: Event) -> str:
    """What to call an event: its instruction, or what happens for it."""
    mnemonic = timeline.slots[event.slot][1].instruction.MNEMONIC
    match event.kind:
        case Kind.TABLE_LOAD:
            return "activation table load"
        case Kind.TRIGGER:
            return f"{mnemonic} trigger"
    return mnemonic


def _details(timeline: Timeline, event: Event) -> dict[str, object]:
    inst = timeline.slots[event.slot][1].instruction
    details: dict[str, object] = {"instruction": print_instruction(inst, locations=False)}
    if inst.loc is not None:
        details["line"] = f"{inst.loc.file}:{inst.loc.line}"
        details["part"] = inst.loc.scope
    if event.hbm_bytes:
        details["hbm_bytes"] = event.hbm_bytes
    details["visible_ns"] = round(event.done_ns - event.start_ns, 3)
    details["stall_ns"] = round(event.start_ns - event.ready_ns, 3)
    if event.start_ns > event.ready_ns:
        cause = timeline.event(event.cause)
        details["waited_for"] = f"{event.reason.name.lower()}: {event_name(timeline, cause)} on {cause.track}"
    return details


def _named(what: str, track: int, name: str) -> str:
    return _event("M", what, track, args={"name": name})


def _event(phase: str, name: str, track: int, **fields) -> str:
    return json.dumps({"ph": phase, "name": name, "pid": 0, "tid": track} | fields, separators=(",", ":"))
