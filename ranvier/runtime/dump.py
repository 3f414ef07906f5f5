"""Snapshots: what each stage of the compiler made, as numbered text files."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from ranvier.errors import error
from ranvier.graph.core import Graph
from ranvier.ir.kernel import Kernel
from ranvier.ir.program import Program
from ranvier.ir.text import print_kernel, print_program


class Dump:
    """An observer that writes ``01-import.txt``, ``02-simplify.txt`` and so on to a folder, each when it is made."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder, self.count = Path(folder), 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise error("E0804", f"the folder {folder} cannot be made: {cause.strerror}") from cause
        for old in self.folder.glob("[0-9][0-9]-*.txt"):
            old.unlink()  # of an earlier compilation: the first missing file names the stage that failed

    def __call__(self, name: str, made: object) -> None:
        self.count += 1
        path = self.folder / f"{self.count:02}-{re.sub(r'[^A-Za-z0-9_.-]', '-', name)}.txt"
        path.write_text(snapshot(made) + "\n")


def snapshot(made: object) -> str:
    """The text of a graph, kernel or program, or of what passes between them decided, part by part."""
    if isinstance(made, Graph):
        return str(made)
    if isinstance(made, Kernel):
        return print_kernel(made)
    if isinstance(made, Program):
        return print_program(made)
    if dataclasses.is_dataclass(made):
        parts = []
        for field in dataclasses.fields(made):
            parts.append(f"{field.name}:\n{_indented(_part(getattr(made, field.name)))}")
        return "\n".join(parts)
    return str(made)


def _part(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(f"{i}: {item}" for i, item in enumerate(value))
    return snapshot(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
