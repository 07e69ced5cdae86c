"""What installed packages add to a session, loaded when a session needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from travois.core.errors import UserError
from travois.extensions.custom_layers import ContextLayer
from travois.extensions.custom_models import CustomModel, ModelProvider
from travois.extensions.entry_points import (
    EntryPointGroup,
    Package,
    load_entry_point,
)
from travois.extensions.function_hooks import FunctionHook, build_function_listener
from travois.extensions.function_tools import FunctionTool, build_function_tool
from travois.hooks.config import Listener
from travois.ports.tool import AnyTool

SESSION_GROUPS: tuple[EntryPointGroup, ...] = ("tools", "hooks", "layers")
"""What a session has of a package from its start."""


class PackageParts(msgspec.Struct):
    """The tools, hooks and layers of all packages, and notices about what cannot be used."""

    tools: list[AnyTool] = []
    listeners: list[Listener] = []
    layers: list[ContextLayer] = []
    notices: list[str] = []


def load_package_parts(packages: Iterable[Package]) -> PackageParts:
    """Load what packages add to a session; one that fails does not affect the others."""
    parts = PackageParts()
    for package in packages:
        for group in SESSION_GROUPS:
            _load_group_parts(parts, package, group)
    return parts


def _load_group_parts(parts: PackageParts, package: Package, group: EntryPointGroup) -> None:
    """Load what a package adds of one kind, or note why that fails."""
    try:
        for found in _load_entry_point_group(package, group):
            _add_package_part(parts, found, group=group, package=package)
    except UserError as problem:
        parts.notices.append(str(problem))


def _load_entry_point_group(package: Package, group: EntryPointGroup) -> Iterable[object]:
    """Yield what the entry points of a group name; one may name several things."""
    for point in package.select_points(group):
        found = load_entry_point(package, point)
        yield from cast("Iterable[object]", found) if isinstance(found, list | tuple) else (found,)


def _add_package_part(parts: PackageParts, found: object, *, group: str, package: Package) -> None:
    match group, found:
        case "tools", FunctionTool():
            parts.tools.append(build_function_tool(cast("Any", found), _ignore_failure))
        case "hooks", FunctionHook():
            parts.listeners.append(build_function_listener(found))
        case "layers", ContextLayer() if not isinstance(found, type):
            parts.layers.append(found)
        case _:
            what = f"The package {package.name} names {found!r} among its {group}"
            fix = "Tools have @tool, hooks have @hook, layers have a method plan."
            raise UserError(what, why="it is none", fix=fix)


def _ignore_failure(tool: str, error: Exception) -> None:
    """Leave an exception of a package's tool to the engine, which tells the model."""


def load_package_model(packages: Iterable[Package], name: str) -> CustomModel | None:
    """Return the model `provider/id` of a package that has such a provider; else None."""
    provider, _, id = name.partition("/")
    points = ((one, point) for one in packages for point in one.select_points("providers"))
    for package, point in (pair for pair in points if pair[1].name == provider):
        factory = load_entry_point(package, point)
        if not callable(factory):
            why = "a provider is a function of a model's id"
            raise UserError(f"{point.name} of the package {package.name} fails", why=why)
        return CustomModel(cast("ModelProvider", factory(id)))
    return None
