"""The example that comes with a bundle: `main.c`, which runs at once, and a `CMakeLists.txt` to build it."""

from __future__ import annotations

from string import Template

from glowpy.bundling.header import C_TYPES
from glowpy.bundling.layout import Entry, Layout
from glowpy.bundling.network import Symbol
from glowpy.bundling.options import BundleOptions
from glowpy.core.elemkind import ElemKind

__all__ = ["cmake_text", "example_text", "operand_dump_text"]

_MAIN = Template("""\
/* Runs the networks of $name. Generated: copy it before you change it.

   usage: $name [$arguments | constants=FILE]...

   An input is read from its file (raw elements) or filled with a ramp; an output is printed, or written to its
   file; `constants=FILE` writes the weights to a file.$about_variables$about_extents */
#include "$name.h"
$weights_include
#include <stdio.h>
#include <string.h>

#if defined(_MSC_VER)
#define ALIGNED(n) __declspec(align(n))
#else
#define ALIGNED(n) __attribute__((aligned(n)))
#endif

$weights_area
static ALIGNED($alignment) uint8_t mutable_area[$upper_MUTABLE_SIZE + 1];
static ALIGNED($alignment) uint8_t activations[$upper_ACTIVATIONS_SIZE + 1];

static int transfer(const char *path, const char *mode, void *data, size_t size) {
  FILE *file = fopen(path, mode);
  size_t done;
  if (!file) {
    fprintf(stderr, "%s: cannot be opened\\n", path);
    return 1;
  }
  done = mode[0] == 'r' ? fread(data, 1, size, file) : fwrite(data, 1, size, file);
  fclose(file);
  if (done == size) return 0;
  fprintf(stderr, "%s: expected %lu bytes, got %lu\\n", path, (unsigned long)size, (unsigned long)done);
  return 1;
}

/* The FILE of an argument NAME=FILE, or NULL. */
static const char *option(int argc, char **argv, const char *name) {
  size_t length = strlen(name);
  int i;
  for (i = 1; i < argc; i++)
    if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  return NULL;
}

/* Whether all arguments are known. */
static int check_arguments(int argc, char **argv) {
  static const char *const name[] = {$names};
  const size_t length = sizeof name / sizeof *name;
  size_t done;
  int i;
  for (i = 1; i < argc; i++) {
    for (done = 0; done < length; done++)
      if (option(2, argv + i - 1, name[done])) break;
    if (done < length) continue;
    fprintf(stderr, "%s: unknown\\nusage: $name [NAME=VALUE]..., with names of:", argv[i]);
    for (done = 0; done < length; done++) fprintf(stderr, " %s", name[done]);
    fprintf(stderr, "\\n");
    return 2;
  }
  return 0;
}

$read_extent$exists$networks
int main(int argc, char **argv) {
  const char *path = option(argc, argv, "constants");
  int status = check_arguments(argc, argv);
  if (status) return status;
$load
  if (path && transfer(path, "wb", (void *)(size_t)constants, $upper_CONSTANTS_SIZE)) return 1;
  status = ${name}_check_weights(constants);
  if (status) {
    fprintf(stderr, "$name: the weights are corrupt (status %d)\\n", status);
    return status;
  }
$selftest$calls  return 0;
}
""")

_READ_EXTENT = """\
/* Reads an extent from first to last, if there is an argument for it. */
static int read_extent(int argc, char **argv, const char *name, size_t first, size_t last, size_t *size) {
  const char *done, *data = option(argc, argv, name);
  if (!data) return 0;
  *size = 0;
  for (done = data; *done >= '0' && *done <= '9' && *size <= last; done++) *size = 10 * *size + (size_t)(*done - '0');
  if (done > data && !*done && *size >= first && *size <= last) return 0;
  fprintf(stderr, "%s: expected %lu..%lu, got %s\\n", name, (unsigned long)first, (unsigned long)last, data);
  return 1;
}

"""

_EXISTS = """\
/* Whether there is a file. */
static int exists(const char *path) {
  FILE *file = fopen(path, "rb");
  return file && fclose(file) == 0;
}

"""

_SELFTEST = Template("""\
  status = ${name}_selftest(constants, mutable_area, activations);
  if (status) {
    fprintf(stderr, "$name: the self-test failed (status %d)\\n", status);
    return status;
  }
""")

_NETWORK = Template("""\
static int run_$entry(int argc, char **argv, const uint8_t *constants) {
$locals  int status;
$inputs
  status = $entry(constants, mutable_area, activations$extents);
  if (status) {
    fprintf(stderr, "$entry: status %d\\n", status);
    return status;
  }
$outputs
  return 0;
}
""")

_INPUT = Template("""\
  path = option(argc, argv, "$argument");
  if (path) {
    if (transfer(path, "rb", mutable_area + $macro_OFFSET, $size)) return 1;
  } else {
    for (i = 0; i < $count; i++) ${entry}_${role}_$port(mutable_area)[i] = ($c_type)($ramp);
  }
""")

_VARIABLE = Template("""\
  path = option(argc, argv, "$argument");
  if (path && exists(path) && transfer(path, "rb", mutable_area + $macro_OFFSET, $size)) return 1;
""")

_OUTPUT = Template("""\
  path = option(argc, argv, "$argument");
  if (path) {
    if (transfer(path, "wb", mutable_area + $macro_OFFSET, $size)) return 1;
  } else {
    printf("$argument:");
    for (i = 0; i < $count && i < 8; i++) printf(" %g", (double)${entry}_${role}_$port(mutable_area)[i]);
    printf($more);
  }
""")


_DUMP = Template("""\
/* Writes every operand of every instruction of $name to a file of its own: LINE.MNEMONIC.OPERAND.before.bin for what an
   instruction reads, LINE.MNEMONIC.OPERAND.after.bin for what it writes. Generated: copy it before you change it. */
#include "$name.h"
#include <stdio.h>
#include <string.h>

/* The elements one after the other, in row-major order. */
static int write_elements(const glowpy_operand_t *operand, const uint8_t *data, FILE *file) {
  uint64_t count = 1, n;
  uint32_t d;
  for (d = 0; d < operand->rank; d++) count *= operand->dims[d];
  for (n = 0; n < count; n++) {
    uint64_t rest = n, place = 0, width = operand->size / count;
    for (d = operand->rank; d > 0; d--) {
      place += rest % operand->dims[d - 1] * operand->strides[d - 1];
      rest /= operand->dims[d - 1];
    }
    if (fwrite(data + place * width, (size_t)width, 1, file) != 1) return 0;
  }
  return 1;
}

static void dump(const glowpy_instruction_t *instruction, uint8_t *const *operands, uint32_t first, uint32_t last,
                 const char *moment) {
  uint32_t i;
  for (i = 0; i < instruction->num_operands; i++) {
    const glowpy_operand_t *operand = instruction->operands + i;
    char path[256], number[16] = "";
    FILE *file;
    if (operand->access < first || operand->access > last) continue;
    if (strlen(operand->name) > 160) snprintf(number, sizeof number, "_%u", (unsigned)i);
    snprintf(path, sizeof path, "%04u.%s.%.160s%s.%s.bin", (unsigned)instruction->line, instruction->mnemonic,
             operand->name, number, moment);
    file = fopen(path, "wb");
    if (!file) {
      fprintf(stderr, "%s: cannot be written\\n", path);
      continue;
    }
    if (!write_elements(operand, operands[i], file)) fprintf(stderr, "%s: cut short\\n", path);
    fclose(file);
  }
}

void ${name}_before(const glowpy_instruction_t *instruction, uint8_t *const *operands) {
  dump(instruction, operands, 1, 2, "before");
}

void ${name}_after(const glowpy_instruction_t *instruction, uint8_t *const *operands) {
  dump(instruction, operands, 0, 1, "after");
}
""")


def operand_dump_text(options: BundleOptions) -> str:
    """`NAME.debug.c`: callbacks that write every operand to a file, in C99."""
    return _DUMP.substitute(name=options.name)


def example_text(layout: Layout, options: BundleOptions) -> str:
    """`main.c`, in C99."""
    name, upper = options.name, options.name.upper()
    embedded, qualified = options.weights != "file", len(layout.entries) > 1
    area = f"static const uint8_t *const constants = {name}_constants;"
    load = ""
    if not embedded:
        area = f"static ALIGNED({upper}_ALIGNMENT) uint8_t constants[{upper}_CONSTANTS_SIZE + 1];"
        load = f'  if (transfer("{name}.weights.bin", "rb", constants, {upper}_CONSTANTS_SIZE)) return 1;'
    calls = "".join(
        f"  status = run_{entry.name}(argc, argv, constants);\n  if (status) return status;\n"
        for entry in layout.entries
    )
    return _MAIN.substitute(
        name=name,
        upper_MUTABLE_SIZE=f"{upper}_MUTABLE_SIZE",
        upper_ACTIVATIONS_SIZE=f"{upper}_ACTIVATIONS_SIZE",
        upper_CONSTANTS_SIZE=f"{upper}_CONSTANTS_SIZE",
        alignment=f"{upper}_ALIGNMENT",
        weights_include=f'#include "{name}.weights.h"' if options.weights == "header" else "",
        weights_area=area,
        load=load,
        networks="\n".join(
            _network(entry, f"{entry.name}." if qualified else "") for entry in layout.entries
        ),
        names=", ".join(f'"{word}"' for word in _names(layout, qualified)),
        arguments=_usage(layout, "NETWORK." if qualified else ""),
        about_variables=_ABOUT_VARIABLES if _has_variables(layout) else "",
        exists=_EXISTS if _has_variables(layout) else "",
        about_extents=_ABOUT_EXTENTS if layout.is_told else "",
        read_extent=_READ_EXTENT if layout.is_told else "",
        selftest=_SELFTEST.substitute(name=name) if options.selftest else "",
        calls=calls,
    )


def _has_variables(layout: Layout) -> bool:
    """Whether a network keeps something that takes room."""
    return any(not port.type.is_empty for entry in layout.entries for port in entry.variables)


_ABOUT_VARIABLES = """
   A variable is what it is before the first run, or what its file has, to which what the run leaves is written: without
   a file yet, the first run makes it."""
_ABOUT_EXTENTS = """
   An extent is a number between its bounds, the highest if there is no argument for it."""


def _usage(layout: Layout, prefix: str) -> str:
    words = [f"{prefix}INPUT=FILE", f"{prefix}OUTPUT=FILE"]
    return " | ".join([*words, *([f"--{prefix}EXTENT=NUMBER"] if layout.is_told else [])])


def _names(layout: Layout, qualified: bool) -> list[str]:
    """Returns the prefixes that arguments may begin with."""
    names = []
    for entry in layout.entries:
        prefix = f"{entry.name}." if qualified else ""
        names += [f"{prefix}{port.name}" for port in entry.ports]
        names += [f"--{prefix}{extent.name}" for extent in entry.extents if not extent.found]
    return [*names, "constants"]


def _network(entry: Entry, prefix: str) -> str:
    ports = [port for port in entry.ports if not port.type.is_empty]
    inputs = _reset(entry) + "".join(
        _port(_VARIABLE if port.role == "variable" else _INPUT, entry, port, prefix)
        for port in ports
        if port.role != "output"
    )
    outputs = "".join(_port(_OUTPUT, entry, port, prefix) for port in ports if port.role != "input")
    locals = "  const char *path;\n" if ports else ""
    if outputs or any(port.role == "input" for port in ports):
        locals += "  size_t i;\n"
    if entry.extents:
        macros = [f"{entry.name}_{extent.name}".upper() for extent in entry.extents]
        locals += (
            f"  {entry.name}_extents_t extents = {{{', '.join(f'{m}_MAX' for m in macros)}}};\n"
        )
        inputs = _extents(entry, prefix) + inputs
    return _NETWORK.substitute(
        entry=entry.name,
        locals=locals,
        inputs=inputs if ports or entry.extents else "  (void)argc;\n  (void)argv;",
        outputs=outputs,
        extents=", &extents" if entry.extents else "",
    )


def _reset(entry: Entry) -> str:
    """Makes variables what they are before the first run."""
    areas = "constants, mutable_area" if entry.has_initial_values else "mutable_area"
    return f"  {entry.name}_reset({areas});\n" if entry.variables else ""


def _extents(entry: Entry, prefix: str) -> str:
    """Reads the extents."""
    lines = []
    for extent in entry.extents:
        if extent.found:
            continue
        macro = f"{entry.name}_{extent.name}".upper()
        bounds = f"{macro}_MIN, {macro}_MAX, &extents.{extent.name}"
        call = f'read_extent(argc, argv, "--{prefix}{extent.name}", {bounds})'
        lines.append(f"  if ({call}) return 1;\n")
    return "".join(lines)


def _port(template: Template, entry: Entry, port: Symbol, prefix: str) -> str:
    macro = f"{entry.name.upper()}_{port.name.upper()}"
    kind = port.type.kind
    ramp = (
        "(float)(i % 17) / 16"
        if kind.is_float and kind.size > 2
        else "i % 2"
        if kind is ElemKind.BOOL
        else "i % 17"
    )
    size, count = f"{macro}_SIZE", f"{macro}_COUNT"
    if not port.type.is_static:
        size, count = (f"{entry.name}_{what}_{port.name}(&extents)" for what in ("size", "count"))
    more = '" ...\\n"' if isinstance(port.type.count, int) and port.type.count > 8 else '"\\n"'
    if not port.type.is_static:
        more = f'"%s\\n", {count} > 8 ? " ..." : ""'
    return template.substitute(
        entry=entry.name, port=port.name, argument=f"{prefix}{port.name}", role=port.role,
        c_type=C_TYPES[kind], ramp=ramp, macro_OFFSET=f"{macro}_OFFSET", size=size, count=count, more=more,
    )  # fmt: skip


def cmake_text(options: BundleOptions, library: str) -> str:
    """`CMakeLists.txt`: the bundle as an imported library called NAME, and the example."""
    name = options.name
    kind = {"obj": "OBJECT", "lib": "STATIC", "shared": "SHARED"}[options.emit]
    place = "IMPORTED_OBJECTS" if options.emit == "obj" else "IMPORTED_LOCATION"
    target = (
        f"add_library({name} {kind} IMPORTED GLOBAL)\n"
        f"set_target_properties({name} PROPERTIES {place} ${{CMAKE_CURRENT_LIST_DIR}}/{library})"
    )
    return (
        "# Generated by glowpy: copy it before you change it.\n"
        "cmake_minimum_required(VERSION 3.13)\n"
        f"project({name} C)\n"
        f"{target}\n"
        f"target_include_directories({name} INTERFACE ${{CMAKE_CURRENT_LIST_DIR}})\n"
        "if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)  # not by add_subdirectory\n"
        f"  add_executable({name}_example main.c{f' {name}.debug.c' if options.instrument == 'debug' else ''})\n"
        f"  target_link_libraries({name}_example PRIVATE {name})\n"
        "endif()\n"
    )
