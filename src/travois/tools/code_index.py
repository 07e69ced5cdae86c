"""An index of the files of a repository: paths, symbols, words, meaning, and past commits.

A question seldom has the words of the code that it is about, but often those of commit messages
about the same files. So a file is known by its path, by what it defines, by its text, and by what
was said of it when it changed. What changed together with a good match counts, too, and of two
good matches the one that changed lately comes first.

The index lies outside the repository and is only a copy: deleting it costs time, no more.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import log1p
from pathlib import Path

import msgspec

from travois.files.openat import make_folders
from travois.process.spawn import find_program
from travois.search.candidates import CandidateSet
from travois.search.database import SearchCandidate, SearchDocument, SearchQuery
from travois.search.embedder import StaticEmbedder
from travois.search.index import SearchIndex
from travois.search.lexical import split_index_terms
from travois.tools import syntax
from travois.tools.codebase_search import CodeMatch
from travois.tools.commit_history import score_co_changes, score_recent_changes
from travois.tools.syntax import ParseTask, SourceText, SymbolQuery

NAMES, WHOLES, PARTS, COMMITS = "names", "wholes", "parts", "commits"
"""The collections: a document for the name and one for the text of each file, one for each part of
a text, and one for each commit."""
LIST_FILES = ("--no-config", "--files", "--null", "--hidden", "--glob=!.git", "--no-require-git")
MAX_INDEXED_FILE_BYTES = 400_000
MAX_CODE_LINE_BYTES = 5_000
"""A file with a longer line was not written by hand."""
LINES_PER_PART = 40
FILES_PER_BATCH = 100
MAX_COMMITS = 5_000
MAX_COMMIT_FILES = 30
"""A commit that changed more files says little about each."""
OUTLINE_TIMEOUT_SECONDS = 60.0
CODE_CANDIDATES, WHOLE_CANDIDATES = 256, 128
"""How many documents are compared; whole texts are long."""
SHOWN_LINES = 3
MIN_COSINE = 0.4
"""Least nearness in meaning that says anything."""
HEAD_MARK, HISTORY_MARK = "head", "history"
"""The last commit that was read, and the paths that each commit changed."""
PATH_SEPARATOR = re.compile(r"[/._\-]+")
LOG_FORMAT = "--format=%x01%H%x02%ct%x02%B%x02"

FILE_WEIGHTS = {
    "whole": 1.5,
    "part": 0.5,
    "name": 0.4,
    "path": 0.2,
    "meaning": 0.2,
    "commits": 0.7,
}
"""What each sign counts, as a share of that of the best file."""
CO_CHANGE_WEIGHT = 0.4
RECENCY_FACTOR = 0.5
"""How much more a file that changes all the time counts; it never counts by that alone."""
MAX_TELLING_COMMITS = 30


class CodeProgress(msgspec.Struct, frozen=True):
    """The number of files that are indexed, and of those left."""

    ready: int
    left: int


class CodeIndex:
    """The index of one folder; `place` is the file that holds it."""

    def __init__(self, place: Path, root: str) -> None:
        self._place, self._root = place, root
        self._index = SearchIndex(place, StaticEmbedder())

    @property
    def trouble(self) -> str:
        """The state of the index file, in a sentence for the user; empty while all is well."""
        return self._index.trouble

    def close(self) -> None:
        """Close the file."""
        self._index.close()

    def delete(self) -> None:
        """Drop all that is known, so that every file is read again."""
        self.close()
        for path in self._place.parent.glob(f"{self._place.name}*"):
            path.unlink(missing_ok=True)

    def refresh(self, go_on: Callable[[CodeProgress], bool]) -> CodeProgress:
        """Read what has changed since the last time, the latest first, while the caller says so.

        While another process does so, this one only counts what is left.
        """
        with _lock_beside(self._place) as alone:
            return self._refresh_alone(go_on if alone else None)

    def _refresh_alone(self, go_on: Callable[[CodeProgress], bool] | None) -> CodeProgress:
        known, found = self._index.read_marks(NAMES), dict(self._stamp_files())
        gone = [path for path in known if path not in found]
        stale = [path for path, stamp in found.items() if known.get(path) != stamp]
        stale.sort(key=lambda path: -int(found[path].split()[1]))
        if go_on is None:
            return CodeProgress(len(found) - len(stale), len(stale))
        self._drop_files(gone)
        self._read_commits()
        done, ready = 0, len(found) - len(stale)
        for at in range(0, len(stale), FILES_PER_BATCH):
            if not go_on(CodeProgress(ready + done, len(stale) - done)) and done:
                break
            batch = stale[at : at + FILES_PER_BATCH]
            self._index_files({path: found[path] for path in batch})
            done += len(batch)
        return CodeProgress(ready + done, len(stale) - done)

    def search(
        self, text: str, *, limit: int, is_hidden: Callable[[str], bool] = lambda path: False
    ) -> list[CodeMatch]:
        """Return the files that have most to do with a text, the best first."""
        wanted = frozenset(split_index_terms(text))
        query, names = self._find_in_collection(NAMES, text)
        parts = self._find_in_collection(PARTS, text)[1]
        wholes = self._find_in_collection(WHOLES, text)[1]
        signs = {
            "whole": {one.document.id: one.lexical for one in wholes},
            "part": _score_best_parts(parts),
            "name": {one.document.id: one.lexical for one in names},
            "path": _score_paths(query, names),
            "meaning": {
                one.document.id: one.cosine
                for one in names
                if one.cosine and one.cosine >= MIN_COSINE
            },
            "commits": self._score_by_commits(text),
        }
        scores = self._add_signs_of_history(_add_weighted_signs(signs))
        best = sorted(scores, key=lambda path: (-scores[path], path))
        there = self._index.read_marks(NAMES, best)
        shown = (path for path in best if path in there and not is_hidden(path))
        telling = _find_best_parts(parts)
        return [
            _build_code_match(path, scores[path], telling.get(path), wanted)
            for _, path in zip(range(limit), shown, strict=False)
        ]

    def _add_signs_of_history(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Add what changed together with the best files, and prefer what changed lately."""
        commits = self._read_history()
        together, scores = score_co_changes(commits, scores), dict(scores)
        strongest = max(together.values(), default=1.0)
        for path, rating in together.items():
            scores[path] = scores.get(path, 0.0) + CO_CHANGE_WEIGHT * rating / strongest
        recent = score_recent_changes(commits)
        most = max((log1p(5 * one) for one in recent.values()), default=1.0)
        return {
            path: score * (1 + RECENCY_FACTOR * log1p(5 * recent.get(path, 0.0)) / most)
            for path, score in scores.items()
        }

    def _read_history(self) -> list[list[str]]:
        """Read the paths of each indexed commit, the oldest first."""
        mark = self._index.read_marks(COMMITS, [HISTORY_MARK]).get(HISTORY_MARK)
        return msgspec.json.decode(mark, type=list[list[str]]) if mark else []

    def _find_in_collection(self, collection: str, text: str) -> CandidateSet:
        width = WHOLE_CANDIDATES if collection == WHOLES else CODE_CANDIDATES
        return self._index.find_candidates(collection, text, now=0.0, width=width)

    def _score_by_commits(self, text: str) -> dict[str, float]:
        """Score files by the commits that changed them: one of a few files says more of each."""
        found = self._find_in_collection(COMMITS, text)[1]
        best = sorted((one for one in found if one.lexical), key=_lexical_score, reverse=True)
        scores: dict[str, float] = defaultdict(float)
        for one in best[:MAX_TELLING_COMMITS]:
            paths = one.document.title.split("\0")
            nearness = one.lexical / best[0].lexical
            for path in paths:
                scores[path] += nearness**2 / len(paths) ** 0.5
        return scores

    def _stamp_files(self) -> Iterator[tuple[str, str]]:
        """Yield each file that is not ignored, with a stamp that changes with it."""
        command = (find_program("rg"), *LIST_FILES)
        listed = subprocess.run(command, cwd=self._root, capture_output=True, check=False)
        for raw in listed.stdout.split(b"\0"):
            path = os.fsdecode(raw)
            try:
                stat = os.lstat(os.path.join(self._root, path)) if path else None
            except OSError:
                continue
            if stat is not None:
                yield path, f"{stat.st_size} {stat.st_mtime_ns}"

    def _drop_files(self, gone: Sequence[str]) -> None:
        """Forget files that are no longer there."""
        for path in gone:
            self._index.update(NAMES, (), gone=[path], marks={path: ""})
            self._index.update(WHOLES, (), gone=[path])
            self._index.update(PARTS, (), gone=self._index.document_ids(PARTS, group=path))

    def _index_files(self, stamps: Mapping[str, str]) -> None:
        """Index these files, read as they are."""
        texts = {path: self._read_source_text(path) for path in stamps}
        symbols = _list_symbols(texts)
        names = [_build_name(path, symbols.get(path, ())) for path in texts]
        wholes = [_build_whole(path, text) for path, text in texts.items()]
        parts, gone = list[SearchDocument](), set[str]()
        for path, text in texts.items():
            made = list(_split_parts(path, text))
            gone |= self._index.document_ids(PARTS, group=path) - {one.id for one in made}
            parts += made
        self._index.update(PARTS, parts, gone=gone, embed=0)
        self._index.update(WHOLES, wholes, embed=0)
        self._index.update(NAMES, names, marks=stamps, embed=len(names))

    def _read_source_text(self, path: str) -> str:
        """Read a file; empty if it is binary, generated, too large or unreadable."""
        try:
            whole = os.path.join(self._root, path)
            if os.path.islink(whole) or os.path.getsize(whole) > MAX_INDEXED_FILE_BYTES:
                return ""
            data = Path(whole).read_bytes()
        except OSError:
            return ""
        if b"\0" in data[:8000] or max(map(len, data.split(b"\n"))) > MAX_CODE_LINE_BYTES:
            return ""
        return data.decode(errors="replace")

    def _read_commits(self) -> None:
        """Index the commits that came since the last time; all again if history was rewritten."""
        head = self._run_git_here("rev-parse", "--verify", "--quiet", "HEAD").strip()
        last = self._index.read_marks(COMMITS).get(HEAD_MARK, "")
        if not head or head == last:
            return
        since = f"{last}..{head}" if last and self._is_ancestor(last, head) else head
        if since == head:
            self._index.update(COMMITS, (), gone=self._index.document_ids(COMMITS))
        log = self._run_git_here(
            *("log", "--reverse", "--no-merges", "--no-renames", "--name-only", "--relative"),
            *(f"--max-count={MAX_COMMITS}", LOG_FORMAT, since, "--"),
        )
        commits = [one for entry in log.split("\1")[1:] for one in _parse_commit(entry)]
        before = [] if since == head else self._read_history()
        history = [*before, *(one.title.split("\0") for one in commits)][-MAX_COMMITS:]
        marks = {HEAD_MARK: head, HISTORY_MARK: msgspec.json.encode(history).decode()}
        self._index.update(COMMITS, commits, marks=marks, embed=0)

    def _is_ancestor(self, last: str, head: str) -> bool:
        return self._run_git_here("merge-base", last, head).strip() == last

    def _run_git_here(self, *args: str) -> str:
        """Run git; empty without a repository. Neither hooks nor filters of it run here."""
        command = (find_program("git"), "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
        command += ("-c", "log.showSignature=false")
        try:
            done = subprocess.run(
                (*command, *args), cwd=self._root, capture_output=True, check=False
            )
        except OSError:
            return ""
        return done.stdout.decode(errors="replace") if not done.returncode else ""


@contextmanager
def _lock_beside(place: Path) -> Generator[bool]:
    """Lock an index against other processes that read files; yield whether this one may."""
    try:
        make_folders(place.parent)
        fd = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True  # an index that cannot be kept is this process's own
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


def index_place(folder: Path, root: str) -> Path:
    """Return the index file of a repository in the folder of all indexes."""
    digest = blake2b(os.path.realpath(root).encode(errors="surrogateescape"), digest_size=8)
    return folder / "code" / f"{digest.hexdigest()}.db"


def _parse_commit(entry: str) -> Iterator[SearchDocument]:
    """Parse a git log entry for the code index; empty for a commit of too many files."""
    id, at, message, listed = entry.split("\2", 3)
    paths = [line for line in listed.split("\n") if line]
    if 0 < len(paths) <= MAX_COMMIT_FILES:
        yield SearchDocument(id, message.strip(), at=float(at), title="\0".join(paths))


def _split_parts(path: str, text: str) -> Iterator[SearchDocument]:
    """Split a file into parts of some lines each; the order of a part tells its first line."""
    lines = text.split("\n")
    for order, at in enumerate(range(0, len(lines), LINES_PER_PART)):
        part = "\n".join(lines[at : at + LINES_PER_PART])
        if part.strip():
            yield SearchDocument(f"{path}:{order}", part, path, order)


def _build_whole(path: str, text: str) -> SearchDocument:
    """Build the document of a whole text, with the words of its path."""
    return SearchDocument(path, text, title=" ".join(PATH_SEPARATOR.split(path)))


def _build_name(path: str, symbols: Iterable[str]) -> SearchDocument:
    """Build the document of a file: the words of its path, which weigh more, and its symbols."""
    title = " ".join(PATH_SEPARATOR.split(path))
    return SearchDocument(path, " ".join(dict.fromkeys(symbols)), title=title)


def _list_symbols(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """List what each file defines, read in a process of its own, which a bad file may crash."""
    known = {
        path: SourceText(text.encode(), language)
        for path, text in texts.items()
        if text
        and (language := syntax.language_of_path(path))
        and syntax.is_grammar_installed(language)
    }
    task = ParseTask("outline", SymbolQuery(""), syntax.SYMBOL_KINDS)
    lines: list[list[str] | None] = []
    while len(lines) < len(known):
        sources = tuple(known.values())[len(lines) :]
        try:
            done = subprocess.run(
                (sys.executable, "-I", "-m", "travois.tools.syntax"),
                input=msgspec.msgpack.encode(msgspec.structs.replace(task, sources=sources)),
                capture_output=True,
                check=False,
                timeout=OUTLINE_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            break
        told = done.stdout.splitlines()
        lines += (msgspec.json.decode(line, type=list[str] | None) for line in told)
        if done.returncode or not told:
            lines.append(None)
    return {
        path: [line.split(" ", 3)[2] for line in found or ()]
        for path, found in zip(known, lines, strict=False)
    }


def _add_weighted_signs(signs: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Add the signs of each file for code search, each as a share of its highest."""
    scores: dict[str, float] = defaultdict(float)
    for sign, rated in signs.items():
        most = max(rated.values(), default=0.0)
        for path, rating in rated.items() if most > 0 else ():
            scores[path] += FILE_WEIGHTS[sign] * rating / most
    return {path: score for path, score in scores.items() if score > 0}


def _score_paths(query: SearchQuery, names: Iterable[SearchCandidate]) -> dict[str, float]:
    """Score files by the words of the question in their paths; a long path says less."""
    words = {one.document.id: set(split_index_terms(one.document.title)) for one in names}
    return {
        path: sum(query.rarity.get(word, 0.0) for word in there) / max(1, len(there)) ** 0.5
        for path, there in words.items()
    }


def _score_best_parts(parts: Iterable[SearchCandidate]) -> dict[str, float]:
    """Score each file by the best of its parts."""
    return {one.document.group: one.lexical for one in sorted(parts, key=_lexical_score)}


def _find_best_parts(parts: Iterable[SearchCandidate]) -> dict[str, SearchDocument]:
    """Return the best part of each file."""
    ordered = sorted(parts, key=_lexical_score)
    return {one.document.group: one.document for one in ordered if one.lexical}


def _lexical_score(one: SearchCandidate) -> float:
    return one.lexical


def _build_code_match(
    path: str, score: float, part: SearchDocument | None, wanted: frozenset[str]
) -> CodeMatch:
    """Build a match with the lines of the part that have most of the words."""
    if part is None:
        return CodeMatch(path, round(score, 4))
    lines = part.text.split("\n")
    shared = [len(wanted.intersection(split_index_terms(line))) for line in lines]
    best = sorted(range(len(lines)), key=lambda at: (-shared[at], at))[:SHOWN_LINES]
    told = sorted(at for at in best if shared[at])
    first = part.order * LINES_PER_PART + 1 + (best[0] if told else 0)
    return CodeMatch(path, round(score, 4), first, tuple(lines[at].strip() for at in told))
