"""No weight depends on the words of one kind of talk: made-up chats, and chats in made-up words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from travois.search.database import SearchDocument
from travois.search.embedder import StaticEmbedder
from travois.search.index import SearchIndex
from travois.search.lexical import INDEX_STOP_WORDS

CODE = "\n".join(f"    total_{n} = parse_row(rows[{n}], strict=True)" for n in range(12))
ASSISTANT = (
    ("user", "How do I rotate the signing certificates of the ingest service?"),
    (
        "model",
        "Rotate them in two steps. First add the second certificate to the trust store and wait "
        f"for the rollout. Then switch the signer.\n```python\n{CODE}\n```\nOld ones expire.",
    ),
    ("user", "And what reads the parquet files at night?"),
    (
        "model",
        f"The compaction job does, at two in the morning.\n```python\n{CODE}\n```\nIt needs 8 GB.",
    ),
    ("user", "Fine. Which port does the metrics exporter listen on?"),
    ("model", f"It listens on 9187, behind the proxy.\n```python\n{CODE}\n```"),
)
GERMAN = (
    ("Ilse", "Hast du schon einen Termin beim Zahnarzt?"),
    ("Jonas", "Ja, am Donnerstag um acht in der Früh, leider."),
    ("Ilse", "Und wohin fahrt ihr in den Ferien?"),
    ("Jonas", "Wir mieten wieder die Hütte am Weissensee, wie letztes Jahr."),
    ("Ilse", "Das klingt wunderbar, da war ich noch nie."),
    ("Jonas", "Das Fahrrad habe ich übrigens dem Nachbarn verkauft."),
)
QUESTIONS = (
    (ASSISTANT, "how were the signing certificates rotated", {"0", "1"}),
    (ASSISTANT, "which job reads parquet files", {"2", "3"}),
    (ASSISTANT, "port of the metrics exporter", {"4", "5"}),
    (GERMAN, "Termin beim Zahnarzt", {"0", "1"}),
    (GERMAN, "Wem hat Jonas das Fahrrad verkauft?", {"5"}),
    (GERMAN, "Hütte in den Ferien", {"2", "3"}),
)
Talk = tuple[tuple[str, str], ...]


def rank(folder: Path, talk: Talk, question: str, *, embedder: StaticEmbedder | None) -> list[str]:
    index = SearchIndex(folder / "index.db", embedder)
    turns = (
        SearchDocument(str(place), text, "chat", place, 1000.0 + place, who=who)
        for place, (who, text) in enumerate(talk)
    )
    index.update("turns", turns)
    found = [hit.id for hit in index.search("turns", question, limit=6, now=2000.0)]
    index.close()
    return found


def disguise(text: str) -> str:
    """The text with another word for each word that the index keeps; marks stay."""

    def replace_word(hit: re.Match[str]) -> str:
        word = hit[0].lower()
        return (
            hit[0] if word in INDEX_STOP_WORDS else "".join(chr(0x430 + ord(c) % 32) for c in word)
        )

    return re.sub(r"[^\W\d_]+", replace_word, text)


@pytest.mark.parametrize(("talk", "question", "answers"), QUESTIONS)
def test_answers_stand_first_in_other_kinds_of_talk(
    tmp_path: Path, talk: Talk, question: str, answers: set[str]
) -> None:
    found = rank(tmp_path, talk, question, embedder=StaticEmbedder())
    assert answers & set(found[:1])
    assert answers <= set(found[:3])


@pytest.mark.parametrize(("talk", "question", "answers"), QUESTIONS[:3])
def test_other_words_for_everything_change_no_order(
    tmp_path: Path, talk: Talk, question: str, answers: set[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hidden = tuple((who, disguise(text)) for who, text in talk)
    plain = rank(tmp_path / "a", talk, question, embedder=None)
    assert rank(tmp_path / "b", hidden, disguise(question), embedder=None)[:2] == plain[:2]
    assert set(plain[:1]) & answers
