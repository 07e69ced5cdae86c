"""Two runs of one session as steps of a DBOS workflow (extra `fleet`).

Kill it and start it again: what had ended is not run again, what had not goes on.
"""

import asyncio

from dbos import DBOS, DBOSConfig, SetWorkflowID

from travois import Budget, Options, run_dbos_step

OPTIONS = Options(
    model="anthropic/claude-opus-5-5", mode="accept-edits", budget=Budget(dollars=1.0)
)


@DBOS.workflow()
async def write_changelog() -> str:
    changes = await run_dbos_step("List what changed in the last release.", OPTIONS)
    changes.raise_for_error()
    return (await run_dbos_step("Write it to CHANGES.md.", OPTIONS)).raise_for_error().text


async def main() -> None:
    with SetWorkflowID("changelog-1.2"):
        handle = await DBOS.start_workflow_async(write_changelog)
    print(await handle.get_result())


config: DBOSConfig = {"name": "changelog", "system_database_url": "sqlite:///changelog.sqlite"}
DBOS(config=config)
DBOS.launch()
asyncio.run(main())
DBOS.destroy()
