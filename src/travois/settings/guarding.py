"""Settings about what may happen: permissions, and the walls around commands."""

from __future__ import annotations

from typing import Literal

from travois.permissions.decide import ALIASES, MODES, Mode
from travois.sandbox.tool_chains import ToolChainName
from travois.settings.part import Part

ModeName = Literal[
    "default",
    "plan",
    "accept-edits",
    "auto",
    "dont-ask",
    "bypass",
    "acceptEdits",
    "dontAsk",
    "bypassPermissions",
    "manual",
]


class Permissions(Part, frozen=True):
    """What may happen without a question, and what never may."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: ModeName = "default"
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: Literal["", "disable"] = ""
    disable_auto_mode: Literal["", "disable"] = ""
    block_reads_outside_working_directories: bool = False
    block_writes_outside_working_directories: bool = False
    """Whether what is outside is denied, whatever allows it, and not asked about."""
    deny_instead_of_prompting: bool = False
    """Whether what would be asked about is denied, in every mode."""
    examples: tuple[str, ...] = ()
    """`RULE matches TEXT` or `RULE does not match TEXT`, checked when the file is loaded."""

    @property
    def mode(self) -> Mode:
        """The mode by its own name, whichever name was used."""
        for mode in MODES:
            if mode == self.default_mode:
                return mode
        return ALIASES[self.default_mode]


class Network(Part, frozen=True):
    """Whom commands in the sandbox may reach."""

    mode: Literal["", "off", "listed", "on"] = ""
    """Empty means that it depends on the command."""
    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()


class Filesystem(Part, frozen=True):
    """What commands in the sandbox may write and read, besides the workspace."""

    allow_write: tuple[str, ...] = ()
    deny_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    allow_read: tuple[str, ...] = ()
    """What may be read all the same: of the home, which is hidden, and inside `deny_read`."""


class Sandbox(Part, frozen=True):
    """The walls around commands."""

    enabled: bool = True
    required: bool = False
    """Whether not to start at all where there can be none."""
    look_first: bool = True
    """Whether an unproven command is first run where it can change nothing."""
    allow_unsandboxed_commands: bool = True
    """Whether the model may ask for a command to run outside."""
    auto_allow_bash_if_sandboxed: bool = False
    """Whether commands run in it without a question, as in mode auto."""
    excluded_commands: tuple[str, ...] = ()
    hooks: bool = False
    """Whether hooks run in it that do not say otherwise."""
    mcp_servers: bool = False
    """Whether MCP servers that are programs run in it, where their entry does not say otherwise."""
    hidden_tool_chains: tuple[ToolChainName, ...] = ()
    """Families of programs whose files in the home are hidden like all others there."""
    network: Network = Network()
    filesystem: Filesystem = Filesystem()
