"""Trainium2 (NeuronCore-v3). How the measured constants were found: docs/targets.md."""

from __future__ import annotations

from ranvier.target import sources as src
from ranvier.target.fact import documented, estimated, measured
from ranvier.target.spec import (
    ChipSpec,
    DmaModeSpec,
    DmaSpec,
    GpSimdSpec,
    HbmSpec,
    LimitsSpec,
    MatmulRate,
    ProgramSpec,
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
    cores=documented(8, "1", src.ARCH_V3),
    cores_per_logical_core=documented(2, "1", src.CHIP_PAGES),
    hbm_bytes=documented(96 * GIB, "bytes", src.CHIP_PAGES),
    hbm_stacks=documented(4, "1", src.ARCH_V3),
    hbm_bytes_per_ns=documented(2900.0, "bytes/ns", src.CHIP_PAGES + "; the NKI guide rounds it to 3 TB/s"),
    dma_engines=documented(128, "1", src.ARCH_V3),
    collective_cores=documented(16, "1", src.CHIP_PAGES + "; the NKI guide counts 20"),
    links=documented(4, "1", src.CHIP_PAGES),
    link_bytes_per_ns=documented(256.0, "bytes/ns", src.CHIP_PAGES + ": 1,024 GB/s over four links"),
    host_bytes_per_ns=estimated(16.0, "bytes/ns", "order of magnitude in a figure of the AWS NKI guide"),
)

SBUF = SbufSpec(
    partitions=documented(128, "1", src.ARCH_V3),
    bytes_per_partition=documented(224 * KIB, "bytes", src.ARCH_V3 + ": 28 MiB"),
    reserved_bytes_per_partition=estimated(16 * KIB, "bytes", src.as_v2(src.ALLOCATION)),
    partition_pitch_bytes=measured(256 * KIB, "bytes", src.SCREENSHOTS_V3),
)

PSUM = PsumSpec(
    partitions=documented(128, "1", src.ARCH_V3),
    banks=documented(8, "1", src.TILE_SIZES),
    bank_bytes=documented(2 * KIB, "bytes", src.TILE_SIZES),
)

HBM = HbmSpec(
    bytes=documented(12 * GIB, "bytes", src.CHIP_PAGES + ": 96 GiB over eight cores"),
    bytes_per_ns=documented(362.5, "bytes/ns", src.CHIP_PAGES + ": 2.9 TB/s over eight cores"),
    stack_bytes_per_ns=documented(725.0, "bytes/ns", src.CHIP_PAGES + ": 2.9 TB/s over four stacks"),
    cores_per_stack=documented(2, "1", src.ARCH_V3),
    latency_ns=estimated(400.0, "ns", src.ASSUMPTION),
    reserved_bytes=documented(96 << 20, "bytes", src.RUNTIME_MEMORY),
)

_BF16 = MatmulRate(
    passes=documented(1, "1", src.ARCH_V3),
    cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V3),
    pass_overhead_cycles=measured(5, "cycles", src.TRACES_V3),
    load_cycles_per_column=estimated(0.25, "cycles/column", src.as_v2(src.ARCH_V2)),
    contraction_rows=documented(128, "1", src.ARCH_V3),
)

TENSOR = TensorEngineSpec(
    clock_ghz=documented(2.4, "GHz", src.ARCH_V3),
    rows=documented(128, "1", src.ARCH_V3),
    columns=documented(128, "1", src.ARCH_V3),
    stationary_fmax=documented(128, "1", src.TILE_SIZES),
    moving_fmax=documented(512, "1", src.TILE_SIZES),
    min_ii_cycles=estimated(64, "cycles", src.as_v2(src.ARCH_V2)),
    bf16=_BF16,
    fp32=MatmulRate(
        passes=measured(2, "1", src.TRACES_V3),
        cycles_per_column=measured(2.0, "cycles/column", src.TRACES_V3),
        pass_overhead_cycles=measured(6, "cycles", src.TRACES_V3),
        load_cycles_per_column=measured(2.0, "cycles/column", src.TRACES_V3),
        contraction_rows=documented(128, "1", src.ARCH_V3),
    ),
    fp8=_BF16,
    double_row=MatmulRate(
        passes=documented(1, "1", src.ARCH_V3),
        cycles_per_column=documented(1.0, "cycles/column", src.ARCH_V3 + ": twice the bfloat16 throughput"),
        pass_overhead_cycles=estimated(5, "cycles", "assumption: as bfloat16"),
        load_cycles_per_column=estimated(0.25, "cycles/column", "assumption: as bfloat16, equal bytes"),
        contraction_rows=documented(256, "1", src.ARCH_V3),
    ),
    mx=None,
    transpose_fp32=MatmulRate(
        passes=measured(1, "1", src.TRACES_V3),
        cycles_per_column=documented(2.0, "cycles/column", src.ARCH_V3 + ": twice as fast as a float32 matmul"),
        pass_overhead_cycles=measured(6, "cycles", src.TRACES_V3),
        load_cycles_per_column=measured(1.0, "cycles/column", src.TRACES_V3),
        contraction_rows=documented(128, "1", src.ARCH_V3),
    ),
    latency_ns=measured(163.5, "ns", src.TRACES_V3),
    load_latency_ns=measured(84.0, "ns", src.TRACES_V3),
    throttle=ThrottleSpec(
        cold_fraction=documented(0.5, "1", src.ARCH_V3),
        window_ns=measured(3413.3, "ns", src.TRACES_V3 + ": 4,096 counts of 1.2 GHz"),
        busy_threshold=documented(0.5, "1", src.ARCH_V3),
        sustained_fraction=measured(1.0, "1", src.SCREENSHOTS_V3),
    ),
)

VECTOR = VectorEngineSpec(
    clock_ghz=documented(0.96, "GHz", src.ARCH_V3),
    min_ii_cycles=estimated(64, "cycles", src.as_v2(src.COST_TABLES)),
    overhead_sbuf_cycles=measured(70, "cycles", src.TRACES_V3 + "; " + src.SCREENSHOTS_V3),
    overhead_mixed_cycles=measured(64, "cycles", src.TRACES_V3 + "; " + src.SCREENSHOTS_V3),
    overhead_psum_cycles=measured(120, "cycles", src.SCREENSHOTS_V3),
    scalar_operand_overhead_cycles=measured(50, "cycles", src.TRACES_V3),
    latency_ns=measured(88.0, "ns", src.TRACES_V3),
    cycles_per_element=measured(1.0, "cycles/element", src.TRACES_V3),
    two_input_cycles_per_element=estimated(2.0, "cycles/element", src.as_v2(src.COST_TABLES)),
    two_input_mixed_cycles_per_element=measured(1.0, "cycles/element", src.SCREENSHOTS_V3),
    reciprocal_cycles_per_element=documented(8.0, "cycles/element", src.ISA),
    bn_aggr_cycles_per_element=estimated(13 / 3, "cycles/element", src.as_v2(src.COST_TABLES)),
    exponential_cycles_per_element=None,
    quantize_mx_cycles_per_element=None,
    random_cycles_per_element=estimated(1.0, "cycles/element", src.ASSUMPTION),
    copy_16bit_contiguous_speedup=documented(4.0, "1", src.ARCH_V3),
    copy_16bit_speedup=documented(2.0, "1", src.ARCH_V3),
    copy_fp32_speedup=measured(2.0, "1", src.SCREENSHOTS_V3 + "; " + src.TRACES_V3),
    two_input_16bit_speedup=documented(2.0, "1", src.ARCH_V3),
    reduce_16bit_speedup=measured(1.0, "1", src.SCREENSHOTS_V3),
    memset_16bit_speedup=estimated(2.0, "1", src.as_v2(src.COST_TABLES)),
    read_accumulator_cycles=estimated(64, "cycles", src.as_v2(src.COST_TABLES)),
    dynamic_min_ii_cycles=estimated(600, "cycles", src.as_v2(src.COST_TABLES)),
    strided_threshold_bytes=estimated(16, "bytes", src.as_v2(src.ARCH_V2)),
    strided_factor=estimated(2.0, "1", src.as_v2(src.ARCH_V2)),
)

SCALAR = ScalarEngineSpec(
    clock_ghz=documented(1.2, "GHz", src.ARCH_V3),
    min_ii_cycles=estimated(64, "cycles", src.as_v2(src.COST_TABLES)),
    cycles_per_element=documented(1.0, "cycles/element", src.ARCH_V3),
    accumulate_cycles_per_element=measured(1.1, "cycles/element", src.SCREENSHOTS_V3),
    activation_overhead_sbuf_cycles=measured(212, "cycles", src.SCREENSHOTS_V3),
    activation_overhead_psum_cycles=measured(172, "cycles", src.TRACES_V3),
    copy_overhead_cycles=measured(46, "cycles", src.TRACES_V3),
    latency_ns=measured(118.0, "ns", src.TRACES_V3),
    table_load_ns=measured(1283.0, "ns", src.TRACES_V3),
    read_accumulator_cycles=estimated(64, "cycles", src.as_v2(src.PERF_GUIDE)),
    copy_16bit_speedup=documented(1.0, "1", src.ARCH_V3),
    strided_threshold_bytes=estimated(16, "bytes", src.as_v2(src.ARCH_V2)),
    strided_factor=estimated(2.0, "1", src.as_v2(src.ARCH_V2)),
)

GPSIMD = GpSimdSpec(
    clock_ghz=documented(1.2, "GHz", src.ARCH_V3),
    processors=documented(8, "1", src.ARCH_V3),
    partitions_per_processor=documented(16, "1", src.ARCH_V3),
    start_cycles=estimated(150, "cycles", src.as_v2(src.COST_TABLES)),
    cycles_per_element=estimated(1.0, "cycles/element", src.as_v2(src.COST_TABLES)),
    two_input_cycles_per_element=estimated(2.0, "cycles/element", "assumption: as the vector engine"),
    partition_reduce_cycles_per_element=estimated(2.0, "cycles/element", src.ASSUMPTION),
    rsqrt_cycles_per_element=documented(4.0, "cycles/element", src.ISA + ": four times slower than the scalar engine"),
    topk_cycles_per_element=documented(4.0, "cycles/element", src.ISA),
    gather_group_elements=documented(512, "1", src.ISA),
    local_gather_index_cycles=estimated(7, "cycles", src.as_v2(src.COST_TABLES)),
    local_gather_word_bytes=estimated(4, "bytes", src.as_v2(src.COST_TABLES)),
    latency_ns=estimated(100.0, "ns", src.ASSUMPTION),
    dma_bytes_per_ns=documented(153.0, "bytes/ns", src.ARCH_V3),
)

SYNC = SyncSpec(
    clock_ghz=documented(1.2, "GHz", "base clock shown by the profiler"),
    registers=documented(64, "1", src.ARCH_V3),
    issue_ns=measured(48.0, "ns", src.TRACES_V3),
    wait_ns=measured(48.0, "ns", src.SCREENSHOTS_V3),
    semaphore_hop_ns=measured(25.0, "ns", src.SCREENSHOTS_V3),
    register_load_sbuf_ns=estimated(100.0, "ns", src.ASSUMPTION),
    register_load_hbm_ns=measured(920.0, "ns", src.TRACES_V3 + ": loads at the start of a kernel, 808 to 1,248 ns"),
    loop_iteration_ns=estimated(1400.0, "ns", src.as_v2(src.PROBES_V2)),
    engine_barrier_ns=estimated(369.0, "ns", src.as_v2(src.PERF_GUIDE)),
    core_barrier_ns=measured(3084.0, "ns", src.DECODE_V3),
    send_receive_ns=measured(354.0, "ns", src.DECODE_V3 + ": 4,096 bytes"),
)

DMA = DmaSpec(
    engines=documented(16, "1", src.ARCH_V3),
    queues_per_engine=documented(16, "1", src.DMA_GUIDE),
    partitions_per_engine=documented(8, "1", src.DMA_GUIDE),
    peak_bytes_per_ns=documented(27.2, "bytes/ns", src.DMA_GUIDE),
    bytes_per_ns=measured(27.2, "bytes/ns", src.TRACES_V3 + ": slope between 256 B and 2 KiB descriptors"),
    burst_bytes=measured(2048, "bytes", src.SCREENSHOTS_V3 + "; " + src.DMA_GUIDE + ": rates of long descriptors"),
    descriptor_overhead_ns=measured(7.6, "ns", src.TRACES_V3 + ": 256 B in 17 ns, 2 KiB in 83 ns"),
    semaphore_write_ns=measured(9.0, "ns", src.TRACES_V3),
    engine_stagger_ns=measured(25.0, "ns", src.TRACES_V3 + "; " + src.SCREENSHOTS_V3),
    completion_ns=measured(325.0, "ns", src.TRACES_V3 + "; " + src.SCREENSHOTS_V3),
    static=DmaModeSpec(
        issue_ns=measured(88.0, "ns", src.SCREENSHOTS_V3),
        launch_ns=measured(832.0, "ns", src.SCREENSHOTS_V3 + ": first data 920 ns after the trigger"),
    ),
    swdge=DmaModeSpec(
        issue_ns=measured(600.0, "ns", src.SCREENSHOTS_V3),
        launch_ns=measured(750.0, "ns", src.TRACES_V3 + "; " + src.SCREENSHOTS_V3),
    ),
    hwdge=DmaModeSpec(
        issue_ns=measured(565.0, "ns", src.TRACES_V3),
        launch_ns=measured(767.0, "ns", src.TRACES_V3 + ": first data 1,332 ns after the start of the issue"),
    ),
    transpose_hbm_efficiency=documented(0.9, "1", src.DGE_GUIDE),
    transpose_sbuf_efficiency=documented(0.5, "1", src.DGE_GUIDE),
    transpose_misaligned_factor=estimated(2.0, "1", src.ASSUMPTION),
    compute_efficiency=documented(0.5, "1", src.ARCH_V4 + ": what Trainium3 improves on"),
    priorities=documented(1, "1", src.DMA_GUIDE),
)

LIMITS = LimitsSpec(
    sbuf_elements_max=documented(64 * KIB, "1", src.ISA),
    psum_elements_max=documented(4 * KIB, "1", src.ISA),
    access_dims_max=documented(4, "1", src.ARCH_V3),
    partition_quadrant=documented(32, "1", src.ARCH_V3),
    bn_stats_fmax=documented(512, "1", src.TILE_SIZES),
    max8_elements_min=documented(8, "1", src.ISA),
    max8_elements_max=documented(16384, "1", src.ISA),
    vector_transpose_max=documented(32, "1", src.ISA),
    local_gather_indices_max=documented(4096, "1", src.ISA),
    dma_compute_sources_max=documented(16, "1", src.ISA),
    semaphores=estimated(256, "1", src.ASSUMPTION),
)

PROGRAM = ProgramSpec(
    head_ns=measured(13300.0, "ns", src.TRACES_V3),
    tail_ns=measured(1700.0, "ns", src.TRACES_V3),
    host_launch_ns=estimated(100_000.0, "ns", "public measurements from the host on Trainium1 and 2: 45 to 145 us"),
)

TARGET = Target(
    name="trn2",
    title="Trainium2",
    generation="gen3",
    core_version=3,
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
    limits=LIMITS,
    program=PROGRAM,
    features=frozenset((
        "hwdge", "swdge_indirect", "dma_transpose_16bit", "native_scalar_copy", "scalar_tensor_scalar",
        "activation_bias_constant", "range_select", "gpsimd_rng", "nonzero_with_count", "vector_fast_modes",
        "vector_gpsimd_parallel_sbuf", "vector_scalar_parallel_psum", "tensor_transpose_exact", "row_tiling_32",
        "structured_sparsity", "fp8_double_row", "logical_cores", "tensor_clock_gating", "int64_native",
    )),
)
