"""An MCP server in the same process: its tools, without a program to start (extra `mcp`)."""

import anyio
from mcp.server import MCPServer

from travois import Options, Session

server = MCPServer("shop")
STOCK = {"apple": 3, "pear": 0}


@server.tool()
def stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return STOCK[item]


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        mcp_servers={"shop": server},
        allowed=["mcp__shop__stock"],
    )
    async with Session(options) as session:
        print(await session.ask("How many apples are there?"))


anyio.run(main)
