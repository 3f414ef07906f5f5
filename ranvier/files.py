"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ranvier.errors import error


def as_path(what: object) -> Path:
    """The path that `what` names. Raises E0804 if it is neither text nor a path."""
    try:
        return Path(what)  # type: ignore[arg-type]
    except TypeError:
        raise error("E0804", f"{what!r} is not a path") from None


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block succeeds; when it fails, nothing changes.

    Raises E0804 if `path` is no path, is a folder, or lies in one that cannot be written to.
    """
    path = as_path(path)
    if path.is_dir():
        raise error("E0804", f"{path} cannot be written: it is a folder", fix="give the name of a file")
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as cause:
        raise error("E0804", f"{path} cannot be written: {cause.strerror or cause}") from cause
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # a temporary file is private; what was asked for is not
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
