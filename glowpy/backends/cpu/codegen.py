"""Code generation: a program becomes one LLVM module, as text.

Every run of instructions (see `glowpy.opt.ir.stack`) is one private function named after its first
instruction; equal ones are shared. All but the buffers is constant. The entry point is

```c
int NAME(const uint8_t *constants, uint8_t *mutable, uint8_t *activations);
```

with buffers at the plan's offsets; it returns 0. `NAME_bound` takes a table of pointers, one for
each placeholder in the order of the plan, in place of the mutable area: that is how arrays are
bound without copying.
"""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.backend import Program
from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.backends.cpu.stack import Facts, emit_epilogue, emit_stack, scalar_symbol
from glowpy.backends.cpu.target import CpuTarget
from glowpy.backends.cpu.writer import Body, ModuleWriter, literal
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import AttrKind, Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, CopyInst, DeallocInst, SplatInst, ViewInst
from glowpy.ir.liveness import lifetimes
from glowpy.ir.value import Value, WeightVar
from glowpy.opt.ir.stack import runs
from glowpy.support.text import Attr

__all__ = ["entry_name", "generate_llvm", "unsupported"]

_MEMORY = (AllocInst, DeallocInst, ViewInst)
_INLINE_ELEMENTS = 64
"""A run on at most so many elements is inlined into the entry point: a call would cost more than it does."""


def entry_name(program: Program) -> str:
    """The name of the entry point."""
    return f"glowpy_{program.ir.name}"


def unsupported(inst: Instruction) -> str:
    """Why there is no kernel for `inst`; empty if there is one."""
    if isinstance(inst, (*_MEMORY, CopyInst, SplatInst)):
        kinds = (
            {ref.value.type.kind for ref in inst.operands} if isinstance(inst, SplatInst) else set()
        )
        return (
            f"no kernel for {inst.SCHEMA.mnemonic} on f16 or bf16"
            if kinds & {ElemKind.F16, ElemKind.BF16}
            else ""
        )
    mnemonic = inst.SCHEMA.mnemonic
    if inst.has(Trait.ELEMENTWISE):
        symbol = scalar_symbol(inst)
    else:
        spec = KERNELS.get(mnemonic)
        symbol = spec.symbol(inst) if spec is not None else ""
    operands = ", ".join(str(ref.value.type) for ref in inst.operands)
    return "" if symbol else f"no kernel for {mnemonic} on {operands}"


def generate_llvm(program: Program, target: CpuTarget, *, bound: bool, parts: int = 1) -> list[str]:
    """A program as LLVM modules, without target triple, to be linked together.

    Args:
        program: What to compile.
        target: For which processor.
        bound: Make `NAME_bound` visible beside `NAME`.
        parts: How many modules to make at most, of about equal work.
    """
    module = ModuleWriter(entry_name(program), target.pointer_bits, target.variant.vector_bytes)
    ir = program.ir
    facts = _facts(program)
    calls = []
    for run in runs(ir):
        if not any(
            ref.value.type.count for inst in run for ref in inst.operands if ref.access.writes
        ):
            continue
        if all(_is_immediate(inst, facts) for inst in run):
            continue
        body = Body(module)
        _emit_run(body, run, facts)
        count = max(ref.value.type.count for inst in run for ref in inst.operands)
        name = module.function(
            run[0].name or run[0].SCHEMA.mnemonic,
            body.parameters,
            body.text,
            inline=count <= _INLINE_ELEMENTS,
        )
        calls.append((name, body.memories))
    return module.render(_entries(program, module, calls, bound=bound), parts)


def _facts(program: Program) -> Facts:
    """Looks for one-element memory that never changes, and for results that nobody reads."""
    lives = lifetimes(program.ir)
    position = {inst: index for index, inst in enumerate(program.ir.instructions)}
    last_of_run = {inst: position[run[-1]] for run in runs(program.ir) for inst in run}
    immediates: dict[Value, float | int] = {}
    for value, life in lives.items():
        if value.type.count != 1:
            continue
        if isinstance(value, WeightVar):
            if value.is_constant:
                item = program.constants[value.name].array.reshape(-1)[0]
                immediates[value] = float(item) if value.type.kind.is_float else int(item)
        elif len(life.writes) == 1:
            writer = program.ir.instructions[life.writes[0]]
            readers = [program.ir.instructions[index] for index in life.reads]
            if isinstance(writer, SplatInst) and all(
                reader.has(Trait.ELEMENTWISE) for reader in readers
            ):
                immediates[value] = writer.value

    def needed(inst: Instruction) -> bool:
        base = inst.operands[0].value.base
        return isinstance(base, WeightVar) or any(
            read > last_of_run[inst] for read in lives[base].reads
        )

    return Facts(immediates, needed)


def _is_immediate(inst: Instruction, facts: Facts) -> bool:
    return isinstance(inst, SplatInst) and inst.result.base in facts.immediates


def _emit_run(body: Body, run: Sequence[Instruction], facts: Facts) -> None:
    head = run[0]
    if head.has(Trait.ELEMENTWISE):
        emit_stack(body, run, facts)
    elif isinstance(head, CopyInst):
        _emit_copy(body, head)
    elif isinstance(head, SplatInst):
        _emit_splat(body, head)
    else:
        _emit_kernel(body, head, run[1:], facts)


def _emit_copy(body: Body, inst: CopyInst) -> None:
    if inst.result.same_memory(inst.input):
        return
    symbol = f"llvm.memcpy.p0.p0.{body.module.dim}"
    body.module.declare(symbol, "void", ["ptr", "ptr", body.module.dim, "i1"])
    to, source, size = body.pointer(inst.result), body.pointer(inst.input), inst.result.type.size
    body.line(f"call void @{symbol}(ptr {to}, ptr {source}, {body.module.dim} {size}, i1 false)")


def _emit_splat(body: Body, inst: SplatInst) -> None:
    kind = inst.result.type.kind
    pointer = body.pointer(inst.result)
    with body.loop(inst.result.type.count) as index:
        body.store(kind, literal(kind, inst.value), pointer, index)


def _emit_kernel(
    body: Body, inst: Instruction, behind: Sequence[Instruction], facts: Facts
) -> None:
    """The call of a kernel as the ABI says: buffers, shapes, attributes, epilogue."""
    module = body.module
    symbol = KERNELS[inst.SCHEMA.mnemonic].symbol(inst)
    arguments = [f"ptr {body.pointer(ref.value)}" for ref in inst.operands]
    arguments += [f"ptr {module.ints(ref.value.type.shape)}" for ref in inst.operands]
    arguments += [
        _attribute(module, spec.kind, inst.attrs[spec.name]) for spec in inst.SCHEMA.attrs
    ]
    if inst.has(Trait.EPILOGUE):
        function, environment = "null", "null"
        if behind:
            function, environment = emit_epilogue(module, inst.name, inst, behind, facts, body)
        arguments += [f"ptr {function}", f"ptr {environment}"]
    module.declare(symbol, "void", [argument.split(" ", 1)[0] for argument in arguments])
    body.line(f"call void @{symbol}({', '.join(arguments)})")


def _attribute(module: ModuleWriter, kind: AttrKind, value: Attr) -> str:
    if isinstance(value, tuple):
        return f"ptr {module.ints([int(item) for item in value])}"
    if kind == "flag":
        return f"i1 {'true' if value else 'false'}"
    if kind == "float":
        return f"float {literal(ElemKind.F32, float(value))}"
    return f"{module.dim} {value}"


def _entries(
    program: Program,
    module: ModuleWriter,
    calls: Sequence[tuple[str, Sequence[Value]]],
    *,
    bound: bool,
) -> list[str]:
    """The texts of `NAME_bound`, which does the calls, and of `NAME`, which fills its table."""
    plan, dim = program.plan, module.dim
    lines: list[str] = []
    pointers: dict[tuple[str, int], str] = {}
    table = {slot.name: index for index, slot in enumerate(plan.mutable.slots)}
    offsets = {
        slot.name: slot.start for area in (plan.constant, plan.activations) for slot in area.slots
    }

    def pointer(value: Value) -> str:
        base, offset = value.base, value.byte_offset
        key = (base.name, offset)
        if key in pointers:
            return pointers[key]
        name = f"%m{len(pointers)}"
        if base.name in table:
            lines.append(
                f"  {name}.slot = getelementptr inbounds ptr, ptr %table, {dim} {table[base.name]}"
            )
            lines.append(f"  {name}.base = load ptr, ptr {name}.slot")
            start = f"{name}.base"
        else:
            start = "%constants" if isinstance(base, WeightVar) else "%activations"
            offset += offsets[base.name]
        lines.append(f"  {name} = getelementptr inbounds i8, ptr {start}, {dim} {offset}")
        pointers[key] = name
        return name

    for function, memories in calls:
        arguments = ", ".join(f"ptr {pointer(memory)}" for memory in memories)
        lines.append(f"  call void @{function}({arguments})")
    text = "".join(f"{line}\n" for line in lines)
    inner = _bound_entry(module, text, visible=bound)
    return [inner, _plain_entry(program, module)]


def _bound_entry(module: ModuleWriter, text: str, *, visible: bool) -> str:
    areas = "ptr noalias %constants, ptr noalias %table, ptr noalias %activations"
    linkage, inline = ("", "") if visible else ("internal ", "alwaysinline ")
    head = f"define {linkage}i32 @{module.entry}_bound({areas}) {inline}#attributes"
    return f"{head} {{\n{text}  ret i32 0\n}}\n"


def _plain_entry(program: Program, module: ModuleWriter) -> str:
    slots, dim = program.plan.mutable.slots, module.dim
    areas = "ptr noalias %constants, ptr noalias %mutable, ptr noalias %activations"
    lines = [
        f"define i32 @{module.entry}({areas}) #attributes {{",
        f"  %table = alloca [{max(len(slots), 1)} x ptr]",
    ]
    for index, slot in enumerate(slots):
        lines += [
            f"  %p{index} = getelementptr inbounds i8, ptr %mutable, {dim} {slot.start}",
            f"  %s{index} = getelementptr inbounds ptr, ptr %table, {dim} {index}",
            f"  store ptr %p{index}, ptr %s{index}",
        ]
    lines.append(
        f"  %code = call i32 @{module.entry}_bound(ptr %constants, ptr %table, ptr %activations)"
    )
    return "\n".join([*lines, "  ret i32 %code", "}"]) + "\n"
