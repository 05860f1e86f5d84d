"""Bundles whose caller brings the threads: here and for AArch64 under QEMU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, UserError, bundle
from glowpy.bundling.link import c_compiler, runner
from glowpy.bundling.verify import verify_bundle
from tests.bundles.networks import command, compiler_with_little_libc, link_little_libc, need

MAIN = """
#include "net.h"
#ifndef WITHOUT_THREADS
#include <pthread.h>
#endif
#include <stdio.h>
#include <string.h>

static __attribute__((aligned(64))) uint8_t weights[NET_CONSTANTS_SIZE + 1];
static __attribute__((aligned(64))) uint8_t areas[3][(NET_MUTABLE_SIZE + 64) / 64 * 64];
static __attribute__((aligned(64))) uint8_t activations[NET_ACTIVATIONS_SIZE + 1];

typedef struct {
  glowpy_task_t task;
  void *pointers;
  size_t first, last;
} share_t;

typedef struct {
  int calls;
  size_t most;
} count_t;

static void *work(void *argument) {
  share_t *share = argument;
  share->task(share->pointers, share->first, share->last);
  return NULL;
}

#ifdef WITHOUT_THREADS
typedef int pthread_t;
static int pthread_create(pthread_t *thread, void *attributes, void *(*function)(void *), void *argument) {
  (void)attributes;
  *thread = function(argument) != NULL;
  return 0;
}
static int pthread_join(pthread_t thread, void *result) { return thread && result; }
#endif

/* Two threads, one of which computes the last third. */
static void parallel_for(void *context, glowpy_task_t task, void *pointers, size_t units) {
  count_t *count = context;
  share_t last = {task, pointers, units - units / 3, units};
  pthread_t thread;
  count->calls++;
  if (units > count->most) count->most = units;
  if (last.first < last.last) pthread_create(&thread, NULL, work, &last);
  task(pointers, 0, last.first);
  if (last.first < last.last) pthread_join(thread, NULL);
}

/* One unit at a time, the last first. */
static void backwards(void *context, glowpy_task_t task, void *pointers, size_t units) {
  (void)context;
  while (units-- > 0) task(pointers, units, units + 1);
}

int main(void) {
  count_t count = {0, 0};
  FILE *file = fopen("net.weights.bin", "rb");
  if (!file || fread(weights, 1, NET_CONSTANTS_SIZE, file) != NET_CONSTANTS_SIZE) return 2;
  fclose(file);
  for (int run = 0; run < 3; run++)
    for (size_t i = 0; i < NET_X_COUNT; i++) net_input_x(areas[run])[i] = (float)(i % 1009) / 300 - 1;
  if (net(weights, areas[0], activations)) return 3;
  if (net_parallel(weights, areas[1], activations, parallel_for, &count)) return 4;
  if (net_parallel(weights, areas[2], activations, backwards, NULL)) return 5;
  if (memcmp(areas[0], areas[1], NET_MUTABLE_SIZE)) return 6;
  if (memcmp(areas[0], areas[2], NET_MUTABLE_SIZE)) return 7;
  if (net_parallel(weights, areas[2], activations, NULL, NULL)) return 8;
  if (memcmp(areas[0], areas[2], NET_MUTABLE_SIZE)) return 9;
  return count.calls < 1 || count.most < 2 ? 10 : 0;
}
"""


def network() -> Module:
    """Loops of 200 x 300 elements, which make more than one unit."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", glowpy.parse_type("f32[200x300]"))
    row = module.create_constant("row", np.linspace(-1, 1, 300, dtype=np.float32))
    node = f.create_add("add", f.create_tanh("tanh", x), row)
    f.create_save("save", node, module.create_placeholder("y", node.result.type))
    return module


@pytest.mark.parametrize("target", ["", "rpi4"])
def test_caller_computes_the_units(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("qemu-aarch64" if target else "cc")
    backend = CpuBackend(CpuOptions(target))
    bundle(network(), tmp_path, BundleOptions("net", parallel=True), backend)
    (tmp_path / "threads.c").write_text(MAIN)
    triple = backend.target.machine.triple
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "threads.c", "net.o", "-o", "threads"]
    compiler = [*c_compiler(triple), "-pthread"]
    if target:  # where a program has no threads, so that it needs no library for them
        compiler = [*compiler_with_little_libc(triple), "-DWITHOUT_THREADS"]
        link_little_libc(monkeypatch)
    build = command(tmp_path, *compiler, *flags)
    assert build.returncode == 0, build.stderr
    done = command(tmp_path, *runner(triple), "./threads")
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert verify_bundle(tmp_path).passed


def test_without_the_option_there_is_no_such_entry_point(tmp_path: Path) -> None:
    bundle(network(), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions("x86-64-v2")))
    assert "parallel" not in (tmp_path / "net.h").read_text()
    assert b"net_parallel" not in (tmp_path / "net.o").read_bytes()


def test_networks_called_like_the_entry_points_of_others(tmp_path: Path) -> None:
    models = {"a": network(), "a_parallel": network()}
    backend = CpuBackend(CpuOptions("x86-64-v2"))
    bundle(models, tmp_path / "without", BundleOptions("net"), backend)
    for order in (models, dict(reversed(models.items()))):
        with pytest.raises(UserError, match="the bundle has a 'net_a"):
            bundle(order, tmp_path / "with", BundleOptions("net", parallel=True), backend)
