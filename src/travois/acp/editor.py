"""The editor as user and file system of an ACP session: questions, prompts, open buffers."""

from __future__ import annotations

import errno
import os
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from urllib.parse import unquote, urlsplit

import anyio
import msgspec

from travois.acp import updates
from travois.acp.protocol import (
    INVALID_PARAMS,
    AcpError,
    AskEditor,
    ClientCapabilities,
    EmbeddedResource,
    FileReply,
    FormReply,
    PermissionReply,
    PromptBlock,
)
from travois.compat.claude_json import Json, JsonObject
from travois.core.content import Call, Media, Text, TextOrMedia
from travois.core.display_text import escape_invisible
from travois.core.facts import User
from travois.engine.mentions import build_mention_note
from travois.headless.control.messages import HostDeclined
from travois.permissions.paths import is_inside
from travois.ports.tool import text_outcome
from travois.ports.world import (
    SANDBOX_OFFER,
    Blobs,
    Choice,
    ChoiceRequest,
    Files,
    FileStat,
    PermissionQuestion,
    PersonAnswer,
    StaleFile,
    content_digest,
)
from travois.tools.text import TextEncoding, decode_text, line_endings
from travois.tui.line_mode import render_question

ALLOW_ONCE_OPTION: Json = {"optionId": "once", "name": "Yes, this once", "kind": "allow_once"}
SANDBOX_OPTION_JSON: Json = {
    "optionId": "sandbox",
    "name": f"Yes, and {SANDBOX_OFFER}",
    "kind": "allow_always",
}
REJECT_OPTION: Json = {"optionId": "no", "name": "No", "kind": "reject_once"}
NONE_OPTION: Json = {"optionId": "none", "name": "None of these", "kind": "reject_once"}
CANCELLED_QUESTION = "the question was cancelled in the editor"
PLAN_OPTION_KINDS = ("allow_once", "allow_always", "reject_once")


class EditorUser:
    """The user in the editor: questions become its dialogs, one at a time."""

    def __init__(self, ask: AskEditor, capabilities: ClientCapabilities) -> None:
        self._ask = ask
        self._capabilities = capabilities
        self._told: dict[str, anyio.Event] = {}
        self.session = ""
        self.describe: Callable[[Call], JsonObject] = lambda call: {"toolCallId": call.id}
        """Builds the JSON of a call."""

    def call_shown_event(self, call: str) -> anyio.Event:
        """Return an event that is set once all updates before this call's question are sent."""
        return self._told.setdefault(call, anyio.Event())

    async def _wait_until_shown(self, call: str) -> None:
        await self.call_shown_event(call).wait()
        self._told.pop(call, None)

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Show exactly what would run, and ask for permission."""
        await self._wait_until_shown(question.call)
        rules = f"Yes, always: {escape_invisible(', '.join(question.always))}"
        always: Json = {"optionId": "always", "name": rules, "kind": "allow_always"}
        offer = [SANDBOX_OPTION_JSON] if question.offers_sandbox else []
        options = [ALLOW_ONCE_OPTION, *([always] if question.always else []), *offer, REJECT_OPTION]
        try:
            picked = await self._request_permission(
                _question_call_json(self.describe, question), options
            )
        except HostDeclined as declined:
            return PersonAnswer(allow=False, reason=str(declined))
        match picked:
            case "once":
                return PersonAnswer(allow=True, reason="the user said yes", digest=question.digest)
            case "always" if question.always:
                said = "the user said always"
                return PersonAnswer(allow=True, reason=said, always=True, digest=question.digest)
            case "sandbox" if question.offers_sandbox:
                said = "the user said yes"
                return PersonAnswer(allow=True, reason=said, sandbox=True, digest=question.digest)
            case None:
                return PersonAnswer(allow=False, reason=CANCELLED_QUESTION, stop=CANCELLED_QUESTION)
            case _:
                return PersonAnswer(allow=False, reason="the user said no")

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Ask the questions of an inquiry as a form, or one after the other."""
        await self._wait_until_shown(inquiry.call)
        try:
            if self._capabilities.has_forms and not inquiry.plan:
                return await self._ask_form(inquiry)
            answers = [await self._ask_choice(inquiry, choice) for choice in inquiry.choices]
        except (HostDeclined, msgspec.DecodeError):
            return None
        found = tuple(answer for answer in answers if answer is not None)
        return found if len(found) == len(inquiry.choices) else None

    async def _request_permission(self, call: JsonObject, options: list[Json]) -> str | None:
        """Ask for one of the options; return None if the question was cancelled."""
        body: JsonObject = {"sessionId": self.session, "toolCall": call, "options": options}
        found = await self._ask("session/request_permission", body)
        try:
            outcome = msgspec.json.decode(found, type=PermissionReply).outcome
        except msgspec.DecodeError as error:
            raise HostDeclined(f"the editor's answer is invalid: {error}") from None
        return outcome.option_id if outcome.outcome == "selected" else None

    async def _ask_choice(self, inquiry: ChoiceRequest, choice: Choice) -> str | None:
        """Ask one question; only a single option can be picked."""
        kinds = PLAN_OPTION_KINDS if inquiry.plan else ("allow_once",) * len(choice.options)
        options: list[Json] = [
            _option_json(number, _option_label(one.label, one.description), kind=kind)
            for number, (one, kind) in enumerate(zip(choice.options, kinds, strict=True))
        ]
        call: JsonObject = {
            "toolCallId": inquiry.call,
            "title": escape_invisible(choice.question),
            "kind": "switch_mode" if inquiry.plan else "other",
            "content": [updates.text_content(inquiry.plan)] if inquiry.plan else [],
        }
        picked = await self._request_permission(
            call, options if inquiry.plan else [*options, NONE_OPTION]
        )
        if not picked or not picked.isdecimal() or int(picked) >= len(options):
            return None
        return choice.options[int(picked)].label

    async def _ask_form(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        names = [f"q{number}" for number, _ in enumerate(inquiry.choices, 1)]
        fields: JsonObject = {
            n: _form_field_json(one) for n, one in zip(names, inquiry.choices, strict=True)
        }
        schema: JsonObject = {"type": "object", "properties": fields, "required": list[Json](names)}
        body: JsonObject = {"sessionId": self.session, "toolCallId": inquiry.call, "mode": "form"}
        asked = "\n".join(escape_invisible(one.question) for one in inquiry.choices)
        answer = await self._ask(
            "elicitation/create", {**body, "message": asked, "requestedSchema": schema}
        )
        filled = msgspec.json.decode(answer, type=FormReply)
        if filled.action != "accept" or filled.content is None:
            return None
        told = (filled.content.get(name, "") for name in names)
        said = tuple(", ".join(one) if isinstance(one, tuple) else str(one) for one in told)
        return said if all(said) else None


def _question_call_json(
    describe: Callable[[Call], JsonObject], question: PermissionQuestion
) -> JsonObject:
    """Build the tool call shown with the editor's permission question, with all effects."""
    told = describe(Call(question.call, question.tool, question.args))
    planned = told.get("content")
    lines = updates.text_content(updates.fence_text("\n".join(render_question(question))))
    content: list[Json] = [*(planned if isinstance(planned, list) else []), lines]
    return {**told, "status": "pending", "content": content}


def _option_json(number: int, name: str, *, kind: str = "allow_once") -> Json:
    return {"optionId": str(number), "name": escape_invisible(name), "kind": kind}


def _option_label(label: str, description: str) -> str:
    return f"{label}: {description}" if description else label


def _form_field_json(choice: Choice) -> Json:
    """Build the editor's form field for a question."""
    options: list[Json] = [
        {"const": one.label, "title": escape_invisible(_option_label(one.label, one.description))}
        for one in choice.options
    ]
    about: JsonObject = {"title": escape_invisible(choice.header or choice.question)}
    about["description"] = escape_invisible(choice.question)
    if choice.several:
        return {**about, "type": "array", "items": {"anyOf": options}}
    return {**about, "type": "string", "oneOf": options}


# Prompts: content blocks as input for the model.


PDF_TYPE = "application/pdf"


class PromptParts(msgspec.Struct, frozen=True):
    """The content of a prompt, and notes on its attachments."""

    content: tuple[TextOrMedia, ...]
    notes: tuple[User, ...] = ()


EMPTY_PROMPT = PromptParts(())


def parse_prompt_blocks(blocks: tuple[PromptBlock, ...], blobs: Blobs, *, cwd: str) -> PromptParts:
    """Parse the editor's prompt; raise `AcpError` for unsupported content."""
    words = _join_block_texts(blocks, cwd)
    media = tuple(found for block in blocks if (found := _block_media(block, blobs)))
    notes = tuple(
        build_mention_note(_display_uri(block.resource.uri, cwd), text_outcome(block.resource.text))
        for block in blocks
        if block.resource is not None and block.resource.text is not None
    )
    if not words and not media and not notes:
        raise AcpError(INVALID_PARAMS, "The prompt is empty")
    return PromptParts(
        (*media, Text(words)) if words else media or (Text("See the attachment."),), notes
    )


def _join_block_texts(blocks: tuple[PromptBlock, ...], cwd: str) -> str:
    """Join the text of the editor's prompt blocks; mentions are set apart by spaces."""
    words = ""
    for block in blocks:
        part = _block_text(block, cwd)
        touches = part and block.type != "text" and words and not words[-1].isspace()
        words += f" {part}" if touches else part
    return words.strip()


def _block_text(block: PromptBlock, cwd: str) -> str:
    """Return the text of a block in the editor's prompt."""
    match block.type:
        case "text":
            return block.text
        case "resource_link":
            return _mention_link(block, cwd)
        case "resource" if block.resource is not None:
            return _display_uri(block.resource.uri, cwd)
        case "image":
            return ""
        case _:
            raise AcpError(
                INVALID_PARAMS, f"Prompt blocks of type {block.type!r} are not supported"
            )


def _mention_link(block: PromptBlock, cwd: str) -> str:
    """Return an @mention for the editor's file link; a plain link for anything else."""
    uri = block.uri or ""
    if not uri.startswith("file:"):
        return f"[{block.name or uri}]({uri})"
    path, part = _workspace_path(uri, cwd), urlsplit(uri).fragment
    quoted = path.replace('"', "")
    return f'@"{quoted}"' + (f" ({part})" if part else "")


def _display_uri(uri: str, cwd: str) -> str:
    return _workspace_path(uri, cwd) if uri.startswith("file:") else uri


def _workspace_path(uri: str, cwd: str) -> str:
    """Return the path of the editor's file URI, relative if inside the workspace."""
    path = unquote(urlsplit(uri).path)
    return os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path


def _block_media(block: PromptBlock, blobs: Blobs) -> Media | None:
    """Store the image or document of a prompt block from the editor; None if it has none."""
    if block.type == "image":
        return _store_base64(block.data, block.mime_type or "", blobs, name=block.uri or "")
    if block.resource is not None and block.resource.blob is not None:
        return _store_resource(block.resource, blobs)
    return None


def _store_resource(resource: EmbeddedResource, blobs: Blobs) -> Media:
    """Store the editor's embedded resource; raise `AcpError` unless an image or a PDF."""
    kind = resource.mime_type or ""
    if not kind.startswith("image/") and kind != PDF_TYPE:
        raise AcpError(INVALID_PARAMS, f"Attachments of type {kind or 'unknown'} are not supported")
    return _store_base64(resource.blob or "", kind, blobs, name=resource.uri)


def _store_base64(data: str, mime: str, blobs: Blobs, *, name: str) -> Media:
    """Decode and store a base64 attachment of the editor's prompt."""
    try:
        found = b64decode(data, validate=True)
    except ValueError as error:
        raise AcpError(INVALID_PARAMS, f"An attachment is not valid base64: {error}") from None
    kind = "document" if mime == PDF_TYPE else "image"
    return Media(kind, mime, blobs.put(found), len(found), os.path.basename(name))


# Files: unsaved text is read from the editor, and edits go to its buffers.


MAX_BUFFER_BYTES = 4_000_000
BUFFER_READ_SECONDS = 10.0
"""Seconds to wait for the editor's version of a file before the disk is used."""
UNSAVED_CHANGES = "it has unsaved changes in the editor, which accepts no edits: save it first"
CHANGE_NOT_TAKEN = "the editor did not apply the change"


class EditorFiles:
    """Files as the editor sees them: unsaved text is read, and edits go to its buffers."""

    def __init__(
        self,
        files: Files,
        ask: AskEditor,
        *,
        able: ClientCapabilities,
        session: str,
        folders: tuple[str, ...],
    ) -> None:
        self._files = files
        self._ask = ask
        self._able = able
        self._session = session
        self._folders = folders

    async def stat(self, path: str) -> FileStat | None:
        """Return what the path is, or None."""
        return await self._files.stat(path)

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """List the first names in a folder; subfolders end with a slash."""
        return await self._files.list_names(folder, limit=limit)

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return the modification times in nanoseconds; 0 if unknown."""
        return await self._files.modified_times(paths)

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """Return a lock for a file."""
        return self._files.queue(path)

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of a file; a whole text file is read from the editor."""
        data = await self._files.read(path, offset=offset, limit=limit)
        part = offset or 0 <= limit <= len(data)
        if part or not self._able.can_read_files or not self._is_editor_text(path, data):
            return data
        text = await self._read_buffer(path)
        return data if text is None else _keep_line_endings(data, text)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace a file if the digest of the editor's version is `expect`."""
        if expect is None or not self._able.can_read_files or not self._is_editor_text(path, data):
            return await self._files.replace(path, data, expect=expect)
        held = await self.read(path)
        if content_digest(held) != expect:
            raise StaleFile
        if self._able.can_write_files and await self._write_buffer(path, data):
            after = await self.read(path)
            if after == held != data:
                raise OSError(errno.EIO, CHANGE_NOT_TAKEN, path)
            return content_digest(after)
        if held != await self._files.read(path):
            raise OSError(errno.EBUSY, UNSAVED_CHANGES, path)
        return await self._files.replace(path, data, expect=expect)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file if the digest of the editor's version is `expect`."""
        if content_digest(await self.read(path)) != expect:
            raise StaleFile
        await self._files.remove(path, expect=expect)

    def _is_editor_text(self, path: str, data: bytes) -> bool:
        """Return whether a path is a UTF-8 text in the workspace, which the editor can save."""
        if len(data) > MAX_BUFFER_BYTES or not any(
            is_inside(path, folder) for folder in self._folders
        ):
            return False
        found = decode_text(data)
        return found is not None and found.encoding == TextEncoding("utf-8")

    async def _read_buffer(self, path: str) -> str | None:
        """Return the editor's version of a file, or None."""
        with anyio.move_on_after(BUFFER_READ_SECONDS):
            try:
                body = {"sessionId": self._session, "path": path}
                found = await self._ask("fs/read_text_file", {**body})
                return msgspec.json.decode(found, type=FileReply).content
            except (HostDeclined, msgspec.DecodeError):
                pass
        return None

    async def _write_buffer(self, path: str, data: bytes) -> bool:
        body = {"sessionId": self._session, "path": path, "content": data.decode()}
        try:
            await self._ask("fs/write_text_file", {**body})
        except HostDeclined:
            return False
        return True


def _keep_line_endings(data: bytes, text: str) -> bytes:
    """Encode the editor's text with the file's line endings."""
    there = data.decode()
    if _normalise_newlines(text) == _normalise_newlines(there):
        return data
    # Editors report LF for CRLF files; writing that back would change every line.
    if "\r" not in text and line_endings(there) == ["\r\n"]:
        text = text.replace("\n", "\r\n")
    return text.encode()


def _normalise_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")
