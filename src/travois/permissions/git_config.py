"""Git config files: harmless changes that need no permission, and keys that run programs.

A key that is not listed as harmless counts as one that starts programs: git has many of those
(`core.fsmonitor`, `filter.*.clean`, `alias.*`), and every version adds more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.permissions.shell.plan import CommandStep, ShellWord
from travois.permissions.shell.program_analyzers import reads_git_config

HARMLESS_GIT_KEYS: Mapping[str, frozenset[str]] = {
    "advice": frozenset("*"),
    "apply": split_names("ignorewhitespace whitespace"),
    "branch": split_names(
        "autosetupmerge autosetuprebase description merge pushremote rebase remote"
    ),
    "color": frozenset("*"),
    "commit": split_names("gpgsign status verbose"),
    "core": split_names(
        """
        abbrev autocrlf bare bigfilethreshold checkstat commentchar compression eol filemode
        ignorecase ignorestat logallrefupdates longpaths precomposeunicode preloadindex protecthfs
        protectntfs quotepath repositoryformatversion safecrlf sparsecheckout sparsecheckoutcone
        splitindex symlinks trustctime untrackedcache whitespace
        """
    ),
    "extensions": split_names(
        "compatobjectformat noop objectformat partialclone refstorage relativeworktrees"
    ),
    "fetch": split_names("fsckobjects parallel prune prunetags recursesubmodules writecommitgraph"),
    "gc": split_names(
        """
        auto autodetach autopacklimit logexpiry pruneexpire reflogexpire reflogexpireunreachable
        worktreepruneexpire
        """
    ),
    "index": split_names("sparse threads version"),
    "lfs": split_names("access locksverify repositoryformatversion"),
    "log": split_names("abbrevcommit date decorate follow"),
    "maintenance": split_names("auto strategy"),
    "merge": split_names("conflictstyle ff renamelimit renames stat"),
    "pull": split_names("ff rebase"),
    "push": split_names("autosetupremote default followtags"),
    "rebase": split_names("autosquash autostash updaterefs"),
    "remote": split_names(
        """
        fetch followremotehead mirror partialclonefilter promisor prune prunetags push pushurl
        skipdefaultupdate skipfetchall tagopt url
        """
    ),
    "rerere": split_names("autoupdate enabled"),
    "status": split_names("branch short showstash showuntrackedfiles submodulesummary"),
    "submodule": split_names(
        "active branch fetchrecursesubmodules ignore path recurse shallow update url"
    ),
    "tag": split_names("gpgsign sort"),
    "user": split_names("email name"),
}
"""The keys of each section that only hold settings of git's own; `*` stands for all."""
GIT_LFS_SETTINGS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.required": "true",
}
"""The settings of `git lfs install`: programs, but none that a repository could choose."""
GIT_LFS_HOOK = re.compile(
    rb"#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 \|\| "
    rb"\{ (?:printf >&2 \"\\n%s\\n\\n\"|echo >&2) \"(?:[^\"$`\\]|\\n)*\"; exit 2; \}\n"
    rb"git lfs (pre-push|post-checkout|post-commit|post-merge) \"\$@\"\n?"
)
ADDRESS_KEYS = split_names("pushremote pushurl remote url")
HARMLESS_SUBMODULE_UPDATES = ("checkout", "rebase", "merge", "none")
REMOTE_HELPER = compile_lazily(r"-|[A-Za-z0-9]+::")
"""An address that names a program: `ext::sh -c ...`, or what ssh would take for an option."""
GIT_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", '"': '"', "\\": "\\"}
SECTION_LINE = compile_lazily(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
GIT_KEY = compile_lazily(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|(?=\n)|\Z)")
BLANK_OR_COMMENT = compile_lazily(r"(?:[ \t\n]|[#;][^\n]*)+")


class GitSetting(msgspec.Struct, frozen=True):
    """One setting of a git config file; `start` and `end` are its position in the text."""

    key: str
    value: str | None
    start: int
    end: int


class CheckedConfig(msgspec.Struct, frozen=True):
    """A git config file after the check, and the keys whose changes were undone."""

    data: bytes
    undone: tuple[str, ...] = ()


AllowSetting = Callable[[str, tuple[str | None, ...]], bool]
"""A check that allows more values for a key than the harmless ones."""


def allow_no_setting(key: str, values: tuple[str | None, ...]) -> bool:
    """Refuse every change of a git setting beyond the harmless ones."""
    return not (key or values)


def undo_harmful_changes(
    before: bytes, after: bytes, *, allowed: AllowSetting = allow_no_setting
) -> CheckedConfig:
    """Undo the changes to a git config file that could run programs, and keep the harmless ones.

    A file that cannot be parsed with certainty is restored as a whole.
    """
    if before == after:
        return CheckedConfig(after)
    try:
        was, now = parse_git_config(before), parse_git_config(after)
    except ValueError:
        return CheckedConfig(before, ("a line that could not be parsed",))
    old, new = _group_by_key(was), _group_by_key(now)
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    may = (key for key in changed if allowed(key, new.get(key, ())))
    kept = {key for key in changed if _is_harmless_setting(key, new.get(key, ()))}.union(may)
    undone = tuple(sorted(set(changed) - kept))
    if not undone:
        return CheckedConfig(after)
    if any(key.startswith("include") for key in undone):
        return CheckedConfig(before, undone)  # its place in the file decides what it outweighs
    mended = _restore_settings(after, now, [one for one in was if one.key in undone], undone=undone)
    wanted = {key: new[key] for key in new if key not in undone}
    wanted |= {key: old[key] for key in undone if key in old}
    return CheckedConfig(mended if _reads_as(mended, wanted) else before, undone)


CONFIG_SET_OPTIONS = split_names(
    "--add --replace-all --local --bool --int --bool-or-int --path --fixed-value"
)
"""Options of `git config` that leave it to set the value of one key in the repository."""
CONFIG_UNSET_OPTIONS = split_names("--unset --unset-all unset")


def find_program_key(step: CommandStep) -> str:
    """Return the key that `git config` sets and that may start a program; empty if none.

    Any form of the command not known to set one harmless key counts as one that may.
    """
    words = _config_call_words(step)
    if step.needs == "nothing" or not words or reads_git_config(words):
        return ""
    if any(word.value is None for word in words):
        return "a key that is only known at run time"
    texts = [word.text for word in words[1:] if word.text not in CONFIG_SET_OPTIONS]
    if texts[:1] and texts[0] in CONFIG_UNSET_OPTIONS | {"set"}:
        texts = texts[1:] if texts[0] == "set" else [*texts[1:2]]
    if not texts or texts[0].startswith("-") or "." not in texts[0]:
        return " ".join(texts[:1]) or "a key"
    key = _lower_git_key(texts[0])
    return "" if len(texts) <= 2 and _is_harmless_setting(key, (*texts[1:2],)) else key


def changes_git_config(step: CommandStep) -> bool:
    """Return whether a `git config` call does more than read settings."""
    words = _config_call_words(step)
    return not words or not reads_git_config(words)


def _config_call_words(step: CommandStep) -> tuple[ShellWord, ...]:
    """Return the words of a `git config` call from `config` on; empty for other commands."""
    words = step.argv[1:] if step.name == "git" else ()
    while words and words[0].text.startswith("-"):
        words = words[2 if words[0].text in ("-C", "-c", "--git-dir", "--work-tree") else 1 :]
    return words if words and words[0].text == "config" else ()


def _lower_git_key(key: str) -> str:
    """Return a git config key in lower case, except its subsection, as git compares keys."""
    section, _, rest = key.partition(".")
    name, dot, last = rest.rpartition(".")
    return f"{section.lower()}.{name}{dot}{last.lower()}"


def is_harmless_hook(name: str, data: bytes) -> bool:
    """Return whether a git hook is a sample or one that `git lfs install` writes."""
    found = GIT_LFS_HOOK.fullmatch(data)
    return name.endswith(".sample") or (found is not None and found[1].decode() == name)


def parse_git_config(data: bytes) -> tuple[GitSetting, ...]:
    """Parse the settings of a git config file in order; raise ValueError if it is ambiguous."""
    text = data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    if any(char in text for char in "\0\r\f\v"):
        raise ValueError("unexpected control characters")
    return tuple(_iterate_settings(text))


def _iterate_settings(text: str) -> Iterator[GitSetting]:
    """Yield the settings in a git config text; raise ValueError if it is ambiguous."""
    at, prefix = 0, ""
    while at < len(text):
        if found := BLANK_OR_COMMENT.match(text, at):
            at = found.end()
        elif found := SECTION_LINE.match(text, at):
            at, prefix = found.end(), _section_prefix(found[1], found[2])
        elif prefix and (found := GIT_KEY.match(text, at)):
            value, end = _read_value(text, found.end()) if found[2] else (None, found.end())
            yield GitSetting(prefix + found[1].lower(), value, at, end)
            at = end
        else:
            raise ValueError(f"cannot parse at {at}")


def _section_prefix(section: str, name: str | None) -> str:
    sub = "" if name is None else re.sub(r"\\(.)", r"\1", name) + "."
    return f"{section.lower()}.{sub}"


def _read_value(text: str, at: int) -> tuple[str, int]:
    """Return the git config value that begins here, and the end of its line."""
    parts, spaces, quoted = list[str](), "", False
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if not quoted and char in "#;":
            newline = text.find("\n", at)
            at = len(text) if newline < 0 else newline
            break
        if not quoted and char in " \t":
            spaces, at = spaces + char if parts else "", at + 1
            continue
        if char == "\\":
            char, at = _read_escape(text, at + 1)
        else:
            quoted ^= char == '"'
            char, at = "" if char == '"' else char, at + 1
        parts.append(spaces + char)
        spaces = ""
    if quoted:
        raise ValueError("unterminated quote")
    return "".join(parts), at


def _read_escape(text: str, at: int) -> tuple[str, int]:
    """Decode an escape in a git config value; return it with the position after it."""
    char = text[at : at + 1]
    if char == "\n":
        return "", at + 1
    if char not in GIT_ESCAPES:
        raise ValueError("unknown escape sequence")
    return GIT_ESCAPES[char], at + 1


def _group_by_key(settings: tuple[GitSetting, ...]) -> dict[str, tuple[str | None, ...]]:
    """Group the settings of a parsed git config by key."""
    found: dict[str, tuple[str | None, ...]] = {}
    for one in settings:
        found[one.key] = (*found.get(one.key, ()), one.value)
    return found


def _is_harmless_setting(key: str, values: tuple[str | None, ...]) -> bool:
    """Return whether any allowed git command may set a git config key to these values."""
    if key in GIT_LFS_SETTINGS:
        return set(values) <= {GIT_LFS_SETTINGS[key]}
    section, name = key.split(".", 1)[0], key.rpartition(".")[2]
    names = HARMLESS_GIT_KEYS.get(section, frozenset())
    if name not in names and "*" not in names:
        return False
    if name in ADDRESS_KEYS:
        return not any(value and REMOTE_HELPER.match(value) for value in values)
    return (
        section != "submodule" or name != "update" or set(values) <= {*HARMLESS_SUBMODULE_UPDATES}
    )


def _restore_settings(
    after: bytes, now: tuple[GitSetting, ...], was: list[GitSetting], *, undone: tuple[str, ...]
) -> bytes:
    """Return a git config file without the settings to undo, their old values added at the end."""
    text = after.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    for one in reversed([one for one in now if one.key in undone]):
        begun = text.rfind("\n", 0, one.start) + 1
        alone = not text[begun : one.start].strip()
        text = text[:begun] + text[one.end + 1 :] if alone else text[: one.start] + text[one.end :]
    lines = [text.rstrip("\n"), *map(_render_setting, was)]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def _render_setting(one: GitSetting) -> str:
    """Render a setting as lines of a git config file."""
    section, _, rest = one.key.partition(".")
    name, _, key = rest.rpartition(".")
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[{section} "{escaped}"]' if name else f"[{section}]"
    if one.value is None:
        return f"{head}\n\t{key}"
    value = one.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{head}\n\t{key} = "{value}"'


def _reads_as(data: bytes, wanted: dict[str, tuple[str | None, ...]]) -> bool:
    """Return whether git config text parses to exactly these keys and values."""
    try:
        return _group_by_key(parse_git_config(data)) == wanted
    except ValueError:
        return False
