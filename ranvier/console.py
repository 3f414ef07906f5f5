"""Where tables are printed."""

from __future__ import annotations

import os

from rich.console import Console

_FILE_COLUMNS = 120


def console() -> Console:
    """Standard output: as wide as the terminal, or 120 columns in a file or a pipe unless COLUMNS says otherwise."""
    made = Console()
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_COLUMNS)
