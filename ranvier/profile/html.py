"""A profile as one HTML page that needs nothing else: no server, no network, no fonts."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from ranvier.isa.access import Space
from ranvier.isa.text import print_instruction
from ranvier.profile.metrics import Profile
from ranvier.profile.occupancy import lifetimes, peak_bytes
from ranvier.sim.trace import Kind, Reason

_SCRIPTS = ("format.js", "timeline.js", "memory.js", "charts.js", "main.js")


def page(profile: Profile) -> str:
    """The page. Its data is JSON, compressed, in the form `page_data` gives."""
    packed = base64.b64encode(gzip.compress(json.dumps(page_data(profile), separators=(",", ":")).encode(), mtime=0))
    folder = resources.files("ranvier.profile") / "viewer"
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    parts = {
        "title": html.escape(f"{profile.name} on {profile.target}"),
        "style": (folder / "style.css").read_text(encoding="utf-8"),
        "script": script,
        "data": packed.decode(),
    }
    text = (folder / "page.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value)
    return text


class _Strings:
    """Each distinct string once; `at` gives its number."""

    def __init__(self):
        self.numbers: dict[str, int] = {}

    def at(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def page_data(profile: Profile) -> dict[str, Any]:
    """What the viewer draws: measures, events and slots as columns (times in tenths of ns), memory, critical path."""
    timeline, c, strings = profile.timeline, profile.timeline.columns, _Strings()
    lives = lifetimes(profile.program, timeline)
    target = profile.hardware
    categories = _Strings()
    data = {
        "profile": profile.to_dict(),
        "tracks": timeline.tracks,
        "engines": timeline.engine_tracks,
        "kinds": [kind.name.lower() for kind in Kind],
        "reasons": [reason.name.lower() for reason in Reason],
        "events": {
            "track": c.track,
            "kind": [int(kind) for kind in c.kind],
            "start": _tenths(c.start_ns),
            "end": _tenths(c.end_ns),
            "done": _tenths(c.done_ns),
            "ready": _tenths(c.ready_ns),
            "reason": [int(reason) for reason in c.reason],
            "cause": c.cause,
            "slot": c.slot,
            "bytes": c.hbm_bytes,
        },
        "slots": _slots(profile, strings),
        "memory": {
            space.value: {
                "capacity": limit,
                "bank": bank,
                "peak": peak_bytes(lives, space),
                "tiles": [
                    [
                        strings.at(f"{life.buffer.name}: {life.buffer.dtype} {list(life.buffer.shape)}"), life.byte,
                        life.buffer.bytes_per_partition, *_tenths((life.start_ns, life.end_ns)),
                    ]
                    for life in lives if life.buffer.space is space
                ],
            }
            for space, limit, bank in (
                (Space.SBUF, target.sbuf.usable_bytes_per_partition, 0),
                (Space.PSUM, target.psum.bytes_per_partition, int(target.psum.bank_bytes.value)),
            )
        },
        "path": [
            [s.event, *_tenths((s.start_ns, s.end_ns)), categories.at(s.category)] for s in profile.path
        ],
        "peaks": {name: target.peak_flops(name) for name in ("bfloat16", "float32", "float8_e4m3")},
    }  # fmt: skip
    return data | {"strings": list(strings.numbers), "categories": list(categories.numbers)}


def _tenths(values: Iterable[float]) -> list[int]:
    return [round(value * 10) for value in values]


def _slots(profile: Profile, strings: _Strings) -> dict[str, list]:
    columns: dict[str, list] = {
        name: [] for name in ("name", "text", "file", "line", "source", "part", "waits", "signals", "order")
    }
    sources = {hot.place: hot.source for hot in profile.hot}
    for _, slot in profile.timeline.slots:
        inst, loc = slot.instruction, slot.instruction.loc
        row = {
            "name": strings.at(inst.MNEMONIC),
            "text": strings.at(print_instruction(inst, locations=False)),
            "file": strings.at(loc.file if loc else ""),
            "line": loc.line if loc else 0,
            "source": strings.at(sources.get(f"{loc.file}:{loc.line}", "") if loc else ""),
            "part": strings.at(loc.scope if loc else ""),
            "waits": strings.at(", ".join(f"{w.semaphore} >= {w.value}" for w in slot.waits)),
            "signals": strings.at(", ".join(f"{s.semaphore} += {s.amount}" for s in slot.signals)),
            "order": slot.order,
        }
        for name, value in row.items():
            columns[name].append(value)
    return columns
