"""Source locations: where in the user's own code something comes from, and how an error shows it.

A `Loc` is captured cheaply (about a microsecond: places seen before come from a cache keyed by code object and
instruction offset). It travels with instructions and graph operations to the end of the compiler.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import functools
import itertools
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Kernels of our library are source that users read and copy; a failure inside one is shown there.
_KERNELS = os.path.join(_PACKAGE, "kernels") + os.sep


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in source code.

    `line` and `end_line` count from 1, `col` and `end_col` from 0 (`end_col` exclusive, -1 unknown). `function` is the
    enclosing function, `scope` the path of the model part it belongs to ("encoder.layer.0.attention", or "").
    """

    file: str
    line: int
    col: int = -1
    end_line: int = -1
    end_col: int = -1
    function: str = ""
    scope: str = ""

    def __str__(self) -> str:
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{self.scope} ({place})" if self.scope else place

    def render(self, argument: str | None = None) -> list[str]:
        """Lines for an error message: file, line, function, the source line and a caret under the call or argument."""
        head = f"  {self.file}, line {self.line}" + (f", in {self.function}" if self.function else "")
        if self.scope:
            head += f" (module {self.scope})"
        lines = [head]
        span = self._argument_span(argument) if argument else None
        line, col, end = span or (self.line, self.col, self.end_col if self.end_line in (-1, self.line) else -1)
        text = linecache.getline(self.file, line).rstrip("\n")
        if text.strip():
            lead = len(text) - len(text.lstrip())
            start = max(col, lead) if col >= 0 else lead
            stop = end if end > start else len(text)
            lines.append("    " + text.strip())
            lines.append("    " + " " * (start - lead) + "^" * max(1, stop - start))
        return lines

    def _argument_span(self, argument: str) -> tuple[int, int, int] | None:
        """Line and columns of the keyword `argument` of the call that starts at this place, if it is written there."""
        last = self.end_line if self.end_line > 0 else self.line
        source = [linecache.getline(self.file, i) for i in range(self.line, last + 1)]
        if self.col < 0 or not source:
            return None
        source[0] = source[0][self.col :]
        if self.end_col >= 0 and last > self.line:
            source[-1] = source[-1][: self.end_col]
        elif self.end_col >= 0:
            source[0] = source[0][: self.end_col - self.col]
        try:
            tree = ast.parse("".join(source).strip(), mode="eval").body
        except SyntaxError:
            return None
        if not isinstance(tree, ast.Call):
            return None
        nodes = {kw.arg: kw.value for kw in tree.keywords}
        node = nodes.get(argument)
        if node is None and argument.isdigit() and int(argument) < len(tree.args):
            node = tree.args[int(argument)]
        if node is None or node.end_col_offset is None:
            return None
        shift = self.col if node.lineno == 1 else 0
        end = node.end_col_offset + shift if node.end_lineno == node.lineno else -1
        return self.line + node.lineno - 1, node.col_offset + shift, end


@functools.lru_cache(maxsize=65536)
def _resolve(code: CodeType, lasti: int, lineno: int, scope: str) -> Loc:
    line, end_line, col, end_col = next(itertools.islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    return Loc(
        code.co_filename,
        line or lineno,
        -1 if col is None else col,
        end_line or lineno,
        -1 if end_col is None else end_col,
        code.co_name,
        scope,
    )


_SCOPE: contextvars.ContextVar[str] = contextvars.ContextVar("ranvier_scope", default="")
_FIXED: contextvars.ContextVar[tuple[Loc | None] | None] = contextvars.ContextVar("ranvier_loc", default=None)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Places captured inside belong to the model part `name`."""
    token = _SCOPE.set(name)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextlib.contextmanager
def pinned(loc: Loc | None) -> Iterator[None]:
    """Places captured inside are `loc`: what a compiler pass emits belongs to the line it was emitted for.

    With None they are none: such things belong to no line, least of all to the one that called the compiler.
    """
    token = _FIXED.set((loc,))
    try:
        yield
    finally:
        _FIXED.reset(token)


def _is_ours(filename: str) -> bool:
    # Python's import machinery lies between a module and the `from ranvier.nki import ...` of its user.
    return filename.startswith((_PACKAGE, "<frozen ")) and not filename.startswith(_KERNELS)


def capture(depth: int = 1) -> Loc | None:
    """The place in the nearest calling frame that is not this package's own code; the pinned place if there is one."""
    fixed = _FIXED.get()
    if fixed is not None:
        return fixed[0]
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return _resolve(frame.f_code, frame.f_lasti, frame.f_lineno, _SCOPE.get())
