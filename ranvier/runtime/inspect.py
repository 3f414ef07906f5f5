"""What is in a compiled program: provenance, instruction mix, memory map, cost of each layer."""

from __future__ import annotations

import collections
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranvier.isa.access import BufferKind, Space
from ranvier.profile.occupancy import lifetimes, peak_bytes
from ranvier.target import Target

if TYPE_CHECKING:
    from ranvier.profile.metrics import Layer, Profile
    from ranvier.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class Mix:
    """How often `instruction` occurs in the stream of `engine`."""

    engine: str
    instruction: str
    count: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Use of one memory: `peak_bytes` is the highest address that is used, `buffers` how many share it.

    On chip the numbers are bytes of one partition. `peak_bytes` are in use at once, `extent_bytes` end where the last
    buffer ends, `capacity_bytes` is what programs can use.
    """

    memory: str
    buffers: int
    peak_bytes: int
    extent_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `Executable.inspect` finds. `hbm_bytes` splits device memory by what it holds."""

    manifest: dict[str, Any]
    instructions: tuple[Mix, ...]
    memories: tuple[MemoryUse, ...]
    hbm_bytes: dict[str, int]
    largest: tuple[tuple[str, str, int], ...]
    """Name, memory and bytes (of a partition, on chip) of the largest buffers on chip."""
    layers: tuple[Layer, ...]
    semaphores: int
    queues: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for `json.dumps`."""
        return dataclasses.asdict(self)


def inspect_executable(exe: Executable) -> Inspection:
    """The inspection of `exe`. The cost of layers comes from its profile."""
    program = exe.program
    counts = collections.Counter((e.name.lower(), slot.instruction.MNEMONIC) for e, slot in program.slots())
    frequent = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    mix = tuple(Mix(engine, name, count) for (engine, name), count in frequent)
    hbm: collections.Counter[str] = collections.Counter()
    for buffer in program.buffers:
        if buffer.space is Space.HBM:
            hbm[buffer.kind.value] += buffer.size_bytes
    chip = [b for b in program.buffers if b.space.on_chip and b.name in program.placed]
    chip.sort(key=lambda b: (-b.bytes_per_partition, b.name))
    queues = sorted({slot.queue for _, slot in program.slots() if slot.queue is not None})
    profile = exe.profile()
    return Inspection(
        manifest=dict(exe.manifest), instructions=mix, memories=_memories(profile, exe.target),
        hbm_bytes={kind.value: hbm[kind.value] for kind in BufferKind if hbm[kind.value]},
        largest=tuple((b.name, b.space.value, b.bytes_per_partition) for b in chip[:10]),
        layers=profile.layers, semaphores=len(program.semaphores), queues=tuple(queues),
    )


def _memories(profile: Profile, target: Target) -> tuple[MemoryUse, ...]:
    program, lives = profile.program, lifetimes(profile.program, profile.timeline)
    capacity = {
        Space.SBUF: target.sbuf.usable_bytes_per_partition, Space.PSUM: int(target.psum.bytes_per_partition),
        Space.HBM: int(target.hbm.bytes.value),
    }
    uses = []
    for space in (Space.SBUF, Space.PSUM, Space.HBM):
        placed = [b for b in program.buffers if b.space is space and b.name in program.placed]
        extent = max((program.placed[b.name].byte + b.bytes_per_partition for b in placed), default=0)
        peak = peak_bytes(lives, space) if space.on_chip else extent  # a tensor in HBM stays where it is
        uses.append(MemoryUse(space.value, len(placed), peak, extent, capacity[space]))
    return tuple(uses)
