"""Where the numbers of the targets come from, in one place, so that the same source is always called the same."""

from __future__ import annotations

ARCH_V2 = "AWS NKI guide: architecture of Trainium and Inferentia2"
ARCH_V3 = "AWS NKI guide: architecture of Trainium2"
ARCH_V4 = "AWS NKI guide: architecture of Trainium3"
CHIP_PAGES = "AWS Neuron documentation: hardware pages of chips and instances"
DMA_GUIDE = "AWS NKI guide: DMA overview and DMA bandwidth guide"
DGE_GUIDE = "AWS NKI guide: descriptor generation engine"
COST_TABLES = "AWS NKI documentation, tag v2.26.1: cost formulas of nki.isa (written for NeuronCore-v2)"
ISA = "AWS NKI documentation: nki.isa reference"
TILE_SIZES = "AWS NKI documentation: nki.language.tile_size"
PERF_GUIDE = "AWS NKI performance guide: text and its profiler screenshots (NeuronCore-v2)"
SCREENSHOTS_V3 = "profiler screenshots of Trainium2 in the AWS NKI guides (DMA overview, kernel optimization tutorial)"
TRACES_V3 = "public instruction traces of attention kernels on Trainium2, one NeuronCore-v3"
DECODE_V3 = "public notes and profiles of decode kernels on Trainium2"
PROBES_V2 = "public throughput probes on a trn1.2xlarge: repeated instructions, difference of run times"
COLLECTIVES = "AWS Neuron documentation: collective communication"
ALLOCATION = "AWS NKI documentation, tag v2.26.1: guide to direct allocation"
RUNTIME_MEMORY = "AWS Neuron documentation: device memory of the runtime"
AS_V2 = "assumption: as NeuronCore-v2"
AS_V3 = "assumption: as NeuronCore-v3"
ASSUMPTION = "assumption: no public source states it"
USER = "user"


def as_v2(source: str) -> str:
    """Source of a number that was published for NeuronCore-v2 and is assumed to hold for a later generation."""
    return f"{AS_V2} ({source})"


def as_v3(source: str) -> str:
    """Source of a number that was published for NeuronCore-v3 and is assumed to hold for a later generation."""
    return f"{AS_V3} ({source})"
