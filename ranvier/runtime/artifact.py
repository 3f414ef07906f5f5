"""Artifacts: one file (``.rvx``) with a program, its graphs, its provenance and, if asked for, its weights.

Layout, all numbers little-endian:

    8 bytes   magic; its bytes also show a transfer that changed line ends
    4 bytes   format version
    4 bytes   length of the table, 4 bytes CRC-32 of the table
    table     JSON: name, offset, size and SHA-256 of each section
    sections  manifest, program, graphs, call (JSON or text), each at a multiple of 64
    weights   raw arrays in the form the core takes, each at a multiple of 4096, so that they are mapped, not read

Nothing is unpickled. Equal content gives equal bytes: no times, no machine names. A file is written under a temporary
name and renamed, so that nobody sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.files import as_path, replaced_file
from ranvier.graph.core import Graph
from ranvier.graph.text import parse_graph
from ranvier.ir.program import Program
from ranvier.runtime.encode import decode, encode
from ranvier.target import Target, from_json

MAGIC = b"\x89RVX\r\n\x1a\n"
FORMAT_VERSION = 1
_HEAD = struct.Struct("<8sIII")
_SECTION_ALIGNMENT, _WEIGHT_ALIGNMENT = 64, 4096
_TEXT = ("manifest", "call", "target", "graph", "device_graph", "prologue", "program")


@dataclass(frozen=True, slots=True)
class Weight:
    """Where one weight lies in the file: the array for the program's buffer `buffer`."""

    buffer: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    crc32: int


@dataclass(frozen=True)
class Artifact:
    """A saved program.

    `texts` holds the sections as text; the properties parse them when they are first asked for. `weights` maps names of
    parameter buffers to arrays, which for a loaded file are read-only maps of it; `stored` says where they lie.
    """

    texts: Mapping[str, str]
    weights: Mapping[str, np.ndarray]
    stored: tuple[Weight, ...] = field(default=())
    path: Path | None = None

    @classmethod
    def of(cls, *, program: Program, target: Target, graph: Graph, device_graph: Graph, prologue: Graph | None,
           manifest: Mapping[str, Any], call: Mapping[str, Any],
           weights: Mapping[str, np.ndarray] | None = None) -> Artifact:
        """The artifact of a compiled model. `call` describes its inputs and outputs, `manifest` where it comes from."""
        texts = {
            "manifest": _json(manifest), "call": _json(call), "target": _json(target.to_json()), "graph": str(graph),
            "device_graph": str(device_graph), "prologue": "" if prologue is None else str(prologue),
            "program": _json(encode(program)),
        }
        return cls(texts, dict(weights or {}))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Where the artifact comes from: versions, target, dtype, passes, name of the model."""
        return self._parsed("manifest")

    @cached_property
    def call(self) -> dict[str, Any]:
        """How the program is called: the description that `ArrayCalling` takes."""
        return self._parsed("call")

    @cached_property
    def target(self) -> Target:
        """The target with all its facts, as it was when the program was compiled."""
        try:
            return from_json(self._parsed("target"))
        except RanvierError as cause:
            raise error("E0703", f"the target in {self._name} cannot be read: {cause.message}") from cause

    @cached_property
    def program(self) -> Program:
        """The program. Raises E0703 if the section is not consistent."""
        return decode(self._parsed("program"))

    @cached_property
    def graph(self) -> Graph:
        """The model as it was imported."""
        return self._graph("graph")

    @cached_property
    def device_graph(self) -> Graph:
        """The graph that the program computes."""
        return self._graph("device_graph")

    @cached_property
    def prologue(self) -> Graph | None:
        """What is computed once from the model's parameters; None if nothing is."""
        return self._graph("prologue") if self.texts["prologue"] else None

    @property
    def _name(self) -> str:
        return str(self.path) if self.path else "the artifact"

    def _parsed(self, section: str) -> Any:
        try:
            return json.loads(self.texts[section])
        except json.JSONDecodeError as cause:
            raise error("E0703", f"section {section} of {self._name} is not JSON: {cause}") from cause

    def _graph(self, section: str) -> Graph:
        try:
            return parse_graph(self.texts[section])
        except RanvierError as cause:
            raise error("E0703", f"section {section} of {self._name} cannot be read: {cause.message}") from cause

    def check_weights(self) -> None:
        """Compare every weight of a loaded file with its checksum. Raises E0703."""
        for weight in self.stored:
            found = zlib.crc32(_bytes(self.weights[weight.buffer]))
            if found != weight.crc32:
                raise error("E0703", f"weight {weight.buffer} of {self._name} has checksum {found:08x}, the file says "
                            f"{weight.crc32:08x}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`: first to a temporary name beside it, which is then renamed."""
        with replaced_file(path) as file:
            self._write(file)

    def _write(self, file: BinaryIO) -> None:
        weights = [(name, np.ascontiguousarray(self.weights[name])) for name in sorted(self.weights)]
        sections = {name: self.texts[name].encode() for name in _TEXT}
        rows, offset = [], 0
        for name, array in weights:
            offset = _aligned(offset, _WEIGHT_ALIGNMENT)
            rows.append([name, dtypes.dtype(array.dtype).name, list(array.shape), offset, array.nbytes,
                         zlib.crc32(_bytes(array))])
            offset += array.nbytes
        sections["weights"] = _json(rows).encode()  # offsets count from the first weight
        table, start = self._table(sections, offset)
        file.write(_HEAD.pack(MAGIC, FORMAT_VERSION, len(table), zlib.crc32(table)) + table)
        for name, content in sections.items():
            _pad(file, _SECTION_ALIGNMENT)
            assert file.tell() == start[name]
            file.write(content)
        for _, array in weights:
            _pad(file, _WEIGHT_ALIGNMENT)
            file.write(_bytes(array))

    @staticmethod
    def _table(sections: Mapping[str, bytes], weight_bytes: int) -> tuple[bytes, dict[str, int]]:
        """The table, and where each section starts. Offsets depend on the table's own length, so it is padded."""
        room = 160 * (len(sections) + 2)
        start, offset = {}, _aligned(_HEAD.size + room, _SECTION_ALIGNMENT)
        rows = []
        for name, content in sections.items():
            offset = _aligned(offset, _SECTION_ALIGNMENT)
            start[name] = offset
            rows.append([name, offset, len(content), hashlib.sha256(content).hexdigest()])
            offset += len(content)
        table = _json({"sections": rows, "weights": [_aligned(offset, _WEIGHT_ALIGNMENT), weight_bytes]}).encode()
        assert len(table) <= room
        return table.ljust(room), start


def load_artifact(path: str | os.PathLike[str]) -> Artifact:
    """The artifact in the file `path`; weights are mapped.

    Checks everything but the weights, whose checksums `Artifact.check_weights` compares. Raises E0804 if the file
    cannot be opened, E0701 if it is no artifact, E0702 if it is of a newer format, E0703 if it is damaged.
    """
    path = as_path(path)
    try:
        size_bytes = path.stat().st_size
        with open(path, "rb") as file:
            table = _read_table(file, path)
            texts = dict(_read_sections(file, table, path))
    except OSError as cause:
        raise error("E0804", f"{path} cannot be read: {cause.strerror or cause}") from cause
    missing = [name for name in (*_TEXT, "weights") if name not in texts]
    if missing:
        raise error("E0703", f"{path} lacks the section {missing[0]}")
    start, weight_bytes = table["weights"]
    if size_bytes < start + weight_bytes and weight_bytes:
        raise error("E0703", f"{path} has {size_bytes} bytes and should have {start + weight_bytes}: it was cut short")
    try:
        stored = tuple(
            Weight(buffer, dtypes.DTYPES[dtype], tuple(shape), start + offset, size, crc)
            for buffer, dtype, shape, offset, size, crc in json.loads(texts.pop("weights"))
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise error("E0703", f"the table of weights of {path} cannot be read: {cause}") from cause
    return Artifact(texts, _map_weights(path, stored), stored, path)


def _read_table(file: BinaryIO, path: Path) -> dict[str, Any]:
    head = file.read(_HEAD.size)
    if head[:8] != MAGIC:
        raise error("E0701", f"{path} begins with {head[:8]!r}, an artifact with {MAGIC!r}")
    if len(head) < _HEAD.size:
        raise error("E0703", f"{path} ends after {len(head)} bytes: it was cut short")
    _, version, length, crc = _HEAD.unpack(head)
    if version > FORMAT_VERSION:
        raise error("E0702", f"{path} has format version {version}; this version reads up to {FORMAT_VERSION}")
    table = file.read(length)
    if len(table) != length or zlib.crc32(table) != crc:
        raise error("E0703", f"the table of {path} does not agree with its checksum")
    return json.loads(table)


def _read_sections(file: BinaryIO, table: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    for name, offset, size, digest in table["sections"]:
        file.seek(offset)
        content = file.read(size)
        if len(content) != size:
            raise error("E0703", f"section {name} of {path} has {len(content)} bytes and should have {size}: the file "
                        "was cut short")
        if hashlib.sha256(content).hexdigest() != digest:
            raise error("E0703", f"section {name} of {path} does not agree with its checksum")
        yield name, content.decode()


def _map_weights(path: Path, stored: tuple[Weight, ...]) -> dict[str, np.ndarray]:
    if not stored:
        return {}
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    arrays: dict[str, np.ndarray] = {}
    for weight in stored:
        if weight.size_bytes != int(np.prod(weight.shape, dtype=np.int64)) * weight.dtype.itemsize:
            raise error("E0703", f"weight {weight.buffer} of {path} has {weight.size_bytes} bytes, which is not "
                        f"{weight.dtype} of shape {weight.shape}")
        raw = whole[weight.offset : weight.offset + weight.size_bytes]
        arrays[weight.buffer] = raw.view(weight.dtype.np).reshape(weight.shape)
    return arrays


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _bytes(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, without a copy (numpy gives no buffer for the types of ml_dtypes)."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _pad(file: BinaryIO, alignment: int) -> None:
    here = file.tell()
    file.write(b"\0" * (_aligned(here, alignment) - here))
