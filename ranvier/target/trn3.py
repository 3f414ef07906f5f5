"""Trainium3 (NeuronCore-v4): what its guide states, and otherwise the numbers of NeuronCore-v3, marked as estimated.

No measurement of single instructions of this generation is public, so every fixed cost is carried over.
"""

from __future__ import annotations

import dataclasses

from ranvier.target import sources as src
from ranvier.target import trn2
from ranvier.target.fact import carry_over, documented, estimated
from ranvier.target.spec import ChipSpec, HbmSpec, MatmulRate, Target

GIB, KIB = 1 << 30, 1 << 10

CHIP = ChipSpec(
    cores=documented(8, "1", src.ARCH_V4),
    cores_per_logical_core=documented(2, "1", src.CHIP_PAGES),
    hbm_bytes=documented(144 * GIB, "bytes", src.CHIP_PAGES),
    hbm_stacks=documented(4, "1", src.ARCH_V4),
    hbm_bytes_per_ns=documented(4900.0, "bytes/ns", src.CHIP_PAGES + "; the NKI guide has 4.7 TB/s"),
    dma_engines=documented(128, "1", src.ARCH_V4),
    collective_cores=documented(16, "1", src.CHIP_PAGES + "; the NKI guide counts 20"),
    links=documented(4, "1", src.ARCH_V4),
    link_bytes_per_ns=documented(640.0, "bytes/ns", src.CHIP_PAGES + ": 2.56 TB/s over four links"),
    host_bytes_per_ns=estimated(16.0, "bytes/ns", "order of magnitude in a figure of the AWS NKI guide"),
)

HBM = HbmSpec(
    bytes=documented(18 * GIB, "bytes", src.CHIP_PAGES + ": 144 GiB over eight cores"),
    bytes_per_ns=documented(612.5, "bytes/ns", src.CHIP_PAGES + ": 4.9 TB/s over eight cores"),
    stack_bytes_per_ns=documented(1225.0, "bytes/ns", src.CHIP_PAGES + ": 4.9 TB/s over four stacks"),
    cores_per_stack=documented(2, "1", src.ARCH_V4),
    latency_ns=estimated(400.0, "ns", src.ASSUMPTION),
    reserved_bytes=documented(96 << 20, "bytes", src.RUNTIME_MEMORY),
)

_SINGLE_PASS = carry_over(
    trn2.TENSOR.bf16,
    src.AS_V3,
    passes=documented(1, "1", src.ARCH_V4),
    cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V4),
    contraction_rows=documented(128, "1", src.ARCH_V4),
)

TENSOR = carry_over(
    trn2.TENSOR,
    src.AS_V3,
    clock_ghz=documented(2.4, "GHz", src.ARCH_V4),
    rows=documented(128, "1", src.ARCH_V4),
    columns=documented(128, "1", src.ARCH_V4),
    stationary_fmax=documented(128, "1", src.TILE_SIZES),
    moving_fmax=documented(512, "1", src.TILE_SIZES + "; the instruction's page allows 4,096"),
    bf16=_SINGLE_PASS,
    fp8=_SINGLE_PASS,
    double_row=dataclasses.replace(_SINGLE_PASS, contraction_rows=documented(256, "1", src.ARCH_V4)),
    mx=MatmulRate(
        passes=documented(1, "1", src.ARCH_V4),
        cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V4 + ": four times the bfloat16 throughput"),
        pass_overhead_cycles=estimated(5, "cycles", "assumption: as bfloat16"),
        load_cycles_per_column=estimated(0.5, "cycles/column", "assumption: twice bfloat16, for twice the bytes"),
        contraction_rows=documented(512, "1", src.ARCH_V4),
    ),
)

VECTOR = carry_over(
    trn2.VECTOR,
    src.AS_V3,
    clock_ghz=documented(1.2, "GHz", src.ARCH_V4),
    reciprocal_cycles_per_element=documented(8.0, "cycles/element", src.ISA),
    exponential_cycles_per_element=documented(0.25, "cycles/element", src.ARCH_V4 + ": four times the scalar engine"),
    quantize_mx_cycles_per_element=documented(0.25, "cycles/element", src.ARCH_V4),
    random_cycles_per_element=documented(0.25, "cycles/element", src.ARCH_V4),
    copy_16bit_contiguous_speedup=documented(4.0, "1", src.ARCH_V4),
    copy_16bit_speedup=documented(2.0, "1", src.ARCH_V4),
    copy_fp32_speedup=documented(2.0, "1", src.ARCH_V4 + ": table of elements per cycle"),
    two_input_16bit_speedup=documented(2.0, "1", src.ARCH_V4),
)

SCALAR = carry_over(
    trn2.SCALAR,
    src.AS_V3,
    clock_ghz=documented(1.2, "GHz", src.ARCH_V4),
    cycles_per_element=documented(1.0, "cycles/element", src.ARCH_V4),
    copy_16bit_speedup=documented(2.0, "1", src.ARCH_V4),
)

GPSIMD = carry_over(
    trn2.GPSIMD,
    src.AS_V3,
    clock_ghz=documented(1.2, "GHz", src.ARCH_V4),
    processors=documented(8, "1", src.ARCH_V4),
    partitions_per_processor=documented(16, "1", src.ARCH_V4),
    cycles_per_element=documented(1.0, "cycles/element", src.ARCH_V4),
    rsqrt_cycles_per_element=documented(4.0, "cycles/element", src.ISA + ": four times slower than the scalar engine"),
    topk_cycles_per_element=documented(4.0, "cycles/element", src.ISA),
    gather_group_elements=documented(512, "1", src.ISA),
)

DMA = carry_over(
    trn2.DMA,
    src.AS_V3,
    engines=documented(16, "1", src.ARCH_V4),
    queues_per_engine=documented(16, "1", src.DMA_GUIDE),
    partitions_per_engine=documented(8, "1", src.DMA_GUIDE),
    peak_bytes_per_ns=documented(38.4, "bytes/ns", src.DMA_GUIDE),
    bytes_per_ns=documented(38.4, "bytes/ns", src.DMA_GUIDE),
    transpose_hbm_efficiency=documented(0.9, "1", src.DGE_GUIDE),
    transpose_sbuf_efficiency=documented(0.5, "1", src.DGE_GUIDE),
    compute_efficiency=documented(1.0, "1", src.ARCH_V4),
    priorities=documented(4, "1", src.ARCH_V4),
)

TARGET = Target(
    name="trn3",
    title="Trainium3",
    generation="gen4",
    core_version=4,
    chip=CHIP,
    sbuf=carry_over(
        trn2.SBUF,
        src.AS_V3,
        partitions=documented(128, "1", src.ARCH_V4),
        bytes_per_partition=documented(256 * KIB, "bytes", src.ARCH_V4 + ": 32 MiB"),
    ),
    psum=dataclasses.replace(trn2.PSUM, partitions=documented(128, "1", src.ARCH_V4)),
    hbm=HBM,
    tensor=TENSOR,
    vector=VECTOR,
    scalar=SCALAR,
    gpsimd=GPSIMD,
    sync=carry_over(trn2.SYNC, src.AS_V3),
    dma=DMA,
    limits=dataclasses.replace(
        trn2.LIMITS,
        access_dims_max=documented(4, "1", src.ARCH_V4),
        partition_quadrant=documented(32, "1", src.ARCH_V4),
    ),
    program=carry_over(trn2.PROGRAM, src.AS_V3),
    features=trn2.TARGET.features
    | {
        "dma_priority", "scalar_tensor_scalar_any", "activate2", "exponential", "abs_max", "unary_tensor_scalar",
        "xorwow", "vector_fast_modes_fp8", "tensor_transpose_background", "fp8_e4m3fn", "mx", "psum_bf16_accumulate",
        "indirect_views",
    },
)
