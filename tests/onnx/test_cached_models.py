"""Models in the caches of hubs, where files are links: followed where the cache keeps them, and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.support.errors import UserError

X = np.arange(3, dtype=np.float32)


def saved(folder: Path, location: str) -> Path:
    """A model in a folder, with 2 for each of its weights in another file."""
    weights = numpy_helper.from_array(X, "w")
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=location)
    vectors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", vectors[:1], vectors[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(np.full(3, 2, np.float32).tobytes())
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def move(file: Path, target: Path) -> None:
    """Puts a file elsewhere, and a link in its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    file.rename(target)
    file.symlink_to(os.path.relpath(target, file.parent))


def hub(root: Path) -> Path:
    folder = root / "models--one/snapshots/0123/onnx"
    path = saved(folder, "model.onnx_data")
    move(folder / "model.onnx_data", root / "models--one/blobs/bb")
    move(path, root / "models--one/blobs/aa")
    return path


def hub_with_copy(root: Path) -> Path:
    path = saved(root / "snapshots/0123", "w.bin")
    move(root / "snapshots/0123/w.bin", root / "blobs/bb")
    return path


def hub_with_folders(root: Path) -> Path:
    path = saved(root / "snapshots/0123", "w.bin")
    move(root / "snapshots/0123/w.bin", root / "blobs/data/bb")
    move(path, root / "blobs/aa")
    return path


def flat(root: Path) -> Path:
    path = saved(root / "snap", "w.bin")
    move(root / "snap/w.bin", root / "kept/bb")
    move(path, root / "kept/aa")
    return path


def tree(root: Path) -> Path:
    path = saved(root / "run", "sub/w.bin")
    move(root / "run/sub/w.bin", root / "source/sub/w.bin")
    move(path, root / "source/model.onnx")
    return path


def volume(root: Path) -> Path:
    """As Kubernetes mounts it, where ..data is a link as well."""
    saved(root / "..2026", "w.bin")
    (root / "..data").symlink_to("..2026")
    for name in ("model.onnx", "w.bin"):
        (root / name).symlink_to(f"..data/{name}")
    return root / "model.onnx"


def through_a_link(root: Path) -> Path:
    hub(root / "cache")
    (root / "here").symlink_to("cache/models--one/snapshots/0123/onnx")
    return root / "here/model.onnx"


@pytest.mark.parametrize(
    "layout", [hub, hub_with_copy, hub_with_folders, flat, tree, volume, through_a_link]
)
def test_a_cache_is_read(tmp_path: Path, layout: Callable[[Path], Path]) -> None:
    path = layout(tmp_path)
    onnx.load(path, load_external_data=False)
    for session in (
        glowpy.InferenceSession(path, backend="interpreter"),
        glowpy.InferenceSession(str(path), backend="interpreter"),
    ):
        assert (session.run(None, {"x": X})[0] == X + 2).all()
    assert not glowpy.check(path).problems


def to_another_model(root: Path) -> Path:
    path = hub(root)
    data = path.with_name("model.onnx_data")
    other = root / "models--other/blobs/cc"
    other.parent.mkdir(parents=True)
    data.resolve().rename(other)
    data.unlink()
    data.symlink_to(other)
    return path


def to_a_secret(root: Path) -> Path:
    path = flat(root)
    secret = root / "secret"
    (root / "kept/bb").rename(secret)
    (root / "snap/w.bin").unlink()
    (root / "snap/w.bin").symlink_to(secret)
    return path


def through_the_blob(root: Path) -> Path:
    path = flat(root)
    move(root / "kept/bb", root / "secret")
    return path


def blobs_elsewhere(root: Path) -> Path:
    path = hub_with_copy(root)
    (root / "blobs").rename(root / "secrets")
    (root / "blobs").symlink_to("secrets")
    return path


def no_cache(root: Path) -> Path:
    path = saved(root / "model", "w.bin")
    move(root / "model/w.bin", root / "blobs/bb")
    return path


def below(root: Path) -> Path:
    path = flat(root)
    (root / "kept/deep").mkdir()
    (root / "kept/bb").rename(root / "kept/deep/bb")
    (root / "snap/w.bin").unlink()
    (root / "snap/w.bin").symlink_to("../kept/deep/bb")
    return path


@pytest.mark.parametrize(
    "layout", [to_another_model, to_a_secret, through_the_blob, blobs_elsewhere, no_cache, below]
)
def test_links_elsewhere_are_refused(tmp_path: Path, layout: Callable[[Path], Path]) -> None:
    with pytest.raises(UserError, match="which is reached through a symbolic link"):
        glowpy.load(layout(tmp_path))


def test_a_blob_is_a_plain_file(tmp_path: Path) -> None:
    path = flat(tmp_path)
    os.link(tmp_path / "kept/bb", tmp_path / "kept/cc")
    with pytest.raises(UserError, match="a directory, a device or a hard link"):
        glowpy.load(path)
