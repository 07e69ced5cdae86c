"""The session store of a session: what is missing here is fetched, what is written here is sent."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from travois.compat import transcript_frames
from travois.compose.open_session import OpenedSession, Workspace
from travois.compose.options import Options
from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.ports.session_store import SessionStore, StaleEpoch, StoredSession
from travois.sessions import catalog, fetch, home, lock, mirror, stores
from travois.sessions.blobs import BlobStore, make_folders
from travois.sessions.log_file import ResilientSessionLog
from travois.snapshots.work_ref import BUNDLE_FILE, WorkRef

EPOCH_VARIABLE = "TRAVOIS_LEASE_EPOCH"
"""The number of the lease that this run has; without it, each run takes the next number."""
INDEX_FILE = ".work-index"


class SessionStorage:
    """The store of one session, while it is opened and used."""

    def __init__(self, store: SessionStore, workspace: Workspace) -> None:
        self._store = store
        self._place = workspace
        self._blobs = BlobStore(workspace.home.blobs)
        self._epoch = int(os.environ.get(EPOCH_VARIABLE) or 0)
        self._fetched = False

    def fetch_missing(self, options: Options) -> Options:
        """Fetch the session to resume if only the store has it; return what to open."""
        if options.session_id and self._store.list_stored_logs(options.session_id):
            fix = f"Use --resume {options.session_id}, or another --session-id."
            raise UserError(f"Session {options.session_id} already exists in the store", fix=fix)
        id = self._find_missing(options)
        if not id:
            return options
        folder = self._place.home.session_folder(self._place.project.key, id)
        make_folders(folder)
        held = lock.acquire_lock(folder)
        try:
            self._fetched = fetch.fetch_session(self._store, id, folder, self._blobs)
        finally:
            held.release()
        return replace(options, resume=id, latest=False) if self._fetched else options

    def mirror_log(
        self, opened: OpenedSession, options: Options, stack: AsyncExitStack
    ) -> tuple[str, ...]:
        """Settle what differs from the store and send what is written from here on."""
        log = opened.log
        assert isinstance(log, ResilientSessionLog)
        session = StoredSession(opened.id, self._place.project.key, self._epoch)
        told: list[str] = []
        if options.resume or options.latest:
            session = replace(session, epoch=self._claim_resumed(session))
            told += filter(None, (self._settle_with_store(opened.id, log),))
        work = self._open_work_ref(opened)
        if self._fetched and work is not None:
            told += self._restore_fetched_work(opened.id, work)
        log.mirror = mirror.SessionMirror(
            self._store,
            session,
            log.folder,
            blobs=self._blobs,
            tell=log.add_saving_notice,
            more_files=work.collect_bundle if work is not None else tuple,
        )
        stack.callback(_close_mirror, log.mirror)
        return tuple(told)

    def _find_missing(self, options: Options) -> str:
        """Return the id of a session that is to be resumed and is not on this machine."""
        if options.latest:
            keys = self._place.project.keys
            if list(catalog.list_session_folders(self._place.home, keys)):
                return ""
            stored = [one for one in self._store.list_stored_sessions() if one.project in keys]
            return max(stored, key=lambda one: one.updated).id if stored else ""
        id = options.resume.lower()
        local = any(path.name == id for path in catalog.list_session_folders(self._place.home))
        return "" if local or not fetch.SAFE_ID.fullmatch(id) else id

    def _claim_resumed(self, session: StoredSession) -> int:
        try:
            return self._store.claim_session(session)
        except StaleEpoch as stale:
            raise mirror.make_taken_over_error(session.id, why=str(stale)) from None

    def _settle_with_store(self, id: str, log: ResilientSessionLog) -> str:
        told = fetch.settle_difference(self._store, id, log.folder, self._blobs)
        if told:
            self._fetched = True
            log.reread_end()
        return told

    def _open_work_ref(self, opened: OpenedSession) -> WorkRef | None:
        top, _ = home.find_repository(self._place.cwd)
        return WorkRef(Path(top), opened.id, opened.log.folder / INDEX_FILE) if top else None

    def _restore_fetched_work(self, id: str, work: WorkRef) -> tuple[str, ...]:
        try:
            return (work.restore_work(self._store.read_stored_file(id, BUNDLE_FILE)),)
        except KeyError:
            return ()


def fetch_transcript(
    workspace: Workspace, options: Options, environ: Mapping[str, str]
) -> SessionStore | None:
    """Return the session to resume as the host of claude-agent-sdk got it from its store.

    One that is not on this machine is fetched at once.
    """
    path = transcript_frames.find_transcript(options.resume, environ)
    if path is None or not fetch.SAFE_ID.fullmatch(options.resume):
        return None
    scratch = Path(tempfile.mkdtemp(prefix="travois-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    store = transcript_frames.unpack_transcript(path, options.resume, scratch)
    if store is not None:
        SessionStorage(store, workspace).fetch_missing(options)
    return store


def settle_with_transcript(workspace: Workspace, opened: OpenedSession, store: SessionStore) -> str:
    """Take over what the host's store has and this machine has not; return what to tell."""
    assert isinstance(opened.log, ResilientSessionLog)
    folder, kept = opened.log.folder, BlobStore(workspace.home.blobs)
    told = fetch.settle_difference(store, opened.id, folder, kept)
    opened.log.reread_end()
    return told


def open_session_storage(workspace: Workspace, address: str) -> SessionStorage:
    """Open the session store at an address."""
    return SessionStorage(stores.open_store(address), workspace)


def _close_mirror(used: mirror.SessionMirror) -> None:
    if told := used.push_rest():
        write_stderr(f"travois: {told}\n")
