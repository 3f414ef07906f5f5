"""Clock gating of the tensor engine on a window of 1000 ns, half clock when cold, threshold one half."""

import pytest
from helpers.programs import Builder

from ranvier.isa.tensor_engine import NcMatmul
from ranvier.sim.throttle import Throttle
from ranvier.sim.timing import simulate
from ranvier.target import get
from ranvier.target.spec import Engine

TARGET = get("trn2").replace("tensor.throttle.window_ns", 1000.0)


def test_starts_cold_and_warms_up_within_an_instruction():
    throttle = Throttle(TARGET)
    assert throttle.finish(0.0, 400.0) == 800.0  # at half clock
    # 200 ns of the first window do 100 ns of work; the window was busy, so the rest runs at full clock
    assert throttle.finish(800.0, 300.0) == 1200.0


def test_falls_back_after_a_window_with_little_work():
    throttle = Throttle(TARGET)
    throttle.finish(0.0, 500.0)
    assert throttle.finish(1000.0, 400.0) == 1400.0  # warm
    assert throttle.finish(2000.0, 100.0) == 2200.0  # only 400 of 1000 ns were busy: cold
    assert throttle.finish(2200.0, 400.0) == 3000.0
    assert throttle.finish(3000.0, 100.0) == 3100.0  # busy for all of it: warm


def test_idle_time_cools():
    throttle = Throttle(TARGET)
    throttle.finish(0.0, 500.0)
    assert throttle.finish(1_000_000.0, 100.0) == 1_000_200.0


def test_exactly_the_threshold_is_not_enough():
    throttle = Throttle(TARGET)
    throttle.finish(0.0, 250.0)
    assert throttle.finish(1000.0, 10.0) == 1020.0


@pytest.mark.parametrize(("target", "gated"), [("trn2", True), ("trn1", False)])
def test_long_streams_pay_once(target, gated):
    b = Builder(target=target)
    held, moved = b.buffer("s", "sbuf", (128, 128), "bfloat16"), b.buffer("m", "sbuf", (128, 512), "bfloat16")
    product = b.buffer("p", "psum", (128, 512))
    for i in range(100):
        b.put(Engine.TENSOR, NcMatmul(dst=product.all, stationary=held.all, moving=moved.all, accumulate=i > 0))
    chip = get(target)
    full, throttled = (simulate(b.program(), chip, throttle=t).total_ns for t in (False, True))
    window = chip.tensor.throttle.window_ns.value
    assert throttled - full == pytest.approx(window / 2 if gated else 0)
