"""Instructions of the tensor engine: matmul and transpose on the 128 x 128 systolic array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.engine_time import vector_time
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


def transpose_rate(target: Target, dtype: dt.DType) -> MatmulRate:
    """How the array is fed when it transposes: float32 has a mode of its own where transposes are exact."""
    own = target.tensor.transpose_fp32
    return own if dtype is dt.float32 and own is not None else target.tensor.rate(dtype)


def spread_non_finite(transposed: np.ndarray) -> np.ndarray:
    """A transpose as a sum of products with the identity computes it: what is not finite makes the rest of its row NaN."""
    bad = ~np.isfinite(transposed)
    others = bad.sum(axis=1, keepdims=True) - bad > 0
    return np.where(others, np.array(np.nan, transposed.dtype), transposed)


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

_SIXTEEN_BIT_STRIDE = 2


@instruction(
    engines=(Engine.TENSOR, Engine.VECTOR),
    source="NKI 0.6, nki.isa.nc_transpose; architecture guide of Trainium2, built-in transpose",
    cost_source="a matmul with the identity as moving operand (tensor engine); one element per cycle (vector engine)",
)
class NcTranspose(Instruction):
    """Swap partition and free axis: dst[f, p] = data[p, f]. Further free axes of `data` are flattened first.

    The tensor engine takes floats of up to [128, 128] from SBUF to PSUM, the vector engine any dtype of up to [32, 32] between
    SBUF and PSUM; without `engine` the tensor engine is chosen where the memories allow it. `dst` has the dtype of `data`
    and its bits. On cores without an exact transpose mode the tensor engine multiplies with the identity, which spreads
    NaN and infinity over the row; on those with it, 8-bit data arrive as 16-bit elements with a zero upper byte.
    """

    dst: AccessPattern = dst(PSUM, SBUF, doc="[F, P], dtype of data")
    data: AccessPattern = src(SBUF, PSUM, doc="[P, F]")
    engine: Engine = attr(Engine, default=Engine.UNKNOWN, doc="tensor or vector")

    RULES = {
        "NT-1": Rule("E0304", "dst has the partitions of data as free elements, and its free elements as partitions"),
        "NT-2": Rule("E0308", "data has at most 128 partitions and free elements on the tensor engine, 32 on the vector engine"),
        "NT-3": Rule("E0305", "dst has the dtype of data"),
        "NT-4": Rule("E0304", "8-bit elements leave an exact transpose of the tensor engine 16 bits apart: dst has stride 2"),
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("psum", (128, 128), "bfloat16"), data=t("sbuf", (128, 128), "bfloat16"))),
        Example(lambda t: dict(dst=t("psum", (48, 100), "float32"), data=t("sbuf", (100, 48), "float32"))),
        Example(lambda t: dict(dst=t("sbuf", (32, 17), "int32"), data=t("sbuf", (17, 32), "int32"))),
        Example(lambda t: dict(dst=t("psum", (32, 32), "float32"), data=t("sbuf", (32, 32), "float32"), engine=Engine.VECTOR)),
        Example(lambda t: dict(dst=t("psum", (64, 256), "float8_e5m2", slice(0, 256, 2)), data=t("sbuf", (128, 64), "float8_e5m2")), feature="tensor_transpose_exact"),
        Example(lambda t: dict(dst=t("psum", (128, 64), "bfloat16"), data=t("sbuf", (128, 64), "bfloat16")), rule="NT-1"),
        Example(lambda t: dict(dst=t("sbuf", (64, 64), "bfloat16"), data=t("sbuf", (64, 64), "bfloat16")), rule="NT-2"),
        Example(lambda t: dict(dst=t("psum", (64, 64), "float32"), data=t("sbuf", (64, 64), "bfloat16")), rule="NT-3"),
        Example(lambda t: dict(dst=t("psum", (64, 64), "float8_e5m2"), data=t("sbuf", (64, 64), "float8_e5m2")), rule="NT-4", feature="tensor_transpose_exact"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        partitions, free = self.data.partitions, self.data.free_elements
        self.require((self.dst.partitions, self.dst.free_elements) == (free, partitions), "NT-1", f"data is ({partitions}, {free}), so dst is ({free}, {partitions}); it has shape {self.dst.shape}", argument="dst")
        on_tensor = self.engine_on(target) is Engine.TENSOR
        limit = target.tensor.stationary_fmax.value if on_tensor else target.limits.vector_transpose_max.value
        self.require(
            max(partitions, free) <= limit, "NT-2",
            f"data is ({partitions}, {free}); the {self.engine_on(target).name.lower()} engine takes at most ({limit}, {limit})",
            argument="data", fix=None if on_tensor else "write to PSUM, from floats in SBUF, so that the tensor engine can do it",
        )
        self.require(self.dst.dtype is self.data.dtype, "NT-3", f"dst is {self.dst.dtype}, data is {self.data.dtype}", argument="dst")
        wide = on_tensor and self.data.dtype.itemsize == 1 and target.has("tensor_transpose_exact")
        self.require(not wide or self._dst_stride() == _SIXTEEN_BIT_STRIDE, "NT-4", f"dst has an innermost stride of {self._dst_stride()} {self.dst.dtype} elements", argument="dst")

    def _dst_stride(self) -> int:
        return next((stride for stride, count in reversed(self.dst.free) if count > 1), _SIXTEEN_BIT_STRIDE)

    @property
    def arithmetic(self) -> str:
        return "raw"

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        tensor = self.data.space is SBUF and self.dst.space is PSUM and self.data.dtype in _MATMUL_DTYPES
        fits = max(self.data.partitions, self.data.free_elements) <= target.limits.vector_transpose_max.value
        return (*((Engine.TENSOR,) if tensor else ()), *((Engine.VECTOR,) if fits or not tensor else ()))

    def semantics(self, data: np.ndarray) -> np.ndarray:
        return data.reshape(data.shape[0], -1).T

    def semantics_on(self, target: Target) -> Callable[..., np.ndarray]:
        exact = self.engine_on(target) is Engine.VECTOR or target.has("tensor_transpose_exact")
        return self.semantics if exact else lambda data: spread_non_finite(self.semantics(data))

    def cost(self, target: Target, engine: Engine) -> Cost:
        if engine is Engine.TENSOR:
            rate = transpose_rate(target, self.data.dtype)
            return matmul_time(target, rate, self.data.partitions, self.data.free_elements)
        return vector_time(target, (self.data,), (self.dst,), self.data.free_elements, target.vector.cycles_per_element)
