"""Travois: a terminal coding-agent harness that remembers, and a library to build agents with.

What `__all__` names is public, and so is `travois.testing`; all else is private and may change
without notice (docs/sdk.md, Versions).
"""

from travois.version import __version__

TYPE_CHECKING = False  # as in typing, which `--version` should not have to import
if TYPE_CHECKING:
    from travois.core.errors import UserError
    from travois.extensions.custom_layers import (
        ClearResult,
        ContextLayer,
        ShownResult,
        WindowState,
    )
    from travois.extensions.custom_models import (
        ModelProvider,
        ModelReply,
        ModelRequest,
        ModelToolCall,
    )
    from travois.extensions.function_hooks import FunctionHook, HookEvent, HookReply, hook
    from travois.extensions.function_tools import FunctionTool, ToolContext, tool
    from travois.extensions.permission_callback import (
        PermissionAnswer,
        PermissionRequest,
        Question,
    )
    from travois.library.dbos_steps import run_dbos_step
    from travois.library.events import (
        ConversationCompacted,
        Event,
        Notice,
        PermissionDenied,
        RequestRetried,
        TextDelta,
        ThinkingDelta,
        ToolCallFinished,
        ToolCallProgress,
        ToolCallStarted,
        TurnEnded,
    )
    from travois.library.options import AgentDefinition, Budget, Compaction, Options
    from travois.library.results import (
        ApiError,
        BudgetError,
        Denial,
        HookStoppedError,
        InterruptedRunError,
        LimitError,
        OutputError,
        RefusalError,
        Result,
        RunError,
        ToolFailedError,
        ToolFailure,
        Usage,
    )
    from travois.library.session import EventStream, Session, run_sync
    from travois.ports.tool import ToolError
    from travois.providers.replies import ApiError as ProviderError

__all__ = [
    "AgentDefinition",
    "ApiError",
    "Budget",
    "BudgetError",
    "ClearResult",
    "Compaction",
    "ContextLayer",
    "ConversationCompacted",
    "Denial",
    "Event",
    "EventStream",
    "FunctionHook",
    "FunctionTool",
    "HookEvent",
    "HookReply",
    "HookStoppedError",
    "InterruptedRunError",
    "LimitError",
    "ModelProvider",
    "ModelReply",
    "ModelRequest",
    "ModelToolCall",
    "Notice",
    "Options",
    "OutputError",
    "PermissionAnswer",
    "PermissionDenied",
    "PermissionRequest",
    "ProviderError",
    "Question",
    "RefusalError",
    "RequestRetried",
    "Result",
    "RunError",
    "Session",
    "ShownResult",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallFinished",
    "ToolCallProgress",
    "ToolCallStarted",
    "ToolContext",
    "ToolError",
    "ToolFailedError",
    "ToolFailure",
    "TurnEnded",
    "Usage",
    "UserError",
    "WindowState",
    "__version__",
    "hook",
    "run_dbos_step",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> object:
    """Load the library only where it is used: `travois --version` should not pay for it."""
    if name.startswith("__") or name == "public_names":
        raise AttributeError(name)
    from importlib import import_module

    return import_module("travois.public_names").load_name(name)


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return __all__
