"""`python -m classgen` writes the generated files; `--check` compares them byte for byte instead.

With `--package FOLDER` they are those of a backend in another package, whose operators FOLDER/specs.py declares.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from classgen.dsl import SpecError

_REMEDY = "pip install 'jinja2>=3.1' 'ruff==0.17.*', which is the extra classgen of glowpy"


def main() -> int:
    """Returns 1 if a spec is wrong, if jinja2 or ruff is missing, or if `--check` finds a file that is out of date."""
    parser = argparse.ArgumentParser(prog="classgen", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a file is out of date"
    )
    parser.add_argument(
        "--package",
        type=Path,
        metavar="FOLDER",
        help="the folder of a Python package with specs.py",
    )
    options = parser.parse_args()
    check: bool = options.check
    try:
        from classgen.generate import render_all, render_package  # noqa: PLC0415 - needs jinja2

        texts = render_package(options.package) if options.package else render_all()
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        sys.stderr.write(f"error: classgen needs jinja2, which is not installed\nnote: {_REMEDY}\n")
        return 1
    except FileNotFoundError as error:
        if Path(error.filename or "").name != "ruff":
            raise
        sys.stderr.write(f"error: classgen needs ruff, which is not installed\nnote: {_REMEDY}\n")
        return 1
    except SpecError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    stale = [
        (path, text)
        for path, text in texts.items()
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        sys.stdout.write(f"{'out of date' if check else 'wrote'}: {os.path.relpath(path)}\n")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
