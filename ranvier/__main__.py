"""``python -m ranvier``: the command line."""

from ranvier.cli.main import main

main()
