"""Instructions of gpsimd: patterns, masks, gathers, reductions across partitions. It reaches SBUF only."""

from __future__ import annotations

import functools
import math

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.alu import AluOp, alu
from ranvier.isa.engine_time import gpsimd_time
from ranvier.isa.record import SBUF, Cost, Example, Instruction, Rule, attr, dst, instruction, src
from ranvier.target.spec import Engine, Target

_ENGINES = (Engine.GPSIMD,)
_COST_SOURCE = "NKI documentation v2.26.1: start of the program plus one element per cycle"
Pattern = tuple[tuple[int, int], ...]


def as_pattern(pattern) -> Pattern:
    """[[step, count], ...] as nested tuples of integers."""
    return tuple((int(step), int(count)) for step, count in pattern)


@functools.lru_cache(maxsize=64)
def affine_values(pattern: Pattern, offset: int, channel_multiplier: int, partitions: int) -> np.ndarray:
    """offset + partition * channel_multiplier + sum of index * step, int32 (wrapping), [partitions, product of counts]."""
    values = np.array([offset], np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count, dtype=np.int64)).reshape(-1)
    rows = channel_multiplier * np.arange(partitions, dtype=np.int64)
    result = (rows[:, None] + values).astype(np.int32)
    result.setflags(write=False)
    return result


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.iota", cost_source=_COST_SOURCE)
class Iota(Instruction):
    """dst[p, i, j, ...] = offset + p * channel_multiplier + i * step0 + j * step1 + ..., p counted from dst's first partition.

    `pattern` is up to four [step, count] pairs, outermost first, whose counts multiply to the elements per partition of
    `dst`. Values are int32 and are converted to the dtype of `dst`, which may be any.
    """

    dst: AccessPattern = dst(SBUF, doc="any dtype")
    pattern: Pattern = attr(tuple, doc="[[step, count], ...], outermost first")
    offset: int = attr(int, default=0)
    channel_multiplier: int = attr(int, default=0, doc="step from one partition to the next")

    RULES = {
        "IO-1": Rule("E0304", "the counts of pattern multiply to the elements per partition of dst"),
        "IO-2": Rule("E0309", "pattern has one to four pairs"),
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "int32"), pattern=[[1, 512]], offset=3, channel_multiplier=512)),
        Example(lambda t: dict(dst=t("sbuf", (96, 60), "float32"), pattern=[[-4, 3], [0, 4], [7, 5]], channel_multiplier=-1)),
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "int32"), pattern=[[1, 256]]), rule="IO-1"),
        Example(lambda t: dict(dst=t("sbuf", (8, 32), "int32"), pattern=[[1, 2]] * 5), rule="IO-2"),
    )  # fmt: skip

    def __post_init__(self):
        object.__setattr__(self, "pattern", as_pattern(self.pattern))

    def check(self, target: Target) -> None:
        _check_pattern(self, "IO-1", "IO-2", target)

    @property
    def arithmetic(self) -> str:
        return "raw"

    def semantics(self) -> np.ndarray:
        return affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.dst.free_elements, target.gpsimd.cycles_per_element)


def _check_pattern(inst: Iota | AffineSelect, elements: str, dims: str, target: Target) -> None:
    limit = int(target.limits.access_dims_max.value)
    inst.require(1 <= len(inst.pattern) <= limit, dims, f"pattern has {len(inst.pattern)} pairs; it can have 1 to {limit}", argument="pattern")
    count = math.prod(n for _, n in inst.pattern)
    inst.require(count == inst.dst.free_elements, elements, f"pattern has {count} elements, dst has {inst.dst.free_elements} per partition", argument="pattern")


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.affine_select", cost_source=_COST_SOURCE, elementwise=True)
class AffineSelect(Instruction):
    """dst = on_true_tile where cmp_op(affine value, 0) holds, else on_false_value.

    The affine value is that of `iota`: offset + p * channel_multiplier + sum of index * step over `pattern`. Elements that
    are selected keep their bits when the dtypes are equal and are cast through float32 otherwise.
    """

    dst: AccessPattern = dst(SBUF, doc="any dtype")
    pattern: Pattern = attr(tuple, doc="[[step, count], ...], outermost first")
    channel_multiplier: int = attr(int, doc="step from one partition to the next")
    on_true_tile: AccessPattern = src(SBUF, doc="any dtype")
    on_false_value: float = attr(float, doc="float32")
    cmp_op: AluOp = attr(AluOp, default=alu("equal"), doc="a comparison")
    offset: int = attr(int, default=0)

    RULES = {
        "AS-1": Rule("E0304", "the counts of pattern multiply to the elements per partition of dst"),
        "AS-2": Rule("E0309", "pattern has one to four pairs"),
        "AS-3": Rule("E0309", "cmp_op is a comparison"),
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "float32"), pattern=[[-1, 512]], channel_multiplier=1, on_true_tile=t("sbuf", (128, 512), "float32"), on_false_value=-1e9, cmp_op=alu("greater_equal")), note="a causal mask"),
        Example(lambda t: dict(dst=t("sbuf", (32, 24), "float32"), pattern=[[1, 4], [-2, 6]], channel_multiplier=0, on_true_tile=t("sbuf", (32, 24), "bfloat16"), on_false_value=0.0, offset=-1)),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), pattern=[[1, 4]], channel_multiplier=0, on_true_tile=t("sbuf", (8, 8), "float32"), on_false_value=0.0), rule="AS-1"),
        Example(lambda t: dict(dst=t("sbuf", (8, 1), "float32"), pattern=[], channel_multiplier=0, on_true_tile=t("sbuf", (8, 1), "float32"), on_false_value=0.0), rule="AS-2"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), pattern=[[1, 8]], channel_multiplier=0, on_true_tile=t("sbuf", (8, 8), "float32"), on_false_value=0.0, cmp_op=alu("add")), rule="AS-3"),
    )  # fmt: skip

    def __post_init__(self):
        object.__setattr__(self, "pattern", as_pattern(self.pattern))

    def check(self, target: Target) -> None:
        _check_pattern(self, "AS-1", "AS-2", target)
        self.require(self.cmp_op.kind == "compare", "AS-3", f"cmp_op is {self.cmp_op}", argument="cmp_op")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.dst.dtype is self.on_true_tile.dtype else "float32"

    def semantics(self, on_true_tile: np.ndarray) -> np.ndarray:
        values = affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)
        keep = self.cmp_op.fn(values, np.int32(0)) != 0
        fill = np.array(self.on_false_value, np.float32)
        if on_true_tile.dtype != np.float32:
            fill = dt.cast(fill, self.dst.dtype)
        return np.where(keep.reshape(on_true_tile.shape), on_true_tile, fill)

    def cost(self, target: Target, engine: Engine) -> Cost:
        return gpsimd_time(target, self.dst.free_elements, target.gpsimd.cycles_per_element)
