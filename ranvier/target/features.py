"""Named features: what a generation can do that another cannot, where a number would not say it."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.target import sources


@dataclass(frozen=True, slots=True)
class Feature:
    """`title` completes "this core has: ..."; `source` as in `Fact`."""

    title: str
    source: str


FEATURES: dict[str, Feature] = {
    "hwdge": Feature("descriptors made by hardware, asked for by the scalar and sync engines", sources.DGE_GUIDE),
    "swdge_indirect": Feature("gather and scatter in descriptors made by gpsimd for transposes", sources.DGE_GUIDE),
    "dma_transpose_16bit": Feature("DMA transpose of 2-byte elements in hardware", sources.ARCH_V3),
    "dma_priority": Feature("four priorities of DMA transfers", sources.ARCH_V4),
    "native_scalar_copy": Feature("bit-exact tensor_copy on the scalar engine", sources.ARCH_V3),
    "scalar_tensor_scalar": Feature("tensor_scalar on the scalar engine: multiply, add", sources.ARCH_V3),
    "scalar_tensor_scalar_any": Feature("tensor_scalar on the scalar engine without restrictions", sources.ARCH_V4),
    "activation_bias_constant": Feature("activation takes a constant bias", sources.ISA),
    "activate2": Feature("activate2, with reductions other than add", sources.ISA),
    "range_select": Feature("range_select", sources.ISA),
    "exponential": Feature("exponential on the vector engine", sources.ARCH_V4),
    "abs_max": Feature("abs_max and abs_min", sources.ISA),
    "unary_tensor_scalar": Feature("square and relu as first operation of tensor_scalar", sources.ISA),
    "xorwow": Feature("XORWOW random numbers on the vector engine (rand2)", sources.ARCH_V4),
    "gpsimd_rng": Feature("random numbers and their state on gpsimd", sources.ISA),
    "nonzero_with_count": Feature("nonzero_with_count", sources.ISA),
    "vector_fast_modes": Feature("2x and 4x modes of the vector engine", sources.ARCH_V3),
    "vector_fast_modes_fp8": Feature("float8 counts as 16-bit for the modes of the vector engine", sources.ARCH_V4),
    "vector_gpsimd_parallel_sbuf": Feature("vector and gpsimd access SBUF at the same time", sources.ARCH_V3),
    "vector_scalar_parallel_psum": Feature("vector and scalar access different PSUM banks at once", sources.ARCH_V3),
    "tensor_transpose_exact": Feature("bit-exact transpose mode of the tensor engine", sources.ARCH_V3),
    "tensor_transpose_background": Feature("transposes run behind other matmuls", sources.ARCH_V4),
    "row_tiling_32": Feature("row tiles of 32 in the array", sources.ARCH_V3),
    "structured_sparsity": Feature("matmul with structured sparsity (no kernel language for it)", sources.ARCH_V3),
    "fp8_double_row": Feature("float8 matmul with a contraction of 256", sources.ARCH_V3),
    "fp8_e4m3fn": Feature("float8_e4m3fn in the tensor engine", sources.ARCH_V4),
    "mx": Feature("MX formats: nc_matmul_mx, quantize_mx", sources.ARCH_V4),
    "psum_bf16_accumulate": Feature("bfloat16 accumulation in PSUM", sources.ARCH_V4),
    "indirect_views": Feature("gather and scatter along the free axis by `indirect` views", sources.ISA),
    "logical_cores": Feature("two cores run one program as a logical core", sources.CHIP_PAGES),
    "tensor_clock_gating": Feature("the tensor engine starts at half rate and warms up", sources.ARCH_V3),
    "int64_native": Feature("64-bit integers in hardware (no dtype of the kernel language)", sources.CHIP_PAGES),
}
