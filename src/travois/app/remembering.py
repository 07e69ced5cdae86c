"""The memories that count in a folder, opened as its settings say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread

from travois.app import serving
from travois.app.opening import Place
from travois.context.memory.memory import Anchor, Change, Consent, Memory, Scope
from travois.engine.agent import Agent
from travois.engine.memories import Applied
from travois.engine.ports import Model
from travois.engine.room import model
from travois.kernel.models import Model as Card
from travois.store.home import Home
from travois.store.memory.place import key
from travois.store.project import Project
from travois.store.settings import Loaded, Remembering

if TYPE_CHECKING:
    from travois.store.memory.memories import FolderMemories
    from travois.store.search.index import Index

FEW = 8
"""How many memories are made findable by meaning at a time."""


def open_here(home: Home, project: Project, loaded: Loaded) -> FolderMemories:
    """Memories for a person to look at, found as an agent finds them."""
    there = (home.path / "memory").is_dir()
    return _open(home, project, loaded, index=_index(home) if there else None)


def equip(
    agent: Agent, place: Place, *, loaded: Loaded, serve: Callable[[Card], Model], persist: bool
) -> None:
    """Let an agent remember; one that leaves no trace only recalls."""
    asked = loaded.settings.memory
    if not asked.enabled:
        return
    known = LazyMemories(place.home, place.project, loaded)
    agent.memories = known
    known.behind = lambda: agent.background and agent.background(known.catch_up)
    agent.extract = asked.extract if persist else "off"
    agent.recall = asked.recall
    if asked.choose:
        agent.small = lambda: serving.small(model(agent), serve, among=serving.known(loaded))


def consents(asked: Remembering) -> dict[Scope, Consent]:
    """What becomes of a proposal in each scope."""
    chosen = asked.consent
    return {"project": chosen.project, "user": chosen.user, "team": chosen.team}


def _index(home: Home) -> Index:
    from travois.host.embedder.minilm import Absent, find
    from travois.store.search.index import Index

    root = home.path / "memory"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    embedder = find(root / "embedder.json")
    return Index(root / "index.db", None if isinstance(embedder, Absent) else embedder)


def _open(home: Home, project: Project, loaded: Loaded, *, index: Index | None) -> FolderMemories:
    from travois.store.memory.memories import open_memories

    asked = loaded.settings.memory
    return open_memories(
        home,
        project,
        consent=consents(asked),
        index=index,
        trusted=loaded.trust == "trusted",
        directory=asked.directory,
    )


class LazyMemories:
    """Memories that are opened when there are any, or the first one is to be kept.

    So a session in a folder that nothing is known of loads no database and no model of meaning.
    """

    def __init__(self, home: Home, project: Project, loaded: Loaded) -> None:
        self._home, self._project, self._loaded = home, project, loaded
        self._told = False
        self.behind: Callable[[], object] = lambda: None
        """What is done, once, when some memories cannot be found by meaning yet."""

    @cached_property
    def _opened(self) -> FolderMemories:
        return _open(self._home, self._project, self._loaded, index=_index(self._home))

    @property
    def _there(self) -> FolderMemories | None:
        """What there is; none while there is nothing."""
        if "_opened" in self.__dict__:
            return self._opened
        root = self._home.path / "memory"
        own = self._loaded.settings.memory.directory or root / key(self._home, self._project)
        places = (Path(own).expanduser(), root / "user")
        return self._opened if any(place.is_dir() for place in places) else None

    def all(self) -> tuple[Memory, ...]:
        """Every memory that can be read."""
        return there.all() if (there := self._there) else ()

    def consent(self, scope: Scope) -> Consent:
        """What becomes of a proposal in this scope."""
        return self._opened.consent(scope)

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Those that have most to do with a text."""
        there = self._there
        if there is None:
            return ()
        found = there.search(text, limit=limit)
        if not self._told and there.waiting():
            self._told = True
            anyio.from_thread.run_sync(self.behind)
        return found

    async def catch_up(self) -> None:
        """Let all be found by meaning, a few at a time, until the session is left."""
        fill = partial(self._opened.fill, FEW)
        filled = FEW
        while filled:
            filled = await anyio.to_thread.run_sync(fill, abandon_on_cancel=True)

    def apply(
        self,
        changes: Sequence[Change],
        *,
        why: str,
        session: str = "",
        based: Sequence[Memory] | None = None,
    ) -> Applied:
        """Make changes in one step, on record."""
        return self._opened.apply(changes, why=why, session=session, based=based)

    def propose(self, changes: Sequence[Change], *, why: str) -> tuple[str, ...]:
        """Lay changes in the inbox."""
        return self._opened.propose(changes, why=why)

    def index(self) -> str:
        """The index that opens a session."""
        return there.index() if (there := self._there) else ""

    def stale(self, memory: Memory) -> tuple[str, ...]:
        """The files that it speaks of and that are no longer as they were."""
        return self._opened.stale(memory)

    def anchor(self, path: str) -> Anchor | None:
        """A file as it is at the moment."""
        return self._opened.anchor(path)

    def reverify(self, memory: Memory) -> Memory | None:
        """Renew a memory whose files changed if all that it names still stands in them."""
        return self._opened.reverify(memory)

    def used(self, names: Iterable[str]) -> None:
        """Count that these were recalled."""
        self._opened.used(names)
