"""Names whose content decides what runs later, or who may do what."""

from __future__ import annotations

import re

from travois.policy.glyphs import UNSEEN, listed
from travois.policy.paths import folded

PROTECTED = listed(
    """
    .git .hg .svn .jj .husky .lefthook .ssh .gnupg .aws .kube .docker .cargo .mvn .yarn .vscode
    .idea .zed .fleet .devcontainer .direnv .travois .claude .agents .codex .cursor .gemini
    .opencode .windsurf .continue .roo .kiro .aider .copilot .pnpm-store .config .gitmodules
    .gitconfig .mcp.json mcp.json .claude.json opencode.json opencode.jsonc .envrc .npmrc
    .pnpmfile.cjs .pnpmfile.js pnpmfile.js bunfig.toml .bazelrc .pre-commit-config.yaml
    .pre-commit-config.yml .pre-commit-hooks.yaml .overcommit.yml lefthook.yml lefthook.yaml
    lefthook.toml lefthook.json .lefthook.yml gradle-wrapper.properties maven-wrapper.properties
    .devcontainer.json .ripgreprc pyrightconfig.json sitecustomize.py usercustomize.py
    .tool-versions .mise.toml mise.toml .asdfrc rust-toolchain rust-toolchain.toml .bashrc
    .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
    .zlogout .kshrc .cshrc .tcshrc .login .inputrc .netrc .curlrc .wgetrc .vimrc .exrc .nvimrc
    .nvim.lua .gdbinit .lldbinit .pythonrc.py .pdbrc .pypirc .irbrc .rprofile .psqlrc .sqliterc
    .tmux.conf .screenrc .xinitrc .xprofile .xsession .terraformrc .condarc .wezterm.lua
    authorized_keys .aider.conf.yml
    """
)
"""Not written without a question or a rule that names them."""
PATTERNS = re.compile(r"\.yarnrc.*|\.pnp\..*|git~\d+|_netrc|.*\.pth")
WORKTREE = re.compile(r"(?<![^/])\.(?:claude|travois)/worktrees/[^/\\]+(?=/.)")
"""A checkout of its own: what is in it is judged as if it stood anywhere else."""
BARE = frozenset(("head", "config", "objects", "refs", "packed-refs", "commondir", "gitdir"))
"""Names that make a folder a repository when they stand at its top."""


def protected(path: str) -> frozenset[str]:
    """The protected names in a path, whatever their case and disguise."""
    names = [_name(part) for part in re.split(r"[/\\]", WORKTREE.sub("", path))]
    return frozenset(name for name in names if name in PROTECTED or PATTERNS.fullmatch(name))


def makes_repository(path: str) -> bool:
    """Whether a path from the top of a workspace would turn it into a repository."""
    return _name(path.strip("/").partition("/")[0]) in BARE


def strange(path: str) -> bool:
    """Whether the path has characters that a person could not see."""
    return bool(re.search(UNSEEN, path) or "\n" in path or "\t" in path)


def _name(part: str) -> str:
    """A name as the most forgiving disk would take it."""
    return folded(part.partition(":")[0]).rstrip(". ")
