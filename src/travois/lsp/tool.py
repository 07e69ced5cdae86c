"""LSP: what a language server knows of a symbol, where it is defined and used, and its renaming."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import anyio
import msgspec

from travois.core.display_text import escape_invisible, escape_path
from travois.lsp.client import RequestRefused, ServerUnavailable
from travois.lsp.problems import line_of_text, shorten_code_line
from travois.lsp.protocol import (
    Hover,
    Json,
    Position,
    ProtocolError,
    Symbol,
    WorkspaceEdit,
    character_to_column,
    column_to_character,
    decode_locations,
    find_symbol_position,
    name_symbol_kind,
    split_document_lines,
    uri_of_path,
)
from travois.lsp.rename import (
    APPLY_RENAME_NAME,
    RenamedFile,
    RenamePlan,
    RenamePlans,
    create_apply_rename,
    list_text_edits,
    plan_renamed_file,
)
from travois.lsp.server import LanguageServer, OpenDocument
from travois.lsp.servers import LanguageServers, decode_document, read_document
from travois.permissions.access import Access
from travois.permissions.paths import is_inside
from travois.ports.tool import AnyTool, CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.tools.paths import absolute_path, display_path, read_access, require_file

MAX_ROWS = 100
MAX_RENAME_ROWS = 60
MAX_HOVER_CHARS = 4_000
LspOperation = Literal["definition", "references", "implementation", "hover", "symbols", "rename"]
LOCATION_METHODS: dict[str, str] = {
    "definition": "textDocument/definition",
    "references": "textDocument/references",
    "implementation": "textDocument/implementation",
}
HIDDEN_NOTE = "(files denied by a permission rule were left out)"


class LspArgs(msgspec.Struct, frozen=True):
    """What to ask, and about which symbol."""

    operation: LspOperation
    file_path: str = ""
    line: int = 0
    symbol: Annotated[str, msgspec.Meta(description="its name as it stands in the line")] = ""
    character: int = 0
    new_name: str = ""


class LspCall:
    """One call of LSP, within the time that it has."""

    def __init__(
        self, args: LspArgs, env: Env, servers: LanguageServers, plans: RenamePlans
    ) -> None:
        self._args = args
        self._env = env
        self._servers = servers
        self._plans = plans

    async def answer_call(self) -> ToolOutcome:
        """Answer the call; raises `ToolError`."""
        try:
            with anyio.move_on_after(self._servers.request_seconds):
                return text_outcome(await self._answer_in_time())
        except ServerUnavailable as error:
            raise ToolError(f"The language server cannot answer: {error}. Use Grep.") from None
        except (RequestRefused, ProtocolError) as error:
            raise ToolError(f"The language server refused: {error}") from None
        raise ToolError(
            f"The language server did not answer within {self._servers.request_seconds:g} s. It "
            "may still be reading the project: try again later, or use Grep."
        )

    async def _answer_in_time(self) -> str:
        """Ask the language server and describe its answer."""
        args = self._args
        if args.operation == "rename" and not args.new_name:
            raise ToolError("A rename needs new_name.")
        if args.operation == "symbols" and not args.file_path:
            return await self._find_workspace_symbols()
        path = absolute_path(args.file_path, self._env.cwd)
        await require_file(path, self._env)
        server = self._servers.find_server(path, self._env.root)
        if server is None:
            kinds = ", ".join(sorted({s for one in self._servers.configs for s in one.languages}))
            raise ToolError(
                f"No language server is for {display_path(path, self._env)}, only for {kinds}."
            )
        text = decode_document(await self._env.files.read(path))
        if text is None:
            raise ToolError(f"{display_path(path, self._env)} is too large, or not a text file.")
        asked: Json = {"textDocument": {"uri": uri_of_path(path)}}
        if args.operation != "symbols":
            asked["position"] = self._locate_symbol(path, text)
        async with server.lock:
            document = await self._open_document(server, path, text)
            if args.operation not in ("symbols", "hover", "definition"):
                await server.wait_until_settled(document, self._servers.request_seconds / 2)
            match args.operation:
                case "symbols":
                    return await self._outline(server, document)
                case "hover":
                    hover = await server.query_server("textDocument/hover", asked, Hover)
                    return self._describe_hover(hover)
                case "rename":
                    return await self._plan_rename(server, asked)
                case _:
                    return await self._find_places(server, asked)

    async def _open_document(self, server: LanguageServer, path: str, text: str) -> OpenDocument:
        """Show the server the file, and whatever else changed, as it is on disk."""
        await server.tell_changed_files()
        for other in [one for one in server.documents if one != path]:
            await self._refresh_document(server, other)
        known = server.documents.get(path)
        if known is not None and known.text != text:
            known.errors = None
        return await server.show_text(path, text)

    async def _refresh_document(self, server: LanguageServer, path: str) -> None:
        try:
            text = read_document(path)
        except OSError:
            server.close_file(path)
            return
        if server.documents[path].text != text:
            (await server.show_text(path, text)).errors = None

    def _locate_symbol(self, path: str, text: str) -> Json:
        """Return the position of the symbol that a call is about, for the server."""
        args, lines = self._args, split_document_lines(text)
        name = display_path(path, self._env)
        if args.line > (count := len(text.splitlines())):
            raise ToolError(f"{name} has {count} lines; there is no line {args.line}.")
        if args.symbol:
            found = find_symbol_position(lines, args.symbol, args.line)
            if found is None:
                where = f"line {args.line} of {name}" if args.line else name
                raise ToolError(f"{args.symbol!r} is not in {where}. Read it, or use Grep.")
        elif args.line and args.character:
            line = lines[args.line - 1]
            found = Position(args.line - 1, column_to_character(line, args.character - 1))
        else:
            raise ToolError("Name the symbol, and the line that it stands in if there are several.")
        return {"line": found.line, "character": found.character}

    # What the model reads.

    def _describe_hover(self, hover: Hover | None) -> str:
        text = hover.plain_text if hover is not None else ""
        if not text:
            return "The language server knows nothing about this."
        lines = "\n".join(escape_invisible(line) for line in text.splitlines())
        return lines if len(lines) <= MAX_HOVER_CHARS else f"{lines[:MAX_HOVER_CHARS]}\n..."

    async def _find_places(self, server: LanguageServer, asked: Json) -> str:
        """Ask for definitions, references or implementations, and list them."""
        kind = self._args.operation
        if kind == "references":
            asked = {**asked, "context": {"includeDeclaration": True}}
        answer = await server.query_server(LOCATION_METHODS[kind], asked, msgspec.Raw)
        places = decode_locations(answer) if answer is not None else ()
        if not places:
            return f"The language server found no {kind} of this."
        return self._list_places((one.local_path, one.start_position, "") for one in places)

    def _list_places(self, places: Iterable[tuple[str, Position, str]]) -> str:
        """List places in files, each with its line of code, as far as it may be shown."""
        known = sorted(dict.fromkeys((p, (at.line, at.character), said) for p, at, said in places))
        shown = [one for one in known if one[0] and not self._env.hidden(one[0])]
        texts = {path: self._read_shown(path) for path in dict.fromkeys(row[0] for row in shown)}
        rows = [
            self._render_place(path, Position(*at), said, texts[path])
            for path, at, said in shown[:MAX_ROWS]
        ]
        if len(shown) > MAX_ROWS:
            rows.append(f"... and {len(shown) - MAX_ROWS} more")
        return "\n".join((*rows, *((HIDDEN_NOTE,) if len(shown) < len(known) else ())))

    def _render_place(self, path: str, at: Position, said: str, text: str) -> str:
        """Render a place in a file: its path, line and column, and the code or its description."""
        line = line_of_text(text, at.line)
        column = character_to_column(line, at.character) + 1
        words = " ".join(filter(None, (escape_invisible(said), shorten_code_line(line))))
        return f"{display_path(path, self._env)}:{at.line + 1}:{column} {words}".rstrip()

    def _read_shown(self, path: str) -> str:
        """Read a file of the workspace; empty for any other, which nobody was asked about."""
        if not is_inside(os.path.realpath(path), self._env.root):
            return ""
        try:
            return read_document(path)
        except OSError:
            return ""

    async def _outline(self, server: LanguageServer, document: OpenDocument) -> str:
        """List the symbols of a file, indented as they are nested."""
        asked: Json = {"textDocument": {"uri": uri_of_path(document.path)}}
        method = "textDocument/documentSymbol"
        found = await server.query_server(method, asked, tuple[Symbol, ...])
        rows = list(_outline_rows(found or (), depth=0))
        if len(rows) > MAX_ROWS:
            rows = [*rows[:MAX_ROWS], f"... and {len(rows) - MAX_ROWS} more"]
        name = display_path(document.path, self._env)
        return "\n".join((name, *rows)) if rows else f"{name} has no symbols."

    async def _find_workspace_symbols(self) -> str:
        """List the symbols of the workspace whose name fits."""
        name = self._args.symbol
        if not name:
            raise ToolError("Give a file_path for its outline, or a symbol to look for.")
        found = list[Symbol]()
        for server in self._servers.list_servers(self._env.root):
            method, asked = "workspace/symbol", Json(query=name)
            await server.tell_changed_files()
            await server.wait_while_busy()
            found += await server.query_server(method, asked, tuple[Symbol, ...]) or ()
        if not found:
            return f"No symbol like {name!r}. Grep searches any file."
        return self._list_places(
            (one.location.local_path, one.name_position, name_symbol_kind(one.kind))
            for one in found
            if one.location is not None
        )

    async def _plan_rename(self, server: LanguageServer, asked: Json) -> str:
        """Plan a rename and show each line that it would change."""
        args, env = self._args, self._env
        asked = {**asked, "newName": args.new_name}
        found = await server.query_server("textDocument/rename", asked, WorkspaceEdit)
        edits = list_text_edits(found) if found is not None else {}
        if not edits:
            raise ToolError("The language server cannot rename this.")
        files = tuple([await plan_renamed_file(path, own, env) for path, own in edits.items()])
        what = f"Rename {args.symbol or 'a symbol'} to {args.new_name}"
        plan = RenamePlan(what, files)
        rows = [row for file in files for row in _renamed_rows(file, display_path(file.path, env))]
        if len(rows) > MAX_RENAME_ROWS:
            rows = [*rows[:MAX_RENAME_ROWS], f"... and {len(rows) - MAX_RENAME_ROWS} more"]
        name = self._plans.remember_plan(plan)
        return "\n".join(
            (
                f"{what}: {plan.changed_lines} lines in {len(files)} files. Nothing is changed "
                f"yet; {APPLY_RENAME_NAME} with plan: {name} makes this change.",
                *rows,
            )
        )


def _outline_rows(symbols: Iterable[Symbol], *, depth: int) -> Iterator[str]:
    """Yield a line for each symbol of a file: its line, kind and name."""
    for one in symbols:
        name = escape_invisible(f"{one.name} {one.detail}".strip())
        yield f"{'  ' * depth}{one.name_position.line + 1} {name_symbol_kind(one.kind)} {name}"
        yield from _outline_rows(one.children, depth=depth + 1)


def _renamed_rows(file: RenamedFile, name: str) -> Iterator[str]:
    """Yield each line that a rename changes, as it would be."""
    text = decode_document(file.after) or ""
    for number in file.places:
        yield f"{name}:{number} {shorten_code_line(line_of_text(text, number - 1))}".rstrip()


def create_lsp_tools(servers: LanguageServers) -> tuple[AnyTool, ...]:
    """Create LSP, and ApplyRename for the renames that it plans."""
    plans = RenamePlans()

    async def run_lsp_call(args: LspArgs, env: Env, call: str) -> ToolOutcome:
        return await LspCall(args, env, servers, plans).answer_call()

    lsp = Tool(
        name="LSP",
        description=(
            "Ask a language server about the symbol in a line of file_path: definition, "
            "references, implementation, hover (type and documentation), or rename to new_name "
            "(plans it). symbols: the outline of file_path, or symbols of the workspace."
        ),
        args=LspArgs,
        access=_list_read_accesses,
        run=run_lsp_call,
        summary=_summarize_lsp,
        deferred=True,
    )
    return lsp, create_apply_rename(plans)


def _list_read_accesses(args: LspArgs, here: CallLocation) -> tuple[Access, ...]:
    return read_access(args.file_path, here)


def _summarize_lsp(args: LspArgs) -> str:
    """Describe a call of LSP in one line."""
    place = f" in {escape_path(args.file_path)}" if args.file_path else ""
    about = f" of {escape_invisible(args.symbol)}" if args.symbol else ""
    if args.operation == "rename":
        return f"Plan to rename {escape_invisible(args.symbol) or 'a symbol'}{place}"
    return f"{args.operation.capitalize()}{about}{place}"
