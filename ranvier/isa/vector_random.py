"""Random numbers and dropout on the vector engine.

The generators of the hardware are not published (an LFSR, from Trainium3 on XORWOW). This one is deterministic: each lane
has a 32-bit counter as hidden state, and its numbers are hashes (the finalizer of MurmurHash3) of the counter as it goes on
by an odd constant. The counter starts undefined; `set_rng_seed` sets it. One generator serves all engines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.engine_time import gpsimd_time, vector_time
from ranvier.isa.examples import example
from ranvier.isa.record import PSUM, SBUF, Cost, Instruction, Rule, attr, dst, instruction, src, state
from ranvier.isa.vector_common import in_psum, shown
from ranvier.target.spec import Engine, Target

RANDOM_STATE = "random"
"""The counters of all lanes: 32 bits each, kept in the bits of a float32."""

_STEP = np.uint32(0x9E3779B9)
_INTEGERS = (dt.int8, dt.int16, dt.int32, dt.uint8, dt.uint16, dt.uint32)


def _hash(words: np.ndarray) -> np.ndarray:
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))


def draw(counters: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """uint32 numbers of `shape` ([lanes, ...]) and the counters after them; `counters` is a state, [lanes, 1] float32."""
    start = np.ascontiguousarray(counters).view(np.uint32)
    count = int(np.prod(shape[1:]))
    lanes = np.arange(shape[0], dtype=np.uint32)[:, None]
    position = start + _STEP * np.arange(1, count + 1, dtype=np.uint32)
    after = start + np.uint32(int(_STEP) * count & 0xFFFFFFFF)
    return _hash(position ^ _hash(lanes)).reshape(shape), after.view(np.float32)


def uniform(words: np.ndarray) -> np.ndarray:
    """float32 in [0, 1) from the upper 24 bits of random words."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.set_rng_seed",
    cost_source="assumption: as an instruction on one element",
)
class SetRngSeed(Instruction):
    """Seed the random generator of all lanes from one 32-bit number."""

    src_seeds: AccessPattern = src(SBUF, PSUM, dtypes=(dt.int32, dt.uint32, dt.float32))
    counters: None = state(RANDOM_STATE, all_lanes=True)

    RULES = {"SEED-1": Rule("E0304", "src_seeds has one element")}
    EXAMPLES = (
        example(src_seeds="sbuf 1x1 u32"),
        example(src_seeds="sbuf 2x1 u32", rule="SEED-1"),
        example(src_seeds="sbuf 1x1 bf16", rule="ISA-4"),
    )

    def check(self, target: Target) -> None:
        message = f"src_seeds has shape {self.src_seeds.shape}"
        self.require(self.src_seeds.size == 1, "SEED-1", message, argument="src_seeds")

    @property
    def arithmetic(self) -> str:
        return "raw"

    def uses_state(self) -> bool:
        return True

    def semantics(self, src_seeds: np.ndarray, counters: np.ndarray) -> np.ndarray:
        seed = np.ascontiguousarray(src_seeds).view(np.uint32).reshape(1, 1)
        lanes = np.arange(counters.shape[0], dtype=np.uint32)[:, None]
        return _hash(_hash(seed) + _STEP * (lanes + np.uint32(1))).view(np.float32)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return vector_time(target, [self.src_seeds], [], 1, target.vector.cycles_per_element)


@instruction(
    engines=(Engine.VECTOR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.rng",
    cost_source="assumption: one number per cycle; Trainium3 guide: four; on gpsimd as a partition reduction",
)
class Rng(Instruction):
    """Random bits: each element of dst gets the low bits of a random 32-bit word. gpsimd from feature gpsimd_rng on."""

    dst: AccessPattern = dst(SBUF, PSUM, dtypes=_INTEGERS)
    engine: Engine = attr(Engine, default=Engine.VECTOR)
    counters: None = state(RANDOM_STATE)

    EXAMPLES = (
        example(dst="sbuf 128x64 u32"),
        example(dst="psum 64x64 i8"),
        example(dst="sbuf 128x64 i16", engine=Engine.GPSIMD, feature="gpsimd_rng"),
        example(dst="sbuf 128x64 f32", rule="ISA-4"),
        example(dst="psum 64x64 u32", engine=Engine.GPSIMD, rule="ISA-8"),
    )

    @property
    def arithmetic(self) -> str:
        return "raw"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        gpsimd = target.has("gpsimd_rng") and not in_psum(self.dst)
        return (Engine.VECTOR, Engine.GPSIMD) if gpsimd else (Engine.VECTOR,)

    def uses_state(self) -> bool:
        return True

    def semantics(self, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words, after = draw(counters, self.dst.shape)
        size = self.dst.dtype.itemsize
        return words.astype(np.dtype(f"u{size}")).view(self.dst.dtype.np), after

    def cost(self, target: Target, engine: Engine) -> Cost:
        count = self.dst.free_elements
        if engine is Engine.GPSIMD:
            return gpsimd_time(target, count, target.gpsimd.partition_reduce_cycles_per_element)
        return vector_time(target, [], [self.dst], count, target.vector.random_cycles_per_element)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.rand2; Trainium3 architecture guide",
    cost_source="Trainium3 architecture guide: four numbers per cycle",
    feature="xorwow",
    elementwise=True,
)
class Rand2(Instruction):
    """Uniform random numbers in [min, max), each bound a number or [P, 1] float32; computed in float32."""

    dst: AccessPattern = dst(SBUF, PSUM)
    min: AccessPattern | float = src(SBUF, PSUM, dtypes=(dt.float32,), vector=True, scalar=True)
    max: AccessPattern | float = src(SBUF, PSUM, dtypes=(dt.float32,), vector=True, scalar=True)
    counters: None = state(RANDOM_STATE)

    RULES = {"RAND-1": Rule("E0309", "min is less than max")}
    EXAMPLES = (
        example(dst="sbuf 128x64 f32", min=0.0, max=1.0),
        example(dst="psum 64x64 bf16", min="sbuf 64x1 f32", max=100.0),
        example(dst="sbuf 128x64 f32", min=1.0, max=1.0, rule="RAND-1"),
    )

    def check(self, target: Target) -> None:
        low, high = self.min, self.max
        legal = isinstance(low, AccessPattern) or isinstance(high, AccessPattern) or low < high
        self.require(legal, "RAND-1", f"min is {shown(low)}, max is {shown(high)}", argument="max")

    def uses_state(self) -> bool:
        return True

    def semantics(self, min: Any, max: Any, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words, after = draw(counters, self.dst.shape)
        low, high = np.asarray(min, np.float32), np.asarray(max, np.float32)
        return low + (high - low) * uniform(words), after

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.random_cycles_per_element
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate)


@instruction(
    engines=(Engine.VECTOR,),
    source="NKI 0.6, nki.isa.dropout",
    cost_source="NKI 0.1 cost tables",
    elementwise=True,
)
class Dropout(Instruction):
    """Copy data to dst, each element set to zero with probability `prob` (a number or [P, 1]). Nothing is rescaled."""

    dst: AccessPattern = dst(SBUF, PSUM)
    data: AccessPattern = src(SBUF, PSUM)
    prob: AccessPattern | float = src(SBUF, PSUM, vector=True, scalar=True)
    counters: None = state(RANDOM_STATE)

    RULES = {
        "DROP-1": Rule("E0305", "dst has data's dtype"),
        "DROP-2": Rule("E0305", "prob from memory is a float, float32 when data holds integers"),
        "DROP-3": Rule("E0309", "prob lies in 0 ... 1"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x64 bf16", data="sbuf 128x64 bf16", prob=0.25),
        example(dst="sbuf 64x64 i32", data="sbuf 64x64 i32", prob="sbuf 64x1 f32"),
        example(dst="sbuf 8x64 f32", data="sbuf 8x64 bf16", prob=0.5, rule="DROP-1"),
        example(dst="sbuf 8x64 i32", data="sbuf 8x64 i32", prob="sbuf 8x1 bf16", rule="DROP-2"),
        example(dst="sbuf 8x64 f32", data="sbuf 8x64 f32", prob=1.5, rule="DROP-3"),
    )

    def check(self, target: Target) -> None:
        dtypes = f"dst is {self.dst.dtype}, data is {self.data.dtype}"
        self.require(self.dst.dtype is self.data.dtype, "DROP-1", dtypes, argument="dst")
        if isinstance(self.prob, AccessPattern):
            legal = self.prob.dtype is dt.float32 or (self.prob.dtype.is_float and self.data.dtype.is_float)
            self.require(legal, "DROP-2", f"prob is {shown(self.prob)}, data is {self.data.dtype}", argument="prob")
        else:
            self.require(0 <= self.prob <= 1, "DROP-3", f"prob is {self.prob!r}", argument="prob")

    @property
    def arithmetic(self) -> str:
        return "raw"

    def uses_state(self) -> bool:
        return True

    def semantics(self, data: np.ndarray, prob: Any, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words, after = draw(counters, data.shape)
        keep = uniform(words) >= np.asarray(prob).astype(np.float32)
        return np.where(keep, data, np.zeros((), data.dtype)), after

    def cost(self, target: Target, engine: Engine) -> Cost:
        rate = target.vector.cycles_per_element
        return vector_time(target, self.reads(), [self.dst], self.dst.free_elements, rate)


