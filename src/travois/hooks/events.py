"""Hook events, each with its own fields, under the names that Claude Code uses."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec


class HookEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="hook_event_name"):
    """An event that hooks can observe and, for some events, decide on."""

    @property
    def event(self) -> str:
        """Return the event's name in settings."""
        return type(self).__name__

    @property
    def subject(self) -> str:
        """Return the text that matchers are tested against; empty for events without one."""
        return str(getattr(self, SUBJECT_FIELDS.get(self.event, ""), ""))


class SessionStart(HookEvent, frozen=True, tag=True):
    """A session starts or resumes."""

    source: Literal["startup", "resume", "clear", "compact", "fork"]
    session_title: str = ""
    agent_type: str = ""
    seconds_since_last_response: float = 0.0
    context_tokens: int = 0
    prompt_cache_likely_expired: bool = False


class Setup(HookEvent, frozen=True, tag=True):
    """The user asks to set up a folder for work."""

    trigger: Literal["init", "maintenance"]


class SessionEnd(HookEvent, frozen=True, tag=True):
    """A session ends."""

    reason: Literal["clear", "resume", "logout", "prompt_input_exit", "other"]


class UserPromptSubmit(HookEvent, frozen=True, tag=True):
    """The user submits a prompt; a block keeps it from the model."""

    prompt: str
    session_title: str = ""


class UserPromptExpansion(HookEvent, frozen=True, tag=True):
    """A custom command or an MCP prompt is about to be expanded."""

    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    prompt: str
    command_source: str = ""


class PreToolUse(HookEvent, frozen=True, tag=True):
    """A tool call is about to run."""

    tool_name: str
    tool_input: object
    tool_use_id: str


class PermissionRequest(HookEvent, frozen=True, tag=True):
    """The user is about to be asked for permission."""

    tool_name: str
    tool_input: object
    permission_suggestions: tuple[object, ...] = ()


class PermissionDenied(HookEvent, frozen=True, tag=True):
    """A tool call was denied."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    reason: str


class PostToolUse(HookEvent, frozen=True, tag=True):
    """A tool call succeeded."""

    tool_name: str
    tool_input: object
    tool_response: object
    tool_use_id: str
    duration_ms: int


class PostToolUseFailure(HookEvent, frozen=True, tag=True):
    """A tool call failed."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    error: str
    is_interrupt: bool
    duration_ms: int


class AnsweredCall(msgspec.Struct, frozen=True):
    """A tool call of a reply with the result that the model sees."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    tool_response: str


class PostToolBatch(HookEvent, frozen=True, tag=True):
    """All tool calls of one reply have results."""

    tool_calls: tuple[AnsweredCall, ...]


class Notification(HookEvent, frozen=True, tag=True):
    """The user's attention is needed."""

    message: str
    notification_type: str
    title: str = ""


class BackgroundTask(msgspec.Struct, frozen=True):
    """A background shell command or subagent."""

    id: str
    type: Literal["shell", "subagent"]
    description: str
    status: Literal["running"] = "running"


class Stop(HookEvent, frozen=True, tag=True):
    """The model finished its turn; a block makes it continue."""

    stop_hook_active: bool
    last_assistant_message: str
    background_tasks: tuple[BackgroundTask, ...]
    session_crons: tuple[object, ...]


class StopFailure(HookEvent, frozen=True, tag=True):
    """A turn ended because of an API error."""

    error: str
    error_details: str = ""
    last_assistant_message: str = ""


class SubagentStart(HookEvent, frozen=True, tag=True):
    """A subagent starts."""

    agent_id: str
    agent_type: str


class SubagentStop(HookEvent, frozen=True, tag=True):
    """A subagent finished."""

    agent_id: str
    agent_type: str
    agent_transcript_path: str
    stop_hook_active: bool
    last_assistant_message: str = ""


class TaskEvent(HookEvent, frozen=True):
    """An event about one item of the todo list."""

    task_id: str
    task_subject: str


class TaskCreated(TaskEvent, frozen=True, tag=True):
    """The model adds a todo; a block leaves the list unchanged."""


class TaskCompleted(TaskEvent, frozen=True, tag=True):
    """The model marks a todo as done; a block leaves the list unchanged."""


class ModelSwitch(HookEvent, frozen=True):
    """A switch from one model to another."""

    from_model: str
    to_model: str
    requested_model: str
    source: str
    context_tokens: int
    prompt_cache_warm: bool


class PreModelSwitch(ModelSwitch, frozen=True, tag=True):
    """The session is about to switch to another model."""


class PostModelSwitch(ModelSwitch, frozen=True, tag=True):
    """The session switched to another model."""


class Elicitation(HookEvent, frozen=True, tag=True):
    """An MCP server asks the user for input."""

    mcp_server_name: str
    message: str
    mode: str
    requested_schema: object = None
    url: str = ""
    elicitation_id: str = ""


class ElicitationResult(HookEvent, frozen=True, tag=True):
    """The user answered an MCP server; the answer is about to be sent."""

    mcp_server_name: str
    action: str
    mode: str
    content: object = None
    elicitation_id: str = ""


class PreCompact(HookEvent, frozen=True, tag=True):
    """The conversation is about to be compacted."""

    trigger: Literal["manual", "auto"]
    custom_instructions: str


class PostCompact(HookEvent, frozen=True, tag=True):
    """The conversation was compacted."""

    trigger: Literal["manual", "auto"]
    compact_summary: str


class ConfigChange(HookEvent, frozen=True, tag=True):
    """A settings file changed."""

    source: str
    file_path: str = ""


class InstructionsLoaded(HookEvent, frozen=True, tag=True):
    """An instruction file was loaded."""

    file_path: str
    memory_type: str
    load_reason: str


class CwdChanged(HookEvent, frozen=True, tag=True):
    """The shell's working directory changed."""

    old_cwd: str
    new_cwd: str


class FileChanged(HookEvent, frozen=True, tag=True):
    """A watched file changed."""

    file_path: str
    change: Literal["change", "add", "unlink"] = msgspec.field(name="event")

    @property
    def name(self) -> str:
        """Return the file name without its folder."""
        return self.file_path.rpartition("/")[2]


AnyHookEvent = (
    SessionStart
    | SessionEnd
    | Setup
    | UserPromptSubmit
    | UserPromptExpansion
    | PreToolUse
    | PermissionRequest
    | PermissionDenied
    | PostToolUse
    | PostToolUseFailure
    | PostToolBatch
    | Notification
    | Stop
    | StopFailure
    | SubagentStart
    | SubagentStop
    | TaskCreated
    | TaskCompleted
    | PreModelSwitch
    | PostModelSwitch
    | Elicitation
    | ElicitationResult
    | PreCompact
    | PostCompact
    | ConfigChange
    | InstructionsLoaded
    | CwdChanged
    | FileChanged
)
HOOK_EVENT_NAMES = frozenset(kind.__name__ for kind in get_args(AnyHookEvent))
TOOL_EVENT_NAMES = frozenset(
    ("PreToolUse", "PermissionRequest", "PermissionDenied", "PostToolUse", "PostToolUseFailure")
)
"""Events about one call."""
SUBJECT_FIELDS = dict.fromkeys(TOOL_EVENT_NAMES, "tool_name") | {
    "SessionStart": "source",
    "SessionEnd": "reason",
    "Setup": "trigger",
    "UserPromptExpansion": "command_name",
    "Elicitation": "mcp_server_name",
    "ElicitationResult": "mcp_server_name",
    "Notification": "notification_type",
    "StopFailure": "error",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "ConfigChange": "source",
    "InstructionsLoaded": "load_reason",
    "FileChanged": "name",
}
"""The field that a matcher is held against."""
