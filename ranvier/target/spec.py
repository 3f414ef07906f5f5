"""What a target is made of: frozen records whose every number is a `Fact` with unit, source and confidence.

Numbers only. How they combine into the time of an instruction is the business of the instruction; two rules hold
throughout. An engine starts the next instruction one *initiation interval* after the last one, where
``interval = (elements * cycles_per_element + overhead_cycles) / clock_ghz``, and the result is visible `latency_ns`
after the end of that interval. Overheads are in cycles of the engine's own clock, latencies in nanoseconds.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from ranvier import dtypes
from ranvier.errors import error
from ranvier.target.fact import Confidence, Fact
from ranvier.target.features import FEATURES
from ranvier.target.sources import USER


class Engine(enum.Enum):
    """The engines of a core; the values are those of `nki.isa.engine`."""

    UNKNOWN = 0
    TENSOR = 1
    SCALAR = 2
    GPSIMD = 3
    DMA = 4
    VECTOR = 5
    SYNC = 6


# Chip and memories ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChipSpec:
    """One chip. Bandwidths are totals of the chip in bytes/ns (= GB/s)."""

    cores: Fact
    cores_per_logical_core: Fact  # largest size of a logical core: cores that run one program together
    hbm_bytes: Fact
    hbm_stacks: Fact
    hbm_bytes_per_ns: Fact
    dma_engines: Fact
    collective_cores: Fact  # engines that run collective communication
    links: Fact  # NeuronLink ports to neighbour chips
    link_bytes_per_ns: Fact  # of one port, both directions together
    host_bytes_per_ns: Fact  # PCIe to the host, per direction


@dataclass(frozen=True, slots=True)
class SbufSpec:
    """State buffer: the operands of the engines, two-dimensional."""

    partitions: Fact
    bytes_per_partition: Fact
    reserved_bytes_per_partition: Fact  # not available to kernels
    partition_pitch_bytes: Fact  # distance of two partitions in the device address map

    @property
    def usable_bytes_per_partition(self) -> int:
        return int(self.bytes_per_partition.value - self.reserved_bytes_per_partition.value)

    @property
    def bytes(self) -> int:
        return int(self.partitions.value * self.bytes_per_partition.value)


@dataclass(frozen=True, slots=True)
class PsumSpec:
    """Partial sum buffer: what the tensor engine writes, accumulating."""

    partitions: Fact
    banks: Fact
    bank_bytes: Fact  # per partition

    @property
    def bytes_per_partition(self) -> int:
        return int(self.banks.value * self.bank_bytes.value)

    @property
    def bytes(self) -> int:
        return int(self.partitions.value * self.bytes_per_partition)


@dataclass(frozen=True, slots=True)
class HbmSpec:
    """The device memory as one core sees it.

    `bytes_per_ns` is the core's share when all cores of the chip stream; a core whose neighbours are idle can use up to
    `stack_bytes_per_ns`, but its own DMA engines limit it earlier.
    """

    bytes: Fact
    bytes_per_ns: Fact
    stack_bytes_per_ns: Fact
    cores_per_stack: Fact
    latency_ns: Fact  # part of the launch of a DMA transfer, not in addition to it
    reserved_bytes: Fact  # microcode and runtime, per core

    @property
    def usable_bytes(self) -> int:
        return int(self.bytes.value - self.reserved_bytes.value)


# Engines --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """One way to feed the array. A matmul of N moving columns takes
    ``passes * (max(N * cycles_per_column, min_ii_cycles) + pass_overhead_cycles)`` cycles of the tensor engine, while
    each pass loads its stationary operand of M columns in ``M * load_cycles_per_column`` cycles, hidden behind the
    pass before it.
    """

    passes: Fact
    cycles_per_column: Fact
    pass_overhead_cycles: Fact
    load_cycles_per_column: Fact
    contraction_rows: Fact  # values of the contracted axis that one pass takes: 128, or more where rows hold several


@dataclass(frozen=True, slots=True)
class ThrottleSpec:
    """Power management of the tensor engine.

    It starts at `cold_fraction` of its rate and gets to the full rate after a window of `window_ns` in which it was
    busy for more than `busy_threshold`; it falls back after a window with less. `sustained_fraction` is the part of the
    full rate that long dense kernels were seen to keep (1: no lasting limit).
    """

    cold_fraction: Fact
    window_ns: Fact
    busy_threshold: Fact
    sustained_fraction: Fact


@dataclass(frozen=True, slots=True)
class TensorEngineSpec:
    """Systolic array (PE)."""

    clock_ghz: Fact
    rows: Fact
    columns: Fact
    stationary_fmax: Fact
    moving_fmax: Fact
    min_ii_cycles: Fact
    bf16: MatmulRate  # bfloat16, float16
    fp32: MatmulRate
    fp8: MatmulRate  # float8 in the normal mode
    double_row: MatmulRate | None  # float8, two rows at a time
    mx: MatmulRate | None  # MX formats
    transpose_fp32: MatmulRate | None  # exact transpose of float32 (None: a matmul with the identity)
    latency_ns: Fact  # end of the interval of a matmul to its result in PSUM
    load_latency_ns: Fact  # the same for a load of the stationary operand
    throttle: ThrottleSpec

    def rate(self, dtype: dtypes.DType | str) -> MatmulRate:
        """The normal mode's `MatmulRate` for operands of `dtype`. Raises E0305 for dtypes that are not multiplied."""
        of = dtypes.dtype(dtype)
        if of is dtypes.float32:
            return self.fp32
        if of in (dtypes.bfloat16, dtypes.float16):
            return self.bf16
        if of in (dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2):
            return self.fp8
        raise error("E0305", f"the tensor engine multiplies floats, not {of}")

    def flops(self, rate: MatmulRate) -> float:
        """Peak FLOP/s of one core at `rate`: two per multiply-accumulate, fixed costs not counted."""
        per_column = rate.passes.value * rate.cycles_per_column.value
        return 2e9 * self.clock_ghz.value * self.columns.value * rate.contraction_rows.value / per_column


@dataclass(frozen=True, slots=True)
class VectorEngineSpec:
    """DVE. Rates are per partition; the number of partitions does not matter.

    Speedups divide the cycles per element of the instructions and operands they name.
    """

    clock_ghz: Fact
    min_ii_cycles: Fact
    overhead_sbuf_cycles: Fact  # all operands in SBUF
    overhead_mixed_cycles: Fact  # PSUM on one side
    overhead_psum_cycles: Fact  # reads and writes PSUM
    scalar_operand_overhead_cycles: Fact  # in addition, when tensor_scalar takes a scalar per partition from memory
    latency_ns: Fact
    cycles_per_element: Fact
    two_input_cycles_per_element: Fact  # both inputs in SBUF
    two_input_mixed_cycles_per_element: Fact  # one of the inputs in PSUM
    reciprocal_cycles_per_element: Fact
    bn_aggr_cycles_per_element: Fact
    exponential_cycles_per_element: Fact | None
    quantize_mx_cycles_per_element: Fact | None
    random_cycles_per_element: Fact
    copy_16bit_contiguous_speedup: Fact  # tensor_copy, tensor_scalar: SBUF to SBUF, 16-bit, contiguous
    copy_16bit_speedup: Fact  # the same, strided, or contiguous with one side in PSUM
    copy_fp32_speedup: Fact  # the same, float32 in SBUF, contiguous
    two_input_16bit_speedup: Fact  # tensor_tensor: all operands 16-bit in SBUF
    reduce_16bit_speedup: Fact  # tensor_reduce add, max
    memset_16bit_speedup: Fact  # memset to zero
    read_accumulator_cycles: Fact  # writing the accumulated reduction out
    dynamic_min_ii_cycles: Fact  # least interval of an instruction with an address from a register
    strided_threshold_bytes: Fact  # innermost strides above this run slower
    strided_factor: Fact


@dataclass(frozen=True, slots=True)
class ScalarEngineSpec:
    """ACT."""

    clock_ghz: Fact
    min_ii_cycles: Fact
    cycles_per_element: Fact
    accumulate_cycles_per_element: Fact  # activation with a reduction along the free axis
    activation_overhead_sbuf_cycles: Fact
    activation_overhead_psum_cycles: Fact
    copy_overhead_cycles: Fact  # tensor_copy, and activation with the function copy
    latency_ns: Fact
    table_load_ns: Fact
    read_accumulator_cycles: Fact
    copy_16bit_speedup: Fact  # tensor_copy, tensor_scalar on 16-bit data
    strided_threshold_bytes: Fact
    strided_factor: Fact


@dataclass(frozen=True, slots=True)
class GpSimdSpec:
    """POOL: eight programmable processors of 16 partitions each."""

    clock_ghz: Fact
    processors: Fact
    partitions_per_processor: Fact
    start_cycles: Fact
    cycles_per_element: Fact
    two_input_cycles_per_element: Fact
    partition_reduce_cycles_per_element: Fact
    rsqrt_cycles_per_element: Fact
    topk_cycles_per_element: Fact
    gather_group_elements: Fact  # nc_n_gather runs one group of instructions per so many elements
    local_gather_index_cycles: Fact  # of local_gather for each index, beside the cycles of its elements
    local_gather_word_bytes: Fact  # elements of an index that fit in a word are gathered at once
    latency_ns: Fact
    dma_bytes_per_ns: Fact | None  # integrated DMA, per direction


@dataclass(frozen=True, slots=True)
class SyncSpec:
    """Sequencers (every engine has one; SP is nothing but one) and what keeps engines in step."""

    clock_ghz: Fact
    registers: Fact
    issue_ns: Fact  # a control instruction: register arithmetic, branch
    wait_ns: Fact  # an instruction that only waits for a semaphore
    semaphore_hop_ns: Fact  # signal on one engine to start on another that waits
    register_load_sbuf_ns: Fact
    register_load_hbm_ns: Fact
    loop_iteration_ns: Fact  # of a loop on the device, per iteration
    engine_barrier_ns: Fact
    core_barrier_ns: Fact | None  # between the two cores of a logical core
    send_receive_ns: Fact | None  # exchange of a small tile between those


@dataclass(frozen=True, slots=True)
class DmaModeSpec:
    """Who makes the descriptors. `issue_ns` occupies the issuing engine; the first byte moves `launch_ns` after it."""

    issue_ns: Fact
    launch_ns: Fact


@dataclass(frozen=True, slots=True)
class DmaSpec:
    """The DMA engines of one core.

    An engine moves a descriptor in bursts of at most `burst_bytes`:
    ``ceil(bytes / burst_bytes) * descriptor_overhead_ns + bytes / bytes_per_ns`` ns. A transfer is spread over the
    engines by partition; engine number i starts ``i * engine_stagger_ns`` after the first. The consumer sees the
    semaphore `completion_ns` after the last byte (and starts a semaphore hop later).
    """

    engines: Fact
    queues_per_engine: Fact
    partitions_per_engine: Fact
    peak_bytes_per_ns: Fact  # of one engine, as stated: the denominator of a utilization
    bytes_per_ns: Fact  # of one engine within a burst
    burst_bytes: Fact
    descriptor_overhead_ns: Fact
    semaphore_write_ns: Fact
    engine_stagger_ns: Fact
    completion_ns: Fact
    static: DmaModeSpec  # descriptors made at load time, kept in HBM
    swdge: DmaModeSpec  # made by gpsimd at run time
    hwdge: DmaModeSpec | None  # made by hardware, asked for by the scalar or sync engine
    transpose_hbm_efficiency: Fact  # of the plain rate, HBM to SBUF
    transpose_sbuf_efficiency: Fact
    transpose_misaligned_factor: Fact  # partitions not a multiple of 128, or inner size not a multiple of 16
    compute_efficiency: Fact  # dma_compute, scatter with accumulation
    priorities: Fact

    def mode(self, name: str) -> DmaModeSpec:
        """The `DmaModeSpec` called `name` ("static", "swdge", "hwdge"). Raises E0307 when this generation lacks it."""
        found = getattr(self, name) if name in ("static", "swdge", "hwdge") else None
        if found is None:
            raise error("E0307", f"this generation has no DMA mode {name!r}; it has {', '.join(self.modes)}")
        return found

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(name for name in ("static", "swdge", "hwdge") if getattr(self, name) is not None)


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Limits of the instruction set."""

    sbuf_elements_max: Fact  # per partition and instruction
    psum_elements_max: Fact
    access_dims_max: Fact  # dimensions of an access pattern
    partition_quadrant: Fact  # start partitions are multiples of this
    bn_stats_fmax: Fact
    max8_elements_min: Fact
    max8_elements_max: Fact
    vector_transpose_max: Fact  # side of the square that the vector engine transposes
    local_gather_indices_max: Fact
    dma_compute_sources_max: Fact
    semaphores: Fact

    def start_step(self, partitions: int) -> int:
        """An operand of so many partitions starts at a multiple of this: of one, two or four quadrants."""
        quadrant = int(self.partition_quadrant.value)
        return quadrant if partitions <= quadrant else 2 * quadrant if partitions <= 2 * quadrant else 4 * quadrant


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """What surrounds the instructions of a program in a profile or in a measurement from the host."""

    head_ns: Fact  # start of the profile to the first instruction of the program
    tail_ns: Fact  # last instruction to the end of the profile
    host_launch_ns: Fact  # what a measurement on the host adds


# Target ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """One chip as the compiler and the simulator know it; engines, memories and DMA are those of one core."""

    name: str
    title: str
    generation: str  # "gen2", "gen3", "gen4"
    core_version: int
    chip: ChipSpec
    sbuf: SbufSpec
    psum: PsumSpec
    hbm: HbmSpec
    tensor: TensorEngineSpec
    vector: VectorEngineSpec
    scalar: ScalarEngineSpec
    gpsimd: GpSimdSpec
    sync: SyncSpec
    dma: DmaSpec
    limits: LimitsSpec
    program: ProgramSpec
    features: frozenset[str]

    def __post_init__(self):
        for feature in self.features:
            _check_feature(feature)

    def __repr__(self) -> str:
        return f"Target({self.name})"

    def __hash__(self) -> int:
        # Targets are keys of caches on hot paths; hashing every fact would cost more than what is cached.
        return hash(self.name)

    def has(self, feature: str) -> bool:
        """Whether this target has the named feature. Raises E0805 for a name that `features.FEATURES` does not list."""
        _check_feature(feature)
        return feature in self.features

    def clock_ghz(self, engine: Engine) -> float:
        """Clock of `engine`. Raises E0805 for DMA and UNKNOWN, whose times are not counted in cycles."""
        match engine:
            case Engine.TENSOR:
                return self.tensor.clock_ghz.value
            case Engine.VECTOR:
                return self.vector.clock_ghz.value
            case Engine.SCALAR:
                return self.scalar.clock_ghz.value
            case Engine.GPSIMD:
                return self.gpsimd.clock_ghz.value
            case Engine.SYNC:
                return self.sync.clock_ghz.value
        raise error("E0805", f"the engine {engine.name} has no clock; its times are given in ns")

    def peak_flops(self, dtype: dtypes.DType | str) -> float:
        """Peak FLOP/s of one core's tensor engine for matmuls of `dtype` in the fastest mode that takes that dtype.

        Raises E0305 for dtypes that are not multiplied.
        """
        rate = self.tensor.rate(dtype)
        if self.tensor.double_row is not None and dtypes.dtype(dtype).itemsize == 1:
            rate = self.tensor.double_row
        return self.tensor.flops(rate)

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """Every number with its dotted path ("dma.bytes_per_ns"), in the order of the fields."""
        return _facts(self, "")

    def replace(self, path: str, value: float | int) -> Target:
        """A copy in which the fact at the dotted `path` has `value`, is estimated, and has the user as its source.

        Raises E0805 for a path that is not a fact, E0802 for a value that is not a positive number (zero is allowed,
        except for clocks and rates) or has a fraction where a count is meant.
        """
        facts = dict(self.facts())
        if path not in facts:
            near = difflib.get_close_matches(path, facts, n=3, cutoff=0.5)
            raise error("E0805", f"{self.name} has no fact {path!r}" + (f"; near: {', '.join(near)}" if near else ""))
        old = facts[path]
        fact = Fact(_checked(path, old, value), old.unit, USER, Confidence.ESTIMATED)
        return _replaced(self, path.split("."), fact)

    def digest(self) -> str:
        """Hash of everything that can change a program or its time: values and features, not sources."""
        content = [self.name, self.generation, self.core_version, sorted(self.features)]
        content += [[path, fact.value, fact.unit] for path, fact in self.facts()]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]

    def to_json(self) -> dict:
        """Everything, ready for `json.dumps`: nested as the fields are, each fact an object of its four parts."""
        return {field.name: _to_json(getattr(self, field.name)) for field in dataclasses.fields(self)}


def _check_feature(feature: str) -> None:
    if feature not in FEATURES:
        near = difflib.get_close_matches(feature, FEATURES, n=3)
        raise error("E0805", f"no feature is called {feature!r}" + (f"; near: {', '.join(near)}" if near else ""))


def _checked(path: str, old: Fact, value: float | int) -> float | int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 <= value < float("inf")):
        raise error("E0802", f"{path} takes a number that is not negative, got {value!r}")
    if isinstance(old.value, int) and value != int(value):
        raise error("E0802", f"{path} takes a whole number, got {value!r}")
    if value == 0 and old.value != 0 and (old.unit in ("GHz", "bytes/ns", "bytes", "1")):
        raise error("E0802", f"{path} cannot be 0 (it is {old.value} {old.unit})")
    return int(value) if isinstance(old.value, int) else float(value)


def _facts(record: object, prefix: str) -> Iterator[tuple[str, Fact]]:
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, Fact):
            yield prefix + field.name, value
        elif dataclasses.is_dataclass(value):
            yield from _facts(value, f"{prefix}{field.name}.")


def _replaced(record, path: list[str], fact: Fact):
    name, rest = path[0], path[1:]
    new = _replaced(getattr(record, name), rest, fact) if rest else fact
    return dataclasses.replace(record, **{name: new})


def _to_json(value):
    if isinstance(value, Fact):
        return {"value": value.value, "unit": value.unit, "source": value.source, "confidence": value.confidence.value}
    if dataclasses.is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    return value
