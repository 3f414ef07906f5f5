"""Dependencies, schedule and semaphores."""

from __future__ import annotations

import statistics
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_kernel, tiny_target

from ranvier.compiler.emit import emit
from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.find_dependencies import find_dependencies
from ranvier.compiler.kernel.lanes import Lane
from ranvier.compiler.kernel.legalize import legalize
from ranvier.compiler.kernel.place import place
from ranvier.compiler.kernel.schedule import schedule
from ranvier.compiler.kernel.synchronize import synchronize
from ranvier.ir.text import parse_kernel
from ranvier.sim.timing import simulate
from ranvier.target import get
from ranvier.target.spec import Engine

TRN2 = get("trn2")


def lowered(kernel, target=TRN2):
    """(placed, dependencies, schedule, synchronization) of a kernel."""
    costs = Costs(target)
    placed = place(legalize(kernel, target), target)
    dependencies = find_dependencies(placed)
    plan = schedule(placed, dependencies, costs)
    return placed, dependencies, plan, synchronize(placed, dependencies, plan, target)


def kernel(tiles: str, body: str):
    buffers = "\n".join(f"buffer {line.strip()}" for line in tiles.strip().splitlines())
    return parse_kernel(f"""kernel "k" target=trn2 {{
      buffer %x: hbm float32[128, 512] input
      buffer %y: hbm float32[128, 512] output
      {buffers}
      inputs %x
      outputs %y
      body {{
      {body}
      }}
    }}""")


TILES = """%a: sbuf float32[128, 512] temp
           %b: sbuf float32[128, 512] temp
           %p: psum float32[128, 512] temp"""

CHAIN = """
    dma_copy dst=%a src=%x engine=sync
    nc_matmul dst=%p stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=false
    nc_matmul dst=%p stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=true
    tensor_copy dst=%b src=%p engine=vector
    tensor_copy dst=%b[p0 f0 | 1x128 1x8] src=%a[p0 f0 | 1x128 1x8] engine=vector
    dma_copy dst=%y src=%b engine=sync"""


def test_kinds_of_dependencies():
    placed = place(kernel(TILES, CHAIN), TRN2)
    dependencies = find_dependencies(placed)
    # The copy from PSUM depends on the second matmul only, which continues the first; that is an order, not a stall.
    assert dependencies.data == [[], [0], [0], [2], [0], [3, 4]]
    assert dependencies.order == [[], [], [1], [], [3], []]


def test_hidden_state_makes_a_dependency():
    square = "activation dst=%b op=square data=%a reduce_op=add"
    made = kernel(TILES.replace("%p: psum float32[128, 512]", "%r: sbuf float32[128, 1]"), f"""
        dma_copy dst=%a src=%x engine=sync
        {square} reduce_cmd=reset_reduce
        activation dst=%a op=square data=%a reduce_op=add reduce_cmd=reduce reduce_res=%r
        dma_copy dst=%y src=%b engine=sync""")
    dependencies = find_dependencies(place(made, TRN2))
    assert (dependencies.data[2], dependencies.order[2]) == ([0], [1])


def test_waits_and_signals_of_a_chain():
    placed, _, plan, sync = lowered(kernel(TILES, CHAIN))
    program = emit(placed, plan, sync)
    found = {
        slot.order: ([(w.semaphore, w.value) for w in slot.waits], [(s.semaphore, s.amount) for s in slot.signals])
        for _, slot in program.slots()
    }
    assert found == {
        0: ([], [("done.sync0", 16)]),
        1: ([("done.sync0", 16)], []),  # the second matmul is behind the first on the same engine
        2: ([], [("done.tensor", 1)]),
        3: ([("done.tensor", 1)], []),  # implies the load: the matmul had waited for it
        4: ([], [("done.vector", 1)]),
        5: ([("done.vector", 1)], []),
    }


def test_a_transfer_waits_for_its_own_trigger_engine():
    made = kernel(TILES, """
        dma_copy dst=%a src=%x engine=scalar
        tensor_copy dst=%b src=%a engine=scalar
        dma_copy dst=%y src=%b engine=scalar""")
    _, _, plan, sync = lowered(made)
    assert plan.streams == {Engine.SCALAR: [0, 1, 2]}
    assert [(w.semaphore, w.value) for w in sync.waits[1]] == [("done.scalar0", 16)]
    assert [(w.semaphore, w.value) for w in sync.waits[2]] == [("done.scalar", 1)]


def engines_of(made) -> dict[int, Engine]:
    return {i: engine for engine, stream in lowered(made)[2].streams.items() for i in stream}


def test_independent_work_is_spread_over_the_engines_that_may_run_it():
    tiles = "%a: sbuf float32[128, 512] temp\n" + "\n".join(f"%b{i}: sbuf float32[128, 16] temp" for i in range(30))
    copies = [f"tensor_copy dst=%b{i} src=%a[p0 f{16 * i} | 1x128 1x16]" for i in range(30)]
    stores = [f"dma_copy dst=%y[f{16 * i} | 512x128 1x16] src=%b{i}" for i in range(30)]
    made = kernel(tiles, "\n".join(["dma_copy dst=%a src=%x", *copies, *stores]))
    costs, busy, longest = Costs(TRN2), dict.fromkeys((Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD), 0.0), 0.0
    for i, engine in engines_of(made).items():
        if not made.body[i].IS_DMA:
            each = costs.of(made.body[i], engine).busy.ns
            busy[engine], longest = busy[engine] + each, max(longest, each)
    assert max(busy.values()) - min(busy.values()) <= 2 * longest


def test_an_engine_that_is_asked_for_is_kept_and_psum_is_kept_from_gpsimd():
    made = kernel(TILES, """
        dma_copy dst=%a src=%x engine=gpsimd
        nc_matmul dst=%p stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=false
        tensor_copy dst=%b[p0 f0 | 1x128 1x256] src=%p[p0 f0 | 1x128 1x256]
        tensor_copy dst=%b[p0 f256 | 1x128 1x256] src=%p[p0 f256 | 1x128 1x256]
        tensor_copy dst=%a src=%b engine=gpsimd
        dma_copy dst=%y src=%a engine=scalar""")
    assert engines_of(made) == {
        0: Engine.GPSIMD, 1: Engine.TENSOR, 2: Engine.SCALAR, 3: Engine.VECTOR, 4: Engine.GPSIMD, 5: Engine.SCALAR,
    }  # fmt: skip


def test_a_chain_stays_on_the_engine_that_is_done_first():
    steps = "\n".join(f"tensor_copy dst=%{'ab'[k % 2]} src=%{'ba'[k % 2]}" for k in range(1, 9))
    made = kernel(TILES, f"dma_copy dst=%a src=%x\n{steps}\ndma_copy dst=%y src=%a")
    costs = Costs(TRN2)
    engines = engines_of(made)
    options = made.body[1].legal_engines(TRN2)
    fastest = min(options, key=lambda e: costs.delay_ns(costs.of(made.body[1], e)))
    assert {engines[i] for i in range(1, 9)} == {fastest} and len(options) == 3


def test_an_urgent_transfer_does_not_queue_behind_what_is_loaded_ahead():
    tiles = "%a: sbuf float32[128, 512] temp\n%b: sbuf float32[128, 512] temp\n" + "\n".join(
        f"%w{i}: sbuf float32[128, 512] temp" for i in range(60)
    )
    urgent = """dma_copy dst=%a src=%x
        tensor_copy dst=%b src=%a
        dma_copy dst=%y src=%b
        dma_copy dst=%a src=%y"""
    loads = [f"dma_copy dst=%w{i} src=%x" for i in range(60)]
    sums = [f"tensor_tensor dst=%a data1=%a data2=%w{i} op=add" for i in range(60)]
    made = kernel(tiles, "\n".join([urgent, *loads, *sums, "dma_copy dst=%y src=%a"]))
    _, _, plan, _ = lowered(made)
    before = [i for i in plan.streams[Engine.SYNC] if 4 <= i < 64 and plan.start_ns[i] < plan.start_ns[3]]
    assert 0 < len(before) < 20


def test_loads_run_ahead():
    tiles = "\n".join(f"%a{i}: sbuf float32[128, 512] temp" for i in range(6)) + "\n%b: sbuf float32[128, 512] temp"
    steps = "\n".join(
        f"dma_copy dst=%a{i} src=%x engine=sync\ntensor_tensor dst=%b data1=%a{i} data2=%a{i} op=add engine=vector\n"
        f"dma_copy dst=%y[f{i} | 512x128 1x1] src=%b[p0 f{i} | 1x128 1x1] engine=sync" for i in range(6)
    )
    placed, _, plan, _ = lowered(kernel(tiles, steps))
    order = [placed.kernel.body[i].writes()[0].buffer.name for i in plan.streams[Engine.SYNC]]
    assert order[:4] == [f"a{i}" for i in range(4)]


def test_another_table_is_loaded_for_a_path_that_is_longer_by_two_loads():
    for height_ns, expected in ((10_000.0, (0.0, 1)), (1_000.0, (500.0, 2))):
        lane = Lane(Engine.SCALAR, 1283.0)
        lane.table = "gelu"
        lane.add(0.0, height_ns, 1, 100.0, "exp")
        lane.add(500.0, 10.0, 2, 100.0, "gelu")  # needs the resident table, and arrives before a load would be done
        assert lane.take() == expected


def test_activation_tables_are_not_loaded_back_and_forth():
    tiles = "\n".join(f"%{n}{i}: sbuf float32[128, 64] temp" for n in "ab" for i in range(8))
    steps = ["dma_copy dst=%a{i} src=%x[f{c} | 512x128 1x64] engine=sync", "activation dst=%b{i} op={f} data=%a{i}",
             "dma_copy dst=%y[f{c} | 512x128 1x64] src=%b{i} engine=sync"]
    body = "\n".join(s.format(i=i, c=64 * i, f=("exp", "gelu")[i % 2]) for i in range(8) for s in steps)
    placed, _, plan, _ = lowered(kernel(tiles, body))
    functions = [str(placed.kernel.body[i].op) for i in plan.streams[Engine.SCALAR]]  # type: ignore[attr-defined]
    switches = sum(a != b for a, b in pairwise(functions))
    assert sorted(functions) == ["exp"] * 4 + ["gelu"] * 4 and switches == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), sbuf=st.sampled_from((768, 2048, 1 << 16)))
def test_schedules_respect_dependencies_and_are_deterministic(seed, sbuf):
    target = tiny_target(sbuf)
    made = random_kernel(seed, target, 50)
    placed, dependencies, plan, sync = lowered(made, target)
    assert sorted(plan.sequence) == list(range(len(placed.kernel.body)))
    rank = {i: k for k, i in enumerate(plan.sequence)}
    for i in range(len(placed.kernel.body)):
        assert all(rank[p] < rank[i] for p in (*dependencies.data[i], *dependencies.order[i]))
        assert set(dependencies.data[i]).isdisjoint(dependencies.order[i])
    for stream in plan.streams.values():
        assert stream == sorted(stream, key=rank.__getitem__)
    again = lowered(made, target)
    assert (again[2], again[3]) == (plan, sync)


def test_the_plan_agrees_with_the_timing_model():
    """Ports and DMA arbitration are in the model only, so a few kernels differ more."""
    differences = []
    for seed in range(40):
        placed, _, plan, sync = lowered(random_kernel(seed, TRN2, 60))
        total_ns = simulate(emit(placed, plan, sync), TRN2).total_ns
        differences.append(abs(plan.end_ns - total_ns) / max(total_ns, 1.0))
    assert statistics.median(differences) <= 0.1 and max(differences) <= 0.35, sorted(differences)[-5:]


PRODUCT = "nc_matmul dst=%p{i} stationary=%a[p0 f0 | 1x128 1x128] moving=%a accumulate=false"


def products(count: int, copies_later: bool = False):
    """Products in PSUM tiles of their own, each copied out: at once, or all at the end."""
    tiles = "%a: sbuf float32[128, 512] temp\n" + "\n".join(
        f"%p{i}: psum float32[128, 512] temp\n%c{i}: sbuf float32[128, 512] temp" for i in range(count)
    )
    steps = [PRODUCT.format(i=i) for i in range(count)]
    copies = [f"tensor_copy dst=%c{i} src=%p{i}" for i in range(count)]
    order = steps + copies if copies_later else [line for pair in zip(steps, copies, strict=True) for line in pair]
    stores = [f"dma_copy dst=%y[f{i} | 512x128 1x1] src=%c{i}[p0 f0 | 1x128 1x1]" for i in range(count)]
    return kernel(tiles, "\n".join(["dma_copy dst=%a src=%x", *order, *stores]))


def test_psum_tiles_go_to_banks_as_they_become_free():
    placed, _, plan, _ = lowered(products(20))
    bank = int(TRN2.psum.bank_bytes.value)
    assert placed.floating == tuple(f"p{i}" for i in range(20)) and placed.banks_needed == 1
    assert {place.byte // bank for place in plan.placements.values()} == set(range(8))
    assert all(place.byte % bank == 0 for place in plan.placements.values())
    # The ninth product comes after the copy out of the tile whose bank it takes.
    ninth = next(i for i, inst in enumerate(placed.kernel.body) if inst.writes()[0].buffer.name == "p8")
    before = [placed.kernel.body[i].writes()[0].buffer.name for i in plan.reuse[ninth]]
    assert len(before) == 2 and before[0][0] == "p" and before[1] == "c" + before[0][1:]


def test_psum_as_full_as_the_program_says_still_finishes():
    placed, _, plan, _ = lowered(products(8, copies_later=True))
    assert placed.banks_needed == 8 and len({p.byte for p in plan.placements.values()}) == 8


def test_tiles_ahead_of_their_turn_leave_room_for_those_in_turn():
    """The q could be computed first and take all banks, but each is needed until its p is there."""
    tiles = "%a: sbuf float32[128, 512] temp\n%b: sbuf float32[128, 512] temp\n" + "\n".join(
        f"%{n}{i}: {'psum' if n in 'pq' else 'sbuf'} float32[128, 512] temp" for i in range(8) for n in "pqcd"
    )
    late = ["dma_copy dst=%a src=%x", "activation dst=%b op=tanh data=%a", *["activation dst=%b op=tanh data=%b"] * 16]
    first = [PRODUCT.format(i=i).replace("%a", "%b") for i in range(8)]
    second = [PRODUCT.format(i=i).replace("%p", "%q") for i in range(8)]
    copies = [f"tensor_copy dst=%c{i} src=%p{i}" for i in range(8)]
    sums = [f"tensor_tensor dst=%d{i} data1=%q{i} data2=%c{i} op=add" for i in range(8)]
    stores = [f"dma_copy dst=%y[f{i} | 512x128 1x1] src=%d{i}[p0 f0 | 1x128 1x1]" for i in range(8)]
    placed, _, plan, _ = lowered(kernel(tiles, "\n".join([*late, *first, *copies, *second, *sums, *stores])))
    assert placed.banks_needed == 8 and len(plan.sequence) == len(placed.kernel.body)


def test_small_psum_tiles_share_banks():
    tiles = "%a: sbuf float32[128, 512] temp\n" + "\n".join(
        f"%p{i}: psum float32[128, 128] temp\n%c{i}: sbuf float32[128, 128] temp" for i in range(16)
    )
    part = "[p0 f0 | 1x128 1x128]"
    steps = [f"nc_matmul dst=%p{i} stationary=%a{part} moving=%a{part} accumulate=false" for i in range(16)]
    copies = [f"tensor_copy dst=%c{i} src=%p{i}" for i in range(16)]
    stores = [f"dma_copy dst=%y[f{i} | 512x128 1x1] src=%c{i}[p0 f0 | 1x128 1x1]" for i in range(16)]
    body = [line for pair in zip(steps, copies, strict=True) for line in pair]
    _, _, plan, _ = lowered(kernel(tiles, "\n".join(["dma_copy dst=%a src=%x", *body, *stores])))
    places = [place.byte for place in plan.placements.values()]
    assert len(set(places)) > 8 and all(byte % 512 == 0 for byte in places)
