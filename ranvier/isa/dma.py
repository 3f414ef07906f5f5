"""Data movement by the DMA engines."""

from __future__ import annotations

import math

import numpy as np

from ranvier.isa.access import AccessPattern
from ranvier.isa.enums import DgeMode, OobMode
from ranvier.isa.examples import example
from ranvier.isa.record import HBM, SBUF, Cost, DmaWork, Instruction, Rule, attr, dst, instruction, ns, src
from ranvier.target.spec import Engine, Target

_ENGINES = (Engine.SYNC, Engine.SCALAR, Engine.GPSIMD)
_COST_SOURCE = "DMA bandwidth guide and public instruction traces: issue, launch, descriptors over the engines, completion"


def _run_elements(ap: AccessPattern) -> int:
    """Elements of the runs that `ap` is made of: contiguous, within one partition, within one row of an indirect operand."""
    return min(ap.run_elements, ap.free_elements) if ap.space.on_chip or ap.index is not None else ap.run_elements


def transfer(target: Target, source: AccessPattern, to: AccessPattern, mode: str, efficiency: float = 1.0) -> DmaWork:
    """The descriptors that moving `source` to `to` needs: one per run that is contiguous on both sides.

    A transfer that touches SBUF is spread over the engines by partition. Between HBM tensors long runs are cut so that all
    engines take part, but not below one burst. A cast moves the bytes of the wider side.
    """
    engines = int(target.dma.engines.value)
    size = max(source.dtype.itemsize, to.dtype.itemsize)
    run_bytes = min(_run_elements(source), _run_elements(to)) * size
    total = to.size * size
    hbm_bytes = sum(ap.size_bytes for ap in (source, to) if not ap.space.on_chip)
    on_chip = to if to.space.on_chip else source
    if on_chip.space.on_chip:
        used = math.ceil(on_chip.partitions / target.dma.partitions_per_engine.value)
    else:
        run_bytes = min(run_bytes, max(int(target.dma.burst_bytes.value), math.ceil(total / engines)))
        used = math.ceil(total / run_bytes)
    return DmaWork(math.ceil(total / run_bytes), run_bytes, min(engines, used), hbm_bytes, mode, efficiency)


def _check_index(inst: DmaCopy, ap: AccessPattern, rule: str, argument: str) -> None:
    """An indirect operand is a tensor in HBM, indexed by one integer for each of its rows, in SBUF."""
    if ap.index is None:
        return
    index = ap.index.ap
    inst.require(
        ap.space is HBM and index.space is SBUF and index.dtype.is_integer and index.size >= ap.partitions, rule,
        f"{argument} takes {ap.partitions} rows of a tensor in {ap.space.value}, by an index of {index.dtype} and shape "
        f"{index.shape} in {index.space.value}", argument=argument,
    )


def _has_priority(target: Target, priority: int | None) -> bool:
    return priority is None or (target.has("dma_priority") and 0 <= priority < target.dma.priorities.value)


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.dma_copy; DMA overview and bandwidth guides", cost_source=_COST_SOURCE, dma=True)
class DmaCopy(Instruction):
    """Copy between HBM and SBUF in any combination; element counts are equal, shapes need not be. A cast goes through float32.

    An indirect operand (row indices in SBUF, one per row) gathers or scatters rows of an HBM tensor, with descriptors that
    gpsimd makes. `dge_mode` says who makes the descriptors, `engine` which one triggers the transfer.
    """

    dst: AccessPattern = dst(HBM, SBUF, doc="any dtype")
    src: AccessPattern = src(HBM, SBUF, doc="any dtype")
    priority: int | None = attr(int, default=None, doc="0 (first) to 3, where the generation has priorities")
    oob_mode: OobMode = attr(OobMode, default=OobMode.error, doc="what happens to rows whose index is out of bounds")
    dge_mode: DgeMode = attr(DgeMode, default=DgeMode.unknown, doc="who makes the descriptors")
    engine: Engine = attr(Engine, default=Engine.UNKNOWN, doc="sync or scalar; gpsimd for swdge")

    RULES = {
        "DMA-1": Rule("E0304", "dst and src have the same number of elements"),
        "DMA-2": Rule("E0307", "hwdge exists from the generation with feature hwdge on"),
        "DMA-3": Rule("E0305", "hwdge does not cast: the dtypes are equal"),
        "DMA-4": Rule("E0309", "an indirect operand lies in HBM, and its index in SBUF has one integer per row"),
        "DMA-5": Rule("E0307", "priorities are 0 to 3 and exist from the generation with feature dma_priority on"),
        "DMA-6": Rule("E0309", "an indirect operand needs descriptors made by gpsimd: dge_mode unknown or swdge"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x512 bf16", src="hbm 128x512 bf16"),
        example(dst="hbm 128x512 bf16", src="sbuf 128x512 f32"),
        example(dst="sbuf 32x48 f32", src="hbm 32x96[1:96:2] f32", dge_mode=DgeMode.none),
        example(dst="hbm 64x1000 f16", src="hbm 64x1000 f16", dge_mode=DgeMode.swdge),
        example(dst="sbuf 64x32 f32", src="hbm 100x32 f32 rows sbuf 64x1 i32", note="a gather of 64 rows"),
        example(dst="hbm 100x32 f32 rows sbuf 64x1 u32", src="sbuf 64x32 bf16", note="a scatter of 64 rows"),
        example(dst="sbuf 128x512 bf16", src="hbm 128x256 bf16", rule="DMA-1"),
        example(dst="sbuf 8x8 f32", src="hbm 8x8 f32", dge_mode=DgeMode.hwdge, rule="DMA-2"),
        example(dst="sbuf 8x8 f32", src="hbm 8x8 bf16", dge_mode=DgeMode.hwdge, rule="DMA-3", feature="hwdge"),
        example(dst="sbuf 64x32 f32", src="hbm 100x32 f32 rows sbuf 64x1 f32", rule="DMA-4"),
        example(dst="sbuf 8x8 f32", src="hbm 8x8 f32", priority=1, rule="DMA-5"),
        example(dst="sbuf 64x32 f32", src="hbm 100x32 f32 rows sbuf 64x1 i32", dge_mode=DgeMode.none, rule="DMA-6"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        self.require(self.dst.size == self.src.size, "DMA-1", f"dst has shape {self.dst.shape}, src has shape {self.src.shape}", argument="src")
        hwdge = self.dge_mode is DgeMode.hwdge
        self.require(not hwdge or target.has("hwdge"), "DMA-2", f"dge_mode is hwdge on {target.title}", argument="dge_mode")
        self.require(not hwdge or self.dst.dtype is self.src.dtype, "DMA-3", f"dst is {self.dst.dtype}, src is {self.src.dtype}", argument="dge_mode")
        for argument, ap in (("dst", self.dst), ("src", self.src)):
            _check_index(self, ap, "DMA-4", argument)
        self.require(_has_priority(target, self.priority), "DMA-5", f"priority is {self.priority} on {target.title}", argument="priority")
        self.require(not self.is_indirect or self.dge_mode in (DgeMode.unknown, DgeMode.swdge), "DMA-6", f"dge_mode is {self.dge_mode.name}", argument="dge_mode")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.dst.dtype is self.src.dtype else "float32"

    @property
    def is_indirect(self) -> bool:
        return self.dst.index is not None or self.src.index is not None

    @property
    def reads_dst(self) -> bool:
        """Rows that a gather skips keep what dst held."""
        return self.oob_mode is OobMode.skip and self.src.index is not None

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        if self.is_indirect or self.dge_mode is DgeMode.swdge:
            return (Engine.GPSIMD,)
        return (Engine.SYNC, Engine.SCALAR) if self.dge_mode is DgeMode.hwdge else self.ENGINES

    def mode(self, engine: Engine) -> str:
        """Who makes the descriptors: as asked for, or swdge for indirect ones and for those gpsimd triggers, else static."""
        if self.dge_mode is not DgeMode.unknown:
            return "static" if self.dge_mode is DgeMode.none else self.dge_mode.name
        return "swdge" if self.is_indirect or engine is Engine.GPSIMD else "static"

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        return keep_skipped(*operands)

    def cost(self, target: Target, engine: Engine) -> Cost:
        mode = self.mode(engine)
        issue = ns(1, target.dma.mode(mode).issue_ns)
        return Cost(issue, issue, dma=transfer(target, self.src, self.dst, mode))


def keep_skipped(*operands: np.ndarray) -> np.ndarray:
    """The moved data; rows of a gather that are out of bounds and skipped come masked and keep the first operand's data."""
    data = operands[-1]
    if not isinstance(data, np.ma.MaskedArray):
        return data
    return np.where(np.ma.getmaskarray(data).reshape(operands[0].shape), operands[0], data.data.reshape(operands[0].shape))


_TRANSPOSES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_HWDGE_ROWS = (1, 2, 4, 8, 16)
_BLOCK_ROWS = 16
_LAST_MAX = 128


@instruction(engines=_ENGINES, source="NKI 0.6, nki.isa.dma_transpose; guide to descriptor generation", cost_source="guide to descriptor generation: 90 % of the plain rate from HBM, 50 % within SBUF", dma=True)
class DmaTranspose(Instruction):
    """Transposing copy into SBUF: the last axis of `src` becomes the partition axis of `dst` and its first axis the last.

    `axes` is (1, 0), (2, 1, 0) or (3, 1, 2, 0), by the rank of `src`; None takes the one for that rank. The bits do not change.
    With an indirect `src` (row indices in SBUF, column after column) the gathered rows are transposed.
    """

    dst: AccessPattern = dst(SBUF, doc="shape of src, permuted; dtype of src")
    src: AccessPattern = src(HBM, SBUF, doc="two to four axes, any dtype")
    axes: tuple[int, ...] | None = attr(tuple, default=None, doc="axis i of dst is axis axes[i] of src")
    priority: int | None = attr(int, default=None, doc="0 (first) to 3, where the generation has priorities")
    dge_mode: DgeMode = attr(DgeMode, default=DgeMode.unknown, doc="unknown, hwdge, or swdge for an indirect src")
    oob_mode: OobMode = attr(OobMode, default=OobMode.error, doc="what happens to rows whose index is out of bounds")

    RULES = {
        "DT-1": Rule("E0309", "axes is (1, 0), (2, 1, 0) or (3, 1, 2, 0), and src has as many axes"),
        "DT-2": Rule("E0304", "dst has the shape of src, permuted"),
        "DT-3": Rule("E0305", "dst has the dtype of src"),
        "DT-4": Rule("E0309", "dge_mode is unknown, hwdge (from the generation with feature hwdge on), or swdge for an indirect src"),
        "DT-5": Rule("E0308", "hwdge transposes 2-byte elements, at most 128 in the last axis, in blocks of 16 rows"),
        "DT-6": Rule("E0309", "an indirect src lies in HBM, has 2-byte elements, a multiple of 16 rows and at most 128 elements in the last axis; with four axes the second or third has size 1"),
        "DT-7": Rule("E0309", "the index of an indirect src is uint32 on 16 to 128 partitions, a multiple of 16, and all 128 when it has several columns"),
        "DT-8": Rule("E0307", "priorities are 0 to 3 and exist from the generation with feature dma_priority on"),
        "DT-9": Rule("E0307", "an indirect src needs the feature swdge_indirect"),
    }
    EXAMPLES = (
        example(dst="sbuf 128x256 bf16", src="hbm 256x128 bf16"),
        example(dst="sbuf 64x5x16 f32", src="hbm 16x5x64 f32", axes=(2, 1, 0)),
        example(dst="sbuf 16x2x3x8 bf16", src="hbm 8x2x3x16 bf16"),
        example(dst="sbuf 128x16 bf16", src="sbuf 16x128 bf16", dge_mode=DgeMode.hwdge, feature="hwdge"),
        example(dst="sbuf 64x32 bf16", src="hbm 100x64 bf16 rows sbuf 32x1 u32", feature="swdge_indirect"),
        example(dst="sbuf 64x64 bf16", src="hbm 64x64 bf16", axes=(0, 1), rule="DT-1"),
        example(dst="sbuf 64x32 bf16", src="hbm 64x32 bf16", rule="DT-2"),
        example(dst="sbuf 64x32 f32", src="hbm 32x64 bf16", rule="DT-3"),
        example(dst="sbuf 64x32 bf16", src="hbm 32x64 bf16", dge_mode=DgeMode.swdge, rule="DT-4"),
        example(dst="sbuf 64x32 bf16", src="hbm 32x64 bf16", dge_mode=DgeMode.hwdge, rule="DT-5", feature="hwdge"),
        example(dst="sbuf 64x32 f32", src="hbm 100x64 f32 rows sbuf 32x1 u32", rule="DT-6", feature="swdge_indirect"),
        example(dst="sbuf 64x32 bf16", src="hbm 100x64 bf16 rows sbuf 32x1 i32", rule="DT-7", feature="swdge_indirect"),
        example(dst="sbuf 64x32 bf16", src="hbm 32x64 bf16", priority=7, rule="DT-8"),
        example(dst="sbuf 64x32 bf16", src="hbm 100x64 bf16 rows sbuf 32x1 u32", rule="DT-9"),
    )  # fmt: skip

    def __post_init__(self):
        if self.axes is not None:
            object.__setattr__(self, "axes", tuple(self.axes))

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """`axes`, or what None stands for; None for a rank that has none."""
        return self.axes if self.axes is not None else _TRANSPOSES.get(len(self.src.shape))

    def check(self, target: Target) -> None:
        shape, axes = self.src.shape, self.permutation
        self.require(axes is not None and axes == _TRANSPOSES.get(len(shape)), "DT-1", f"axes is {self.axes}, src has shape {shape}", argument="axes")
        assert axes is not None
        wanted = tuple(shape[axis] for axis in axes)
        self.require(self.dst.shape == wanted, "DT-2", f"src has shape {shape}, so dst has {wanted}; it has {self.dst.shape}", argument="dst")
        self.require(self.dst.dtype is self.src.dtype, "DT-3", f"dst is {self.dst.dtype}, src is {self.src.dtype}", argument="dst")
        indirect = self.src.index is not None
        legal = self.dge_mode is DgeMode.unknown or self.dge_mode is (DgeMode.swdge if indirect else DgeMode.hwdge)
        self.require(legal and (self.dge_mode is not DgeMode.hwdge or target.has("hwdge")), "DT-4", f"dge_mode is {self.dge_mode.name}, src is {'indirect' if indirect else 'direct'}, on {target.title}", argument="dge_mode")
        if self.dge_mode is DgeMode.hwdge:
            self._check_hwdge()
        if indirect:
            self._check_indirect(target)
        self.require(_has_priority(target, self.priority), "DT-8", f"priority is {self.priority} on {target.title}", argument="priority")

    def _check_hwdge(self) -> None:
        shape, size, rank = self.src.shape, self.src.dtype.itemsize, len(self.src.shape)
        rows = shape[0] == _BLOCK_ROWS if rank == 2 else shape[0] in _HWDGE_ROWS and (shape[0] * shape[-2]) % _BLOCK_ROWS == 0
        self.require(rows and shape[-1] <= _LAST_MAX and size == 2, "DT-5", f"src has shape {shape} and elements of {size} bytes", argument="src")

    def _check_indirect(self, target: Target) -> None:
        assert self.src.index is not None
        shape, size, index = self.src.shape, self.src.dtype.itemsize, self.src.index.ap
        self.require(target.has("swdge_indirect"), "DT-9", f"src is indirect on {target.title}", argument="src")
        rank = len(shape)
        flat = rank < 4 or 1 in shape[1:3]
        legal = self.src.space is HBM and size == 2 and shape[0] % _BLOCK_ROWS == 0 and shape[-1] <= _LAST_MAX and flat
        self.require(legal, "DT-6", f"src has shape {shape} and elements of {size} bytes in {self.src.space.value}", argument="src")
        count = index.partitions
        many = index.free_elements > 1
        legal = index.space is SBUF and index.dtype.name == "uint32" and count % _BLOCK_ROWS == 0 and index.size >= shape[0]
        self.require(legal and (count == _LAST_MAX if many else count <= _LAST_MAX), "DT-7", f"the index is {index.dtype} of shape {index.shape}", argument="src")

    @property
    def arithmetic(self) -> str:
        return "raw"

    @property
    def reads_dst(self) -> bool:
        """Rows that a gather skips keep what dst held."""
        return self.oob_mode is OobMode.skip and self.src.index is not None

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        if self.src.index is not None:
            return (Engine.GPSIMD,)
        return (Engine.SYNC, Engine.SCALAR) if self.dge_mode is DgeMode.hwdge else self.ENGINES

    def mode(self, engine: Engine) -> str:
        """Who makes the descriptors."""
        if self.dge_mode is DgeMode.hwdge:
            return "hwdge"
        return "swdge" if engine is Engine.GPSIMD else "static"

    def semantics(self, *operands: np.ndarray) -> np.ndarray:
        *old, data = operands
        return keep_skipped(*old, data.transpose(self.permutation))

    def cost(self, target: Target, engine: Engine) -> Cost:
        dma, mode = target.dma, self.mode(engine)
        issue = ns(1, dma.mode(mode).issue_ns)
        from_hbm = self.src.space is HBM
        efficiency = (dma.transpose_hbm_efficiency if from_hbm else dma.transpose_sbuf_efficiency).value
        # All engines together write blocks of [partitions of SBUF, number of engines]; the rest of a block is lost.
        if self.dst.partitions % target.sbuf.partitions.value or self.dst.shape[-1] % dma.engines.value:
            efficiency /= dma.transpose_misaligned_factor.value
        row_bytes = self.dst.free_elements * self.dst.dtype.itemsize
        work = DmaWork(self.dst.partitions, row_bytes, int(dma.engines.value), self.src.size_bytes if from_hbm else 0, mode, efficiency)
        return Cost(issue, issue, dma=work)
