"""Instructions of the tensor engine: matmul and transpose on the 128 x 128 systolic array."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.record import PSUM, SBUF, Cost, Example, Instruction, Rule, attr, dst, instruction, ns, src
from ranvier.target.spec import Engine, MatmulRate, Target

_MATMUL_DTYPES = (dt.bfloat16, dt.float16, dt.float32, dt.float8_e4m3, dt.float8_e4m3fn, dt.float8_e5m2)


def matmul_time(target: Target, rate: MatmulRate, columns: int, stationary_columns: int) -> Cost:
    """Time of a matmul: moving columns stream through while the next stationary operand loads behind them."""
    t = target.tensor
    stream = ns(columns, rate.cycles_per_column, clock=t.clock_ghz).at_least(ns(1, t.min_ii_cycles, clock=t.clock_ghz))
    one_pass = stream + ns(1, rate.pass_overhead_cycles, clock=t.clock_ghz)
    load = ns(stationary_columns, rate.load_cycles_per_column, clock=t.clock_ghz)
    busy = one_pass.at_least(load).times(rate.passes.value)
    return Cost(busy, busy + ns(1, t.latency_ns))


@instruction(
    engines=(Engine.TENSOR,),
    source="NKI 0.6, nki.isa.nc_matmul; architecture guides, tensor engine",
    cost_source="architecture guides: one moving column per cycle, at least 64 cycles; fp32 in passes (public traces)",
)
class NcMatmul(Instruction):
    """Matrix product on the tensor engine: dst[m, n] (+)= sum over k of stationary[k, m] * moving[k, n].

    `stationary` is [K <= 128, M <= 128] and `moving` [K, N <= 512] in SBUF with K on partitions; `dst` is [M, N] float32 in
    one PSUM bank. Products of the stored values are summed in float32. `accumulate` False overwrites dst, True adds to it,
    None overwrites what no matmul has written since the tile was made and adds to the rest.
    """

    dst: AccessPattern = dst(PSUM, dtypes=(dt.float32, dt.bfloat16), doc="[M, N] in one PSUM bank")
    stationary: AccessPattern = src(SBUF, dtypes=_MATMUL_DTYPES, doc="[K, M], the operand held in the array")
    moving: AccessPattern = src(SBUF, dtypes=_MATMUL_DTYPES, doc="[K, N], the operand streamed through")
    accumulate: bool | None = attr(bool, default=None, doc="add to dst instead of overwriting it")

    RULES = {
        "MM-1": Rule("E0304", "stationary and moving have the same number of partitions (the contraction size K)"),
        "MM-2": Rule("E0308", "stationary has at most 128 free elements"),
        "MM-3": Rule("E0308", "moving has at most 512 free elements"),
        "MM-4": Rule("E0304", "dst has as many partitions as stationary has free elements, and moving's free elements"),
        "MM-5": Rule("E0305", "float32 operands multiply only float32 operands"),
        "MM-6": Rule("E0310", "dst lies within one PSUM bank"),
        "MM-7": Rule("E0307", "bfloat16 accumulation exists from the generation with feature psum_bf16_accumulate on"),
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("psum", (128, 512), "float32"), stationary=t("sbuf", (128, 128), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16"), accumulate=False)),
        Example(lambda t: dict(dst=t("psum", (17, 30), "float32"), stationary=t("sbuf", (96, 17), "float32"), moving=t("sbuf", (96, 30), "float32"), accumulate=False)),
        Example(lambda t: dict(dst=t("psum", (128, 512), "float32"), stationary=t("sbuf", (64, 128), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16")), rule="MM-1"),
        Example(lambda t: dict(dst=t("psum", (128, 512), "float32"), stationary=t("sbuf", (128, 256), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16")), rule="MM-2"),
        Example(lambda t: dict(dst=t("psum", (128, 1024), "float32"), stationary=t("sbuf", (128, 128), "bfloat16"), moving=t("sbuf", (128, 1024), "bfloat16")), rule="MM-3"),
        Example(lambda t: dict(dst=t("psum", (64, 512), "float32"), stationary=t("sbuf", (128, 128), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16")), rule="MM-4"),
        Example(lambda t: dict(dst=t("psum", (128, 512), "float32"), stationary=t("sbuf", (128, 128), "float32"), moving=t("sbuf", (128, 512), "bfloat16")), rule="MM-5"),
        Example(lambda t: dict(dst=t("psum", (128, 512), "bfloat16"), stationary=t("sbuf", (128, 128), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16"), accumulate=False), rule="MM-7"),
        Example(lambda t: dict(dst=t("psum", (128, 1024), "float32", slice(256, 768)), stationary=t("sbuf", (128, 128), "bfloat16"), moving=t("sbuf", (128, 512), "bfloat16")), rule="MM-6"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        k, m, n = self.stationary.partitions, self.stationary.free_elements, self.moving.free_elements
        limit = target.tensor
        self.require(k == self.moving.partitions, "MM-1", f"stationary has {k} partitions, moving has {self.moving.partitions}", argument="moving")
        self.require(m <= limit.stationary_fmax.value, "MM-2", f"stationary has {m} free elements; at most {limit.stationary_fmax.value} fit", argument="stationary")
        self.require(n <= limit.moving_fmax.value, "MM-3", f"moving has {n} free elements; at most {limit.moving_fmax.value} fit", argument="moving")
        self.require((self.dst.partitions, self.dst.free_elements) == (m, n), "MM-4", f"dst has shape {self.dst.shape}; the product is ({m}, {n})", argument="dst")
        floats = {self.stationary.dtype is dt.float32, self.moving.dtype is dt.float32}
        self.require(len(floats) == 1, "MM-5", f"stationary is {self.stationary.dtype}, moving is {self.moving.dtype}", argument="moving")
        bank = target.psum.bank_bytes.value
        low, high = self.dst.extent
        self.require(low // bank == (high - 1) // bank, "MM-6", f"dst covers bytes {low} to {high} of its partition, across the border of a {bank} byte bank", argument="dst")
        self.require(self.dst.dtype is dt.float32 or target.has("psum_bf16_accumulate"), "MM-7", f"dst is {self.dst.dtype}", argument="dst")

    @property
    def reads_dst(self) -> bool:
        return self.accumulate is True

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        stationary, moving = operands[-2:]
        k = stationary.shape[0]
        product = stationary.reshape(k, -1).T @ moving.reshape(k, -1)
        if self.accumulate:
            return operands[0].reshape(product.shape) + product
        return product

    def cost(self, target: Target, engine: Engine) -> Cost:
        return matmul_time(target, target.tensor.rate(self.moving.dtype), self.moving.free_elements, self.stationary.free_elements)

    def flops(self) -> int:
        return 2 * self.stationary.partitions * self.stationary.free_elements * self.moving.free_elements
