"""I12: what our code looks like, measured. The allow-lists may only shrink."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "travois"
LAB = ROOT / "packages" / "travois-lab" / "src" / "travois_lab"
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}
DEEP_FUNCTIONS: dict[str, int] = {}
BROAD_EXCEPTS = {"cli/main.py", "engine/tool_calls.py", "hooks/run.py"}
FORBIDDEN = ("Manager", "Helper", "Util", "Base", "Impl", "Service", "Handler", "Data")
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@cache
def files() -> dict[str, ast.Module]:
    paths = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
    paths |= {str(path.relative_to(LAB.parent)): path for path in sorted(LAB.rglob("*.py"))}
    return {name: ast.parse(path.read_text("utf-8")) for name, path in paths.items()}


@cache
def functions() -> tuple[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef], ...]:
    return tuple(_functions())


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.name}", node


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code: the signature and docstring are not counted."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return node.end_lineno - body[0].lineno + 1 if body and node.end_lineno else 0


def depth(node: ast.AST, level: int = 0) -> int:
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        elif_ = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        inner = level + (isinstance(child, NESTING) and not elif_)
        deepest = max(deepest, depth(child, inner))
    return deepest


def test_no_file_is_long() -> None:
    sizes = {
        str(p.relative_to(SOURCE)): len(p.read_text("utf-8").splitlines())
        for p in SOURCE.rglob("*.py")
    }
    long = {name: size for name, size in sizes.items() if size > 800}
    assert long == LONG_FILES
    assert (
        median(size for size in sizes.values() if size) <= 250
    )  # a file is a chapter: 150 to 500 lines


def test_no_function_is_long() -> None:
    sizes = {name: length(node) for name, node in functions()}
    long = {name: size for name, size in sizes.items() if size > 50}
    assert long == LONG_FUNCTIONS
    ordered = sorted(sizes.values())
    assert median(ordered) <= 8
    assert ordered[int(len(ordered) * 0.9)] <= 25


def test_nothing_is_nested_deeply() -> None:
    deep = {name: found for name, node in functions() if (found := depth(node)) > 3}
    assert deep == DEEP_FUNCTIONS


def test_names_say_what_things_are() -> None:
    classes = [
        f"{name}:{node.name}"
        for name, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert [
        c for c in classes if c.endswith(FORBIDDEN) or c.rpartition(":")[2].startswith("Base")
    ] == []


def test_everything_public_has_a_docstring() -> None:
    missing = [name for name, tree in files().items() if tree.body and not ast.get_docstring(tree)]
    for name, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                missing += [] if ast.get_docstring(node) else [f"{name}:{node.name}"]
    assert missing == []


def test_broad_excepts_stand_only_where_they_must() -> None:
    found = {
        name
        for name, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    }
    assert found <= BROAD_EXCEPTS


def yields(node: ast.AST) -> bool:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Yield | ast.YieldFrom) or yields(child):
            return True
    return False


def opens_a_scope(node: ast.AsyncWith | ast.With) -> bool:
    text = " ".join(ast.unparse(item.context_expr) for item in node.items)
    return any(
        word in text for word in ("create_task_group", "CancelScope", "fail_after", "move_on_after")
    )


def test_nothing_yields_inside_a_task_group() -> None:
    found = [
        name
        for name, node in functions()
        if not any("contextmanager" in ast.unparse(d) for d in node.decorator_list)
        for inner in ast.walk(node)
        if isinstance(inner, ast.With | ast.AsyncWith) and opens_a_scope(inner) and yields(inner)
    ]
    assert found == []


def test_every_plan_of_a_context_layer_says_what_it_costs() -> None:
    paths = [
        path for path in sorted((SOURCE / "context").rglob("*.py")) if "ledger" not in path.parts
    ]
    contracts = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text("utf-8"))
    pure = {
        name
        for contract in contracts["tool"]["importlinter"]["contracts"]
        for name in contract.get("source_modules", ())
    }
    names = {
        path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in paths
    }
    plans = [path for path in paths if names[path] in pure]
    assert len(plans) > 5
    for path in plans:
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        starts = [line.partition(":")[0] for line in doc.splitlines()[-3:]]
        assert starts == ["Model sees", "Tokens", "Cache"], path.name
