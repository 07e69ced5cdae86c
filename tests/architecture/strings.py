"""The texts of the program that people or models read.

`python -m tests.architecture.strings` prints each with its place, one a line, so that two states
of the tree can be compared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.architecture.test_sizes import files

SENTENCE = re.compile(r"[A-Za-z]{2,}[,;:.]? \S*[A-Za-z]{2,}")
"""Two words in a row: identifiers, patterns and formats have none."""
PATTERN = re.compile(r"\(\?|\[\^|\\[bdsw]|\|\w+\|")


class UserText(NamedTuple):
    """One text with the file and line where it stands."""

    file: str
    line: int
    text: str


def collect_texts() -> list[UserText]:
    """Return every text of the program that is prose and no docstring."""
    return [text for file, tree in sorted(files().items()) for text in _texts_of(file, tree)]


def _texts_of(file: str, tree: ast.AST) -> Iterator[UserText]:
    skipped = {id(node) for node in _find_documentation(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(map(_render_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in skipped and SENTENCE.search(text) and not PATTERN.search(text):
            yield UserText(file, node.lineno, " ".join(text.split()))


def _render_part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


def _find_documentation(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings: texts that stand alone as statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


if __name__ == "__main__":
    for one in collect_texts():
        print(f"{one.file}:{one.line}: {one.text}")
