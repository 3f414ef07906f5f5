"""Clock gating of the tensor engine: slow at first, fast after it was busy for a while, slow again after it was not."""

from __future__ import annotations

from ranvier.target.fact import Confidence
from ranvier.target.spec import Target


class Throttle:
    """The clock of the tensor engine over time.

    Time is divided into windows. The engine runs at its cold share of the full clock in the first one, and in every
    other one that follows a window in which it was busy for less than the threshold. Work is given in order of time.
    """

    def __init__(self, target: Target):
        spec = target.tensor.throttle
        self._window, self._threshold = float(spec.window_ns.value), float(spec.busy_threshold.value)
        self._cold = float(spec.cold_fraction.value)
        self._index, self._busy, self._rate = 0, 0.0, self._cold
        facts = (spec.window_ns, spec.busy_threshold, spec.cold_fraction)
        self.is_estimated = any(fact.confidence is Confidence.ESTIMATED for fact in facts)

    def finish(self, start: float, full_rate_ns: float) -> float:
        """When work that takes `full_rate_ns` at the full clock ends if it starts at `start`."""
        now, left = start, full_rate_ns
        self._move_to(start)
        while True:
            border = (self._index + 1) * self._window
            if now + left / self._rate <= border:
                self._busy += left / self._rate
                return now + left / self._rate
            self._busy += border - now
            left -= (border - now) * self._rate
            now = border
            self._next_window()

    def _move_to(self, time: float) -> None:
        while time >= (self._index + 1) * self._window:
            self._next_window()
            if self._rate == self._cold and self._busy == 0.0:  # idle windows stay cold
                self._index = max(self._index, int(time // self._window))

    def _next_window(self) -> None:
        self._rate = 1.0 if self._busy > self._threshold * self._window else self._cold
        self._index, self._busy = self._index + 1, 0.0
