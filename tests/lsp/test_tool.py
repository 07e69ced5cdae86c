"""LSP and ApplyRename, answered by basedpyright from the development dependencies."""

from __future__ import annotations

import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from tests.lsp.test_servers import PATIENCE, SPEAKER
from tests.tools.world import World
from travois.lsp.discovery import KNOWN_SERVERS, LanguageServerConfig
from travois.lsp.servers import LanguageServers
from travois.lsp.tool import create_lsp_tools
from travois.permissions.access import Access
from travois.ports.tool import ToolError
from travois.ports.world import Command, content_digest
from travois.process.local_processes import LocalProcesses

SERVER = str(Path(sysconfig.get_path("scripts")) / "basedpyright-langserver")
KNOWN = KNOWN_SERVERS["basedpyright"]
PYRIGHT = LanguageServerConfig("basedpyright", (SERVER, "--stdio"), KNOWN.extensions, "path")
TILL = "class Till:\n    def count(self) -> int:\n        return 1\n"
SHOP = "from till import Till\n\nprint(Till().count())  # Till, said 'ä🙂'\n"


class Shop(World):
    """A folder with two files, and the tools of a language server."""

    def __init__(self, tmp_path: Path, config: LanguageServerConfig = PYRIGHT) -> None:
        super().__init__(tmp_path)
        self.write("till.py", TILL)
        self.write("shop.py", SHOP)
        self.config = config
        self.seconds = PATIENCE

    async def ask(self, **args: object) -> str:
        outcome = await self.call(self.lsp, **args)
        (text,) = (getattr(one, "text", "") for one in outcome.content)
        return text

    async def refuse(self, **args: object) -> str:
        with pytest.raises(ToolError) as refused:
            await self.ask(**args)
        return str(refused.value)

    def tell(self, story: Callable[[Shop], Awaitable[None]]) -> None:
        async def main() -> None:
            processes = LocalProcesses()
            self.servers = LanguageServers(
                (self.config,),
                start=lambda one, folder, log: processes.connect_stdio(
                    Command(one.argv, folder), log=log
                ),
                report=self.shown.append,
                edit_seconds=PATIENCE,
                request_seconds=self.seconds,
            )
            self.lsp, self.apply = create_lsp_tools(self.servers)
            async with anyio.create_task_group() as group:
                group.start_soon(self.servers.run_until_cancelled)
                await anyio.wait_all_tasks_blocked()
                await story(self)
                group.cancel_scope.cancel()
            await processes.aclose()

        anyio.run(main)


async def ask_about_symbols(shop: Shop) -> None:
    here = {"file_path": "shop.py", "line": 3}
    assert await shop.ask(operation="definition", symbol="Till", **here) == (
        "till.py:1:7 class Till:"
    )
    assert await shop.ask(operation="references", symbol="Till.count", **here) == (
        "shop.py:3:14 print(Till().count())  # Till, said 'ä🙂'\n"
        "till.py:2:9 def count(self) -> int:"
    )
    assert "(method) def count() -> int" in await shop.ask(operation="hover", character=14, **here)
    assert await shop.ask(operation="symbols", file_path="till.py") == (
        "till.py\n1 class Till\n  2 method count"
    )
    assert await shop.ask(operation="symbols", symbol="Til") == "till.py:1:7 class class Till:"
    outside = await shop.ask(operation="definition", symbol="print", **here)
    assert "builtins.pyi:" in outside and "def print" not in outside
    shop.write("new.py", "from till import Till\n")
    found = ""
    while "new.py:1:18 from till import Till" not in found:
        await anyio.sleep(0.05)
        found = await shop.ask(operation="references", file_path="till.py", symbol="Till")
    shop.hidden = lambda path: path.endswith("new.py")  # type: ignore[method-assign]
    found = await shop.ask(operation="references", file_path="till.py", symbol="Till")
    assert "new.py" not in found and found.endswith(
        "(files denied by a permission rule were left out)"
    )
    assert "a permission rule hides" in await shop.refuse(
        operation="rename", file_path="till.py", symbol="Till", new_name="Box"
    )


def test_it_answers_about_symbols_with_lines_of_code(tmp_path: Path) -> None:
    Shop(tmp_path).tell(ask_about_symbols)


async def rename(shop: Shop) -> None:
    crlf = "from till import Till\r\nbad = '\xff'\r\nTill().count()\r\n".encode("latin-1")
    shop.write("old.py", b"# coding: latin-1\r\n" + crlf)
    wanted = {"operation": "rename", "file_path": "till.py", "line": 1, "symbol": "Till"}
    assert await shop.ask(new_name="Register", **wanted) == (
        "Rename Till to Register: 5 lines in 3 files. Nothing is changed yet; ApplyRename with "
        "plan: rename-1 makes this change.\n"
        "till.py:1 class Register:\n"
        "old.py:2 from till import Register\n"
        "old.py:4 Register().count()\n"
        "shop.py:1 from till import Register\n"
        "shop.py:3 print(Register().count())  # Till, said 'ä🙂'"
    )
    paths = [str(shop.folder / name) for name in ("till.py", "old.py", "shop.py")]
    assert shop.access(shop.apply, plan="rename-1") == tuple(Access("write", p) for p in paths)
    assert shop.apply.judged_as == "Edit"
    shop.state[f"seen:{paths[0]}"] = content_digest(TILL.encode())
    outcome = await shop.call(shop.apply, plan="rename-1")
    assert [change.what for change in outcome.changes] == [f"seen:{paths[0]}"]
    assert (shop.folder / "till.py").read_text() == TILL.replace("Till", "Register")
    assert (shop.folder / "old.py").read_bytes().splitlines(keepends=True) == [
        b"# coding: latin-1\r\n",
        b"from till import Register\r\n",
        b"bad = '\xff'\r\n",
        b"Register().count()\r\n",
    ]
    with pytest.raises(ToolError, match=r"Nothing was changed: .*till.py: another program"):
        await shop.call(shop.apply, plan="rename-1")
    assert await shop.ask(new_name="Box", **{**wanted, "symbol": "Register"})
    shop.write("shop.py", "print('mine')\n")
    with pytest.raises(ToolError, match=r"Nothing was changed: .*shop.py: another program"):
        await shop.call(shop.apply, plan="rename-2")
    assert "class Register" in (shop.folder / "till.py").read_text()


def test_a_rename_changes_all_files_or_none_and_only_the_bytes_that_it_means(
    tmp_path: Path,
) -> None:
    Shop(tmp_path).tell(rename)


async def ask_in_vain(shop: Shop) -> None:
    assert "only for .py, .pyi" in await shop.refuse(operation="hover", file_path="a.txt")
    assert "has 3 lines" in await shop.refuse(operation="hover", file_path="till.py", line=9)
    assert "'nought' is not in line 1 of till.py" in await shop.refuse(
        operation="hover", file_path="till.py", line=1, symbol="nought"
    )
    assert "Name the symbol" in await shop.refuse(operation="hover", file_path="till.py")
    assert "needs new_name" in await shop.refuse(
        operation="rename", file_path="till.py", symbol="Till"
    )
    with pytest.raises(ToolError, match="no plan 'rename-9'"):
        shop.access(shop.apply, plan="rename-9")
    assert "did not answer within 0.05 s" in await shop.refuse(
        operation="hover", file_path="till.py", symbol="Till"
    )


def test_what_cannot_be_answered_is_explained(tmp_path: Path) -> None:
    config = LanguageServerConfig("dead", ("python3", SPEAKER, "dead"), KNOWN.extensions, "path")
    shop = Shop(tmp_path, config)
    shop.seconds = 0.05
    shop.write("a.txt", "")
    shop.tell(ask_in_vain)
