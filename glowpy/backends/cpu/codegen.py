"""Code generation: programs become LLVM modules, as text.

Every run of a program (see `glowpy.ir.run`) is one private function of its name; equal ones are shared. All but the
buffers is constant. `entry` writes the functions that call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from glowpy.backend import Program
from glowpy.backends.cpu.epilogue import emit_epilogue
from glowpy.backends.cpu.moves import emit_move, move_of
from glowpy.backends.cpu.shared_kernels import Sizes, is_shared, shared_kernel
from glowpy.backends.cpu.strategy.cut import Cut
from glowpy.backends.cpu.strategy.walk import boxes_of
from glowpy.backends.cpu.strategy.work import Work, sharing_open_tiles, work_of
from glowpy.backends.cpu.target import CpuTarget
from glowpy.backends.cpu.tiles import TILED_WORK, call_kernel, patch_function, tile_function
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import AttrKind, Layout, Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import IfInst, LoopInst
from glowpy.ir.printer import instruction_lines, placed, print_irfunction
from glowpy.ir.run import Run
from glowpy.llvm.builtin import is_builtin
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.llvm.control import Callees, emit_call
from glowpy.llvm.debug_info import DebugInfo
from glowpy.llvm.element_types import literal
from glowpy.llvm.entry import callee_texts, entry_texts, shared_slots
from glowpy.llvm.extents import Symbols
from glowpy.llvm.instrument import description_types
from glowpy.llvm.kernels import Kernels
from glowpy.llvm.runs import emit_run, runs_to_compute, stack_context
from glowpy.llvm.stack import StackContext
from glowpy.llvm.tasks import Call
from glowpy.llvm.writer import Body, ModuleWriter
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import Expr, highest
from glowpy.support.text import Attr

__all__ = ["entry_name", "generate_llvm"]

_INLINE_ELEMENTS = 64
"""A loop over at most so many elements is inlined into the entry point: a call would cost more than it does.

Kernels never are: LLVM takes quadratic time for an entry point that holds many of them.
"""

_INLINE_RUN = 16
"""A run of more instructions is worth its call."""

_INLINED = 256
"""The most instructions inlined into one function, for LLVM's sake again: the runs after them are called."""


_ROUNDING = "libjit_convert_f32_bf16"
"""The kernel that rounds to bf16: an instruction where the processor is asked to compute in it."""


def entry_name(program: Program) -> str:
    """The name of the entry point."""
    return f"glowpy_{program.ir.name}"


def generate_llvm(
    programs: Mapping[str, Program],
    target: CpuTarget,
    kernels: Kernels,
    options: CodeOptions | None = None,
) -> list[str]:
    """Programs, by the names of their entry points, as LLVM modules to be linked together.

    With debug information the source is `ir_text(programs)`, and equal kernels are not shared: each instruction has
    code of its own.
    """
    settings = options or CodeOptions()
    debug = DebugInfo(*settings.debug) if settings.debug is not None else None
    module = ModuleWriter(
        target.pointer_bits,
        target.variant.vector_bytes,
        debug,
        by_content=settings.separate and not settings.visible,
        merge=target.machine.small,
        shares_sizes=settings.separate,
        in_vectors=(_ROUNDING,) if target.machine.bf16 else (),
    )
    entries = [description_types()] if settings.entry.instrument == "symbols" else []
    for name, (program, first_line) in zip(programs, _placed(programs), strict=True):
        entries += _network_texts(
            module, name, program, kernels, target.variant, first_line, settings.entry
        )
    if settings.support is not None:
        entries += settings.support(module)
    if settings.separate:
        return module.separate(entries, visible=settings.visible)
    return [module.whole(entries)]


def _network_texts(
    module: ModuleWriter,
    name: str,
    program: Program,
    kernels: Kernels,
    variant: Variant,
    first_line: int,
    options: EntryOptions,
) -> Iterator[str]:
    """The functions of a network that call others: those that it calls itself, then its entry points."""
    names = tuple(program.ir.symbols)
    symbols = Symbols(names) if names else None
    constant = program.plan.constant
    callees = [
        replace(one, plan=replace(one.plan, constant=constant), constants=program.constants)
        for one in program.callees
    ]
    programs = {one.ir.name: one for one in callees}
    lines = placed(program.ir, first_line)
    first_index = len(program.ir.instructions)
    works = _works((*callees, program), variant)
    for one in (*callees, program):
        shared = Callees(
            name, programs, len(one.plan.mutable.slots), shared_slots(options, symbols)
        )
        own_lines = instruction_lines(*lines[one.ir.name])
        calls = list(_calls(module, name, one, kernels, works, own_lines, symbols, shared))
        if one is program:
            yield from entry_texts(one, module, name, calls, options, symbols)
        else:
            yield from callee_texts(one, module, name, calls, options, symbols, first_index)
            first_index += len(one.ir.instructions)


def _works(programs: Sequence[Program], variant: Variant) -> Callable[[Instruction], Work]:
    """Returns a function that computes the work of each instruction that has a kernel."""

    def alone(inst: Instruction) -> Work:
        return work_of(inst, variant.machine_for(inst.operands[0].value.type.kind).lanes)

    heads = [run.head for program in programs for run in program.ir.runs]
    products = sharing_open_tiles({i: alone(i) for i in heads if i.has(Trait.EPILOGUE)})
    return lambda inst: products.get(inst) or alone(inst)


def _placed(programs: Mapping[str, Program]) -> Iterator[tuple[Program, int]]:
    """Yields each program with the line of `ir_text` it begins on."""
    line = 1
    for program in programs.values():
        yield program, line
        line += print_irfunction(program.ir).count("\n")


def _calls(
    module: ModuleWriter,
    prefix: str,
    program: Program,
    kernels: Kernels,
    works: Callable[[Instruction], Work],
    lines: Mapping[Instruction, int],
    symbols: Symbols | None,
    callees: Callees,
) -> Iterator[Call]:
    """Writes a function for every run that does anything."""
    context = stack_context(program.ir, program.constants, kernels.symbol)

    def emit_other(body: Body, run: Run) -> None:
        if isinstance(run.head, IfInst | LoopInst):
            emit_call(body, run.head, callees)
        else:
            _emit_kernel(body, run, context, works(run.head))

    inlined = 0
    for run in runs_to_compute(program.ir, context):
        head = run.head
        body = Body(module, f"{prefix}.{run.name}", lines, symbols=symbols)
        body.takes_sizes = module.shares_sizes
        emit_run(body, run, context, emit_other)
        inline = _is_inlined(run, _INLINED - inlined)
        inlined += len(run.members) if inline else 0
        function = module.function(
            body,
            inline=inline,
            work=TILED_WORK if head.has(Trait.EPILOGUE) else 1,
            members=[(inst.name, lines[inst]) for inst in run.following if inst.name],
        )
        memories, sizes = tuple(body.memories), tuple(body.sizes)
        yield Call(function, memories, run, lines[head], body.units, sizes)


def _is_inlined(run: Run, room: int) -> bool:
    """Whether a call of the run's function would cost more than the run does; what calls functions belongs to these.

    There is room for so many more instructions.
    """
    head = run.head
    if isinstance(head, IfInst | LoopInst):
        return True
    if len(run.members) > min(_INLINE_RUN, room):
        return False
    if not (head.has(Trait.ELEMENTWISE) or is_builtin(head)):
        return False
    count = max(highest(ref.value.type.count) for inst in run.members for ref in inst.operands)
    return count <= _INLINE_ELEMENTS


def _emit_kernel(body: Body, run: Run, context: StackContext, work: Work) -> None:
    """The call of a kernel as the ABI says: buffers, shapes, strides, attributes, units, epilogue."""
    module, inst, symbol = body.module, run.head, context.symbol(run.head)
    move = None if module.merges else move_of(inst)  # a kernel is smaller
    if work.cut is not None:
        first, last = body.split(work.units)
        with body.loop(body.let(f"sub nuw nsw {module.dim} {last}, {first}")) as index:
            unit = body.let(f"add nuw nsw {module.dim} {first}, {index}")
            if move is not None:
                emit_move(body, move, work.cut, unit)
            else:
                _call(body, inst, symbol, *_arguments(body, inst, work.cut, unit))
        body.calls_only = body.calls_only and move is None
        return
    if move is not None:
        emit_move(body, move, None)
        return
    arguments, sizes = _arguments(body, inst)
    if inst.has(Trait.UNITS):
        arguments += [f"{module.dim} {unit}" for unit in body.split(work.units, work.together)]
    if not inst.has(Trait.EPILOGUE):
        _call(body, inst, symbol, arguments, sizes)
        return
    kind = inst.operands[1].value.type.kind  # of the input: sums may be of another
    loops = [tile_function(body, tile, work.tile_kind or kind) for tile in work.tiles]
    patches = [patch_function(body, function, kind) for function in work.patches]
    function, finished, environment = emit_epilogue(run, context, body, work)
    target = run.result
    if work.patches and target.type == inst.operands[0].value.type and target.is_contiguous:
        arguments[0] = f"ptr {body.pointer(target)}"  # to be fetched before it is stored to
    tiles = module.pointers([*loops, finished, *patches])
    arguments += [f"ptr {tiles}", f"ptr {function}", f"ptr {environment}"]
    if module.has_debug_info or not any(work.tiles):
        # With debug information all code of an instruction is in its own function.
        call_kernel(body, symbol, arguments)
        return
    # All that is worth to be made for these constants is in the tiles: one walk serves all products.
    types = [argument.split(" ", 1)[0] for argument in arguments]
    parameters = [f"{type} %a{index}" for index, type in enumerate(types)]
    name = f"{body.name.partition('.')[0]}.{inst.SCHEMA.mnemonic}"
    walk = Body(module, name, body.lines, parameters)
    call_kernel(walk, symbol, parameters)
    function = module.function(walk, inline=False, work=TILED_WORK)
    body.calls_only = True
    body.line(f"call void @{function}({', '.join(arguments)})")


def _call(
    body: Body, inst: Instruction, symbol: str, arguments: Sequence[str], sizes: Sizes
) -> None:
    """The call of a kernel, in a function that is shared where sizes may be arguments."""
    if not (body.module.shares_sizes and is_shared(inst, sizes)):
        call_kernel(body, symbol, arguments)
        return
    function = shared_kernel(body, inst, symbol, arguments, sizes)
    body.calls_only = True
    body.line(f"call void @{function}({', '.join(arguments)})")


def _arguments(
    body: Body, inst: Instruction, cut: Cut | None = None, unit: str = "0"
) -> tuple[list[str], Sizes]:
    """Buffers, shapes, strides and attributes, of one part if the instruction is cut; and the shapes and strides."""
    module = body.module
    values = [ref.value for ref in inst.operands]
    pointers = [
        "null" if index == 0 and inst.has(Trait.EPILOGUE) else body.pointer(value)
        for index, value in enumerate(values)
    ]  # its epilogue stores the result of a product
    shapes = None
    if cut is not None:
        shapes = [cut.shape(index, value) for index, value in enumerate(values)]
        for index, value in enumerate(values):
            distance = cut.distance(index, value)
            if distance != 0:
                bytes = body.number(distance * value.type.kind.size)
                move = body.let(f"mul nsw {module.dim} {unit}, {bytes}")
                pointers[index] = body.let(
                    f"getelementptr i8, ptr {pointers[index]}, {module.dim} {move}"
                )
    boxes = boxes_of(inst, shapes)
    strides = [
        box.strides
        for ref, box in zip(inst.operands, boxes, strict=True)
        if ref.layout is not Layout.DENSE
    ]
    sizes = [*(box.shape for box in boxes), *strides]
    attributes = [_attribute(body, spec.kind, inst.attrs[spec.name]) for spec in inst.SCHEMA.attrs]
    buffers = [f"ptr {pointer}" for pointer in pointers]
    return [*buffers, *(f"ptr {body.ints(numbers)}" for numbers in sizes), *attributes], sizes


def _attribute(body: Body, kind: AttrKind, value: Attr) -> str:
    match value:
        case tuple():
            return f"ptr {body.ints([item for item in value if not isinstance(item, float)])}"
        case bool():
            return f"i1 {'true' if value else 'false'}"
        case float():
            return f"float {literal(ElemKind.F32, value)}"
        case int() | Expr():
            return f"{body.module.dim} {body.number(value)}"
        case _:
            raise InternalError(f"expected an attribute that kernels take, got one of kind {kind}")
