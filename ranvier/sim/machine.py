"""Memories of a simulated core, and the one place where instructions touch them.

For every instruction alike, the machine resolves access patterns to numpy views, converts operands, calls the record's
`semantics`, rounds results to the destination's dtype and writes them. Fresh memory is poison (NaN), and a shadow of
each buffer remembers what was written, so that a read of anything else is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.isa.access import AccessPattern, Buffer
from ranvier.isa.enums import OobMode
from ranvier.isa.record import Instruction, OperandSpec, as_outputs
from ranvier.sim.shadow import Shadow
from ranvier.target.spec import Target


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes behind a buffer: rows of `base` ([rows, pitch] uint8) from `partition` on, from byte `byte` on.

    HBM has one row. `shadow` knows what was written.
    """

    base: np.ndarray
    partition: int
    byte: int
    shadow: Shadow

    def view(self, ap: AccessPattern) -> np.ndarray:
        """The elements of `ap` as a numpy view, in the shape of its pattern."""
        size, pitch = ap.dtype.itemsize, self.base.shape[1]
        strides = [stride * size for stride, _ in ap.pattern]
        offset = self.byte + ap.offset * size
        if ap.space.on_chip:
            strides[0] = pitch
            offset += (self.partition + ap.partition) * pitch
        return np.ndarray(ap.shape, ap.dtype.np, self.base, offset, strides)  # type: ignore[arg-type]


def storage_for(buffer: Buffer) -> Storage:
    """Fresh, poisoned storage of its own for `buffer`; preset buffers count as written."""
    rows = buffer.partitions if buffer.space.on_chip else 1
    base = np.full((rows, max(1, buffer.bytes_per_partition)), dt.POISON_BYTE, np.uint8)
    return Storage(base, 0, 0, Shadow(buffer, complete=buffer.kind.preset))


def storage_of(buffer: Buffer, array: np.ndarray) -> Storage:
    """Storage of the HBM buffer `buffer` that is `array` itself (read-only if it is); it counts as written.

    Raises E0603 when shape or dtype differ from the buffer's.
    """
    if tuple(array.shape) != buffer.shape or array.dtype != buffer.dtype.np:
        raise error(
            "E0603",
            f"{buffer.name} has shape {buffer.shape} and dtype {buffer.dtype}; "
            f"the array has shape {tuple(array.shape)} and dtype {array.dtype}",
        )
    base = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(1, -1)
    return Storage(base, 0, 0, Shadow(buffer, complete=True))


class Memory:
    """Buffers by name, each with its `Storage`; a buffer that is not there yet gets storage of its own.

    A `closed` memory has a place for every buffer already; one that is missing is an error (E0901).
    """

    def __init__(self, storages: dict[str, Storage] | None = None, *, closed: bool = False):
        self.storages: dict[str, Storage] = storages if storages is not None else {}
        self.closed = closed
        self.states: dict[str, np.ndarray] = {}

    def storage(self, buffer: Buffer) -> Storage:
        found = self.storages.get(buffer.name)
        if found is None:
            if self.closed:
                message = f"{buffer.space.value} tensor {buffer.name} has no place in memory"
                raise error("E0901", message, where=buffer.loc)
            found = self.storages[buffer.name] = storage_for(buffer)
        return found

    def view(self, ap: AccessPattern) -> np.ndarray:
        return self.storage(ap.buffer).view(ap)

    def state(self, name: str, partitions: int) -> np.ndarray:
        """Hidden state `name`: one float32 per partition, NaN until something sets it."""
        if name not in self.states:
            self.states[name] = np.full((partitions, 1), np.nan, np.float32)
        return self.states[name]

    def set(self, buffer: Buffer, array: np.ndarray) -> None:
        """Fill a whole buffer from an array of its shape and dtype."""
        self.view(buffer.all)[...] = array
        self.storage(buffer).shadow.mark(buffer.all)

    def get(self, buffer: Buffer) -> np.ndarray:
        """A copy of a whole buffer."""
        return self.view(buffer.all).copy()


def check_written(inst: Instruction, memory: Memory) -> None:
    """Raise E0401 if `inst` reads what was never written; then mark what it writes."""
    for ap in inst.reads():
        if not memory.storage(ap.buffer).shadow.written(ap.all_rows):
            raise error(
                "E0401",
                f"{inst.MNEMONIC} reads {ap.buffer.space.value} tensor {ap.buffer.name} (shape {ap.buffer.shape}), "
                f"part of which nothing has written",
                where=inst.loc,
                argument=next((s.name for s, a in inst.operands("src") if a is ap), None),
                notes=(f"the tensor was made at {ap.buffer.loc}",) if ap.buffer.loc else (),
            )
    mark_written(inst, memory)


def mark_written(inst: Instruction, memory: Memory) -> None:
    """Remember that what `inst` writes is written."""
    for ap in inst.writes():
        memory.storage(ap.buffer).shadow.mark(ap.all_rows)


def bind(inst: Instruction, memory: Memory, target: Target) -> Callable[[], None]:
    """A function that executes `inst` on `memory`. All views are made here: running it costs little more than numpy."""
    specs = [s for s in type(inst).SPECS if s.role in ("src", "state") or (s.role == "dst" and inst.reads_dst)]
    shape = next((ap.shape for _, ap in inst.operands("dst")), None) if inst.ELEMENTWISE else None
    convert = dt.compute if inst.arithmetic == "float32" else None
    fetchers = [_fetcher(inst, spec, memory, target, shape, convert) for spec in specs]
    storers = [_storer(inst, spec, memory, target) for spec in type(inst).SPECS if _is_stored(inst, spec)]
    semantics = inst.semantics_on(target)

    if len(storers) == 1:
        store = storers[0]

        def run_one() -> None:
            store(semantics(*[fetch() for fetch in fetchers]))

        return run_one

    def run() -> None:
        for store, result in zip(storers, as_outputs(semantics(*[f() for f in fetchers])), strict=True):
            store(result)

    return run


def written_values(inst: Instruction, memory: Memory) -> list[np.ndarray]:
    """Copies of what `inst`, which was executed last, wrote: an array per dst operand, of an indirect one its rows."""
    found = []
    for ap in inst.writes():
        if ap.index is None:
            found.append(memory.view(ap).copy())
        else:
            index, skipped = _rows(inst, ap, memory)()
            found.append(memory.view(ap.all_rows)[index if skipped is None else index[~skipped]])
    return found


def _registers(inst: Instruction, spec: OperandSpec, memory: Memory, target: Target) -> np.ndarray:
    """The part of a hidden state that `inst` sees: the lanes of its operand, counted within the operand's buffer
    (wherever that is placed, so that placement does not change results)."""
    state = memory.state(spec.state, int(target.sbuf.partitions.value))
    if spec.all_lanes:
        return state
    ap = next(ap for role in ("src", "dst") for _, ap in inst.operands(role))
    return state[ap.partition : ap.partition + ap.partitions]


def _is_stored(inst: Instruction, spec: OperandSpec) -> bool:
    if spec.role == "dst":
        return getattr(inst, spec.name) is not None
    return spec.role == "state" and inst.uses_state()


def _fetcher(inst: Instruction, spec: OperandSpec, memory: Memory, target: Target, shape, convert) -> Callable[[], Any]:
    if spec.role == "state":
        if not inst.uses_state():
            return lambda: None
        register = _registers(inst, spec, memory, target)
        return lambda: register
    value = getattr(inst, spec.name)
    if not isinstance(value, AccessPattern):
        return lambda: value
    if value.index is not None:
        gather = _gather(inst, value, memory)
        return (lambda: convert(gather())) if convert else gather
    view = memory.view(value)
    if shape is not None and view.shape != shape:
        wanted = (view.shape[0],) + (1,) * (len(shape) - 1) if spec.vector else shape
        try:
            view = np.reshape(view, wanted, copy=False)
        except ValueError:  # the strides do not allow it without a copy, so copy at each run
            return (lambda: convert(view.reshape(wanted))) if convert else (lambda: view.reshape(wanted))
    return (lambda: convert(view)) if convert else (lambda: view)


def _storer(inst: Instruction, spec: OperandSpec, memory: Memory, target: Target) -> Callable[[np.ndarray], None]:
    if spec.role == "state":
        register = _registers(inst, spec, memory, target)

        def store_state(result: np.ndarray) -> None:
            register[...] = result

        return store_state
    ap: AccessPattern = getattr(inst, spec.name)
    dtype = ap.dtype
    if ap.index is not None:
        return _scatter(inst, ap, memory)
    view = memory.view(ap)

    def store(result: np.ndarray) -> None:
        view[...] = dt.cast(result, dtype).reshape(view.shape)

    return store


def _rows(inst: Instruction, ap: AccessPattern, memory: Memory) -> Callable[[], tuple[np.ndarray, np.ndarray | None]]:
    """A function that reads the row indices of an indirect pattern (several columns one after the other): the rows, and
    which of them are out of bounds, or None if none is. Unless the instruction skips those, they are an error."""
    assert ap.index is not None
    index, bound, count = memory.view(ap.index.ap), ap.index.bound, ap.pattern[0][1]
    skips = getattr(inst, "oob_mode", OobMode.error) is OobMode.skip

    def rows() -> tuple[np.ndarray, np.ndarray | None]:
        values = index.reshape(index.shape[0], -1).T.reshape(-1)[:count].astype(np.int64)
        bad = (values < 0) | (values >= bound)
        if not bad.any():
            return values, None
        if skips:
            return np.where(bad, 0, values), bad
        where = int(np.argmax(bad))
        raise error(
            "E0403",
            f"{inst.MNEMONIC}: index {values[where]} in partition {where % index.shape[0]} is outside the {bound} rows "
            f"of {ap.buffer.name}",
            where=inst.loc,
        )

    return rows


def _gather(inst: Instruction, ap: AccessPattern, memory: Memory) -> Callable[[], np.ndarray]:
    """A function that reads the rows of `ap`; rows that are skipped come masked."""
    table, rows = memory.view(ap.all_rows), _rows(inst, ap, memory)

    def gather() -> np.ndarray:
        index, skipped = rows()
        if skipped is None:
            return table[index]
        mask = np.broadcast_to(skipped.reshape(-1, *(1,) * (table.ndim - 1)), ap.shape)
        return np.ma.MaskedArray(table[index], mask)

    return gather


def _scatter(inst: Instruction, ap: AccessPattern, memory: Memory) -> Callable[[np.ndarray], None]:
    table, rows = memory.view(ap.all_rows), _rows(inst, ap, memory)

    def store(result: np.ndarray) -> None:
        index, skipped = rows()
        values = dt.cast(result, ap.dtype).reshape(ap.shape)
        if skipped is not None:
            index, values = index[~skipped], values[~skipped]
        table[index] = values

    return store
