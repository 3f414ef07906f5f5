"""A profile as tables for a terminal."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from ranvier.profile.metrics import Profile


def time_text(ns: float, digits: int = 4) -> str:
    """A duration with so many digits and a unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{_number(ns / size, digits)} {unit}"
    return f"{_number(ns, digits)} ns"


def bytes_text(count: float, digits: int = 4) -> str:
    """A number of bytes in binary units, with so many digits."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{_number(count / size, digits)} {unit}"
    return f"{count:.0f} B"


def _number(value: float, digits: int) -> str:
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


@dataclass(frozen=True, slots=True)
class Report:
    """All tables of `profile`, at most `rows` lines each, as wide as what they are printed on.

    Where there is little room, texts are cut and the times of single engines are left out; no number is cut.
    """

    profile: Profile
    rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        p, width = self.profile, options.max_width
        yield _summary(p)
        yield _engines(p, width)
        yield _stalls(p, self.rows)
        yield _path(p)
        if any(layer.scope for layer in p.layers):
            yield _layers(p, self.rows, width)
        yield _hot(p, self.rows, width)


def _table(title: str, *columns: str) -> Table:
    """A table whose columns called "<..." are text, all others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        left = column.startswith("<")
        table.add_column(column.lstrip("<"), justify="left" if left else "right", no_wrap=True)
    return table


def _cut(text: str, width: int) -> Text:
    """`text`, with its middle left out if it is longer than `width`."""
    if len(text) > width:
        text = text[: width // 2 - 1] + "…" + text[len(text) - (width - width // 2) :]
    return Text(text)


def _summary(p: Profile) -> Group:
    lines = [
        Text.assemble((f"{p.name} on {p.target}: ", "bold"), (time_text(p.latency_ns), "bold cyan")),
        Text(p.verdict),
        Text(
            f"{p.bound} bound {time_text(p.bound_ns)} ({p.times_bound:.3g}x away)   MFU {p.mfu:.1%} of {p.flops_dtype} "
            f"peak   MBU {p.mbu:.1%}   on estimated facts {p.estimated_share:.0%}"
        ),
        Text(
            f"{p.flops / 1e9:.4g} GFLOP; HBM traffic {bytes_text(p.hbm_bytes)}: "
            + ", ".join(f"{kind} {bytes_text(count)}" for kind, count in p.moved_bytes.items() if count)
        ),
        Text(
            f"with the frame of a hardware profile {time_text(p.latency_ns + p.head_ns + p.tail_ns)}, "
            f"seen from the host {time_text(p.latency_ns + p.head_ns + p.tail_ns + p.host_launch_ns)}; "
            f"a transfer waits {time_text(p.transfer_wait_ns)} for DMA engines\n"
        ),
    ]
    return Group(*lines)


def _engines(p: Profile, width: int) -> Table:
    table = _table("engines", "<engine", "busy", "busy %", "stalled", "idle at end", "instructions", "<")
    longest = max(0, min(30, width - 68))
    for use in p.engines:
        bar = "█" * round(use.busy_share * longest)
        table.add_row(
            use.engine, time_text(use.busy_ns), f"{use.busy_share:.1%}", time_text(use.stall_ns),
            time_text(use.idle_ns), str(use.instructions), bar,
        )  # fmt: skip
    return table


def _stalls(p: Profile, rows: int) -> Table:
    table = _table("\nlongest stalls", "<engine", "<waits for", "<of", "time", "of total", "times")
    for stall in p.stalls[:rows]:
        share = f"{stall.ns / p.latency_ns:.1%}"
        table.add_row(stall.engine, stall.reason, stall.on, time_text(stall.ns), share, str(stall.count))
    return table


def _path(p: Profile) -> Table:
    table = _table("\ncritical path", "<what", "time", "share")
    for category, share in p.critical_shares.items():
        if share >= 0.005:
            table.add_row(category, time_text(share * p.latency_ns), f"{share:.1%}")
    return table


def _layers(p: Profile, rows: int, width: int) -> Table:
    engines = [use.engine for use in p.engines if use.engine not in ("dma", "sync")]
    room = width - 37 - 9 * len(engines)
    if room < 30:
        engines, room = [], width - 37
    table = _table("\nparts of the model", "<part", "critical", "share", *engines, "HBM", "GFLOP")
    for part in p.parts[:rows]:
        name = part.scope or "(none)"
        busy = [time_text(part.busy_ns[engine], 3) if part.busy_ns.get(engine) else "" for engine in engines]
        table.add_row(
            _cut(f"{part.copies} x {name}" if part.copies > 1 else name, min(room, 48)),
            time_text(part.critical_ns, 3), f"{part.critical_ns / p.latency_ns:.1%}", *busy,
            bytes_text(part.hbm_bytes, 3) if part.hbm_bytes else "", f"{part.flops / 1e9:.3g}" if part.flops else "",
        )  # fmt: skip
    if len(p.parts) > rows:
        rest = sum(part.critical_ns for part in p.parts[rows:])
        table.add_row(f"({len(p.parts) - rows} more)", time_text(rest, 3), f"{rest / p.latency_ns:.1%}")
    return table


def _hot(p: Profile, rows: int, width: int) -> Table:
    table = _table("\ninstructions", "<instruction", "<engine", "critical", "busy", "times", "<where")
    names = max((len(hot.instruction) for hot in p.hot[:rows]), default=0)
    room = max(12, width - max(names, 11) - 39)
    for hot in p.hot[:rows]:
        place = os.path.basename(hot.place)
        left = room - len(place) - 2
        where = Text(place) if left < 10 else Text.assemble(place, "  ", _cut(hot.source, left))
        times = time_text(hot.critical_ns), time_text(hot.busy_ns), str(hot.count)
        table.add_row(hot.instruction, hot.engine, *times, where)
    return table
