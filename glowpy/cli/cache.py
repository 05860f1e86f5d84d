"""`glowpy cache`: what is kept on disk between processes, and how to be rid of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from glowpy.cli.verb import Bytes, Verb, VerbGroup
from glowpy.support.cache import damaged_files
from glowpy.support.cache_folder import (
    CacheFile,
    cache_files,
    cache_folder,
    cache_limit,
    clear,
    delete,
    set_cache_limit,
    why_off,
)
from glowpy.support.console import print_json, print_table, progress
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["cache"]


@click.group(cls=VerbGroup)
def cache() -> None:
    """Show, verify, clear or limit the cache on disk.

    The cache keeps compiled code between processes. GLOWPY_CACHE_DIR is its folder, or `off`; GLOWPY_CACHE_LIMIT limits
    its size.

    Examples:
      glowpy cache show
      glowpy cache verify
      glowpy cache limit 2G
      glowpy cache clear
    """


@cache.command(cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(as_json: bool) -> None:
    """Show the number and size of entries of each kind.

    Kinds are the bitcode of kernels, the code of functions, programs, packed weights, digests of models, peaks of the
    machine, and what --tune has measured. What was damaged when it was read is set aside, and counts as damaged.

    Examples:
      glowpy cache show
      glowpy cache show --json
    """
    with _folder() as folder:
        files = list(cache_files(folder))
    groups: dict[str, list[CacheFile]] = {}
    for file in sorted(files, key=lambda file: (file.state != "entry", file.state, file.kind)):
        name = file.kind if file.state == "entry" else file.state
        groups.setdefault(name, []).append(file)
    size, limit = sum(file.size for file in files), cache_limit()
    if as_json:
        kinds = {name: _figures(group) for name, group in groups.items()}
        print_json({"folder": str(folder), "bytes": size, "limit": limit, "kinds": kinds})
        return
    rows = [
        [name, f"{len(group)}", f"{sum(file.size for file in group):,}", _time(group)]
        for name, group in groups.items()
    ]
    click.echo(str(folder))  # no title of the table, which would be folded where it is long
    print_table("", ["kind", ">entries", ">bytes", "last used"], rows)
    click.echo(f"{size:,} of at most {limit:,} bytes")


@cache.command(cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(as_json: bool) -> None:
    """Read every entry, and delete those that are damaged. They are made anew when they are needed.

    Exits with 1 if there are any.

    Examples:
      glowpy cache verify
    """
    with _folder() as folder, progress(f"reading {folder}"):
        count = len(list(cache_files(folder)))
        damaged = damaged_files(folder)
    names = [file.path.name for file in damaged]
    deleted = [delete(file.path) for file in damaged]
    if as_json:
        print_json({"files": count, "damaged": names, "deleted": sum(deleted)})
    else:
        for name, is_gone in zip(names, deleted, strict=True):
            click.echo(f"{name} was damaged, and is {'deleted' if is_gone else 'still there'}")
        click.echo(f"{count - len(damaged)} of {count} files are right")
    if damaged:
        raise click.exceptions.Exit(1)


@cache.command("clear", cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def clear_cache(as_json: bool) -> None:
    """Delete everything in the cache. Networks are compiled anew when they are used next.

    Examples:
      glowpy cache clear
    """
    with _folder() as folder:
        deleted = clear(folder)
    size = sum(file.size for file in deleted)
    if as_json:
        print_json({"files": len(deleted), "bytes": size})
    else:
        click.echo(f"deleted {len(deleted)} files of {size:,} bytes")


@cache.command(cls=Verb)
@click.argument("size", type=Bytes(), required=False)
def limit(size: int | None) -> None:
    """Set or show the limit of the cache's size, as in 512M or 4G. Entries unused for the longest time go first.

    Where GLOWPY_CACHE_LIMIT is set, it counts, and nothing can be set here.

    Examples:
      glowpy cache limit
      glowpy cache limit 512M
    """
    with _folder():
        if size is not None:
            set_cache_limit(size)
    click.echo(f"{cache_limit():,} bytes")


@contextmanager
def _folder() -> Iterator[Path]:
    """The folder. Raises UserError where the cache is turned off, or the `with` cannot read or write it."""
    folder = cache_folder()
    if folder is None:
        raise why_off()
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield folder
    except OSError as error:
        raise UserError(
            f"cannot use the cache: {error.strerror}",
            loc=Loc(str(folder)),
            note="GLOWPY_CACHE_DIR places it elsewhere",
        ) from None


def _figures(group: Sequence[CacheFile]) -> dict[str, object]:
    return {
        "entries": len(group),
        "bytes": sum(file.size for file in group),
        "last_used": _time(group),
    }


def _time(group: Sequence[CacheFile]) -> str:
    latest = datetime.fromtimestamp(max(file.used for file in group)).astimezone()
    return latest.isoformat(" ", "seconds")
