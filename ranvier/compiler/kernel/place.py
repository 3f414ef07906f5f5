"""Give every buffer a place in its memory, and move buffers to HBM and back where SBUF is too small."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left

from ranvier.compiler.kernel import spill
from ranvier.compiler.kernel.memory import ALIGN_BYTES, Memory
from ranvier.compiler.kernel.stages import Placed
from ranvier.errors import RanvierError, error
from ranvier.ir.conflicts import footprint
from ranvier.ir.kernel import Kernel, accesses, with_buffers
from ranvier.ir.program import Placement
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.isa.record import Instruction
from ranvier.target.spec import Target


def place(kernel: Kernel, target: Target) -> Placed:
    """Place all buffers, walking the instructions in program order.

    An on-chip buffer lives from its first to its last access and takes a byte range in all partitions meanwhile. Memory
    is reused in rotation, so that an instruction that fills a tile rarely waits for the last reader of what was there.
    Buffers that outlive a whole rotation are kept out of the way, at the end of the memory. When SBUF is full, the
    buffers that are needed again the latest move to HBM (`spill`); those loaded from a preset tensor are loaded again.

    Raises E0501 when the live buffers do not fit, E0502 when HBM is too small.
    """
    return _Placer(kernel, target).run()


class _Placer:
    def __init__(self, kernel: Kernel, target: Target):
        self.kernel, self.target = kernel, target
        self.memories = {
            Space.SBUF: Memory(target.sbuf.usable_bytes_per_partition),
            Space.PSUM: Memory(target.psum.bytes_per_partition, int(target.psum.bank_bytes.value)),
        }
        self.touched = [{ap.buffer.name: ap.buffer for ap in accesses(i) if ap.space.on_chip} for i in kernel.body]
        self.uses = _uses(self.touched)
        self.rotation = _rotation(kernel, self.uses, self.memories[Space.SBUF].capacity)
        self.placements: dict[str, Placement] = {}
        self.body: list[Instruction] = []
        self.made: list[Buffer] = []  # versions of reloaded buffers, and what they are saved in
        self.resident: dict[str, Buffer] = {}  # by original name: the buffer that holds it now
        self.original: dict[str, str] = {}  # the inverse
        self.saved: dict[str, tuple[int, Buffer, list[AccessPattern]]] = {}  # when, where, which regions
        self.versions: dict[str, int] = {}

    def run(self) -> Placed:
        for i, inst in enumerate(self.kernel.body):
            touched = self.touched[i]
            if not all(b.name in self.resident or self._bring(b, i, inst, touched) for b in touched.values()):
                # Tiles that must stay may leave gaps that are too small each: move everything out and start afresh.
                for name in [n for n, held in self.resident.items() if held.space is Space.SBUF]:
                    self._save(name, i, inst)
                    self._release(name, Space.SBUF)
                self.memories[Space.SBUF].cursor = 0
                for buffer in touched.values():
                    if buffer.name not in self.resident and not self._bring(buffer, i, inst, touched):
                        raise self._too_full(buffer, inst)
            renamed = {name: self.resident[name] for name, b in touched.items() if self.resident[name] is not b}
            self.body.append(with_buffers(inst, renamed) if renamed else inst)
            for name, buffer in touched.items():
                if self.uses[name][-1] == i:
                    self._release(name, buffer.space)
        buffers = self.kernel.buffers + tuple(self.made)
        self._place_hbm(buffers)
        kernel = dataclasses.replace(self.kernel, buffers=buffers, body=tuple(self.body))
        floating, needed = self._floating()
        placements = {b.name: self.placements[b.name] for b in buffers if b.name in self.placements}
        return Placed(kernel, placements, floating, needed)

    def _floating(self) -> tuple[tuple[str, ...], int]:
        """PSUM buffers in order of first use, and how many are live at once; none where one bank does not hold each."""
        names = [name for name in self.uses if self.kernel.by_name[name].space is Space.PSUM]
        bank = int(self.target.psum.bank_bytes.value)
        needed = _most_live([(self.uses[name][0], self.uses[name][-1]) for name in names])
        one_bank = all(self.kernel.by_name[name].bytes_per_partition <= bank for name in names)
        if not one_bank or needed > self.target.psum.banks.value:
            return (), 0
        return tuple(names), needed

    def _release(self, name: str, space: Space) -> None:
        held = self.resident.pop(name)
        del self.original[held.name]
        self.memories[space].release(held.name)

    def _bring(self, buffer: Buffer, i: int, inst: Instruction, touched: dict[str, Buffer]) -> bool:
        """Make `buffer`, which instruction `i` touches, resident: for the first time, or again. False: no room."""
        uses = self.uses[buffer.name]
        memory = self.memories[buffer.space]
        size = memory.size(buffer.bytes_per_partition)
        stays = buffer.space is Space.SBUF and uses[-1] - i > self.rotation
        start = memory.find_last(size) if stays else memory.find(size)
        if start is None:
            if buffer.space is Space.PSUM:
                raise self._too_full(buffer, inst)
            start = self._make_room(size, i, inst, touched)
            if start is None:
                return False
        is_new = uses[0] == i
        version = buffer
        if not is_new:
            version = dataclasses.replace(buffer, name=self._version_name(buffer.name))
            self.made.append(version)
        memory.take(version.name, start, size, move=not stays)
        self.placements[version.name] = Placement(0, start)
        self.resident[buffer.name] = version
        self.original[version.name] = buffer.name
        if not is_new and not _overwrites(inst, buffer):
            self.body += self._reload(buffer, version, i, inst)
        return True

    def _version_name(self, name: str) -> str:
        """A new name for the next copy of buffer `name`, which no buffer of the kernel has."""
        while True:
            self.versions[name] = number = self.versions.get(name, 0) + 1
            if f"{name}.{number}" not in self.kernel.by_name:
                return f"{name}.{number}"

    def _make_room(self, size: int, i: int, inst: Instruction, touched: dict[str, Buffer]) -> int | None:
        """Move buffers that instruction `i` does not touch out of SBUF; returns where `size` bytes are free then."""
        memory = self.memories[Space.SBUF]

        def next_use(name: str) -> int | None:
            original = self.original[name]
            uses = self.uses[original]
            return None if original in touched else uses[bisect_left(uses, i)]

        found = spill.choose_victims(memory, size, next_use)
        if found is None:
            return None
        start, victims = found
        for name in victims:
            self._save(self.original[name], i, inst)
            self._release(self.original[name], Space.SBUF)
        return start

    def _writes(self, name: str, after: int, before: int) -> list[tuple[int, AccessPattern]]:
        """Writes to the buffer called `name` from position `after` up to `before`."""
        uses, body = self.uses[name], self.kernel.body
        positions = uses[bisect_left(uses, after) : bisect_left(uses, before)]
        return [(k, ap) for k in positions for ap in body[k].writes() if ap.buffer.name == name]

    def _load(self, name: str, before: int) -> Instruction | None:
        """The one data movement that filled the buffer, if it can be repeated at any time."""
        writes = self._writes(name, 0, before)
        if len(writes) != 1:
            return None
        inst = self.kernel.body[writes[0][0]]
        return inst if inst.IS_DMA and all(ap.buffer.kind.preset for ap in inst.reads()) else None

    def _save(self, name: str, i: int, inst: Instruction) -> None:
        """Save what the resident buffer of `name` holds before instruction `i`, unless HBM has it already."""
        since, spilled, regions = self.saved.get(name, (0, None, []))
        held = self.resident[name]
        if self._load(name, i) is not None or not self._writes(name, since, i):
            return
        original = self.kernel.by_name[name]
        if spilled is None:
            spilled = spill.spill_buffer(original)
            self.made.append(spilled)
        regions = spill.written_regions(original, regions + [ap for _, ap in self._writes(name, since, i)])
        self.body += spill.store(held, regions, spilled, inst.loc)
        self.saved[name] = (i, spilled, regions)

    def _reload(self, buffer: Buffer, version: Buffer, i: int, inst: Instruction) -> list[Instruction]:
        load = self._load(buffer.name, i)
        if load is not None:
            return [with_buffers(load, {buffer.name: version})]
        _, spilled, regions = self.saved[buffer.name]
        return spill.reload(version, regions, spilled, inst.loc)

    def _too_full(self, buffer: Buffer, inst: Instruction) -> RanvierError:
        memory, space = self.memories[buffer.space], buffer.space.value
        size = memory.size(buffer.bytes_per_partition)
        live = sorted(((end - start, self.original[name]) for start, end, name in memory.blocks), reverse=True)
        notes = [f"{buffer.name}: {size} bytes per partition, made at {buffer.loc}"]
        for bytes_per_partition, name in live[:8]:
            notes.append(f"{name}: {bytes_per_partition} bytes per partition, made at {self.kernel.by_name[name].loc}")
        used = sum(bytes_per_partition for bytes_per_partition, _ in live)
        return error(
            "E0501",
            f"no room for {buffer.name} in {space}: it takes {size} of {memory.capacity} bytes per partition, and "
            f"{len(live)} live tiles take {used}",
            where=inst.loc,
            notes=tuple(notes),
        )

    def _place_hbm(self, buffers: tuple[Buffer, ...]) -> None:
        limit = self.target.hbm.usable_bytes
        at = 0
        for buffer in buffers:
            if buffer.space is Space.HBM:
                self.placements[buffer.name] = Placement(0, at)
                at += -(-buffer.size_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if at > limit:
            largest = sorted((b for b in buffers if b.space is Space.HBM), key=lambda b: -b.size_bytes)[:8]
            raise error(
                "E0502",
                f"the tensors of {self.kernel.name} in HBM take {at} bytes; the core has {limit}",
                notes=tuple(f"{b.name}: {b.size_bytes} bytes ({b.kind.value})" for b in largest),
            )


def _uses(touched: list[dict[str, Buffer]]) -> dict[str, list[int]]:
    """Positions of the instructions that touch each buffer."""
    found: dict[str, list[int]] = {}
    for i, names in enumerate(touched):
        for name in names:
            found.setdefault(name, []).append(i)
    return found


def _most_live(spans: list[tuple[int, int]]) -> int:
    """The largest number of spans (first, last) that share a position."""
    events = sorted([(first, 1) for first, _ in spans] + [(last + 1, -1) for _, last in spans])
    live = most = 0
    for _, change in events:
        live += change
        most = max(most, live)
    return most


def _rotation(kernel: Kernel, uses: dict[str, list[int]], capacity: int) -> float:
    """How many instructions it takes on average until all of SBUF has been handed out once."""
    taken = sum(b.bytes_per_partition for b in kernel.buffers if b.space is Space.SBUF and b.name in uses)
    return len(kernel.body) * capacity / taken if taken else float("inf")


def _overwrites(inst: Instruction, buffer: Buffer) -> bool:
    """Whether `inst` replaces all of `buffer` without reading any of it."""
    if any(ap.buffer.name == buffer.name for ap in inst.reads()):
        return False
    whole = footprint(buffer.all)
    for ap in inst.writes():
        if ap.buffer.name == buffer.name:
            at = footprint(ap)
            if at.dense and at.period == 0 and at == whole:
                return True
    return False
