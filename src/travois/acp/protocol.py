"""What an editor writes: the messages of the Agent Client Protocol, as far as they count here."""

from __future__ import annotations

from typing import Literal

import msgspec

NULL = msgspec.Raw(b"null")


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Members that are not named here are ignored, as the protocol wants it."""


class Failure(Shape, frozen=True):
    """Why a request failed."""

    code: int = 0
    message: str = ""


class Message(Shape, frozen=True):
    """A request or a notification, which have a method; or the answer to a request of ours."""

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    error: Failure | None = None


class Identified(Shape, frozen=True):
    """What can be told of a line that has not the right shape."""

    id: int | str | None = None


# --- what the editor can do -----------------------------------------------------------------------


class Disk(Shape, frozen=True):
    """Which files the editor hands out."""

    read_text_file: bool | None = False
    write_text_file: bool | None = False


class Forms(Shape, frozen=True):
    """Whether it can put forms to the person."""

    form: dict[str, object] | None = None


class Capabilities(Shape, frozen=True):
    """What the editor offers."""

    fs: Disk | None = None
    elicitation: Forms | None = None

    @property
    def reads(self) -> bool:
        """Whether it shows what stands in its buffers."""
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def writes(self) -> bool:
        """Whether it takes changes into its buffers."""
        return self.fs is not None and bool(self.fs.write_text_file)

    @property
    def forms(self) -> bool:
        """Whether several questions can be put at once."""
        return self.elicitation is not None and self.elicitation.form is not None


class Hello(Shape, frozen=True):
    """The first request."""

    protocol_version: int
    client_capabilities: Capabilities | None = None


# --- sessions -------------------------------------------------------------------------------------


class Pair(Shape, frozen=True):
    """A variable or a header."""

    name: str
    value: str


class Server(Shape, frozen=True):
    """A server of tools: a program without a `type`, or an address with one."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Pair, ...] = ()
    url: str = ""
    headers: tuple[Pair, ...] = ()


class Begin(Shape, frozen=True):
    """A session is to begin."""

    cwd: str
    mcp_servers: tuple[Server, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class Again(Begin, frozen=True, kw_only=True):
    """A session is to go on, or to be branched off."""

    session_id: str


class One(Shape, frozen=True):
    """Something about one session."""

    session_id: str


class Nothing(Shape, frozen=True):
    """A request that says no more than its method."""


class Listing(Shape, frozen=True):
    """Which sessions are to be listed."""

    cwd: str | None = None
    cursor: str | None = None


class Mode(One, frozen=True):
    """Another mode is chosen."""

    mode_id: str


class Setting(One, frozen=True):
    """An option is chosen."""

    config_id: str
    value: str | bool


class Method(Shape, frozen=True):
    """A way to log in is chosen."""

    method_id: str


class Withdrawn(Shape, frozen=True):
    """A request is no longer wanted."""

    request_id: int | str | None


# --- prompts --------------------------------------------------------------------------------------


class Resource(Shape, frozen=True):
    """Something that comes whole: its text, or bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Block(Shape, frozen=True):
    """One part of a prompt."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: Resource | None = None


class Prompt(One, frozen=True):
    """What the person says."""

    prompt: tuple[Block, ...]


# --- answers to what we ask -----------------------------------------------------------------------


class Picked(Shape, frozen=True):
    """What the person chose; `cancelled` if they chose nothing any more."""

    outcome: Literal["selected", "cancelled"]
    option_id: str = ""


class Permission(Shape, frozen=True):
    """The answer to a question whether something may happen."""

    outcome: Picked


class Filled(Shape, frozen=True):
    """The answer to a form."""

    action: str
    content: dict[str, str | int | float | bool | tuple[str, ...]] | None = None


class Buffer(Shape, frozen=True):
    """The text of a file as the editor shows it."""

    content: str
