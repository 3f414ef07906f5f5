"""PSUM banks, handed out while instructions are scheduled."""

from __future__ import annotations

from ranvier.compiler.kernel.stages import Placed
from ranvier.ir.kernel import accesses
from ranvier.ir.program import Placement
from ranvier.isa.record import Instruction
from ranvier.target.spec import Engine, Target

_PARTS = 4
"""Parts of a bank that are handed out by themselves: the usual tile of 128 float32 columns takes one of four."""


class Banks:
    """The places of floating PSUM buffers: parts of one bank, from the first instruction on a buffer to its last.

    The buffers' turns are their order of first use in the program. A buffer whose turn has not come goes to an empty
    bank, or to one that others ahead of their turn are in, and at most ``banks - banks_needed`` banks may hold such.
    `banks_needed` buffers are live at once in program order, so when everything before the first instruction of the
    next buffer in turn is through, buffers whose turn had come hold at most ``banks_needed - 1`` banks, and one is left
    for it: no schedule gets stuck.
    """

    def __init__(self, placed: Placed, target: Target):
        count = int(target.psum.banks.value)
        bank_bytes = int(target.psum.bank_bytes.value)
        self.part_bytes = bank_bytes // _PARTS
        self.names = placed.floating
        self.turn = {name: k for k, name in enumerate(self.names)}
        self.parts = {name: self._parts(placed.kernel.by_name[name].bytes_per_partition) for name in self.names}
        self.ahead_limit = count - placed.banks_needed
        self.placements: dict[str, Placement] = {}
        self.held: list[set[str]] = [set() for _ in range(count)]  # buffers in each bank
        self.ahead: list[set[str]] = [set() for _ in range(count)]  # those of them whose turn has not come
        self.owner: list[str | None] = [None] * (count * _PARTS)
        self.free_ns = [0.0] * (count * _PARTS)
        self.left: list[tuple[int, ...]] = [()] * (count * _PARTS)  # the last on each engine on what was in each part
        self.part_of: dict[str, int] = {}
        self.done_ns: dict[str, float] = {}
        self.users: dict[str, dict[Engine, int]] = {}  # the last on each buffer by engine: engines are in order
        self.before: dict[str, list[int]] = {}  # the last instructions on the buffers that were where it is
        self.next_turn = 0
        self.has_changed = False  # something became free since the scheduler last looked
        self.touched = [self._floating(inst) for inst in placed.kernel.body]
        self.remaining = dict.fromkeys(self.names, 0)
        for names in self.touched:
            for name in names:
                self.remaining[name] += 1

    def _floating(self, inst: Instruction) -> tuple[str, ...]:
        """The floating buffers that an instruction touches, in order of their turns."""
        if inst.IS_DMA:
            return ()  # DMA does not reach PSUM
        turn = self.turn
        names = [ap.buffer.name for ap in accesses(inst) if ap.buffer.name in turn]
        return tuple(sorted(set(names), key=turn.__getitem__)) if len(names) > 1 else tuple(names)

    def _parts(self, size_bytes: int) -> int:
        parts = 1
        while parts * self.part_bytes < size_bytes:
            parts *= 2
        return parts

    def wanted(self, i: int) -> str | None:
        """The buffer for which instruction `i` needs a place, if there is one."""
        return next((name for name in self.touched[i] if name not in self.part_of), None)

    def find(self, name: str) -> tuple[float, int] | None:
        """When and where buffer `name` may go; None if that depends on instructions still to be scheduled.

        The place that is free first, an empty bank before a shared one: engines get in each other's way within a bank.
        """
        parts, is_ahead = self.parts[name], self.turn[name] > self.next_turn
        may_open = not is_ahead or sum(1 for names in self.ahead if names) < self.ahead_limit
        best: tuple[bool, float, int] | None = None
        for bank, names in enumerate(self.held):
            if not names:
                if not may_open:
                    continue
            elif parts == _PARTS or (is_ahead and not self.ahead[bank]):
                continue
            for part in range(bank * _PARTS, (bank + 1) * _PARTS, parts):
                if not any(self.owner[part : part + parts]):
                    found = (bool(names), max(self.free_ns[part : part + parts]), part)
                    if best is None or found < best:
                        best = found
        return None if best is None else best[1:]

    def take(self, name: str, part: int) -> None:
        """Give buffer `name` the place that `find` named."""
        parts, bank = self.parts[name], part // _PARTS
        self.owner[part : part + parts] = [name] * parts
        self.part_of[name] = part
        self.placements[name] = Placement(0, part * self.part_bytes)
        self.before[name] = sorted({i for users in self.left[part : part + parts] for i in users})
        self.users[name], self.done_ns[name] = {}, 0.0
        self.held[bank].add(name)
        if self.turn[name] > self.next_turn:
            self.ahead[bank].add(name)
        while self.next_turn < len(self.names) and self.names[self.next_turn] in self.part_of:
            current = self.names[self.next_turn]
            self.ahead[self.part_of[current] // _PARTS].discard(current)
            self.next_turn += 1
            self.has_changed = True

    def in_turn(self) -> str | None:
        """The first buffer in program order that has had no place yet."""
        return self.names[self.next_turn] if self.next_turn < len(self.names) else None

    def predecessors(self, i: int) -> list[int]:
        """The last instructions on the buffers that were where those of `i` are; they come before `i`."""
        return [p for name in self.touched[i] for p in self.before[name]]

    def finish(self, i: int, engine: Engine, done_ns: float) -> None:
        """Instruction `i` is scheduled on `engine` and ends at `done_ns`."""
        for name in self.touched[i]:
            self.users[name][engine] = i
            self.done_ns[name] = max(self.done_ns[name], done_ns)
            self.remaining[name] -= 1
            if not self.remaining[name]:
                self._release(name)

    def _release(self, name: str) -> None:
        part, parts, users = self.part_of[name], self.parts[name], tuple(self.users.pop(name).values())
        for k in range(part, part + parts):
            self.owner[k], self.free_ns[k], self.left[k] = None, self.done_ns[name], users
        self.held[part // _PARTS].discard(name)
        self.ahead[part // _PARTS].discard(name)
        self.has_changed = True
