"""The memories of a folder, opened as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from travois.compose.open_session import Place
from travois.engine.agent import AgentMemory, Runtime, World
from travois.memory.memory import Consent, Memory, Scope
from travois.memory.paths import project_folder_key
from travois.sessions import blobs
from travois.sessions.home import Home, Project
from travois.settings.schema import Loaded, Remembering

if TYPE_CHECKING:
    from travois.memory.store import FolderMemories
    from travois.search.index import Index

    Opened = FolderMemories
else:
    Opened = object

FEW = 8
"""The number of memories that are embedded at a time."""


def open_here(home: Home, project: Project, loaded: Loaded) -> FolderMemories:
    """Open the memories for a person to look at."""
    there = (home.path / "memory").is_dir()
    return _open(home, project, loaded, index=_index(home) if there else None)


def compose_memory(
    place: Place, loaded: Loaded, *, world: World, runtime: Runtime, persist: bool
) -> AgentMemory:
    """Compose an agent's memory; a session without a trace only recalls."""
    asked = loaded.settings.memory
    if not asked.enabled:
        return AgentMemory()
    wrote = world.processes.accept
    known = LazyMemories(place.home, place.project, loaded, wrote=wrote)
    known.behind = lambda: runtime.background and runtime.background(known.catch_up)
    return AgentMemory(known, extract=asked.extract if persist else "off", recall=asked.recall)


def consents(asked: Remembering) -> dict[Scope, Consent]:
    """Return what becomes of a proposed memory in each scope."""
    chosen = asked.consent
    return {"project": chosen.project, "user": chosen.user, "team": chosen.team}


def _index(home: Home) -> Index:
    from travois.search.embedder import Absent, find
    from travois.search.index import Index

    root = home.path / "memory"
    blobs.make_folders(root)
    embedder = find(root / "embedder.json")
    return Index(root / "index.db", None if isinstance(embedder, Absent) else embedder)


def _open(
    home: Home,
    project: Project,
    loaded: Loaded,
    *,
    index: Index | None,
    wrote: Callable[[str], None] | None = None,
) -> FolderMemories:
    from travois.memory.store import open_memories

    asked = loaded.settings.memory
    return open_memories(
        home,
        project,
        consent=consents(asked),
        index=index,
        trusted=loaded.trust == "trusted",
        directory=asked.directory,
        wrote=wrote,
    )


class LazyMemories(Opened):
    """Memories that are opened when there are any, or when the first is saved.

    So a session in a folder that nothing is known of loads no database and no model of meaning.
    """

    def __init__(
        self,
        home: Home,
        project: Project,
        loaded: Loaded,
        *,
        wrote: Callable[[str], None] | None = None,
    ) -> None:
        self._home, self._project, self._loaded = home, project, loaded
        self._wrote = wrote
        self._held: FolderMemories | None = None
        self._told = False
        self.behind: Callable[[], object] = lambda: None
        """Called once when some memories are not indexed by meaning yet."""

    def __getattr__(self, name: str) -> object:
        """Open the memories for everything that has no answer without them."""
        return getattr(self._opened(), name)

    def _opened(self) -> FolderMemories:
        if self._held is None:
            index = _index(self._home)
            self._held = _open(
                self._home, self._project, self._loaded, index=index, wrote=self._wrote
            )
        return self._held

    def _there(self) -> bool:
        """Return whether there are any memories."""
        root = self._home.path / "memory"
        own = self._loaded.settings.memory.directory or root / project_folder_key(
            self._home, self._project
        )
        places = (Path(own).expanduser(), root / "user")
        return self._held is not None or any(place.is_dir() for place in places)

    def all(self) -> tuple[Memory, ...]:
        """Return every memory that can be read."""
        return self._opened().all() if self._there() else ()

    def index(self) -> str:
        """Return the index that opens a session."""
        return self._opened().index() if self._there() else ""

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return the memories that are most relevant to a text."""
        if not self._there():
            return ()
        found = self._opened().search(text, limit=limit)
        if not self._told and self._opened().waiting():
            self._told = True
            from anyio import from_thread

            from_thread.run_sync(self.behind)
        return found

    async def catch_up(self) -> None:
        """Embed the rest for search by meaning, a few at a time."""
        fill = partial(self._opened().fill, FEW)
        filled = FEW
        while filled:
            filled = await anyio.to_thread.run_sync(fill, abandon_on_cancel=True)
