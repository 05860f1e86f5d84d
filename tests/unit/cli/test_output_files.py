"""What `-o` and its like may name: files, links, devices, FIFOs, standard output, folders; and what is a mistake.

A fault in what is tested here would replace devices by files. Tests thus name none of this machine's in a folder that
they may write.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from glowpy.cli.main import run
from glowpy.support import output_files
from glowpy.support.errors import UserError
from glowpy.support.output_files import make_output_folder, write_output_file

ROOT = Path(__file__).resolve().parents[3]
TEXT = """\
module {
  placeholder %x : f32[2]
  placeholder %y : f32[2]
  constant %c : f32[2] = [1.0, 2.0]
  function @main {
    %n = add(%x, %c) : f32[2]
    save(%n, %y)
  }
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a network."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.glow").write_text(TEXT)
    return tmp_path


def glowpy(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, io.StringIO(), out, err), out.getvalue(), err.getvalue()


def dump(*argv: str) -> None:
    assert glowpy("dump", "net.glow", *argv) == (0, "", "")


def inode(path: Path) -> int:
    return path.lstat().st_ino


def test_a_file_is_replaced_when_it_is_whole(folder: Path) -> None:
    old = folder / "old.glow"
    old.write_text("before")
    with old.open() as reader:
        dump("-o", "old.glow", "--save-constants", "new.npz")
        assert reader.read() == "before"
    assert old.read_text() == TEXT
    assert {path.name for path in folder.iterdir()} == {"net.glow", "old.glow", "new.npz"}


def test_a_new_file_has_the_permissions_of_new_files(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        dump("-o", "new.glow")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "new.glow").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_permissions_are_kept(folder: Path, mode: int) -> None:
    (folder / "old.glow").touch()
    (folder / "old.glow").chmod(mode)
    dump("-o", "old.glow")
    assert stat.S_IMODE((folder / "old.glow").stat().st_mode) == mode
    assert (folder / "old.glow").read_text() == TEXT


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root gives files away")
def test_owners_are_kept(folder: Path) -> None:
    (folder / "old.glow").touch()
    os.chown(folder / "old.glow", 1234, 2345)
    dump("-o", "old.glow")
    status = (folder / "old.glow").stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


@pytest.mark.parametrize("option", ["-o", "--save-constants"])
def test_links_are_followed(folder: Path, option: str) -> None:
    (folder / "below").mkdir()
    target = folder / "below" / "target"
    target.touch(0o600)
    (folder / "first").symlink_to("second")
    (folder / "second").symlink_to("below/target")
    assert glowpy("dump", "net.glow", option, "first")[0] == 0
    assert (folder / "first").is_symlink()
    assert (folder / "second").is_symlink()
    assert target.stat().st_size > 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in (folder / "below").iterdir()] == ["target"]


def test_a_link_to_nothing_makes_what_it_leads_to(folder: Path) -> None:
    (folder / "link").symlink_to("target")
    dump("-o", "link")
    assert (folder / "link").is_symlink()
    assert (folder / "target").read_text() == TEXT


@pytest.fixture
def device(folder: Path) -> Path:
    """What swallows everything: a node of the test's own where it may make one, else one it cannot replace."""
    if os.access("/dev", os.W_OK):
        try:
            os.mknod(folder / "null", stat.S_IFCHR | 0o666, Path("/dev/null").stat().st_rdev)
            (folder / "null").write_bytes(b"")
        except (AttributeError, OSError) as error:
            pytest.skip(f"no device can be made here: {error}")
        return folder / "null"
    if not Path("/dev/null").exists():
        pytest.skip("no devices")
    return Path("/dev/null")


@pytest.mark.parametrize("option", ["-o", "--save-constants"])
def test_a_device_is_written(folder: Path, device: Path, option: str) -> None:
    """As root, the device itself was replaced by a file."""
    before = inode(device)
    (folder / "link").symlink_to(device)
    for path in (str(device), "link"):
        assert glowpy("dump", "net.glow", option, path)[0] == 0
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert inode(device) == before
    assert (folder / "link").is_symlink()


@pytest.fixture
def fifo(folder: Path) -> Callable[[], bytes]:
    """What was written to the FIFO `fifo`, when its writer is done."""
    os.mkfifo(folder / "fifo")
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append((folder / "fifo").read_bytes()))
    reader.daemon = True  # it waits for a writer that need not come
    reader.start()

    def read() -> bytes:
        reader.join(10)
        return content[0]

    return read


def test_a_fifo_takes_text(fifo: Callable[[], bytes], folder: Path) -> None:
    dump("-o", "fifo")
    assert fifo() == TEXT.encode()
    assert stat.S_ISFIFO((folder / "fifo").lstat().st_mode)


def test_a_fifo_takes_archives(fifo: Callable[[], bytes]) -> None:
    assert glowpy("dump", "net.glow", "--save-constants", "fifo")[0] == 0
    (array,) = np.load(io.BytesIO(fifo())).values()
    assert array.tolist() == [1, 2]


def test_standard_output(folder: Path) -> None:
    assert glowpy("dump", "net.glow", "-o", "-") == (0, TEXT, "")
    assert not (folder / "-").exists()
    dump("-o", "./-")
    assert (folder / "-").read_text() == TEXT
    status, out, err = glowpy("dump", "net.glow", "--save-constants", "-")
    assert (status, out) == (1, "")
    assert "expected a file, standard output takes text" in err


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors have no names")
@pytest.mark.parametrize("path", ["fd/1", "stdout", "/proc/self/fd/1"])
def test_descriptors_are_written_in_place(folder: Path, path: str) -> None:
    """Whatever they are: a file that something was written to already, a pipe. Links are those of /dev."""
    (folder / "fd").symlink_to("/proc/self/fd")
    (folder / "stdout").symlink_to("fd/1")
    command = [sys.executable, "-m", "glowpy", "dump", str(folder / "net.glow"), "-o"]
    command.append(str(folder / path))
    with (folder / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        subprocess.run(command, cwd=ROOT, stdout=log, check=True)
        log.seek(0, io.SEEK_END)
        log.write("after\n")
    assert (folder / "log").read_text() == f"before\n{TEXT}after\n"
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert piped.stdout.decode() == TEXT


def snapshot(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*")}


MISTAKES = [
    ("dump net.glow -o .", ".: expected a file to write, got the name of a folder"),
    ("dump net.glow -o ..", "..: expected a file to write, got the name of a folder"),
    ("dump net.glow -o /", "/: expected a file to write, got the name of a folder"),
    ("dump net.glow -o ''", "expected the name of a file to write, got ''"),
    ("dump net.glow -o below", "below: expected a file to write, got the name of a folder"),
    ("dump net.glow -o linked", "linked: expected a file to write, got the name of a folder"),
    ("dump net.glow -o new/", "new/: expected a file to write, got the name of a folder"),
    ("dump net.glow -o a/b.glow", "no folder 'a'\nnote: make it first: mkdir -p a\n"),
    ("dump net.glow -o net.glow/b", "net.glow' is no folder"),
    ("dump net.glow -o nowhere", "note: make it first: mkdir -p "),
    ("dump net.glow --save-constants a/b.npz", "a/b.npz: cannot write there: no folder 'a'"),
    ("run net.glow --output ''", "expected the name of a folder to write to, got ''"),
    ("run net.glow --output net.glow", "net.glow: expected a folder to write to, '"),
    ("run net.glow --output net.glow/b/c", "net.glow/b/c: expected a folder to write to, '"),
    ("run net.glow --instrument-debug net.glow", "net.glow: expected a folder to write to, '"),
    ("run net.glow --debug net.glow", "net.glow: expected a folder to write to, '"),
    ("run net.glow --jitdump net.glow", "net.glow: expected a folder to write to, '"),
    ("demo --output net.glow/b", "net.glow/b: expected a folder to write to, '"),
    ("bundle net.glow -o net.glow/b", "net.glow' is none"),
    ("bundle net.glow -o net.glow", "net.glow: expected a folder to write to, '"),
    ("bundle net.glow -o ''", "expected the name of a folder to write to, got ''"),
    ("bundle net.glow -o taken", "net.o: cannot write the bundle: expected a file or nothing"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(folder: Path, command: str, message: str) -> None:
    (folder / "below").mkdir()
    (folder / "linked").symlink_to("below")
    (folder / "nowhere").symlink_to("a/b/c")
    (folder / "taken" / "net.o").mkdir(parents=True)
    before = snapshot(folder)
    status, out, err = glowpy(*("" if word == "''" else word for word in command.split()))
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert message in err
    assert snapshot(folder) == before


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_that_takes_no_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """As a read-only file system says it, also to root."""
    (folder / "below").mkdir()
    if is_there:
        (folder / "below" / "old.glow").touch()
    closed = str(folder / "below")
    monkeypatch.setattr(os, "access", lambda path, _: os.path.realpath(path) != closed)
    for command in ("dump net.glow -o below/old.glow", "run net.glow --output below/new"):
        status, _, err = glowpy(*command.split())
        assert status == 1
        assert "cannot write there: the folder '" in err
        assert "below' takes no new files" in err
    status, _, err = glowpy("bundle", "net.glow", "-o", closed)
    assert status == 1
    assert f"{closed}: cannot write there: the folder '{closed}' takes no new files" in err


def test_a_file_that_may_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "old.glow").write_text("before")
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith("old.glow"))
    status, _, err = glowpy("dump", "net.glow", "-o", "old.glow")
    assert status == 1
    assert "old.glow: cannot write the file: it may not be written" in err
    assert (folder / "old.glow").read_text() == "before"


def test_a_full_disk_leaves_the_old_file(folder: Path) -> None:
    def fill(file: IO[bytes]) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (folder / "old").write_text("before")
    for name in ("old", "new"):
        with pytest.raises(UserError, match=f"^{name}: cannot write the file: No space"):
            write_output_file(name, fill)
    assert (folder / "old").read_text() == "before"
    assert {path.name for path in folder.iterdir()} == {"net.glow", "old"}


@pytest.mark.skipif(sys.platform == "win32", reason="limits are set as on Unix")
def test_a_real_limit_leaves_the_old_files(folder: Path) -> None:
    """Of a text, an archive and a bundle."""
    (folder / "text").write_text("before")
    (folder / "archive").write_text("before")
    program = (
        "import resource, sys\n"
        "from glowpy.__main__ import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "main()"
    )
    for argv in (
        ["dump", "net.glow", "-o", "text"],
        ["dump", "net.glow", "--save-constants", "archive"],
        ["bundle", "net.glow", "-o", "build/here"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *argv],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "error: " in done.stderr
    assert (folder / "text").read_text() == (folder / "archive").read_text() == "before"
    assert {path.name for path in folder.iterdir()} == {"net.glow", "text", "archive"}


def test_a_reader_that_goes_away_is_no_users_mistake(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise BrokenPipeError

    os.mkfifo(folder / "fifo")
    monkeypatch.setattr(output_files, "_write_in_place", leave)
    with pytest.raises(BrokenPipeError):
        write_output_file(folder / "fifo", lambda file: file.write(b""))


def test_folders_that_are_named_are_made(folder: Path) -> None:
    (folder / "link").symlink_to("new/below")
    for name, path in (("results", "results"), ("a/b/", "a/b"), (".", "."), ("link", "new/below")):
        for _ in range(2):
            assert glowpy("run", "net.glow", "--output", name)[0] == 0
            assert (folder / path / "y.npy").is_file()
    assert make_output_folder("results") == Path("results")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second file system")
def test_a_bundle_is_written_through_a_link_to_another_file_system(folder: Path) -> None:
    """Files cannot be renamed from one to another."""
    with_room = Path("/dev/shm", f"glowpy-test-{os.getpid()}")
    with_room.mkdir()
    try:
        (folder / "build").symlink_to(with_room)
        status, _, err = glowpy("bundle", "net.glow", "-o", "build")
        assert (status, err) == (0, "")
        assert (with_room / "net.json").is_file()
        assert (folder / "build").is_symlink()
    finally:
        for file in with_room.iterdir():
            file.unlink()
        with_room.rmdir()


def test_long_names_are_shortened_and_told_apart(tmp_path: Path) -> None:
    """A file has a name of 255 bytes at most; what exporters call values may be longer."""
    value = helper.make_tensor_value_info
    long = "encoder.layers.0.self_attn." * 10
    names = [f"{long}{end}" for end in "xyz"]
    nodes = [helper.make_node("Exp", [names[0]], [name], name=name) for name in names[1:]]
    x, *outputs = (value(name, TensorProto.FLOAT, [3]) for name in names)
    graph = helper.make_graph(nodes, "g", [x], outputs)
    opset = [helper.make_opsetid("", 17)]
    model = tmp_path / f"{'m' * 240}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), model)
    folder = tmp_path / "out"
    for option in ("--output", "--instrument-debug"):
        out = io.StringIO()
        assert run(["run", str(model), option, str(folder)], io.StringIO(), out) == 0, (
            out.getvalue()
        )
    files = [path.name for path in folder.iterdir()]
    assert len([name for name in files if name.startswith("encoder")]) == 2
    assert len([name for name in files if name.startswith("000")]) >= 4
    out = io.StringIO()
    assert run(["bundle", str(model), "-o", str(tmp_path / "b")], io.StringIO(), out) == 0
    assert len(list((tmp_path / "b").glob("m*.h"))) == 1
