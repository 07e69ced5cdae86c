"""The shape of the tree, measured: no import cycles, narrow folders, few late imports, plain names.

Shares, not sizes: features will be added. A ceiling may be lowered, never raised.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tests.architecture.test_sizes import SOURCE, files, functions

WIDEST_FOLDER = 26
LATE_IMPORTS = 0.002
"""How many imports stand inside a function, for each function: each hides a dependency. What a
start can do without is named in a `lazy_imports` block at the top (`travois/lazy_imports.py`)."""
ONE_WORD_NAMES = 0.17
PARTICIPLE_NAMES = 0.014
DISTINCT_NAMES = 0.85
REPEATED_CONSTANT = 6
"""How many modules may give a constant the same name."""
RELATIVE_DOCSTRINGS = 0.016
"""The share of docstrings that open with What, Whether or Who in place of what is done."""

PARTICIPLES = {
    *("told", "said", "heard", "shown", "kept", "held", "given", "found", "known", "made", "sent"),
    *("left", "lost", "met", "paid", "begun", "spoken", "written", "taken", "drawn", "built"),
    *("bound", "brought", "caught", "chosen", "done", "driven", "felt", "gone", "grown", "hidden"),
    *("laid", "led", "lent", "meant", "rung", "sought", "seen", "shut", "spent", "stood", "stuck"),
    *("thought", "thrown", "understood", "woken", "won", "worn", "within", "abroad", "beside"),
    *("aside", "around", "above", "below", "beneath"),
}
NO_PARTICIPLES = {"need", "feed", "seed", "speed", "embed", "exceed", "proceed", "shed"}
RELATIVE = ("What", "Whether", "Who", "Whose", "Where", "How", "Those", "Which", "Why", "That")


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Every module of ours with those of ours that it imports, late imports among them."""
    named = {dotted(name): tree for name, tree in files().items()}
    return {name: frozenset(_imported(tree, named)) for name, tree in named.items()}


def dotted(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    if parts[0] != "travois_lab":
        parts = ("travois", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, known: Iterable[str]) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield from [name for name in (full, node.module) if name in known][:1]


def find_cycle(graph: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return one cycle of the graph, or nothing."""
    done = set[str]()
    for start in graph:
        path: list[str] = []
        stack = [(start, iter(graph[start]))]
        while stack:
            name, rest = stack[-1]
            if not path or path[-1] != name:
                path.append(name)
            following = next((n for n in rest if n not in done), None)
            if following is None:
                done.add(path.pop())
                stack.pop()
            elif following in path:
                return (*path[path.index(following) :], following)
            else:
                stack.append((following, iter(graph.get(following, frozenset()))))
    return ()


def test_a_cycle_would_be_found() -> None:
    graph = {"a": frozenset("bc"), "b": frozenset("d"), "c": frozenset(), "d": frozenset("b")}
    assert find_cycle(graph) == ("b", "d", "b")
    assert find_cycle(graph | {"d": frozenset("c")}) == ()


def test_no_modules_import_each_other() -> None:
    assert find_cycle(imports()) == ()


def test_no_folder_is_wide() -> None:
    widths = Counter(path.parent for path in SOURCE.rglob("*.py"))
    assert max(widths.values()) <= WIDEST_FOLDER


def test_imports_stand_at_the_top() -> None:
    late = {
        id(node) for _, function in functions() for node in ast.walk(function) if _is_import(node)
    }
    assert len(late) / len(functions()) <= LATE_IMPORTS


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def test_names_can_be_searched_for() -> None:
    named = [node for _, node in functions() if not is_overload(node)]
    names = [node.name.strip("_") for node in named if not node.name.startswith("__")]
    words = [name.split("_") for name in names]
    assert sum(len(one) == 1 for one in words) / len(words) <= ONE_WORD_NAMES
    participles = sum(len(one) <= 2 and is_participle(one[0]) for one in words)
    assert participles / len(words) <= PARTICIPLE_NAMES
    assert len({*names}) / len(names) >= DISTINCT_NAMES


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether this is only one more signature of a function."""
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list)


def test_constants_say_of_what() -> None:
    named = Counter(
        target.id
        for tree in files().values()
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    )
    assert named.most_common(1)[0][1] <= REPEATED_CONSTANT, named.most_common(5)


def is_participle(word: str) -> bool:
    ends = word.endswith("ed") and len(word) > 3 and word not in NO_PARTICIPLES
    return ends or word in PARTICIPLES


def test_docstrings_say_what_is_done() -> None:
    docs = [
        (ast.get_docstring(node) or "").split()
        for tree in files().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
    ]
    first = [words[0] for words in docs if words]
    assert sum(word in RELATIVE for word in first) / len(first) <= RELATIVE_DOCSTRINGS
