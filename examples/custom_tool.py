"""Three tools of one's own: a safe one, one that reads files, one that uses the network."""

import json
import sqlite3
import urllib.request
from pathlib import Path
from typing import Annotated, Literal

import anyio

from travois import Options, Session, ToolContext, ToolError, tool

RATES = {"EUR": 1.0, "USD": 1.08, "CHF": 0.94}


@tool(safe=True)
def convert_money(
    amount: float, source: Literal["EUR", "USD", "CHF"], target: Literal["EUR", "USD", "CHF"]
) -> float:
    """Convert an amount of money from one currency to another."""
    return round(amount * RATES[target] / RATES[source], 2)


@tool(reads="database")
def query(
    database: Annotated[str, "The path of an SQLite file"],
    sql: Annotated[str, "One SELECT statement"],
    context: ToolContext,
) -> list[list[str]]:
    """Query an SQLite database, read-only."""
    path = Path(context.cwd, database)
    if not path.exists():
        raise ToolError(f"{database} does not exist. Glob finds files by name.")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return [[str(cell) for cell in row] for row in connection.execute(sql).fetchmany(100)]


@tool(network="host")
def latest_release(host: str, package: str) -> str:
    """Look up the newest release of a package on a package index."""
    with urllib.request.urlopen(f"https://{host}/pypi/{package}/json", timeout=20) as reply:
        return str(json.load(reply)["info"]["version"])


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        tools=[convert_money, query, latest_release],
        allowed=["latest_release(domain:pypi.org)"],
    )
    async with Session(options) as session:
        print(await session.ask("What is the sum of `orders` in shop.db, in US dollars?"))


anyio.run(main)
