"""Instructions of the tensor engine: matmul and transpose on the 128 x 128 systolic array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.isa.access import AccessPattern
from ranvier.isa.engine_time import vector_time
from ranvier.isa.enums import MatmulPerfMode
from ranvier.isa.examples import example
from ranvier.isa.record import PSUM, SBUF, Cost, Instruction, Rule, attr, dst, instruction, ns, src
from ranvier.target.spec import Engine, MatmulRate, Target

_MATMUL_DTYPES = (dt.bfloat16, dt.float16, dt.float32, dt.float8_e4m3, dt.float8_e4m3fn, dt.float8_e5m2)
_FLOAT8 = (dt.float8_e4m3, dt.float8_e4m3fn, dt.float8_e5m2)
_PAIR = 2
_SIXTEEN_BIT_STRIDE = 2


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

    `perf_mode` double_row contracts 2 K values of float8: stationary is [K, 2, M] and moving [K, 2, N]. `is_transpose`
    moves data instead of multiplying, where the core can (elsewhere it is a hint): `moving` has a single one in each
    column, and dst[:, n] is the row of `stationary` that it selects, with its bits and in its dtype. `tile_size` and
    `tile_position` (start row, start column) use part of the array's rows, so that K is smaller; time is that of the whole
    array. The hints `is_stationary_onezero` and `is_moving_onezero` change neither values nor modelled time.
    """

    dst: AccessPattern = dst(PSUM, dtypes=_MATMUL_DTYPES, doc="[M, N] in one PSUM bank; float32, or bfloat16 where the core can")
    stationary: AccessPattern = src(SBUF, dtypes=_MATMUL_DTYPES, doc="[K, M], the operand held in the array")
    moving: AccessPattern = src(SBUF, dtypes=_MATMUL_DTYPES, doc="[K, N], the operand streamed through")
    is_stationary_onezero: bool = attr(bool, default=False, doc="hint: stationary holds zeros and ones only")
    is_moving_onezero: bool = attr(bool, default=False, doc="hint: moving holds zeros and ones only")
    is_transpose: bool = attr(bool, default=False, doc="move data by a permutation instead of multiplying")
    accumulate: bool | None = attr(bool, default=None, doc="add to dst instead of overwriting it")
    tile_position: tuple[int, ...] = attr(tuple, default=(), doc="(start row, start column) in the array")
    tile_size: tuple[int, ...] = attr(tuple, default=(), doc="(rows, columns) of the array that are used")
    perf_mode: MatmulPerfMode = attr(MatmulPerfMode, default=MatmulPerfMode.none)

    RULES = {
        "MM-1": Rule("E0304", "stationary and moving have the same number of partitions (the contraction size K)"),
        "MM-2": Rule("E0308", "stationary has at most 128 free elements (double_row: twice as many)"),
        "MM-3": Rule("E0308", "moving has at most 512 free elements (double_row: twice as many)"),
        "MM-4": Rule("E0304", "dst has as many partitions as stationary has columns, and as many free elements as moving has"),
        "MM-5": Rule("E0305", "float32 operands multiply only float32 operands, float8_e4m3 and float8_e4m3fn not each other"),
        "MM-6": Rule("E0310", "dst lies within one PSUM bank"),
        "MM-7": Rule("E0307", "dst is float32; bfloat16 from the generation with feature psum_bf16_accumulate on"),
        "MM-8": Rule("E0307", "float8_e4m3fn operands exist from the generation with feature fp8_e4m3fn on"),
        "MM-9": Rule("E0309", "double_row takes float8 operands of shape [K, 2, columns], no transpose and no tile; it needs the feature fp8_double_row"),
        "MM-10": Rule("E0305", "a transpose keeps the dtype of stationary; 8-bit elements leave it 16 bits apart (stride 2)"),
        "MM-11": Rule("E0309", "a transpose does not accumulate"),
        "MM-12": Rule("E0309", "tile_position and tile_size are given together: 128, 64 or (feature row_tiling_32) 32 rows from a multiple of that on, and all columns from 0 on"),
        "MM-13": Rule("E0308", "the operands have at most as many partitions as the tile has rows"),
    }
    EXAMPLES = (
        example(dst="psum 128x512 f32", stationary="sbuf 128x128 bf16", moving="sbuf 128x512 bf16", accumulate=False),
        example(dst="psum 17x30 f32", stationary="sbuf 96x17 f32", moving="sbuf 96x30 f32", accumulate=False),
        example(dst="psum 64x96 f32", stationary="sbuf 128x64 bf16", moving="sbuf 128x96 f16", accumulate=True),
        example(
            dst="psum 100x40 f32", stationary="sbuf 128x2x100 f8", moving="sbuf 128x2x40 float8_e5m2",
            perf_mode=MatmulPerfMode.double_row, feature="fp8_double_row",
        ),
        example(
            dst="psum 128x256 f32", stationary="sbuf 128x128[64:128, 0:128] bf16",
            moving="sbuf 128x256[64:128, 0:256] bf16", tile_position=(64, 0), tile_size=(64, 128),
        ),
        example(
            dst="psum 64x128 bf16", stationary="sbuf 128x64 bf16", moving="sbuf 128x128 bf16", is_transpose=True,
            feature="tensor_transpose_exact", note="moving is the identity",
            contents={"moving": lambda shape: np.eye(shape[0], shape[1])},
        ),
        example(dst="psum 128x512 f32", stationary="sbuf 64x128 bf16", moving="sbuf 128x512 bf16", rule="MM-1"),
        example(dst="psum 128x512 f32", stationary="sbuf 128x256 bf16", moving="sbuf 128x512 bf16", rule="MM-2"),
        example(dst="psum 128x1024 f32", stationary="sbuf 128x128 bf16", moving="sbuf 128x1024 bf16", rule="MM-3"),
        example(dst="psum 64x512 f32", stationary="sbuf 128x128 bf16", moving="sbuf 128x512 bf16", rule="MM-4"),
        example(dst="psum 128x512 f32", stationary="sbuf 128x128 f32", moving="sbuf 128x512 bf16", rule="MM-5"),
        example(
            dst="psum 128x1024[256:768] f32", stationary="sbuf 128x128 bf16", moving="sbuf 128x512 bf16", rule="MM-6",
        ),
        example(
            dst="psum 128x512 bf16", stationary="sbuf 128x128 bf16", moving="sbuf 128x512 bf16", accumulate=False,
            rule="MM-7",
        ),
        example(dst="psum 8x8 f32", stationary="sbuf 8x8 float8_e4m3fn", moving="sbuf 8x8 float8_e4m3fn", rule="MM-8"),
        example(
            dst="psum 8x8 f32", stationary="sbuf 8x2x8 bf16", moving="sbuf 8x2x8 bf16",
            perf_mode=MatmulPerfMode.double_row, rule="MM-9",
        ),
        example(
            dst="psum 64x128 f32", stationary="sbuf 128x64 bf16", moving="sbuf 128x128 bf16", is_transpose=True,
            rule="MM-10", feature="tensor_transpose_exact",
        ),
        example(
            dst="psum 64x128 f32", stationary="sbuf 128x64 f32", moving="sbuf 128x128 f32", is_transpose=True,
            accumulate=True, rule="MM-11", feature="tensor_transpose_exact",
        ),
        example(
            dst="psum 8x8 f32", stationary="sbuf 8x8 bf16", moving="sbuf 8x8 bf16", tile_size=(64, 128), rule="MM-12",
        ),
        example(
            dst="psum 8x8 f32", stationary="sbuf 128x8 bf16", moving="sbuf 128x8 bf16", tile_position=(64, 0),
            tile_size=(64, 128), rule="MM-13",
        ),
    )  # fmt: skip

    def __post_init__(self):
        object.__setattr__(self, "tile_position", tuple(self.tile_position))
        object.__setattr__(self, "tile_size", tuple(self.tile_size))

    @property
    def is_double(self) -> bool:
        return self.perf_mode is MatmulPerfMode.double_row

    def check(self, target: Target) -> None:
        k, pair = self.stationary.partitions, _PAIR if self.is_double else 1
        m, n = self.stationary.free_elements, self.moving.free_elements
        limit = target.tensor
        self.require(k == self.moving.partitions, "MM-1", f"stationary has {k} partitions, moving has {self.moving.partitions}", argument="moving")
        m_max, n_max = pair * limit.stationary_fmax.value, pair * limit.moving_fmax.value
        self.require(m <= m_max, "MM-2", f"stationary has {m} free elements; at most {m_max} fit", argument="stationary")
        self.require(n <= n_max, "MM-3", f"moving has {n} free elements; at most {n_max} fit", argument="moving")
        self._check_dtypes(target)
        if self.is_double:
            self._check_double_row(target)
        shape = (m // pair, n // pair)
        self.require((self.dst.partitions, self.dst.free_elements) == shape, "MM-4", f"dst has shape {self.dst.shape}; the product is {shape}", argument="dst")
        bank = target.psum.bank_bytes.value
        low, high = self.dst.extent
        self.require(low // bank == (high - 1) // bank, "MM-6", f"dst covers bytes {low} to {high} of its partition, across the border of a {bank} byte bank", argument="dst")
        self._check_tile(target)

    def _check_dtypes(self, target: Target) -> None:
        pair = {self.stationary.dtype, self.moving.dtype}
        legal = (dt.float32 not in pair or len(pair) == 1) and not pair >= {dt.float8_e4m3, dt.float8_e4m3fn}
        self.require(legal, "MM-5", f"stationary is {self.stationary.dtype}, moving is {self.moving.dtype}", argument="moving")
        self.require(dt.float8_e4m3fn not in pair or target.has("fp8_e4m3fn"), "MM-8", f"an operand is float8_e4m3fn on {target.title}", argument="stationary")
        if self.moves_bits(target):
            stride = self.dst.inner_stride
            apart = self.stationary.dtype.itemsize > 1 or stride in (_SIXTEEN_BIT_STRIDE, None)
            self.require(self.dst.dtype is self.stationary.dtype and apart, "MM-10", f"stationary is {self.stationary.dtype}, dst is {self.dst.dtype} with an innermost stride of {stride}", argument="dst")
            self.require(not self.accumulate, "MM-11", "is_transpose and accumulate are both set", argument="accumulate")
            return
        legal = self.dst.dtype is dt.float32 or (self.dst.dtype is dt.bfloat16 and target.has("psum_bf16_accumulate"))
        self.require(legal, "MM-7", f"dst is {self.dst.dtype} on {target.title}", argument="dst")

    def _check_double_row(self, target: Target) -> None:
        operands = (self.stationary, self.moving)
        legal = all(ap.dtype in _FLOAT8 and len(ap.shape) == 3 and ap.shape[1] == _PAIR for ap in operands)
        legal = legal and not self.is_transpose and not self.tile_size and target.has("fp8_double_row")
        self.require(legal, "MM-9", f"stationary is {self.stationary.dtype} {self.stationary.shape}, moving is {self.moving.dtype} {self.moving.shape}, is_transpose is {self.is_transpose}, tile_size is {self.tile_size}, on {target.title}", argument="perf_mode")

    def _check_tile(self, target: Target) -> None:
        if not self.tile_size and not self.tile_position:
            return
        rows, columns = int(target.tensor.rows.value), int(target.tensor.columns.value)
        quadrant = int(target.limits.partition_quadrant.value)
        sizes = (rows, rows // 2, quadrant) if target.has("row_tiling_32") else (rows, rows // 2)
        legal = len(self.tile_size) == len(self.tile_position) == 2 and self.tile_size[0] in sizes and self.tile_size[1] == columns
        legal = legal and self.tile_position[1] == 0 and self.tile_position[0] in range(0, rows, self.tile_size[0])
        self.require(legal, "MM-12", f"tile_position is {self.tile_position}, tile_size is {self.tile_size} on {target.title}", argument="tile_size")
        self.require(self.stationary.partitions <= self.tile_size[0], "MM-13", f"the operands have {self.stationary.partitions} partitions, the tile has {self.tile_size[0]} rows", argument="tile_size")

    def moves_bits(self, target: Target) -> bool:
        """Whether this is a transpose that the core does without arithmetic."""
        return self.is_transpose and target.has("tensor_transpose_exact")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.is_transpose else "float32"

    @property
    def reads_dst(self) -> bool:
        return self.accumulate is True

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        stationary, moving = (dt.compute(a) for a in operands[-2:])
        # With double_row the pairs of a partition are two more rows of the contraction.
        rows = stationary.shape[0] * (_PAIR if self.is_double else 1)
        # Contiguous, since BLAS may sum in another order for other strides: a result must not depend on placement.
        product = np.ascontiguousarray(stationary.reshape(rows, -1).T) @ np.ascontiguousarray(moving.reshape(rows, -1))
        if self.accumulate:
            return dt.compute(operands[0]).reshape(product.shape) + product
        return product

    def semantics_on(self, target: Target) -> Callable[..., np.ndarray]:
        return self._move if self.moves_bits(target) else self.semantics

    def _move(self, stationary: np.ndarray, moving: np.ndarray) -> np.ndarray:
        selector = dt.compute(moving).reshape(moving.shape[0], -1)
        ones = selector == 1
        if not ((ones | (selector == 0)).all() and (ones.sum(axis=0) == 1).all()):
            raise error("E0405", f"{self.MNEMONIC}: with is_transpose every column of moving has a single one and zeros", where=self.loc, argument="moving")
        return stationary.reshape(stationary.shape[0], -1)[ones.argmax(axis=0)].T

    def cost(self, target: Target, engine: Engine) -> Cost:
        m, n = self.stationary.free_elements, self.moving.free_elements
        if self.is_double:
            assert target.tensor.double_row is not None
            return matmul_time(target, target.tensor.double_row, n // _PAIR, m // _PAIR)
        rate = transpose_rate(target, self.stationary.dtype) if self.moves_bits(target) else target.tensor.rate(self.moving.dtype)
        return matmul_time(target, rate, n, m)

    def flops(self) -> int:
        if self.is_transpose:
            return 0
        return 2 * self.stationary.partitions * self.stationary.free_elements * self.moving.free_elements // (_PAIR if self.is_double else 1)


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
        example(dst="psum 128x128 bf16", data="sbuf 128x128 bf16"),
        example(dst="psum 48x100 f32", data="sbuf 100x48 f32"),
        example(dst="sbuf 32x17 i32", data="sbuf 17x32 i32"),
        example(dst="psum 32x32 f32", data="sbuf 32x32 f32", engine=Engine.VECTOR),
        example(
            dst="psum 64x256[0:256:2] float8_e5m2", data="sbuf 128x64 float8_e5m2", feature="tensor_transpose_exact",
        ),
        example(dst="psum 128x64 bf16", data="sbuf 128x64 bf16", rule="NT-1"),
        example(dst="sbuf 64x64 bf16", data="sbuf 64x64 bf16", rule="NT-2"),
        example(dst="psum 64x64 f32", data="sbuf 64x64 bf16", rule="NT-3"),
        example(
            dst="psum 64x64 float8_e5m2", data="sbuf 64x64 float8_e5m2", rule="NT-4", feature="tensor_transpose_exact",
        ),
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
        stride = self.dst.inner_stride
        self.require(not wide or stride in (_SIXTEEN_BIT_STRIDE, None), "NT-4", f"dst has an innermost stride of {stride} {self.dst.dtype} elements", argument="dst")

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
