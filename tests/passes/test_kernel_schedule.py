"""Dependencies, schedule and semaphores."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_kernel, tiny_target

from ranvier.compiler.emit import emit
from ranvier.compiler.kernel.assign_engines import assign_engines
from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.find_dependencies import find_dependencies
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
    placed = place(assign_engines(legalize(kernel, target), costs), target)
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
    assert find_dependencies(place(made, TRN2)).data[2] == [0, 1]


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


def test_loads_run_ahead():
    tiles = "\n".join(f"%a{i}: sbuf float32[128, 512] temp" for i in range(6)) + "\n%b: sbuf float32[128, 512] temp"
    steps = "\n".join(
        f"dma_copy dst=%a{i} src=%x engine=sync\ntensor_tensor dst=%b data1=%a{i} data2=%a{i} op=add engine=vector\n"
        f"dma_copy dst=%y[f{i} | 512x128 1x1] src=%b[p0 f{i} | 1x128 1x1] engine=sync" for i in range(6)
    )
    placed, _, plan, _ = lowered(kernel(tiles, steps))
    order = [placed.kernel.body[i].writes()[0].buffer.name for i in plan.streams[Engine.SYNC]]
    assert order[:6] == [f"a{i}" for i in range(6)]


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


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_plan_agrees_with_the_timing_model(seed):
    placed, _, plan, sync = lowered(random_kernel(seed, TRN2, 60))
    total_ns = simulate(emit(placed, plan, sync), TRN2).total_ns
    assert abs(plan.end_ns - total_ns) <= 0.25 * total_ns
