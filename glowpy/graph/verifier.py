"""The rules of the graph level. `verify_module` collects everything that is broken, then raises once.

- Every operand is a storage of the function's module or a result of a node of the same function.
- Use lists and operands agree; no node depends on itself.
- Names are unique in the module.
- Attributes are those of the schema, of their kinds.
- Operands and results are quantized as the spec allows.
- Result types are what inference gives, quantization parameters included; a typed node's are what its rule accepts.
- A predicate is of kind bool.
- A save writes a placeholder of the type of its input, or a variable that has room for it; nothing is
  saved twice in a function.
- A variable's memory is static, of its kind, and has room for it; that of a function that is called may be of its type.
- An initial value is of the variable's type, which is static; what a function takes has none.
- A function that is called takes and gives storage of its own, none of it constant, and uses no other; it saves what it
  gives. A variable is both taken and given. No function calls itself.
- A symbol is known from the shape of an input, or one node defines it, and nodes that depend on it come after that one.
- Inputs of a function have different names in the user's model, and so do outputs: whoever runs it
  tells them apart by these.
- What a class's own rule says: `@verify(XNode)` in `ops/` is a generator that yields messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set

from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import symbols_of_types
from glowpy.core.schema import Quantized, Trait, check_attrs
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.infer import infer_types
from glowpy.graph.node import Constant, Node, Placeholder, Storage, Variable
from glowpy.graph.nodes_gen import DefineNode, SaveNode
from glowpy.graph.printer import print_node
from glowpy.support.errors import Diagnostic, InternalError, UserError, VerifyError
from glowpy.support.rules import Rules
from glowpy.support.symbolic import is_at_most, symbols_of

__all__ = ["verify", "verify_function", "verify_module", "verify_nodes"]

verify: Rules[Callable[..., Iterator[str]]] = Rules("verify")


def verify_module(module: Module) -> None:
    """Checks every function of the module. Raises VerifyError with all diagnostics."""
    owners = _owners(module)
    diagnostics = [diagnostic for f in module.functions for diagnostic in _function(f, owners)]
    if diagnostics:
        raise VerifyError.of(diagnostics)


def verify_function(f: Function) -> None:
    """Checks one function. Raises VerifyError with all diagnostics."""
    diagnostics = list(_function(f, _owners(f.module)))
    if diagnostics:
        raise VerifyError.of(diagnostics)


def verify_nodes(f: Function, nodes: Iterable[Node]) -> None:
    """Checks some nodes of a function, each by itself. Raises VerifyError with all diagnostics."""
    diagnostics = [diagnostic for node in nodes for diagnostic in _node(f, node)]
    if diagnostics:
        raise VerifyError.of(diagnostics)


def _owners(module: Module) -> Counter[Storage]:
    """How many functions take or give each storage."""
    return Counter(s for f in module.functions for s in {*f.takes, *f.gives})


def _function(f: Function, owners: Counter[Storage]) -> Iterator[Diagnostic]:
    names: set[str] = set()
    saved: set[Node | Storage] = set()
    for node in f.nodes:
        yield from _node(f, node)
        if node.name in names or f.module.storage(node.name) is not None:
            yield _broken(node, f"the name %{node.name} is used twice")
        names.add(node.name)
        if isinstance(node, SaveNode):
            if node.output.producer in saved:
                yield _broken(node, f"%{node.output.name} is saved twice")
            saved.add(node.output.producer)
    yield from _ports(f)
    yield from _definitions(f)
    yield from _called(f, saved, owners)
    for variable in f.variables:
        if message := _misfit(variable, variable.type, called=f.is_called):
            yield Diagnostic(message, variable.loc, f"variable {variable.value!r}")
        initial = variable.initial
        if isinstance(initial, Constant) and initial.type != variable.type:
            message = f"expected an initial value of type {variable.type}, got {initial.type}"
            yield Diagnostic(message, variable.loc, f"variable {variable.value!r}")
    try:
        _ = f.called
        f.topological()  # asks for the symbols of all that is called
    except UserError:
        return  # said already: something calls itself
    except InternalError as error:
        yield Diagnostic(str(error.args[0]), context=f"function @{f.name}")


def _definitions(f: Function) -> Iterator[Diagnostic]:
    """Symbols that two nodes define, or one and the shape of an input."""
    known = symbols_of_types(s.type for s in (f.takes if f.is_called else f.parameters))
    for node in f.nodes:
        if isinstance(node, DefineNode):
            for name in symbols_of(node.symbols):
                if name in known:
                    yield _broken(node, f"symbol '{name}' is known already")
            known |= symbols_of(node.symbols)


def _called(
    f: Function, saved: Set[Node | Storage], owners: Counter[Storage]
) -> Iterator[Diagnostic]:
    """Yields problems of the ports of a function, and of its calls."""
    messages = [*_signature(f, saved), *_used(f, owners)]
    try:
        _ = f.called
    except UserError as error:
        messages += [diagnostic.message for diagnostic in error.diagnostics]
    for message in messages:
        yield Diagnostic(message, context=f"function @{f.name}")


def _signature(f: Function, saved: Set[Node | Storage]) -> Iterator[str]:
    """Yields problems of the ports that a function takes and gives."""
    for ports, role in ((f.takes, "takes"), (f.gives, "gives")):
        for storage, count in Counter(ports).items():
            if count > 1 or isinstance(storage, Constant):
                yield f"expected placeholders and variables that it {role} once, got %{storage.name}"
    for storage in f.gives:
        if isinstance(storage, Variable) and storage not in f.takes:
            yield f"variable %{storage.name} is given, but not taken"
        elif not isinstance(storage, Variable) and storage not in saved:
            yield f"%{storage.name} is given, but not saved"
    for storage in f.takes:
        if isinstance(storage, Variable) and storage.initial is not None:
            yield f"variable %{storage.name} begins with what is passed, expected no initial value"
        if isinstance(storage, Variable) is not (storage in f.gives):
            yield f"expected %{storage.name} to be a variable if it is both taken and given"


def _used(f: Function, owners: Counter[Storage]) -> Iterator[str]:
    """Storage that a function has no business with."""
    ports = {*f.takes, *f.gives}
    for storage in (*f.inputs, *f.outputs, *f.variables):
        if owners[storage] > (storage in ports):
            yield f"%{storage.name} belongs to another function"
        elif f.is_called and storage not in ports:
            yield f"%{storage.name} is used, but neither taken nor given"
    for placeholder in f.outputs:
        if placeholder in f.takes:
            yield f"%{placeholder.name} is taken, but saved"


def _ports(f: Function) -> Iterator[Diagnostic]:
    """Inputs, or outputs, that have one name. An input may have that of an output."""
    if f.is_called or len({p.original for p in f.module.placeholders}) == len(
        f.module.placeholders
    ):
        return
    for role, placeholders in (("inputs", f.parameters), ("outputs", f.outputs)):
        counts = Counter(placeholder.original for placeholder in placeholders)
        for name, count in counts.items():
            if count > 1:
                message = f"expected {role} with different names, got {count} called '{name}'"
                yield Diagnostic(message, context=f"function @{f.name}")


def _node(f: Function, node: Node) -> Iterator[Diagnostic]:
    """Yields problems of a single node. A UserError ends the checks of its types."""
    yield from (_broken(node, message) for message in _operands(f, node))
    try:
        for message in _rules(f, node):
            yield _broken(node, message)
    except UserError as error:
        first = error.diagnostics[0]
        yield _broken(node, first.message, first.note)


def _broken(node: Node, message: str, note: str = "") -> Diagnostic:
    text = print_node(node)
    context = f"{text}\n{'^' * len(text.split(' ', 1)[0])}"
    return Diagnostic(f"{node.SCHEMA.mnemonic}: {message}", node.loc, context, note)


def _operands(f: Function, node: Node) -> Iterator[str]:
    schema = node.SCHEMA
    if len(node.inputs) != len(schema.inputs) and not schema.variadic:
        yield f"expected {len(schema.inputs)} inputs, got {len(node.inputs)}"
    for index, value in node.operands():
        if not value.is_used_as(node, index):
            yield f"%{value.name} does not list this node as a user"
        if value.node is not None and value.node not in f:
            yield f"operand %{value.name} belongs to another function"
        elif value.node is None and f.module.storage(value.name) is not value.producer:
            yield f"operand %{value.name} belongs to another module"
    if node.predicate is not None and node.predicate.type.kind is not ElemKind.BOOL:
        yield f"expected a predicate of kind bool, got {node.predicate.type}"
    for result in node.results:
        for user, _ in result.uses:
            if user not in f:
                yield f"%{result.name} is used by a node of another function"


def _rules(f: Function, node: Node) -> Iterator[str]:
    """Yields violations of the schema, inference and the class's own rule. Raises UserError where checks must end."""
    check_attrs(node.SCHEMA.attrs, node.attrs)
    inputs, results = [v.type for v in node.inputs], [v.type for v in node.results]
    node.SCHEMA.check_stored(inputs, results)
    if node.SCHEMA.results and not node.has(Trait.TYPED):
        yield from _types(f, node)
    if isinstance(node, SaveNode):
        yield from _save(f, node)
    rule = verify.get(type(node))
    if rule is not None:
        yield from rule(node)


def _types(f: Function, node: Node) -> Iterator[str]:
    inferred = infer_types(
        type(node), [value.type for value in node.inputs], node.attrs, _stated_type(node), f.ports
    )
    if len(inferred) != len(node.results):
        yield f"expected {len(inferred)} results, got {len(node.results)}"
        return
    for result, expected in zip(node.results, inferred, strict=True):
        if result.type != expected:
            yield f"result %{result.name} has type {result.type}, expected {expected}"


def _stated_type(node: Node) -> Type | None:
    """The type of a result that is quantized as nothing but the node says."""
    stated = node.SCHEMA.quant is Quantized.NUMBERS and node.results[0].type.quant is not None
    return node.results[0].type if stated else None


def _save(f: Function, node: SaveNode) -> Iterator[str]:
    target = node.output.producer
    if isinstance(target, Variable):
        if message := _misfit(target, node.input.type, called=f.is_called):
            yield message
        return
    if not isinstance(target, Placeholder):
        yield f"expected a placeholder or variable to save to, got %{node.output.name}"
    if node.output.type != node.input.type:
        yield f"output has type {node.output.type}, expected {node.input.type}"


def _misfit(variable: Variable, type: Type, *, called: bool) -> str:
    """Why elements of a type do not lie in a variable; empty if they do."""
    memory = variable.memory
    if not memory.is_static and not (called and memory == type):
        return f"expected memory of a static shape, got {memory}"
    same = (memory.kind, memory.quant, memory.rank) == (type.kind, type.quant, type.rank)
    if same and all(map(is_at_most, type.shape, memory.shape)):
        return ""
    return f"%{variable.name} has no room for {type}: its memory is {memory}"
