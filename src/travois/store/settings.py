"""Every number and choice that a user may change, with its default."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from travois.policy.judge import ALIASES, MODES, Mode

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Dollars = Annotated[float, msgspec.Meta(ge=0)]
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


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Some settings that belong together, spelled as other agents spell them."""


class Permissions(Part, frozen=True):
    """What may happen without a question, and what never may."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: ModeName = "default"
    additional_directories: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    """`RULE matches TEXT` or `RULE does not match TEXT`, checked when the file is loaded."""

    @property
    def mode(self) -> Mode:
        """The mode by its own name, whichever name was used."""
        for mode in MODES:
            if mode == self.default_mode:
                return mode
        return ALIASES[self.default_mode]


class Timeouts(Part, frozen=True):
    """How long to wait for a provider, in seconds."""

    connect: Seconds = 10.0
    first_byte: Seconds = 90.0
    idle: Seconds = 90.0
    """Between two events of one reply."""
    local: Seconds = 600.0
    """Instead of both, for a server on this machine that may think for minutes without a word."""


class Retry(Part, frozen=True):
    """How often to try again, and the longest pause before it."""

    attempts: Count = 10
    max_wait: Seconds = 60.0


class Settings(Part, frozen=True):
    """All settings; zero means that there is no limit, empty that nothing was chosen."""

    model: str = ""
    max_turns: Count = 0
    max_budget_usd: Dollars = 0.0
    max_output_tokens: Count = 0
    permissions: Permissions = Permissions()
    env: dict[str, str] = {}
    """Variables for the programs that tools start."""
    env_passthrough: tuple[str, ...] = ()
    """Names of our own variables that those programs may see besides the harmless ones."""
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force, where each came from, and what the user should know."""

    settings: Settings
    origins: dict[str, str]
    """By key, as in `timeouts.idle`; for one rule of a list, as in `permissions.deny[Bash]`."""
    notices: tuple[str, ...] = ()

    def origin(self, key: str, item: str = "") -> str:
        """Which file, variable or flag decided this."""
        return self.origins.get(f"{key}[{item}]" if item else key, "default")
