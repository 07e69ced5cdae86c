"""Protected paths: files that decide what runs later, or who may do what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from travois.core.display_text import INVISIBLE_PATTERN, split_names
from travois.core.patterns import compile_lazily
from travois.permissions.paths import fold_name

PROTECTED_NAMES = split_names(
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
    authorized_keys .aider.conf.yml .qwen .amazonq .git-credentials
    agents.md agents.override.md agent.md claude.md claude.local.md gemini.md qwen.md warp.md
    copilot-instructions.md .cursorrules .windsurfrules .clinerules .roorules .goosehints .rules
    .gitattributes .gitlab-ci.yml .gitlab-ci.yaml .circleci .buildkite .travis.yml .drone.yml
    .woodpecker .woodpecker.yml .cirrus.yml .appveyor.yml appveyor.yml azure-pipelines.yml
    bitbucket-pipelines.yml jenkinsfile .forgejo .gitea .sr.ht .build.yml
    """
)
"""Not written without a question or a rule that names them."""
PROTECTED_NAME_PATTERN = compile_lazily(
    r"\.yarnrc.*|\.pnp\..*|git~\d+|_netrc|.*\.pth|\.roorules-.*|\.clinerules-.*"
)
PROTECTED_SUBFOLDERS = {
    ".github": split_names("workflows actions instructions prompts agents chatmodes"),
    ".gitlab": split_names("ci"),
}
"""Folders that hold CI definitions and instructions beside files that decide nothing."""
UNCHECKED_NAMES = split_names(
    """
    .git .hg .svn .jj .gitmodules .yarn .pnpm-store .config .cargo .direnv .docker .ssh .gnupg .aws
    .kube
    """
)
"""Protected names that no check after a command looks at: repositories have a check of their own,
and tool chains write the others in ordinary work. A write of one that is recognised asks."""
CHECKED_NAMES = PROTECTED_NAMES - UNCHECKED_NAMES
CHECKED_PREFIXES = (".roorules-", ".clinerules-", ".yarnrc")
DEPENDENCY_FOLDERS = split_names("node_modules site-packages")
"""Folders that package managers fill with files of other projects."""
PERSONAL_NAMES = split_names(
    """
    .git .hg .jj .husky .lefthook .ssh .gnupg .aws .kube .docker .travois .claude .agents .codex
    .cursor .gemini .qwen .amazonq .opencode .windsurf .continue .roo .kiro .aider .copilot
    .gitconfig .git-credentials .mcp.json mcp.json .claude.json opencode.json opencode.jsonc
    .aider.conf.yml .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc
    .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .inputrc .netrc _netrc .curlrc
    .wgetrc .xinitrc .xprofile .xsession authorized_keys
    """
)
"""Settings and hooks of agents and of git, shell start files, keys: in every mode, a person agrees
to a change first. Mode bypass writes the other protected names, which belong to the project."""
PERSONAL_CONFIG_FOLDERS = split_names(
    "autostart environment.d fish gh git opencode systemd travois zsh"
)
"""Folders of `.config` that hold such files."""
HARMLESS_GIT_FILES = split_names(
    """
    objects refs logs index head orig_head fetch_head merge_head merge_msg merge_mode merge_rr
    squash_msg cherry_pick_head revert_head rebase_head auto_merge commit_editmsg tag_editmsg
    notes_editmsg edit_description packed-refs shallow rr-cache rebase-merge rebase-apply sequencer
    info lfs description gc.log gc.pid bisect_log bisect_start bisect_terms bisect_names
    bisect_expected_rev bisect_ancestors_ok bisect_run reftable
    """
)
"""Names in `.git` that ordinary git commands write and that start no program; see
gitrepository-layout(5). `info/attributes` is the exception: it chooses filters."""
WORKTREE_PREFIX = compile_lazily(r"(?<![^/])\.(?:claude|travois)/worktrees/[^/\\]+(?=/.)")
"""The prefix of a git worktree: paths in it are checked as if it were anywhere else."""
REPOSITORY_MARKERS = frozenset(
    ("head", "config", "objects", "refs", "packed-refs", "commondir", "gitdir")
)
"""Names that make a folder a repository when they stand at its top."""


def protected_names(path: str) -> frozenset[str]:
    """Return the protected names in a path, whatever their case or disguise."""
    names = _fold_components(path)
    found = {
        name for name in names if name in PROTECTED_NAMES or PROTECTED_NAME_PATTERN.fullmatch(name)
    }
    return frozenset((*found, *_protected_subfolders(names)))


def is_checked_name(name: str, above: str) -> bool:
    """Return whether a name is a protected path, to check after commands that nobody approved.

    `above` is the name of the folder. This is called for every file of a workspace.
    """
    plain = name.lower()
    if not name.isascii() or ":" in name or name[-1:] in (".", " "):
        plain = _fold_component(name)
    if plain in CHECKED_NAMES or plain.startswith(CHECKED_PREFIXES):
        return True
    return above.lower() in PROTECTED_SUBFOLDERS and plain in PROTECTED_SUBFOLDERS[above.lower()]


def personal_names(path: str) -> frozenset[str]:
    """Return the protected names in a path that need approval in every permission mode."""
    names = _fold_components(path)
    found = {name for name in names if name in PERSONAL_NAMES or re.fullmatch(r"git~\d+", name)}
    if ".git" in found and _is_harmless_git_path(names):
        found.discard(".git")
    configs = (b for a, b in pairwise(names) if a == ".config" and b in PERSONAL_CONFIG_FOLDERS)
    return frozenset((*found, *configs))


def _is_harmless_git_path(names: list[str]) -> bool:
    """Return whether a path in `.git` is one that ordinary git commands write."""
    *_, inner = (names[at + 1 :] for at, name in enumerate(names) if name == ".git")
    return bool(inner) and inner[0] in HARMLESS_GIT_FILES and inner != ["info", "attributes"]


def _fold_components(path: str) -> list[str]:
    return [_fold_component(part) for part in re.split(r"[/\\]", WORKTREE_PREFIX.sub("", path))]


def _protected_subfolders(names: list[str]) -> Iterator[str]:
    """Yield the protected folders that count only below, or together with, a certain parent."""
    for above, name in pairwise((*names, "")):
        if above in PROTECTED_SUBFOLDERS and (name in PROTECTED_SUBFOLDERS[above] or not name):
            yield f"{above}/{name}".rstrip("/")


def makes_repository(path: str) -> bool:
    """Return whether creating a path would turn the workspace into a git repository."""
    return _fold_component(path.strip("/").partition("/")[0]) in REPOSITORY_MARKERS


def has_unseen_characters(path: str) -> bool:
    """Return whether a path has invisible characters, which could disguise a protected one."""
    return bool(re.search(INVISIBLE_PATTERN, path) or "\n" in path or "\t" in path)


def _fold_component(part: str) -> str:
    """Fold a file name as the most lenient file system compares it, to spot protected paths."""
    return fold_name(part.partition(":")[0]).rstrip(". ")
