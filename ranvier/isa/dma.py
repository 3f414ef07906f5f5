"""Data movement by the DMA engines."""

from __future__ import annotations

import math

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern
from ranvier.isa.record import HBM, SBUF, Cost, DmaWork, Example, Instruction, Rule, attr, dst, instruction, ns, src
from ranvier.target.spec import Engine, Target

DGE_MODES = ("unknown", "swdge", "hwdge", "none")


def transfer(target: Target, source: AccessPattern, to: AccessPattern, mode: str, efficiency: float = 1.0) -> DmaWork:
    """The descriptors that copying `source` to `to` needs: one per contiguous run, at least one per partition."""
    run_bytes = min(source.run_elements * source.dtype.itemsize, to.run_elements * to.dtype.itemsize)
    total = to.size_bytes
    on_chip = to if to.space.on_chip else source
    partitions = on_chip.partitions if on_chip.space.on_chip else math.ceil(total / max(run_bytes, 1))
    run_bytes = min(run_bytes, math.ceil(total / max(1, partitions if on_chip.space.on_chip else 1)))
    engines = min(int(target.dma.engines.value), max(1, math.ceil(partitions / target.dma.partitions_per_engine.value)))
    hbm_bytes = sum(ap.size_bytes for ap in (source, to) if not ap.space.on_chip)
    return DmaWork(math.ceil(total / max(run_bytes, 1)), run_bytes, engines, hbm_bytes, mode, efficiency)


@instruction(
    engines=(Engine.SYNC, Engine.SCALAR, Engine.GPSIMD),
    source="NKI 0.6, nki.isa.dma_copy; DMA overview and bandwidth guides",
    cost_source="DMA bandwidth guide and public instruction traces: issue, launch, descriptors over 16 engines, completion",
    dma=True,
)
class DmaCopy(Instruction):
    """Copy between HBM and SBUF in any combination; element counts are equal, shapes need not be. Casts through float32.

    An indirect operand (row indices in SBUF, one per partition) gathers or scatters rows of an HBM tensor. `dge_mode` says
    who makes the descriptors; `engine` is the one that triggers the transfer.
    """

    dst: AccessPattern = dst(HBM, SBUF)
    src: AccessPattern = src(HBM, SBUF)
    priority: int | None = attr(int, default=None, doc="0 (first) to 3, where the generation has priorities")
    oob_mode: str = attr(str, default="error", doc='"error" or "skip", for indices out of bounds')
    dge_mode: str = attr(str, default="unknown", doc='"unknown" (chosen), "none" (static), "swdge" or "hwdge"')
    engine: Engine = attr(Engine, default=Engine.UNKNOWN)

    RULES = {
        "DMA-1": Rule("E0304", "dst and src have the same number of elements"),
        "DMA-2": Rule("E0309", "dge_mode is one of unknown, none, swdge, hwdge, and one that the generation has"),
        "DMA-3": Rule("E0305", "hwdge does not cast: the dtypes are equal"),
        "DMA-4": Rule("E0309", "indirect operands need swdge, which gpsimd triggers, and lie in HBM"),
        "DMA-5": Rule("E0307", "priorities exist from the generation with feature dma_priority on"),
    }
    EXAMPLES = (
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "bfloat16"), src=t("hbm", (128, 512), "bfloat16"))),
        Example(lambda t: dict(dst=t("hbm", (128, 512), "bfloat16"), src=t("sbuf", (128, 512), "float32"))),
        Example(lambda t: dict(dst=t("sbuf", (128, 512), "bfloat16"), src=t("hbm", (128, 256), "bfloat16")), rule="DMA-1"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), src=t("hbm", (8, 8), "float32"), dge_mode="fast"), rule="DMA-2"),
        Example(lambda t: dict(dst=t("sbuf", (8, 8), "float32"), src=t("hbm", (8, 8), "bfloat16"), dge_mode="hwdge"), rule="DMA-3", feature="hwdge"),
    )  # fmt: skip

    def check(self, target: Target) -> None:
        self.require(self.dst.size == self.src.size, "DMA-1", f"dst has shape {self.dst.shape}, src has shape {self.src.shape}", argument="src")
        known = self.dge_mode in DGE_MODES and (self.dge_mode != "hwdge" or target.has("hwdge"))
        self.require(known, "DMA-2", f"dge_mode is {self.dge_mode!r} on {target.generation}", argument="dge_mode")
        self.require(self.dge_mode != "hwdge" or self.dst.dtype is self.src.dtype, "DMA-3", f"dst is {self.dst.dtype}, src is {self.src.dtype}", argument="dge_mode")
        for ap in (self.dst, self.src):
            legal = ap.index is None or (ap.space is HBM and self.dge_mode in ("unknown", "swdge") and self.engine in (Engine.UNKNOWN, Engine.GPSIMD))
            self.require(legal, "DMA-4", f"indirect operand in {ap.space.value} with dge_mode {self.dge_mode}", argument="dge_mode")
        self.require(self.priority is None or target.has("dma_priority"), "DMA-5", f"priority is {self.priority}", argument="priority")

    @property
    def arithmetic(self) -> str:
        return "raw" if self.dst.dtype is self.src.dtype else "float32"

    @property
    def is_indirect(self) -> bool:
        return self.dst.index is not None or self.src.index is not None

    def legal_engines(self, target: Target) -> tuple[Engine, ...]:
        if self.is_indirect or self.dge_mode == "swdge":
            return (Engine.GPSIMD,)
        return (Engine.SYNC, Engine.SCALAR) if self.dge_mode == "hwdge" else self.ENGINES

    def mode(self, target: Target, engine: Engine) -> str:
        """Who makes the descriptors: as asked for, or swdge for indirect ones and for those gpsimd triggers, else static."""
        if self.dge_mode != "unknown":
            return "static" if self.dge_mode == "none" else self.dge_mode
        return "swdge" if self.is_indirect or engine is Engine.GPSIMD else "static"

    def semantics(self, src: np.ndarray) -> np.ndarray:
        return src

    def cost(self, target: Target, engine: Engine) -> Cost:
        mode = self.mode(target, engine)
        issue = ns(1, target.dma.mode(mode).issue_ns)
        return Cost(issue, issue, dma=transfer(target, self.src, self.dst, mode))
