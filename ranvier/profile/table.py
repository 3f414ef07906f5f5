"""A profile as a table of events in CSV."""

from __future__ import annotations

import csv
import io

from ranvier.profile.metrics import Profile
from ranvier.profile.perfetto import event_name

COLUMNS = (
    "event", "track", "kind", "name", "start_ns", "end_ns", "done_ns", "stall_ns", "reason", "cause", "slot", "order",
    "hbm_bytes", "estimated_ns", "file", "line", "part",
)  # fmt: skip


def csv_text(profile: Profile) -> str:
    """One line per event under a line of column names. `order` is the instruction's place in the kernel."""
    timeline, out = profile.timeline, io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for event in timeline.events():
        slot = timeline.slots[event.slot][1]
        loc = slot.instruction.loc
        place = (loc.file, loc.line, loc.scope) if loc else ("", "", "")
        writer.writerow((
            event.index, event.track, event.kind.name.lower(), event_name(timeline, event), f"{event.start_ns:.3f}",
            f"{event.end_ns:.3f}", f"{event.done_ns:.3f}", f"{event.start_ns - event.ready_ns:.3f}",
            event.reason.name.lower(), event.cause, event.slot, slot.order, event.hbm_bytes,
            f"{timeline.columns.estimated_ns[event.index]:.3f}", *place,
        ))  # fmt: skip
    return out.getvalue()
