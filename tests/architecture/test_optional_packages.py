"""A plain `pip install travois` works: optional packages are needed only where they are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.test_sizes import files
from tests.architecture.test_structure import dotted

OPTIONAL = {
    *("dbos", "fsspec", "mcp", "mcp_types", "numpy", "opentelemetry", "playwright", "psycopg"),
    *("sqlalchemy", "starlette", "travois_lab", "uvicorn", "xllamacpp", "yaml"),
}
NEED_THEM = {
    "travois.cli.demo",
    "travois.cli.lab",
    "travois.evals.lab_models",
    "travois.fleet.live_table",
    "travois.fleet.manage",
    "travois.fleet.report",
    "travois.fleet.schedules",
    "travois.fleet.serve",
    "travois.fleet.steps",
    "travois.fleet.store",
    "travois.fleet.worker",
    "travois.inspector.server",
    "travois.lab",
    "travois.mcp.machine_login",
    "travois.mcp.oauth_provider",
    "travois.search.minilm",
    "travois.search.vectors",
    "travois.sessions.stores.objects",
    "travois.sessions.stores.postgres",
    "travois.telemetry.otel",
}
"""Modules that cannot be imported without an optional package; others import them inside functions
that first see whether it is there."""


def test_few_modules_cannot_be_imported_without_optional_packages() -> None:
    named = {dotted(name): tree for name, tree in files().items() if name[:11] != "travois_lab"}
    direct = {name: {*_top_level(tree, named)} for name, tree in named.items()}
    needing = {name for name, found in direct.items() if found & OPTIONAL}
    while more := {name for name, found in direct.items() if found & needing} - needing:
        needing |= more
    assert needing == NEED_THEM


def _top_level(tree: ast.Module, known: dict[str, ast.Module]) -> Iterator[str]:
    """What importing the module imports: our modules by name, others by their package."""
    for node in tree.body:
        nodes = node.body if isinstance(node, ast.Try) else [node]
        for each in nodes:
            if isinstance(each, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.ImportFrom) and each.module:
                for alias in each.names:
                    full = f"{each.module}.{alias.name}"
                    ours = next((name for name in (full, each.module) if name in known), "")
                    yield ours or each.module.partition(".")[0]
