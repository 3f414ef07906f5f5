"""`ranvier`: assembles the commands. A command's file is imported when the command is used, so help is quick.

Exit codes: 0 success, 1 a failed check or an error of this package, 2 wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "demo": "Compile a real sentence-embedding model, run it on a simulated core, compare it with PyTorch.",
    "compile": "Compile a model to one file.",
    "run": "Run a compiled model on arrays.",
    "profile": "Show where the time of a compiled model or kernel goes.",
    "check": "Compare every stage of the compiler with the reference, and name the first that differs.",
    "inspect": "Show what is in a compiled file: provenance, instructions, memory, cost per layer.",
    "disasm": "Print the instruction streams of a compiled file.",
    "targets": "List the hardware generations, or every number known about one.",
    "ops": "List the operators of a framework that are supported.",
    "explain": "Explain an error code.",
    "doctor": "Check the installation: versions, packages, cache.",
}
"""Name and one line of help of each command; command `x` is the function `x` in ``ranvier/cli/x.py``."""

_HEAD = """Usage: ranvier COMMAND [ARGUMENTS]...

An open SDK for Trainium- and Inferentia-class accelerators, with a simulated core.

Commands:
"""
_TAIL = """
Options:
  --version  Print the version.
  --help     Show this text; also after a command.

Exit codes: 0 success, 1 a failed check or an error, 2 wrong usage.
"""


class _Commands(TyperGroup):
    """The group of all commands, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ranvier.cli.{cmd_name}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(cmd_name, help=COMMANDS[cmd_name])(getattr(module, cmd_name))
        return typer.main.get_command(app)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_help_text())


def _help_text() -> str:
    """Help from the table of commands alone."""
    return _HEAD + "".join(f"  {name:9} {text}\n" for name, text in COMMANDS.items()) + _TAIL


def _version(wanted: bool) -> None:
    if wanted:
        from ranvier import __version__

        typer.echo(f"ranvier {__version__}")
        raise typer.Exit


def app() -> typer.Typer:
    """The command line as a typer application."""
    made = typer.Typer(cls=_Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

    @made.callback()
    def options(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True)) -> None:
        """An open SDK for Trainium- and Inferentia-class accelerators."""

    return made


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Errors of this package are printed without Python's traceback."""
    from ranvier.errors import RanvierError

    # The simulator multiplies many small matrices, where the threads of numpy's BLAS cost more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not (sys.argv[1:] if arguments is None else arguments):
        sys.stdout.write(_help_text())
        sys.exit(2)
    try:
        app()(args=arguments, prog_name="ranvier")
    except RanvierError as failure:
        from ranvier import config
        from ranvier.cli.output import print_error

        if config.get("traceback"):
            raise

        print_error(failure)
        sys.exit(1)
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        sys.exit(0)
