"""The deepest chain of calls in a module's text."""

from __future__ import annotations

from glowpy.llvm.stack_depth import stack_depths

TEXT = """
@table.1 = private unnamed_addr constant [3 x ptr] [ptr @tile, ptr null, ptr @huge.tile]
declare void @outside()
define void @entry(ptr %a) nounwind {
entry:
  call void @layer(ptr %a)
  call void @small(ptr %a)
  ret void
}
define internal void @layer(ptr %a) noinline {
entry:
  call void @walk(ptr %a, ptr @table.1, ptr @epilogue)
  ret void
}
define internal void @walk(ptr %a, ptr %table, ptr %epilogue) noinline {
entry:
  call void %epilogue(ptr %a)
  call void @outside()
  ret void
}
define internal void @tile(ptr %a) noinline {
entry:
  ret void
}
define internal void @huge.tile(ptr %a) noinline {
entry:
  ret void
}
define internal void @epilogue(ptr %a) noinline {
entry:
  ret void
}
define internal void @small(ptr %a) noinline {
entry:
  ret void
}
"""
FRAMES = {"entry": 1, "layer": 10, "walk": 100, "tile": 1000, "huge.tile": 5000, "epilogue": 2000}


def test_a_function_that_is_handed_others_may_call_each_of_them() -> None:
    depths = stack_depths(TEXT, FRAMES, 0)
    assert depths["entry"] == 1 + 10 + 100 + 5000
    assert depths["walk"] == 100
    assert depths["small"] == 0


def test_what_is_called_outside_may_be_the_largest_function_of_a_library() -> None:
    depths = stack_depths(TEXT, {**FRAMES, "dot": 300, "round": 9000}, 4)
    assert depths["walk"] == 100 + 4 + 9000 + 4
    assert depths["small"] == 4


def test_every_call_leaves_an_address() -> None:
    assert stack_depths(TEXT, FRAMES, 8)["entry"] == 1 + 10 + 100 + 5000 + 4 * 8


def test_a_task_calls_the_function_that_it_is_handed() -> None:
    text = """
define void @entry(ptr %a) {
entry:
  call void @share(ptr %a, ptr @task, ptr @layer)
  ret void
}
define internal void @share(ptr %a, ptr %task, ptr %layer) {
entry:
  call void %task(ptr %layer)
  ret void
}
define internal void @task(ptr %layer) {
entry:
  call void %layer(ptr null)
  ret void
}
define internal void @layer(ptr %a) {
entry:
  ret void
}
"""
    frames = {"entry": 1, "share": 10, "task": 100, "layer": 1000}
    assert stack_depths(text, frames, 0)["entry"] == 1111
