"""Memories of a folder, opened as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from travois.compose.open_session import Workspace
from travois.engine.agent import AgentMemory, AgentRuntime, World
from travois.lazy_imports import lazy_imports
from travois.memory.memory import Memory, MemoryConsent, MemoryScope
from travois.memory.paths import project_folder_key
from travois.sessions import blobs
from travois.sessions.home import Project, TravoisHome
from travois.settings.schema import LoadedSettings, MemorySettings

if TYPE_CHECKING:
    from travois.memory.store import FolderMemoryStore
    from travois.search.index import SearchIndex

    MemoriesType = FolderMemoryStore
else:
    MemoriesType = object

with lazy_imports():
    from anyio import from_thread

    from travois.memory import store
    from travois.search import embedder as search_embedder
    from travois.search import index as search_index


FILL_BATCH_SIZE = 8
"""The number of memories that are embedded at a time."""


def open_memories_here(
    home: TravoisHome, project: Project, loaded: LoadedSettings
) -> FolderMemoryStore:
    """Open the current folder's memories for the user to browse."""
    there = (home.path / "memory").is_dir()
    return _open_memories(home, project, loaded, index=_open_index(home) if there else None)


def compose_memory(
    workspace: Workspace,
    loaded: LoadedSettings,
    *,
    world: World,
    runtime: AgentRuntime,
    persist: bool,
) -> AgentMemory:
    """Compose an agent's memory; a session that saves nothing only recalls."""
    asked = loaded.settings.memory
    if not asked.enabled:
        return AgentMemory()
    wrote = world.processes.accept_change
    known = LazyMemories(workspace.home, workspace.project, loaded, wrote=wrote)
    known.behind = lambda: runtime.background and runtime.background(known.catch_up)
    return AgentMemory(known, extract=asked.extract if persist else "off", recall=asked.recall)


def consent_by_scope(asked: MemorySettings) -> dict[MemoryScope, MemoryConsent]:
    """Return for each memory scope whether new memories are saved, queued or refused."""
    chosen = asked.consent
    return {"project": chosen.project, "user": chosen.user, "team": chosen.team}


def _open_index(home: TravoisHome) -> search_index.SearchIndex:
    """Open the search index of memories, with embeddings if their model is installed."""
    root = home.path / "memory"
    blobs.make_folders(root)
    embedder = search_embedder.find_embedder(root / "embedder.json")
    if isinstance(embedder, search_embedder.NoEmbedder):
        embedder = search_embedder.StaticEmbedder()
    return search_index.SearchIndex(root / "index.db", embedder)


def _open_memories(
    home: TravoisHome,
    project: Project,
    loaded: LoadedSettings,
    *,
    index: SearchIndex | None,
    wrote: Callable[[str], None] | None = None,
) -> FolderMemoryStore:
    """Open the memories of a project with the consent and folder of the settings."""
    asked = loaded.settings.memory
    return store.open_memories(
        home,
        project,
        consent=consent_by_scope(asked),
        index=index,
        trusted=loaded.trust == "trusted",
        directory=asked.directory,
        wrote=wrote,
    )


class LazyMemories(MemoriesType):
    """Memories that are opened when there are any, or when the first one is saved.

    So a session in a folder without memories loads neither a database nor an embedding model.
    """

    def __init__(
        self,
        home: TravoisHome,
        project: Project,
        loaded: LoadedSettings,
        *,
        wrote: Callable[[str], None] | None = None,
    ) -> None:
        self._home, self._project, self._loaded = home, project, loaded
        self._wrote = wrote
        self._held: FolderMemoryStore | None = None
        self._told = False
        self.behind: Callable[[], object] = lambda: None
        """Called once when some memories are not indexed by meaning yet."""

    def __getattr__(self, name: str) -> object:
        """Open the memories for every attribute that needs them."""
        return getattr(self._ensure_open(), name)

    def _ensure_open(self) -> FolderMemoryStore:
        if self._held is None:
            index = _open_index(self._home)
            self._held = _open_memories(
                self._home, self._project, self._loaded, index=index, wrote=self._wrote
            )
        return self._held

    def _has_memories(self) -> bool:
        """Return whether there are any memories."""
        root = self._home.path / "memory"
        own = self._loaded.settings.memory.directory or root / project_folder_key(
            self._home, self._project
        )
        places = (Path(own).expanduser(), root / "user")
        return self._held is not None or any(place.is_dir() for place in places)

    def all(self) -> tuple[Memory, ...]:
        """Return every memory that can be read."""
        return self._ensure_open().read_all() if self._has_memories() else ()

    def index(self) -> str:
        """Return the index that opens a session."""
        return self._ensure_open().index() if self._has_memories() else ""

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return the memories that are most relevant to a text."""
        if not self._has_memories():
            return ()
        found = self._ensure_open().search(text, limit=limit)
        if not self._told and self._ensure_open().count_unembedded():
            self._told = True
            from_thread.run_sync(self.behind)
        return found

    async def catch_up(self) -> None:
        """Embed the rest for search by meaning, a few at a time."""
        fill = partial(self._ensure_open().embed_more, FILL_BATCH_SIZE)
        filled = FILL_BATCH_SIZE
        while filled:
            filled = await anyio.to_thread.run_sync(fill, abandon_on_cancel=True)
