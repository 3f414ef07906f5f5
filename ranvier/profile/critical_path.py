"""The critical path: the chain of events that determined the end of a program."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.sim.trace import Kind, Reason, Timeline

SEMAPHORES, TABLE_LOAD, TRIGGER = "semaphores", "activation table load", "DMA trigger"
TRANSFER, LAUNCH, COMPLETION = "DMA transfer", "DMA launch", "DMA completion"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the critical path. `category` says what passed: work or latency of an engine, or a part of a DMA.

    `estimated_ns` is how much of it rests on estimated facts.
    """

    event: int
    start_ns: float
    end_ns: float
    category: str
    estimated_ns: float

    @property
    def ns(self) -> float:
        return self.end_ns - self.start_ns


def critical_path(timeline: Timeline) -> tuple[Segment, ...]:
    """Segments in order of time that together cover the program from 0 to its end without gaps.

    Walks back from the event that ended last, at each event to the one that determined its start.
    """
    done = timeline.columns.done_ns
    segments: list[Segment] = []
    if not done:
        return ()
    event, release, reason = max(range(len(done)), key=done.__getitem__), timeline.total_ns, None
    while event >= 0:
        boundary = _boundary(timeline, event, release)
        segments += _segments(timeline, event, boundary, release, reason)
        event, release, reason = timeline.columns.cause[event], boundary, timeline.columns.reason[event]
    return tuple(reversed(segments))


def _boundary(timeline: Timeline, event: int, release: float) -> float:
    """Where the path enters `event`, which it leaves at `release`.

    The slowest share of a transfer may begin after it was left, when the path goes through another of its DMA engines.
    """
    c = timeline.columns
    return min(c.begin_ns[event] if c.begin_ns[event] < release else c.start_ns[event], release)


def _segments(timeline: Timeline, event: int, boundary: float, release: float, reason: int | None) -> list[Segment]:
    """What passes between `boundary` and `release`, the latest first; `reason` is what the next event waited for."""
    c = timeline.columns
    found = []
    kind, end = c.kind[event], c.end_ns[event]
    track = timeline.tracks[c.track[event]]
    if reason == Reason.SEMAPHORE:
        hop = min(timeline.semaphore_hop_ns, release - boundary)
        estimated = hop if timeline.hop_is_estimated else 0.0
        found.append(Segment(event, release - hop, release, SEMAPHORES, estimated))
        release -= hop
    if release > end:
        category = {Kind.TRIGGER: LAUNCH, Kind.TRANSFER: COMPLETION}.get(Kind(kind), f"{track} latency")
        tail = c.done_ns[event] - end
        estimated = c.estimated_tail_ns[event] * min(1.0, (release - end) / tail) if tail > 0 else 0.0
        found.append(Segment(event, end, release, category, estimated))
        release = end
    if release > boundary:
        special = {Kind.TRIGGER: TRIGGER, Kind.TABLE_LOAD: TABLE_LOAD, Kind.TRANSFER: TRANSFER}
        whole = end - c.start_ns[event]
        estimated = c.estimated_ns[event] * (release - boundary) / whole if whole > 0 else 0.0
        found.append(Segment(event, boundary, release, special.get(Kind(kind), f"{track} work"), estimated))
    return found
