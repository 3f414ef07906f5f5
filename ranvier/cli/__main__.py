"""``python -m ranvier.cli``."""

from ranvier.cli.main import main

main()
