"""Makes a site of the documentation: `sphinx-build -W --keep-going -c docs . site`, after `pip install '.[docs]'`.

The sources begin at the repository's root, since pages link to files outside of `docs/`. So the site's first page is
`docs/index.html`, and `site_root/index.html` leads there from the site's root.
"""

import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

project = "glowpy"
html_title = "glowpy"
html_theme = "furo"
html_copy_source = False
html_extra_path = ["site_root"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "libjit/README.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # that several classes have an attribute of one name
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_use_ivar = True


class GlowLexer(RegexLexer):
    """Colours the text of graphs, programs and memory plans."""

    name = "glow"
    aliases = ("glow",)
    tokens = {  # noqa: RUF012 - as Pygments declares it
        "root": [
            (r"//.*$", Comment),
            (r'"(?:[^"\\]|\\.)*"', String),
            (r"[@%][A-Za-z0-9_.]+", Name.Variable),
            (r"[A-Za-z_]\w*(?=\s*=)", Name.Attribute),
            (r"(?:bool|b?f\d+|[iu]\d+)(?=\s*\[)", Keyword.Type),
            (r"(?:module|function|placeholder|constant|irfunction|memory)\b", Keyword.Declaration),
            (r"-?\d+(?:\.(?!\.)\d*)?(?:e[+-]?\d+)?", Number),
            (r"\w+", Name.Function),
            (r"[^\w\s]", Punctuation),
            (r"\s+", Text),
        ]
    }


def _as_rst(lines: list[str]) -> Iterator[str]:
    """Our docstrings are Markdown, as far as code is concerned; Sphinx reads reStructuredText."""
    fenced = False
    for line in lines:
        fence = re.fullmatch(r"(\s*)```(\w*)", line)
        if fence is not None:
            fenced = not fenced
            yield from (
                ("", f"{fence[1]}.. code-block:: {fence[2] or 'text'}", "") if fenced else [""]
            )
        elif fenced:
            yield f"   {line}"
        else:
            yield re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)


def _convert(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    del app, what, name, obj, options
    lines[:] = chain(_as_rst(lines))


def _add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Gives the site the contents that the tables and lists of `index.md` are for whoever reads the files."""
    del app
    if name == root_doc:
        pages, _, decisions = source[0].partition("## Decisions")
        for caption, text in (("Pages", pages), ("Decisions", decisions)):
            links = dict.fromkeys(re.findall(r"\]\(([^):]+)\.md\)", text))
            extra = ["../libjit/README"] if text is pages else []
            entries = "\n".join([*links, *extra])
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    """What Sphinx calls: adds the lexer, the contents, and the conversion of docstrings before Napoleon's."""
    app.add_lexer("glow", GlowLexer)
    app.connect("source-read", _add_contents)
    app.connect("autodoc-process-docstring", _convert, priority=400)
