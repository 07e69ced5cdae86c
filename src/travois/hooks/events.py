"""What hooks hear of: each event with its own fields, spelt as other agents spell them."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec


class Occasion(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="hook_event_name"):
    """Something that hooks may hear of and, for some, have a say in."""

    @property
    def event(self) -> str:
        """Its name in settings."""
        return type(self).__name__

    @property
    def subject(self) -> str:
        """What a matcher is held against; empty for events that have no such thing."""
        return str(getattr(self, SUBJECTS.get(self.event, ""), ""))


class SessionStart(Occasion, frozen=True, tag=True):
    """A session begins or goes on."""

    source: Literal["startup", "resume", "clear", "compact", "fork"]
    session_title: str = ""
    agent_type: str = ""
    seconds_since_last_response: float = 0.0
    context_tokens: int = 0
    prompt_cache_likely_expired: bool = False


class Setup(Occasion, frozen=True, tag=True):
    """A folder is made ready for work, because somebody asked for that."""

    trigger: Literal["init", "maintenance"]


class SessionEnd(Occasion, frozen=True, tag=True):
    """A session is left."""

    reason: Literal["clear", "resume", "logout", "prompt_input_exit", "other"]


class UserPromptSubmit(Occasion, frozen=True, tag=True):
    """A person says something; a block keeps it from the model."""

    prompt: str
    session_title: str = ""


class UserPromptExpansion(Occasion, frozen=True, tag=True):
    """A command of the user's own, or a server's prompt, is about to become what it stands for."""

    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    prompt: str
    command_source: str = ""


class PreToolUse(Occasion, frozen=True, tag=True):
    """A call is about to run."""

    tool_name: str
    tool_input: object
    tool_use_id: str


class PermissionRequest(Occasion, frozen=True, tag=True):
    """A person is about to be asked about a call."""

    tool_name: str
    tool_input: object
    permission_suggestions: tuple[object, ...] = ()


class PermissionDenied(Occasion, frozen=True, tag=True):
    """A call was denied."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    reason: str


class PostToolUse(Occasion, frozen=True, tag=True):
    """A call went well."""

    tool_name: str
    tool_input: object
    tool_response: object
    tool_use_id: str
    duration_ms: int


class PostToolUseFailure(Occasion, frozen=True, tag=True):
    """A call failed."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    error: str
    is_interrupt: bool
    duration_ms: int


class Answered(msgspec.Struct, frozen=True):
    """One call of a reply with what the model sees of its result."""

    tool_name: str
    tool_input: object
    tool_use_id: str
    tool_response: str


class PostToolBatch(Occasion, frozen=True, tag=True):
    """All calls of one reply are answered."""

    tool_calls: tuple[Answered, ...]


class Notification(Occasion, frozen=True, tag=True):
    """A person's attention is wanted."""

    message: str
    notification_type: str
    title: str = ""


class Beside(msgspec.Struct, frozen=True):
    """Something that goes on in the background."""

    id: str
    type: Literal["shell", "subagent"]
    description: str
    status: Literal["running"] = "running"


class Stop(Occasion, frozen=True, tag=True):
    """The model has said its last word; a block sends it back to work."""

    stop_hook_active: bool
    last_assistant_message: str
    background_tasks: tuple[Beside, ...]
    session_crons: tuple[object, ...]


class StopFailure(Occasion, frozen=True, tag=True):
    """A turn ended because the provider failed."""

    error: str
    error_details: str = ""
    last_assistant_message: str = ""


class SubagentStart(Occasion, frozen=True, tag=True):
    """A child agent begins."""

    agent_id: str
    agent_type: str


class SubagentStop(Occasion, frozen=True, tag=True):
    """A child agent has said its last word."""

    agent_id: str
    agent_type: str
    agent_transcript_path: str
    stop_hook_active: bool
    last_assistant_message: str = ""


class Listed(Occasion, frozen=True):
    """Something on the model's list."""

    task_id: str
    task_subject: str


class TaskCreated(Listed, frozen=True, tag=True):
    """The model puts something on its list; a block keeps the list as it was."""


class TaskCompleted(Listed, frozen=True, tag=True):
    """The model says that something on its list is done; a block keeps the list as it was."""


class ModelSwitch(Occasion, frozen=True):
    """From one model to another."""

    from_model: str
    to_model: str
    requested_model: str
    source: str
    context_tokens: int
    prompt_cache_warm: bool


class PreModelSwitch(ModelSwitch, frozen=True, tag=True):
    """Another model is about to answer."""


class PostModelSwitch(ModelSwitch, frozen=True, tag=True):
    """Another model answers from here on."""


class Elicitation(Occasion, frozen=True, tag=True):
    """A server of tools wants to know something from the person."""

    mcp_server_name: str
    message: str
    mode: str
    requested_schema: object = None
    url: str = ""
    elicitation_id: str = ""


class ElicitationResult(Occasion, frozen=True, tag=True):
    """The person has answered a server, which is told next."""

    mcp_server_name: str
    action: str
    mode: str
    content: object = None
    elicitation_id: str = ""


class PreCompact(Occasion, frozen=True, tag=True):
    """The conversation is about to be summarised."""

    trigger: Literal["manual", "auto"]
    custom_instructions: str


class PostCompact(Occasion, frozen=True, tag=True):
    """The conversation was summarised."""

    trigger: Literal["manual", "auto"]
    compact_summary: str


class ConfigChange(Occasion, frozen=True, tag=True):
    """A settings file has changed."""

    source: str
    file_path: str = ""


class InstructionsLoaded(Occasion, frozen=True, tag=True):
    """A file of instructions was read."""

    file_path: str
    memory_type: str
    load_reason: str


class CwdChanged(Occasion, frozen=True, tag=True):
    """The shell stands in another folder."""

    old_cwd: str
    new_cwd: str


class FileChanged(Occasion, frozen=True, tag=True):
    """A file that a hook watches is not what it was."""

    file_path: str
    change: Literal["change", "add", "unlink"] = msgspec.field(name="event")

    @property
    def name(self) -> str:
        """The file without its folder."""
        return self.file_path.rpartition("/")[2]


AnyOccasion = (
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
EVENTS = frozenset(kind.__name__ for kind in get_args(AnyOccasion))
TOOLS = frozenset(
    ("PreToolUse", "PermissionRequest", "PermissionDenied", "PostToolUse", "PostToolUseFailure")
)
"""Events about one call."""
SUBJECTS = dict.fromkeys(TOOLS, "tool_name") | {
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
