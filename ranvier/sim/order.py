"""In which order a program's instructions execute when values are computed: one that its semaphores allow."""

from __future__ import annotations

import random
from collections import deque

from ranvier.errors import error
from ranvier.ir.program import Program, Slot, Wait
from ranvier.target.spec import Engine

DMA_MODES = ("early", "late")


def execution_order(program: Program, *, seed: int = 0, dma: str = "early") -> list[tuple[Engine, Slot]]:
    """Slots in an order of execution that the engines' streams, DMA queues and semaphores allow.

    Each engine goes through its stream in order and each queue through its transfers in order; `seed` decides which
    engine goes next whenever several can. A data movement happens when it is triggered (`dma` "early") or only when no
    engine can go on without it ("late"), whole queues being drained last at the end of the program.
    A program that is ordered correctly computes the same values in every order.

    Raises E0404 when the engines wait for each other, E0802 for another `dma`, E0901 for an undeclared semaphore or a
    data movement without a queue.
    """
    if dma not in DMA_MODES:
        raise error("E0802", f"dma takes {' or '.join(DMA_MODES)}, got {dma!r}")
    _check_names(program)
    return _Walk(program, random.Random(seed), dma == "late").walk()


def _check_names(program: Program) -> None:
    known = set(program.semaphores)
    for engine, slot in program.slots():
        inst = slot.instruction
        what = f"{inst.MNEMONIC} on the {engine.name.lower()} engine"
        for entry in (*slot.waits, *slot.signals):
            if entry.semaphore not in known:
                raise error("E0901", f"{what} names the unknown semaphore {entry.semaphore}", where=inst.loc)
        if (slot.queue is not None) is not inst.IS_DMA:
            raise error("E0901", f"{what} has the DMA queue {slot.queue}", where=inst.loc)


class _Walk:
    """State of one walk through a program."""

    def __init__(self, program: Program, rng: random.Random, late: bool):
        self.program, self.rng, self.late = program, rng, late
        self.streams = [(s.engine, s.slots) for s in program.streams]
        self.at = [0] * len(self.streams)
        self.values = dict.fromkeys(program.semaphores, 0)
        self.blocked: dict[str, list[int]] = {}  # semaphore -> streams that wait for it
        self.ready = [i for i, (_, slots) in enumerate(self.streams) if slots]
        self.queues: dict[str, deque[tuple[Engine, Slot]]] = {}
        self.pending: dict[tuple[str, str], int] = {}  # (queue, semaphore) -> signals still to come from the queue
        self.order: list[tuple[Engine, Slot]] = []

    def walk(self) -> list[tuple[Engine, Slot]]:
        while True:
            while self.ready:
                self._step()
            if not self.blocked:
                break
            self._transfer_for_blocked()
        for queue in sorted(self.queues):
            while self.queues[queue]:
                self._transfer(queue)
        return self.order

    def _step(self) -> None:
        """One slot of one ready engine, or find out what it waits for."""
        place = self.rng.randrange(len(self.ready)) if len(self.ready) > 1 else 0
        stream = self.ready[place]
        engine, slots = self.streams[stream]
        slot = slots[self.at[stream]]
        for wait in slot.waits:
            if self.values[wait.semaphore] < wait.value:
                self.ready[place] = self.ready[-1]
                self.ready.pop()
                self.blocked.setdefault(wait.semaphore, []).append(stream)
                return
        self.at[stream] += 1
        if self.at[stream] == len(slots):
            self.ready[place] = self.ready[-1]
            self.ready.pop()
        if slot.queue is None or not self.late:
            self._execute(engine, slot)
        else:
            self.queues.setdefault(slot.queue, deque()).append((engine, slot))
            for signal in slot.signals:
                key = slot.queue, signal.semaphore
                self.pending[key] = self.pending.get(key, 0) + 1

    def _execute(self, engine: Engine, slot: Slot) -> None:
        self.order.append((engine, slot))
        for signal in slot.signals:
            self.values[signal.semaphore] += signal.amount
            if signal.semaphore in self.blocked:
                self.ready += self.blocked.pop(signal.semaphore)

    def _transfer(self, queue: str) -> None:
        engine, slot = self.queues[queue].popleft()
        for signal in slot.signals:
            self.pending[queue, signal.semaphore] -= 1
        self._execute(engine, slot)

    def _transfer_for_blocked(self) -> None:
        """Let the first transfer of a queue happen that some blocked engine waits for."""
        useful = sorted({queue for (queue, name), count in self.pending.items() if count and name in self.blocked})
        if not useful:
            raise self._deadlock()
        self._transfer(self.rng.choice(useful))

    # -- deadlock -------------------------------------------------------------------------------------------------
    def _deadlock(self):
        lines, first = [], None
        for streams in self.blocked.values():
            for stream in streams:
                engine, slots = self.streams[stream]
                slot = slots[self.at[stream]]
                first = first or slot.instruction.loc
                lines += [
                    f"{_place(engine, self.at[stream], slot)} waits for {wait.semaphore} >= {wait.value}, "
                    f"which is {self.values[wait.semaphore]}; {self._who_signals(wait, stream)}"
                    for wait in slot.waits
                    if self.values[wait.semaphore] < wait.value
                ]
        return error(
            "E0404", f"{self.program.name}: {len(lines)} waits can never be satisfied", where=first, notes=tuple(lines)
        )

    def _who_signals(self, wait: Wait, waiting: int) -> str:
        missing = wait.value - self.values[wait.semaphore]
        for stream, (engine, slots) in enumerate(self.streams):
            for index in range(self.at[stream], len(slots)):
                for signal in slots[index].signals:
                    if signal.semaphore == wait.semaphore:
                        itself = " (itself)" if stream == waiting else ""
                        return f"it would be signalled by {_place(engine, index, slots[index])}{itself}"
        return f"nothing signals it any more ({missing} short)"


def _place(engine: Engine, index: int, slot: Slot) -> str:
    loc = slot.instruction.loc
    return f"{engine.name.lower()} slot {index} ({slot.instruction.MNEMONIC}" + (f", {loc})" if loc else ")")
