"""What tools did, under whatever names: a call and its result as one act of a known kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeGuard

import msgspec

from travois.core.content import Call, calls, words
from travois.core.facts import Assistant, Decided, Entry, Result

Kind = Literal[
    "shell", "edit", "write", "read", "delete", "patch", "list", "task", "retask", "ask", "plan",
    "make", "other",
]  # fmt: skip
FAMILIES: dict[Kind, str] = {
    "shell": "bash shell powershell execcommand localshell localshellcall runcommand terminal "
    "runterminalcmd runinterminal executecommand runshellcommand containerexec",
    "edit": "edit multiedit notebookedit strreplace strreplaceeditor strreplacebasededittool "
    "insert replace searchreplace editfile replaceinfile applydiff",
    "write": "write create writefile createfile savefile writetofile",
    "read": "read view open readfile viewfile viewimage openfile",
    "delete": "delete deletefile removefile",
    "patch": "applypatch",
    "list": "todowrite updateplan writetodos updatetodolist managetodolist todo",
    "task": "taskcreate createtask",
    "retask": "taskupdate updatetask",
    "ask": "askuserquestion askuser askfollowupquestion requestuserinput question",
    "plan": "exitplanmode presentplan",
    "make": "createissue createpullrequest createpr createmergerequest",
}
"""Agents and servers name the same tools differently: the last part of a name, in small letters."""
KINDS: dict[str, Kind] = {name: kind for kind, names in FAMILIES.items() for name in names.split()}
SUBCOMMANDS: dict[str, Kind] = {"view": "read", "create": "write"}
HUMAN: tuple[Kind, ...] = ("ask", "plan")
"""What a server's tool cannot be, whatever its name: it must not speak for the human."""
REFUSED = re.compile(r"The user (?:doesn't|does not) want to |(?:Rejected|Denied) by the user")


class Act(msgspec.Struct, frozen=True):
    """One finished call."""

    seq: int
    kind: Kind
    name: str
    args: dict[str, object]
    text: str
    error: bool = False
    detail: str = ""
    refused: str | None = None
    """What the human said when they refused it; empty if nothing."""

    def arg(self, *names: str) -> str:
        """The first of these arguments that is a text."""
        return next((v for n in names if isinstance(v := self.args.get(n), str) and v), "")

    @property
    def path(self) -> str:
        """The file it names."""
        return self.arg("file_path", "path", "notebook_path", "filePath", "filename", "file")

    @property
    def command(self) -> str:
        """The command line it runs."""
        given = self.args.get("command") or self.args.get("cmd")
        if is_list(given):
            parts = [str(part) for part in given]
            return parts[-1] if len(parts) == 3 and parts[0].endswith("sh") else " ".join(parts)
        return given if isinstance(given, str) else ""


def acts(entries: Iterable[Entry]) -> Iterator[Act]:
    """Every call that has a result, in the order of the results."""
    asked: dict[str, Call] = {}
    ruled: dict[str, str | None] = {}
    for entry in entries:
        match entry.fact:
            case Assistant(content=content):
                asked.update((call.id, call) for call in calls(content))
            case Decided(call=call, verdict=verdict, because=because, by=by):
                ruled[call] = because if (verdict, by) == ("deny", "person") else None
            case Result() as result if result.call in asked:
                refused = ruled[result.call] if result.call in ruled else _refused(result)
                yield _act(asked.pop(result.call), result, seq=entry.seq, refused=refused)
            case _:
                pass


def kind_of(name: str, args: dict[str, object]) -> Kind:
    """What kind of thing a tool of this name does."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition("__")[2].lower())
    kind = KINDS.get(plain, "other")
    if kind == "edit":
        return SUBCOMMANDS.get(str(args.get("command")), kind)
    return "other" if kind in HUMAN and name.startswith("mcp__") else kind


def decoded(args: str) -> dict[str, object]:
    """The arguments of a call; none if its text is no JSON object."""
    try:
        value: object = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return value if is_object(value) else {}


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a decoded value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a decoded value is a JSON list."""
    return isinstance(value, list)


def _act(call: Call, result: Result, *, seq: int, refused: str | None) -> Act:
    args, text = decoded(call.args), words(result.content)
    kind = kind_of(call.name, args)
    return Act(seq, kind, call.name, args, text, result.error, result.detail, refused)


def _refused(result: Result) -> str | None:
    """What the human said, in the logs of agents that record a refusal only as a result."""
    text = words(result.content)
    if not result.error or not REFUSED.match(text):
        return None
    return text.partition("the user said:")[2].partition("\nNote: The user")[0].strip()
