"""Whose background commands are whose, and what is told of them: real sessions, real programs."""

from __future__ import annotations

from contextlib import aclosing

import anyio
from msgspec.structs import replace

from tests.agents.test_spawn import Parts, agent, facts, options
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Changed, Result, Rewound, User
from travois.engine.background_jobs import running_jobs
from travois.testing import calls, say

__all__ = ["options"]


async def run(session: LiveSession, prompt: str = "") -> None:
    async with aclosing(session.run(prompt) if prompt else session.run()) as events:
        async for _ in events:
            pass


def reports(session: LiveSession) -> list[str]:
    told = (fact for fact in facts(session, User) if fact.mail.startswith("job:"))
    return [extract_text(fact.content) for fact in told]


def background(command: str) -> tuple[str, dict[str, object]]:
    return "Bash", {"command": command, "run_in_background": True}


def test_a_fork_of_a_session_is_told_that_its_jobs_are_elsewhere(options: Options) -> None:
    async def main() -> None:
        model = Parts(alpha=[calls(background("sleep 600")), say("begun")])
        async with LiveSession(options, model=model) as first:
            await run(first, "alpha")
            branched = replace(options, resume=first.id, fork=True)
            async with LiveSession(branched, model=model) as second:
                assert running_jobs(second.runtime.agent) == {}
                (told,) = reports(second)
                assert told.startswith("[bash_1: lost] It belongs to the session that this one")
            assert list(running_jobs(first.runtime.agent)) == ["bash_1"]

    anyio.run(main)


def test_a_job_that_was_taken_back_is_not_told_of(options: Options) -> None:
    async def main() -> None:
        model = Parts(alpha=[calls(background("sleep 0.3")), say("begun")])
        async with LiveSession(options, model=model) as session:
            await run(session, "alpha")
            log = session.runtime.agent.session
            begun = next(e.seq for e in log.history() if isinstance(e.fact, Result))
            log.append(Rewound(begun - 4))
            assert running_jobs(session.runtime.agent) == {}
            assert not await session.news()

    anyio.run(main)


def test_a_parent_hears_of_the_end_of_what_its_child_left_running(options: Options) -> None:
    async def main() -> None:
        begin = background("until [ -e go ]; do sleep 0.05; done; exit 9")
        model = Parts(
            alpha=[calls(agent("beta")), say("it runs"), say("heard")],
            beta=[calls(begin), say("left it running")],
        )
        async with LiveSession(options, model=model) as session:
            await run(session, "alpha")
            (result,) = facts(session, Result)
            left = "Background commands still running: bash_1 (until [ -e go ]"
            assert left in extract_text(result.content)
            assert Changed("job:bash_1", "running") in facts(session, Changed)
            await anyio.Path(options.cwd, "go").touch()
            assert await session.news()
            await run(session)
            assert [told.partition("]")[0] for told in reports(session)] == ["[bash_1: exit code 9"]

    anyio.run(main)


def test_a_child_is_told_of_its_own_command_while_it_lives(options: Options) -> None:
    async def main() -> None:
        model = Parts(
            alpha=[calls(agent("beta")), say("fine")],
            beta=[calls(background("sleep 0.3; exit 6")), say("I wait"), say("It was six")],
        )
        async with LiveSession(options, model=model) as session:
            await run(session, "alpha")
            (result,) = facts(session, Result)
            assert extract_text(result.content) == "[agent a1: done]\nIt was six"
            assert reports(session) == []

    anyio.run(main)


def test_patience_with_a_command_that_does_not_end_is_limited(options: Options) -> None:
    async def main() -> None:
        model = Parts(alpha=[calls(background("sleep 600")), say("begun")])
        async with LiveSession(options, model=model) as session:
            await run(session, "alpha")
            assert not await session.news(patience=0.1)
            await session.runtime.agent.world.processes.jobs()["bash_1"].kill()
            assert await session.news()

    anyio.run(main)
