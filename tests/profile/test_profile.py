"""Profiles of small programs: numbers that can be checked by hand, and the files."""

import base64
import csv
import gzip
import io
import json
import os
import re

import pytest
from helpers.kernels import mlp
from helpers.programs import Builder
from rich.console import Console

from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.errors import RanvierError
from ranvier.isa.access import BufferKind, Space
from ranvier.isa.dma import DmaCopy
from ranvier.isa.tensor_engine import NcMatmul
from ranvier.isa.vector import TensorCopy
from ranvier.profile import profile_program
from ranvier.profile.html import page_data
from ranvier.profile.occupancy import lifetimes, peak_bytes
from ranvier.profile.report import bytes_text, time_text
from ranvier.sim.trace import Kind
from ranvier.target import get
from ranvier.target.spec import Engine

TRN2 = get("trn2")


@pytest.fixture(scope="module")
def model():
    return profile_program(lower_kernel(mlp(3, 256, 256), TRN2), TRN2, name="small")


def product(loads=1):
    """x loaded, multiplied with itself, stored."""
    b = Builder()
    x = b.buffer("x", "hbm", (128, 128), "bfloat16", kind=BufferKind.INPUT)
    y = b.buffer("y", "hbm", (128, 128), kind=BufferKind.OUTPUT)
    s = b.buffer("s", "sbuf", (128, 128), "bfloat16")
    p, o = b.buffer("p", "psum", (128, 128)), b.buffer("o", "sbuf", (128, 128))
    for _ in range(loads):
        b.put(Engine.SYNC, DmaCopy(dst=s.all, src=x.all), signals={"q": 16}, queue="sync0")
    matmul = NcMatmul(dst=p.all, stationary=s.all, moving=s.all, accumulate=False)
    b.put(Engine.TENSOR, matmul, waits={"q": 16 * loads}, signals={"t": 1})
    b.put(Engine.VECTOR, TensorCopy(dst=o.all, src=p.all), waits={"t": 1}, signals={"v": 1})
    b.put(Engine.SYNC, DmaCopy(dst=y.all, src=o.all), waits={"v": 1}, queue="sync0")
    return b.program()


def test_numbers_of_one_product():
    p = profile_program(product(), TRN2)
    assert p.flops == 2 * 128**3 and p.flops_dtype == "bfloat16"
    assert p.peak_flops == pytest.approx(78.64e12, rel=1e-3)
    assert p.compute_bound_ns == pytest.approx(2 * 128**3 / 78.6432e12 * 1e9)
    assert p.moved_bytes == {"inputs": 32768, "outputs": 65536, "weights": 0, "intermediates": 0, "spills": 0}
    assert p.memory_bound_ns == pytest.approx(65536 / (16 * 27.2))  # reads hide behind writes, at the DMA engines
    assert (p.bound, p.bound_ns) == ("memory", p.memory_bound_ns)
    # everything waits for everything: the path goes once through all of it
    each, store = 8 * (7.6 + 256 / 27.2), 8 * (7.6 + 512 / 27.2)
    load = 88 + 832 + 15 * 25 + each + 9 + 325
    last = 88 + 832 + 15 * 25 + store + 9 + 325
    matmul, copy = 133 / 2.4 + 163.5, (128 + 64) / 0.96 + 88
    assert p.latency_ns == pytest.approx(load + 25 + matmul + 25 + copy + 25 + last)
    assert p.critical_shares["DMA launch"] * p.latency_ns == pytest.approx(2 * (832 + 15 * 25))
    assert p.critical_shares["tensor latency"] * p.latency_ns == pytest.approx(163.5)
    assert p.critical_shares["semaphores"] * p.latency_ns == pytest.approx(75)
    assert p.verdict.startswith("bound by DMA latency: ")
    assert p.mfu == pytest.approx(p.compute_bound_ns / p.latency_ns)
    assert p.mbu == pytest.approx(98304 / (16 * 27.2) / p.latency_ns)
    tensor = next(e for e in p.engines if e.engine == "tensor")
    assert tensor.stall_ns == pytest.approx(load + 25) and tensor.instructions == 1
    assert tensor.busy_ns + tensor.stall_ns + tensor.idle_ns == pytest.approx(p.latency_ns)


def test_what_is_loaded_twice_needs_to_be_loaded_once():
    once, twice = profile_program(product(), TRN2), profile_program(product(2), TRN2)
    assert twice.moved_bytes["inputs"] == 2 * once.moved_bytes["inputs"]
    assert twice.once_bytes == once.once_bytes == 98304


def test_sums_agree(model):
    assert sum(model.critical_shares.values()) == pytest.approx(1)
    assert sum(layer.critical_ns for layer in model.layers) == pytest.approx(model.latency_ns)
    assert sum(layer.flops for layer in model.layers) == model.flops == 3 * 2 * 256**3
    assert sum(hot.critical_ns for hot in model.hot) == pytest.approx(model.latency_ns)
    assert sum(hot.count for hot in model.hot) == len(model.timeline.slots)
    assert sum(layer.hbm_bytes for layer in model.layers) == model.hbm_bytes
    for use in model.engines:
        if use.engine != "dma":
            assert use.busy_ns + use.stall_ns + use.idle_ns == pytest.approx(model.latency_ns)
            assert sum(s.ns for s in model.stalls if s.engine == use.engine) == pytest.approx(use.stall_ns)


def test_layers_and_lines(model):
    scopes = {layer.scope for layer in model.layers}
    assert {"layers.0.linear", "layers.2.gelu", ""} <= scopes
    matmul = next(hot for hot in model.hot if hot.instruction == "nc_matmul")
    assert "kernels.py:" in matmul.place and matmul.source.startswith("b.add(NcMatmul")
    assert matmul.count == 12


def test_flops_of_the_model_decide_mfu():
    program = product()
    assert profile_program(program, TRN2, flops=2**20).mfu == pytest.approx(profile_program(program, TRN2).mfu / 4)


def test_estimated_share_follows_the_facts():
    program = product()
    assert profile_program(program, TRN2).estimated_share == 0
    slow = TRN2.replace("dma.completion_ns", 1000.0)  # what a user sets counts as estimated
    p = profile_program(program, slow)
    assert p.estimated_share == pytest.approx(2000 / p.latency_ns)


def test_memory_map(model):
    lives = lifetimes(model.program, model.timeline)
    on_chip = {b.name for b in model.program.buffers if b.space.on_chip}
    assert {life.buffer.name for life in lives} == on_chip
    for space, limit in ((Space.SBUF, TRN2.sbuf.usable_bytes_per_partition), (Space.PSUM, 16384)):
        assert 0 < peak_bytes(lives, space) <= limit
    # tiles that share bytes do not live at the same time
    for i, a in enumerate(lives):
        for b in lives[i + 1 :]:
            if a.buffer.space is b.buffer.space and a.start_ns < b.end_ns and b.start_ns < a.end_ns:
                ends = a.byte + a.buffer.bytes_per_partition, b.byte + b.buffer.bytes_per_partition
                assert ends[0] <= b.byte or ends[1] <= a.byte


def test_lifetimes_span_all_accesses(model):
    spans = {}
    for event in model.timeline.events():
        inst = model.timeline.slots[event.slot][1].instruction
        if event.kind in (Kind.INSTRUCTION, Kind.TRANSFER):
            for ap in (*inst.reads(), *inst.writes()):
                spans.setdefault(ap.buffer.name, []).append((event.start_ns, event.done_ns))
    for life in lifetimes(model.program, model.timeline):
        starts, ends = zip(*spans[life.buffer.name], strict=True)
        assert (life.start_ns, life.end_ns) == (min(starts), max(ends))


def test_text(model):
    text = str(model)
    assert text.startswith("small on trn2: ") and "bound by" in text and "3 x layers.*.linear" in text
    assert "src=state[k].all" in text  # brackets of source lines are not markup
    assert max(len(line) for line in text.splitlines()) <= 118
    assert (time_text(999.4), time_text(1234), time_text(2.5e6)) == ("999.4 ns", "1.234 us", "2.5 ms")
    assert (time_text(12345, 3), time_text(1234567, 3)) == ("12.3 us", "1.23 ms")
    assert (bytes_text(12), bytes_text(1536), bytes_text(3 << 20)) == ("12 B", "1.5 KiB", "3 MiB")


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_tables_fit_and_no_number_is_cut(model, columns):
    console = Console(file=io.StringIO(), width=columns, color_system=None)
    console.print(model.report())
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    for use in model.engines:
        assert any(line.split()[:3] == [use.engine, *time_text(use.busy_ns).split()] for line in lines)
    hot = lines[lines.index("instructions" + " " * (len(lines[-1]) - 12)) + 2 :]
    assert len(hot) == len(model.hot)
    for line, row in zip(hot, model.hot, strict=True):
        assert line.split()[:2] == [row.instruction, row.engine] and str(row.count) in line.split()
        assert os.path.basename(row.place) in line


def test_repeated_layers_are_one_part(model):
    parts = {part.scope: part for part in model.parts}
    assert set(parts) == {"layers.*.linear", "layers.*.gelu", ""}
    linear = parts["layers.*.linear"]
    same = [layer for layer in model.layers if layer.scope.endswith("linear")]
    assert linear.copies == len(same) == 3 and linear.flops == model.flops
    assert linear.critical_ns == pytest.approx(sum(layer.critical_ns for layer in same))
    assert linear.busy_ns["tensor"] == pytest.approx(model.timeline.busy_ns["tensor"])


def test_throttling_shows():
    program = lower_kernel(mlp(1, 256, 256), TRN2)
    cold, warm = profile_program(program, TRN2, throttle=True), profile_program(program, TRN2)
    assert cold.timeline.busy_ns["tensor"] == pytest.approx(2 * warm.timeline.busy_ns["tensor"])


def test_dict_is_json(model):
    again = json.loads(json.dumps(model.to_dict()))
    assert again["latency_ns"] == model.latency_ns and again["engines"][0]["engine"] == model.engines[0].engine
    assert "timeline" not in again


def test_perfetto(model, tmp_path):
    model.save_perfetto(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(model.timeline)
    assert max(e["ts"] + e["dur"] for e in complete) * 1e3 <= model.latency_ns + 1e-3
    last = {}
    for e in sorted(complete, key=lambda e: (e["tid"], e["ts"])):
        assert e["ts"] >= last.get(e["tid"], 0.0) - 1e-9  # viewers nest what overlaps
        last[e["tid"]] = e["ts"] + e["dur"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"tensor", "vector", "queue sync0"} <= names
    waited = [e for e in complete if "waited_for" in e["args"]]
    assert any("nc_matmul on tensor" in e["args"]["waited_for"] for e in waited)


def test_csv(model, tmp_path):
    model.save_csv(tmp_path / "t.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert len(rows) == len(model.timeline)
    busy = sum(float(r["end_ns"]) - float(r["start_ns"]) for r in rows if r["track"] == "tensor")
    assert busy == pytest.approx(model.timeline.busy_ns["tensor"], abs=0.01 * len(rows))
    assert {r["part"] for r in rows} == {layer.scope for layer in model.layers}


def test_html_is_one_file_with_all_data(model, tmp_path):
    model.save_html(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']|https?://|@import|url\(""", text)  # nothing from elsewhere
    assert "{{" not in text and "<title>small on trn2</title>" in text
    packed = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', text)
    assert packed is not None
    data = json.loads(gzip.decompress(base64.b64decode(packed.group(1))))
    assert data == json.loads(json.dumps(page_data(model)))
    assert len(data["events"]["start"]) == len(model.timeline)
    assert max(data["events"]["done"]) == round(model.latency_ns * 10)
    assert len(data["path"]) == len(model.path)
    assert len(data["slots"]["name"]) == len(model.timeline.slots)


def test_the_page_shows_the_target_that_was_profiled(model):
    changed = get("trn2").replace("tensor.clock_ghz", 1.2)
    peaks = page_data(profile_program(model.program, changed))["peaks"]
    assert peaks["bfloat16"] == pytest.approx(page_data(model)["peaks"]["bfloat16"] / 2)


def test_files_appear_whole_or_not_at_all(model, tmp_path):
    with pytest.raises(RanvierError) as caught:
        model.save_html(tmp_path / "no" / "p.html")
    assert caught.value.code == "E0804"
    (tmp_path / "t.csv").write_text("old")
    model.save_csv(tmp_path / "t.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"] and (tmp_path / "t.csv").read_text().startswith("event,")


def test_empty_program():
    b = Builder()
    b.buffer("t", "sbuf", (128, 8))
    p = profile_program(b.program(), TRN2)
    assert (p.latency_ns, p.verdict, p.mfu) == (0, "nothing to do", 0)
    assert "nothing to do" in str(p) and json.dumps(p.to_dict())
