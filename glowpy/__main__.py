"""The `glowpy` command, installed or as `python -m glowpy`."""

import sys
from typing import NoReturn

from glowpy.cli.interrupt import run_to_end

__all__ = ["main"]


def _command() -> int:
    try:
        from glowpy.cli.main import command  # noqa: PLC0415 - Ctrl-C is answered while this is imported
    except MemoryError:
        sys.stderr.write("error: there is not enough memory\n")
        return 1
    return command()


def main() -> NoReturn:
    """Runs the command line and ends the process."""
    run_to_end(_command)


if __name__ == "__main__":
    main()
