"""Where the public names are, and the deprecated ones: they are loaded when they are used."""

from __future__ import annotations

import warnings
from importlib import import_module

MODULES_OF_NAMES = {
    "travois.core.errors": "UserError",
    "travois.extensions.custom_layers": "ClearResult ContextLayer ShownResult WindowState",
    "travois.extensions.custom_models": "ModelProvider ModelReply ModelRequest ModelToolCall",
    "travois.extensions.function_hooks": "FunctionHook HookEvent HookReply hook",
    "travois.extensions.function_tools": "FunctionTool ToolContext tool",
    "travois.extensions.permission_callback": "PermissionAnswer PermissionRequest Question",
    "travois.library.dbos_steps": "run_dbos_step",
    "travois.library.events": "ConversationCompacted Event Notice PermissionDenied RequestRetried "
    "TextDelta ThinkingDelta ToolCallFinished ToolCallProgress ToolCallStarted TurnEnded",
    "travois.library.options": "AgentDefinition Budget Compaction Options",
    "travois.library.results": "ApiError BudgetError Denial HookStoppedError InterruptedRunError "
    "LimitError OutputError RefusalError Result RunError ToolFailedError ToolFailure Usage",
    "travois.library.session": "EventStream Session run_sync",
    "travois.ports.tool": "ToolError",
}
RENAMED_NAMES = {"ProviderError": ("travois.providers.replies", "ApiError")}
DEPRECATED_NAMES = {
    "Listener": ("travois.hooks.config", "Listener", "write a function with @hook"),
    "Tool": ("travois.ports.tool", "Tool", "write a function with @tool"),
}
"""Names of the first version, and what to use in their place."""


def load_name(name: str) -> object:
    """Load a public name of `travois`; a deprecated one with a warning."""
    if name in DEPRECATED_NAMES:
        module, attribute, instead = DEPRECATED_NAMES[name]
        message = f"travois.{name} is deprecated and goes with 0.2: {instead} (docs/sdk.md)"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        return getattr(import_module(module), attribute)
    if name in RENAMED_NAMES:
        module, attribute = RENAMED_NAMES[name]
        return getattr(import_module(module), attribute)
    for module, names in MODULES_OF_NAMES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'travois' has no attribute {name!r}")
