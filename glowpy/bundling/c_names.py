"""Names that no function of a bundle can have, because C, C++, their libraries or the example have them."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["member_name", "problem_with", "problem_with_network"]

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PREFIXES = ("libjit_", "glowpy_", "__")
"""Prefixes of the names of glowpy's kernels and types, and of compilers; in capitals as well."""

_KEYWORDS = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break case catch
char char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float for
friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
struct switch synchronized template this thread_local throw true try typedef typeid typename typeof typeof_unqual
union unsigned using virtual void volatile wchar_t while xor xor_eq _Alignas _Alignof _Atomic _Bool _Complex
_Generic _Imaginary _Noreturn _Static_assert _Thread_local
"""
"""Keywords of C and of C++."""

_HEADERS = """
algorithm any array assert atomic barrier bit bitset charconv chrono complex concepts ctype deque errno exception
execution expected fenv filesystem format forward_list functional future generator initializer_list inttypes iomanip
ios iostream iso646 istream iterator latch limits list locale map math mdspan memory mutex numbers numeric optional
ostream print queue random ranges ratio regex semaphore set setjmp signal span sstream stack stdalign stdarg
stdatomic stdbool stdbit stdckdint stddef stdexcept stdint stdio stdlib stdnoreturn stop_token streambuf string
string_view strings system_error tgmath threads thread time tuple type_traits uchar unistd unordered_map
unordered_set utility valarray variant vector version wchar wctype features stdc malloc alloca
"""
"""Headers of the standard libraries: one of that name in the folder of a bundle would be found first."""

_FUNCTIONS = """
abort abs acos acosh asin asinh atan atan2 atanh atexit atof atoi atol atoll bsearch calloc cbrt ceil clearerr clock
cos cosh ctime difftime div erf erfc exit exp exp2 expm1 fabs fclose fdim feof ferror fflush fgetc fgetpos fgets
floor fma fmax fmin fmod fopen fprintf fputc fputs fread free freopen frexp fscanf fseek fsetpos ftell fwrite getc
getchar getenv gets gmtime hypot ilogb index isalnum isalpha iscntrl isdigit isfinite isgraph isinf islower isnan
isnormal isprint ispunct isspace isupper isxdigit labs ldexp ldiv lgamma llabs llrint llround localeconv localtime
log log10 log1p log2 logb longjmp lrint lround main mblen mbstowcs mbtowc memchr memcmp memcpy memmove memset mktime
modf nan nearbyint nextafter perror pow printf putc putchar puts qsort raise rand read realloc remainder remove
remquo rename rewind rindex rint round scalbln scalbn scanf setbuf setlocale setvbuf sin sinh snprintf sprintf sqrt
srand sscanf strcat strchr strcmp strcoll strcpy strcspn strerror strftime strlen strncat strncmp strncpy strpbrk
strrchr strspn strstr strtod strtof strtok strtol strtold strtoll strtoul strtoull strxfrm system tan tanh tgamma
tmpfile tmpnam tolower toupper trunc ungetc vfprintf vprintf vsnprintf vsprintf wcstombs wctomb write open close
link unlink send select accept connect bind listen environ stdin stdout stderr signgam j0 j1 jn y0 y1 yn gamma
"""
"""Functions of the C library, and POSIX's short names: the bundle's would be taken in their place."""

_TYPES = """
FILE NULL EOF EDOM ERANGE BUFSIZ INFINITY NAN INT8_MIN INT16_MIN INT32_MIN INT64_MIN int8_t int16_t int32_t int64_t
uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t intmax_t uintmax_t size_t ssize_t ptrdiff_t max_align_t time_t
clock_t fpos_t va_list linux unix i386 arm mips ppc sparc sun vax
"""
"""Types and macros, with those that GNU compilers define for a machine or system."""

_EXAMPLE = """
ALIGNED option transfer constants mutable_area activations path mode data size done file length name argc argv i
status align aligned dump instruction operands operand moment first last extents read_extent
check_arguments
"""
"""Names that main.c and NAME.debug.c define or use themselves."""

_OBJECT_MACROS = "errno complex imaginary I"
"""Further words that stand for something else wherever they are in a program."""

_NO_MEMBERS = frozenset(" ".join((_KEYWORDS, _TYPES, _OBJECT_MACROS)).split())
_TAKEN = frozenset(" ".join((_KEYWORDS, _HEADERS, _FUNCTIONS, _TYPES, _EXAMPLE)).split())


_SIBLINGS = ("check_weights", "selftest", "config", "constants", "before", "after", "open_networks")
"""Symbols that a bundle exports besides its networks: the suffixes of its name."""


def member_name(name: str) -> str:
    """Returns the name of a structure's member for which the model has this name, an identifier."""
    return f"dim_{name}" if name in _NO_MEMBERS else name


def problem_with(name: str, what: str = "bundle") -> str:
    """Why a bundle or network cannot be called so; empty if it can."""
    if not _IDENTIFIER.fullmatch(name):
        return f"expected a C identifier as the {what}'s name, got '{name}'"
    if name in _TAKEN or name.lower().startswith(_PREFIXES):
        return f"expected a name for the {what} that C, C++ and main.c leave free, got '{name}'"
    return ""


def problem_with_network(
    name: str, bundle: str, others: Collection[str], *, parallel: bool = False
) -> str:
    """Why an entry point cannot be called so beside `others`; macros need more than other capitals.

    Each may have a type NAME_extents_t and a function NAME_reset; with `parallel`, each has a sibling NAME_parallel.
    """
    if name.upper() in {other.upper() for other in others}:
        return f"expected networks with different names, got '{name}' twice"
    siblings = {f"{bundle}_{sibling}" for sibling in _SIBLINGS}
    for suffix in ("_extents_t", "_reset", *(("_parallel",) if parallel else ())):
        siblings |= {f"{other}{suffix}" for other in others}
        siblings |= {other.removesuffix(suffix) for other in others}
    if name in siblings:
        return f"expected another name for a network: the bundle has a '{name}' of its own"
    return problem_with(name, "network")
