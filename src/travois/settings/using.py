"""Settings about how models are used, and what they leave behind."""

from __future__ import annotations

import msgspec

from travois.core.models import Effort
from travois.settings.part import Count, Part, Quantity


class Manner(Part, frozen=True):
    """How one model is used."""

    effort_level: Effort = ""
    max_effort_level: Effort = ""
    auto_compact_window: Count = 0


class Pricing(msgspec.Struct, frozen=True, rename="camel"):
    """What models cost, where that is not what the catalogue says."""

    multiplier: Quantity = 1.0
    """For every price that is not given below."""
    overrides: dict[str, dict[str, Quantity]] = {}
    """Dollars per million, by id: `input`, `output`, `cacheRead`, `cacheWrite`."""


class Attribution(Part, frozen=True):
    """What is put under commits and pull requests; empty for nothing."""

    commit: str = ""
    pr: str = ""


class Worktrees(Part, frozen=True):
    """What a git worktree for an agent gets besides the files of its commit."""

    symlink_directories: tuple[str, ...] = ()
    """Folders of the repository that it shares, such as `node_modules`."""
