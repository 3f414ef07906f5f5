"""Kernels and programs as text, readable and complete; what prints parses back.

    kernel "mlp" target=trn2 {
      buffer %x: hbm bfloat16[128, 512] input
      buffer %acc: psum float32[128, 512] temp
      inputs %x
      outputs %out
      param %w "mlp.weight" permute=[1, 0] dtype=bfloat16
      constant %one float32[1] "AACAPw=="
      body {
        nc_matmul dst=%acc stationary=%w moving=%x accumulate=false
      }
    }

A program has the place of each buffer ("at p0 b2048": first partition, byte), its semaphores, and instead of the body a
stream for each engine. A slot is "@order", its DMA queue, waits and signals, then the instruction:

      stream tensor {
        @7 wait(s0>=2) signal(s1+=1): nc_matmul dst=%acc ...
      }
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator

from ranvier.dtypes import DType
from ranvier.ir.kernel import Constant, Kernel, ParamSource
from ranvier.ir.program import Placement, Program, Signal, Slot, Stream, Wait
from ranvier.isa.access import Buffer, BufferKind, Space
from ranvier.isa.record import Instruction
from ranvier.isa.text import Scanner, loc_text, name_text, print_instruction, scan_instruction, scan_loc
from ranvier.target.spec import Engine

_PARTITION = re.compile(r"p\d+")
_BYTE = re.compile(r"b\d+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


# Printing -------------------------------------------------------------------------------------------------------------


def _typed(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(str(n) for n in shape)}]"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"%{name_text(n)}" for n in names)


def _buffer_line(buffer: Buffer, placement: Placement | None, locations: bool) -> str:
    kind = f"{buffer.space.value} {_typed(buffer.dtype, buffer.shape)} {buffer.kind.value}"
    line = f"buffer %{name_text(buffer.name)}: {kind}"
    if placement is not None:
        line += f" at p{placement.partition} b{placement.byte}"
    return f"{line} ; {loc_text(buffer.loc)}" if locations and buffer.loc is not None else line


def _param_line(name: str, source: ParamSource) -> str:
    line = f"param %{name_text(name)} {json.dumps(source.key)}"
    for field in ("rows", "reshape", "permute"):
        value = getattr(source, field)
        if value is not None:
            line += f" {field}=[{', '.join(str(n) for n in value)}]"
    return line if source.dtype is None else f"{line} dtype={source.dtype}"


def _constant_line(name: str, constant: Constant) -> str:
    data = base64.b64encode(constant.data).decode()
    return f'constant %{name_text(name)} {_typed(constant.dtype, constant.shape)} "{data}"'


def _placed_in_order(program: Program) -> bool:
    """Whether the lines of the buffers can say where they are placed."""
    return [n for n, _ in program.placements] == [b.name for b in program.buffers if b.name in program.placed]


def _header(module: Kernel | Program, locations: bool) -> Iterator[str]:
    placed = module.placed if isinstance(module, Program) and _placed_in_order(module) else {}
    for buffer in module.buffers:
        yield _buffer_line(buffer, placed.get(buffer.name), locations)
    if module.inputs:
        yield f"inputs {_names(module.inputs)}"
    if module.outputs:
        yield f"outputs {_names(module.outputs)}"
    for name, source in module.params:
        yield _param_line(name, source)
    for name, constant in module.constants:
        yield _constant_line(name, constant)


def _instruction_lines(body: tuple[Instruction, ...], locations: bool) -> Iterator[str]:
    for inst in body:
        yield print_instruction(inst, locations=locations)


def _slot_line(slot: Slot, locations: bool) -> str:
    parts = [f"@{slot.order}"]
    if slot.queue is not None:
        parts.append(f"queue({name_text(slot.queue)})")
    if slot.waits:
        parts.append(f"wait({', '.join(f'{name_text(w.semaphore)}>={w.value}' for w in slot.waits)})")
    if slot.signals:
        parts.append(f"signal({', '.join(f'{name_text(s.semaphore)}+={s.amount}' for s in slot.signals)})")
    return f"{' '.join(parts)}: {print_instruction(slot.instruction, locations=locations)}"


def _block(head: str, lines: Iterator[str] | list[str]) -> str:
    return "\n".join([f"{head} {{", *("  " + line.replace("\n", "\n  ") for line in lines), "}"])


def print_kernel(kernel: Kernel, *, locations: bool = True) -> str:
    """`kernel` as text; without `locations` it is shorter, and parses to an equal kernel that knows no source lines."""
    lines = [*_header(kernel, locations), _block("body", _instruction_lines(kernel.body, locations))]
    return _block(f"kernel {json.dumps(kernel.name)} target={name_text(kernel.target)}", lines) + "\n"


def print_program(program: Program, *, locations: bool = True) -> str:
    """`program` as text; without `locations` it is shorter, and parses to an equal program without source lines."""
    lines = list(_header(program, locations))
    if not _placed_in_order(program):
        lines += [f"place %{name_text(n)} p{p.partition} b{p.byte}" for n, p in program.placements]
    if program.semaphores:
        lines.append(f"semaphores {', '.join(name_text(s) for s in program.semaphores)}")
    for stream in program.streams:
        lines.append(_block(f"stream {stream.engine.name.lower()}", [_slot_line(s, locations) for s in stream.slots]))
    return _block(f"program {json.dumps(program.name)} target={name_text(program.target)}", lines) + "\n"


# Parsing --------------------------------------------------------------------------------------------------------------


class _Header:
    """What kernels and programs have in common, as it is read."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.placements: dict[str, Placement] = {}
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.params: list[tuple[str, ParamSource]] = []
        self.constants: list[tuple[str, Constant]] = []

    def line(self, scan: Scanner) -> bool:
        """Read one line of the header; False if what follows is none."""
        if scan.accept("buffer"):
            self._buffer(scan)
        elif scan.accept("inputs"):
            self.inputs = _scan_names(scan)
        elif scan.accept("outputs"):
            self.outputs = _scan_names(scan)
        elif scan.accept("param"):
            self.params.append((_scan_name(scan), _scan_param(scan)))
        elif scan.accept("constant"):
            self.constants.append((_scan_name(scan), _scan_constant(scan)))
        else:
            return False
        return True

    def tables(self):
        """Buffers, parameters and constants as a kernel or program has them."""
        return tuple(self.buffers.values()), tuple(self.params), tuple(self.constants)

    def _buffer(self, scan: Scanner) -> None:
        scan.skip()
        start = scan.position
        name = _scan_name(scan)
        if name in self.buffers:
            raise scan.fail("a name that no other buffer has", start)
        scan.expect(":")
        space = _scan_member(scan, Space)
        dtype, shape = _scan_typed(scan)
        kind = _scan_member(scan, BufferKind)
        if scan.accept("at"):
            self.placements[name] = _scan_place(scan)
        self.buffers[name] = Buffer(name, space, shape, dtype, kind, scan_loc(scan))


def _scan_name(scan: Scanner) -> str:
    scan.expect("%")
    return scan.name()


def _scan_names(scan: Scanner) -> tuple[str, ...]:
    names = [_scan_name(scan)]
    while scan.accept(","):
        names.append(_scan_name(scan))
    return tuple(names)


def _scan_member(scan: Scanner, kind):
    scan.skip()
    start = scan.position
    word = scan.word(f"one of {', '.join(m.value for m in kind)}")
    for member in kind:
        if member.value == word:
            return member
    raise scan.fail(f"one of {', '.join(m.value for m in kind)}", start)


def _scan_integers(scan: Scanner) -> tuple[int, ...]:
    scan.expect("[")
    values: list[int] = []
    while not scan.accept("]"):
        if values:
            scan.expect(",")
        values.append(scan.integer())
    return tuple(values)


def _scan_typed(scan: Scanner) -> tuple[DType, tuple[int, ...]]:
    return scan.dtype(), _scan_integers(scan)


def _scan_place(scan: Scanner) -> Placement:
    partition = int(scan.take(_PARTITION, "p and the first partition")[1:])
    return Placement(partition, int(scan.take(_BYTE, "b and the byte")[1:]))


def _scan_param(scan: Scanner) -> ParamSource:
    key, rows, reshape, permute, dtype = scan.string(), None, None, None, None
    if scan.accept("rows"):
        scan.expect("=")
        scan.skip()
        start = scan.position
        found = _scan_integers(scan)
        if len(found) != 2:
            raise scan.fail("first and last-plus-one row", start)
        rows = (found[0], found[1])
    if scan.accept("reshape"):
        scan.expect("=")
        reshape = _scan_integers(scan)
    if scan.accept("permute"):
        scan.expect("=")
        permute = _scan_integers(scan)
    if scan.accept("dtype"):
        scan.expect("=")
        dtype = scan.dtype()
    return ParamSource(key, reshape, permute, dtype, rows)


def _scan_constant(scan: Scanner) -> Constant:
    dtype, shape = _scan_typed(scan)
    scan.expect('"')
    start = scan.position
    try:
        data = base64.b64decode(scan.take(_BASE64, "base64"), validate=True)
    except binascii.Error:
        raise scan.fail("base64", start) from None
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise scan.fail(f"{math.prod(shape) * dtype.itemsize} bytes in base64", start)
    scan.expect('"')
    return Constant(shape, dtype, data)


def _scan_engine(scan: Scanner) -> Engine:
    scan.skip()
    start = scan.position
    found = {e.name.lower(): e for e in Engine}.get(scan.word("an engine"))
    if found is None:
        raise scan.fail(f"one of {', '.join(e.name.lower() for e in Engine)}", start)
    return found


def _scan_slot(scan: Scanner, buffers: dict[str, Buffer]) -> Slot:
    scan.expect("@")
    order, queue = scan.integer(), None
    if scan.accept("queue"):
        scan.expect("(")
        queue = scan.name()
        scan.expect(")")
    waits = tuple(Wait(*pair) for pair in _scan_pairs(scan, ">=")) if scan.accept("wait") else ()
    signals = tuple(Signal(*pair) for pair in _scan_pairs(scan, "+=")) if scan.accept("signal") else ()
    scan.expect(":")
    return Slot(scan_instruction(scan, buffers), waits, signals, queue, order)


def _scan_pairs(scan: Scanner, sign: str) -> Iterator[tuple[str, int]]:
    """(semaphore sign number, ...)"""
    scan.expect("(")
    first = True
    while not scan.accept(")"):
        if not first:
            scan.expect(",")
        first = False
        semaphore = scan.name()
        scan.expect(sign)
        yield semaphore, scan.integer()


def _scan_title(scan: Scanner, kind: str) -> tuple[str, str]:
    scan.expect(kind)
    name = scan.string()
    scan.expect("target")
    scan.expect("=")
    target = scan.name()
    scan.expect("{")
    return name, target


def _finish(scan: Scanner) -> None:
    scan.expect("}")
    scan.expect_end()


def parse_kernel(text: str) -> Kernel:
    """The kernel that `print_kernel` wrote. Raises E0605 for anything else; what is legal is up to `verify_kernel`."""
    scan, header = Scanner(text), _Header()
    name, target = _scan_title(scan, "kernel")
    while header.line(scan):
        pass
    scan.expect("body")
    scan.expect("{")
    body: list[Instruction] = []
    while not scan.accept("}"):
        body.append(scan_instruction(scan, header.buffers))
    _finish(scan)
    buffers, params, constants = header.tables()
    return Kernel(name, target, buffers, header.inputs, header.outputs, tuple(body), params, constants)


def parse_program(text: str) -> Program:
    """The program that `print_program` wrote. Raises E0605 for anything else; what is legal is up to the verifier."""
    scan, header = Scanner(text), _Header()
    name, target = _scan_title(scan, "program")
    while header.line(scan):
        pass
    while scan.accept("place"):
        buffer = _scan_name(scan)
        header.placements[buffer] = _scan_place(scan)
    semaphore_names: list[str] = []
    if scan.accept("semaphores"):
        semaphore_names.append(scan.name())
        while scan.accept(","):
            semaphore_names.append(scan.name())
    stream_list: list[Stream] = []
    while scan.accept("stream"):
        engine = _scan_engine(scan)
        scan.expect("{")
        slots: list[Slot] = []
        while not scan.accept("}"):
            slots.append(_scan_slot(scan, header.buffers))
        stream_list.append(Stream(engine, tuple(slots)))
    _finish(scan)
    buffers, params, constants = header.tables()
    placements = tuple(header.placements.items())
    semaphores, streams = tuple(semaphore_names), tuple(stream_list)
    return Program(
        name, target, buffers, placements, streams, semaphores, header.inputs, header.outputs, params, constants
    )
