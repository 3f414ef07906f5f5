"""Trainium1 (NeuronCore-v2). How the measured constants were found: docs/targets.md."""

from __future__ import annotations

import dataclasses

from ranvier.target import sources as src
from ranvier.target import trn2
from ranvier.target.fact import carry_over, documented, estimated, measured
from ranvier.target.spec import (
    ChipSpec,
    DmaModeSpec,
    DmaSpec,
    GpSimdSpec,
    HbmSpec,
    MatmulRate,
    PsumSpec,
    SbufSpec,
    ScalarEngineSpec,
    SyncSpec,
    Target,
    TensorEngineSpec,
    ThrottleSpec,
    VectorEngineSpec,
)

GIB, KIB = 1 << 30, 1 << 10

CHIP = ChipSpec(
    cores=documented(2, "1", src.ARCH_V2),
    cores_per_logical_core=documented(1, "1", src.CHIP_PAGES),
    hbm_bytes=documented(32 * GIB, "bytes", src.CHIP_PAGES),
    hbm_stacks=documented(2, "1", src.ARCH_V2),
    hbm_bytes_per_ns=documented(820.0, "bytes/ns", src.ARCH_V2 + "; the chip page has 820 GiB/s"),
    dma_engines=documented(32, "1", src.ARCH_V2),
    collective_cores=documented(6, "1", src.CHIP_PAGES),
    links=documented(4, "1", src.CHIP_PAGES),
    link_bytes_per_ns=documented(96.0, "bytes/ns", src.CHIP_PAGES + ": 384 GB/s over four links"),
    host_bytes_per_ns=estimated(16.0, "bytes/ns", "order of magnitude in a figure of the AWS NKI guide"),
)

SBUF = SbufSpec(
    partitions=documented(128, "1", src.ARCH_V2),
    bytes_per_partition=documented(192 * KIB, "bytes", src.ARCH_V2 + ": 24 MiB"),
    reserved_bytes_per_partition=documented(16 * KIB, "bytes", src.ALLOCATION),
    partition_pitch_bytes=documented(256 * KIB, "bytes", src.ARCH_V2),
)

PSUM = PsumSpec(
    partitions=documented(128, "1", src.ARCH_V2),
    banks=documented(8, "1", src.TILE_SIZES),
    bank_bytes=documented(2 * KIB, "bytes", src.TILE_SIZES),
)

HBM = HbmSpec(
    bytes=documented(16 * GIB, "bytes", src.CHIP_PAGES + ": 32 GiB over two cores"),
    bytes_per_ns=documented(410.0, "bytes/ns", src.ARCH_V2 + ": 820 GB/s over two cores"),
    stack_bytes_per_ns=documented(410.0, "bytes/ns", src.ARCH_V2 + ": 820 GB/s over two stacks"),
    cores_per_stack=documented(1, "1", src.ARCH_V2),
    latency_ns=estimated(400.0, "ns", src.ASSUMPTION),
    reserved_bytes=documented(96 << 20, "bytes", src.RUNTIME_MEMORY),
)

_BF16 = MatmulRate(
    passes=documented(1, "1", src.ARCH_V2),
    cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V2),
    pass_overhead_cycles=documented(0, "cycles", src.ARCH_V2),
    load_cycles_per_column=documented(0.25, "cycles/column", src.ARCH_V2),
    contraction_rows=documented(128, "1", src.ARCH_V2),
)

TENSOR = TensorEngineSpec(
    clock_ghz=documented(2.8, "GHz", src.ARCH_V2),
    rows=documented(128, "1", src.ARCH_V2),
    columns=documented(128, "1", src.ARCH_V2),
    stationary_fmax=documented(128, "1", src.TILE_SIZES),
    moving_fmax=documented(512, "1", src.TILE_SIZES),
    min_ii_cycles=documented(64, "cycles", src.ARCH_V2),
    bf16=_BF16,
    fp32=MatmulRate(
        passes=documented(4, "1", src.ARCH_V2 + ": a quarter of the bfloat16 rate"),
        cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V2),
        pass_overhead_cycles=documented(0, "cycles", src.ARCH_V2),
        load_cycles_per_column=estimated(0.25, "cycles/column", "assumption: as bfloat16, in each pass"),
        contraction_rows=documented(128, "1", src.ARCH_V2),
    ),
    fp8=_BF16,
    double_row=None,
    mx=None,
    transpose_fp32=None,
    latency_ns=measured(165.0, "ns", src.PERF_GUIDE),
    load_latency_ns=measured(67.0, "ns", src.PERF_GUIDE),
    throttle=ThrottleSpec(
        cold_fraction=estimated(1.0, "1", "assumption: no warm-up is described"),
        window_ns=estimated(0.0, "ns", "assumption: no warm-up is described"),
        busy_threshold=estimated(0.0, "1", "assumption: no warm-up is described"),
        sustained_fraction=measured(0.83, "1", src.PROBES_V2 + ": 2.33 G columns/s in a long dense kernel"),
    ),
)

VECTOR = VectorEngineSpec(
    clock_ghz=documented(1.12, "GHz", src.ARCH_V2),
    min_ii_cycles=documented(64, "cycles", src.COST_TABLES),
    overhead_sbuf_cycles=measured(48, "cycles", src.PROBES_V2),
    overhead_mixed_cycles=measured(16, "cycles", src.PROBES_V2),
    overhead_psum_cycles=estimated(48, "cycles", "assumption: as from SBUF to SBUF"),
    scalar_operand_overhead_cycles=measured(0, "cycles", src.PROBES_V2),
    latency_ns=documented(90.0, "ns", src.PERF_GUIDE + ": about 100 cycles for dependent instructions"),
    cycles_per_element=documented(1.0, "cycles/element", src.COST_TABLES),
    two_input_cycles_per_element=documented(2.0, "cycles/element", src.COST_TABLES),
    two_input_mixed_cycles_per_element=documented(1.0, "cycles/element", src.COST_TABLES),
    reciprocal_cycles_per_element=documented(8.0, "cycles/element", src.COST_TABLES),
    bn_aggr_cycles_per_element=documented(13 / 3, "cycles/element", src.COST_TABLES),
    exponential_cycles_per_element=None,
    quantize_mx_cycles_per_element=None,
    random_cycles_per_element=estimated(1.0, "cycles/element", src.ASSUMPTION),
    copy_16bit_contiguous_speedup=documented(1.0, "1", src.COST_TABLES),
    copy_16bit_speedup=documented(1.0, "1", src.COST_TABLES),
    copy_fp32_speedup=documented(1.0, "1", src.COST_TABLES),
    two_input_16bit_speedup=documented(2.0, "1", src.COST_TABLES + ": add, multiply, subtract"),
    reduce_16bit_speedup=documented(2.0, "1", src.COST_TABLES + ": add, max"),
    memset_16bit_speedup=documented(2.0, "1", src.COST_TABLES),
    read_accumulator_cycles=documented(64, "cycles", src.COST_TABLES),
    dynamic_min_ii_cycles=documented(600, "cycles", src.COST_TABLES),
    strided_threshold_bytes=documented(16, "bytes", src.ARCH_V2),
    strided_factor=documented(2.0, "1", src.ARCH_V2),
)

SCALAR = ScalarEngineSpec(
    clock_ghz=documented(1.4, "GHz", src.ARCH_V2),
    min_ii_cycles=documented(64, "cycles", src.COST_TABLES),
    cycles_per_element=documented(1.0, "cycles/element", src.ARCH_V2),
    accumulate_cycles_per_element=documented(1.0, "cycles/element", src.COST_TABLES),
    activation_overhead_sbuf_cycles=measured(140, "cycles", src.PERF_GUIDE),
    activation_overhead_psum_cycles=measured(140, "cycles", src.PROBES_V2),
    copy_overhead_cycles=measured(30, "cycles", src.PROBES_V2),
    latency_ns=measured(60.0, "ns", src.PERF_GUIDE),
    table_load_ns=measured(368.0, "ns", src.PERF_GUIDE),
    read_accumulator_cycles=documented(64, "cycles", src.PERF_GUIDE),
    copy_16bit_speedup=documented(1.0, "1", src.ARCH_V2),
    strided_threshold_bytes=documented(16, "bytes", src.ARCH_V2),
    strided_factor=documented(2.0, "1", src.ARCH_V2),
)

GPSIMD = GpSimdSpec(
    clock_ghz=documented(1.4, "GHz", src.ARCH_V2),
    processors=documented(8, "1", src.ARCH_V2),
    partitions_per_processor=documented(16, "1", src.ARCH_V2),
    start_cycles=documented(150, "cycles", src.COST_TABLES),
    cycles_per_element=documented(1.0, "cycles/element", src.COST_TABLES),
    two_input_cycles_per_element=estimated(2.0, "cycles/element", "assumption: as the vector engine"),
    partition_reduce_cycles_per_element=estimated(2.0, "cycles/element", src.ASSUMPTION),
    rsqrt_cycles_per_element=documented(4.0, "cycles/element", src.ISA + ": four times slower than the scalar engine"),
    topk_cycles_per_element=documented(4.0, "cycles/element", src.ISA),
    gather_group_elements=documented(512, "1", src.ISA),
    local_gather_index_cycles=documented(7, "cycles", src.COST_TABLES + ", which divides where its units say multiply"),
    local_gather_word_bytes=documented(4, "bytes", src.COST_TABLES),
    latency_ns=estimated(100.0, "ns", src.ASSUMPTION),
    dma_bytes_per_ns=None,
)

SYNC = SyncSpec(
    clock_ghz=documented(1.4, "GHz", "base clock shown by the profiler"),
    registers=documented(64, "1", src.ARCH_V2),
    issue_ns=estimated(50.0, "ns", src.ASSUMPTION),
    wait_ns=estimated(50.0, "ns", src.ASSUMPTION),
    semaphore_hop_ns=measured(25.0, "ns", src.PERF_GUIDE),
    register_load_sbuf_ns=estimated(100.0, "ns", src.ASSUMPTION),
    register_load_hbm_ns=estimated(1500.0, "ns", src.ASSUMPTION + "; a DMA"),
    loop_iteration_ns=measured(1400.0, "ns", src.PROBES_V2),
    engine_barrier_ns=measured(369.0, "ns", src.PERF_GUIDE),
    core_barrier_ns=None,
    send_receive_ns=None,
)

DMA = DmaSpec(
    engines=documented(16, "1", src.ARCH_V2),
    queues_per_engine=documented(16, "1", src.DMA_GUIDE),
    partitions_per_engine=documented(8, "1", src.DMA_GUIDE),
    peak_bytes_per_ns=documented(27.2, "bytes/ns", src.DMA_GUIDE),
    bytes_per_ns=measured(18.5, "bytes/ns", src.PROBES_V2 + "; " + src.DMA_GUIDE + ": 17 bytes/ns in practice"),
    burst_bytes=estimated(2048, "bytes", src.as_v3(src.SCREENSHOTS_V3)),
    descriptor_overhead_ns=measured(7.0, "ns", src.PERF_GUIDE + ": a 4-byte write"),
    semaphore_write_ns=measured(7.0, "ns", src.PERF_GUIDE),
    engine_stagger_ns=estimated(25.0, "ns", src.as_v3(src.TRACES_V3)),
    completion_ns=estimated(300.0, "ns", src.as_v3(src.TRACES_V3)),
    static=DmaModeSpec(
        issue_ns=estimated(50.0, "ns", src.ASSUMPTION),
        launch_ns=estimated(900.0, "ns", src.as_v3(src.SCREENSHOTS_V3)),
    ),
    swdge=DmaModeSpec(
        issue_ns=measured(1000.0, "ns", src.PROBES_V2),
        launch_ns=estimated(750.0, "ns", src.as_v3(src.TRACES_V3)),
    ),
    hwdge=None,
    transpose_hbm_efficiency=estimated(0.02, "1", "assumption: one 2-byte element at a time"),
    transpose_sbuf_efficiency=estimated(0.02, "1", "assumption: one 2-byte element at a time"),
    transpose_misaligned_factor=estimated(1.0, "1", "assumption: one 2-byte element at a time"),
    compute_efficiency=documented(0.5, "1", src.ARCH_V4 + ": what Trainium3 improves on"),
    priorities=documented(1, "1", src.DMA_GUIDE),
)

TARGET = Target(
    name="trn1",
    title="Trainium1",
    generation="gen2",
    core_version=2,
    chip=CHIP,
    sbuf=SBUF,
    psum=PSUM,
    hbm=HBM,
    tensor=TENSOR,
    vector=VECTOR,
    scalar=SCALAR,
    gpsimd=GPSIMD,
    sync=SYNC,
    dma=DMA,
    limits=dataclasses.replace(
        trn2.LIMITS,
        access_dims_max=documented(4, "1", src.ARCH_V2),
        partition_quadrant=documented(32, "1", src.ARCH_V2),
    ),
    program=carry_over(trn2.PROGRAM, src.AS_V3),
    features=frozenset(),
)
