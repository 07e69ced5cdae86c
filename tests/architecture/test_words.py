"""Texts and documents use the field's words: retired ones may only become fewer."""

from __future__ import annotations

import re

from tests.architecture.strings import collect_texts
from tests.architecture.test_sizes import ROOT

RETIRED = re.compile(
    r"""
    servers?\ of\ tools | lies?\ about | \bwalls?\b | \bunwalled\b | \bcaged?\b | \bpurse\b
    | \blend(?:s|ing|er|ers)?\b | \blent\b | \bwhoever\b | \bwhosoever\b | \bcould\ not\ be\ had\b
    | \bset\ aside\b | \bnothing\ is\ to\ be\b | \bit\ is\ called\ so\b
    | \bmore\ than\ can\ be\ told\b | \bto\ only\ look\b | \bat\ the\ most\b | \bat\ the\ least\b
    | \bnought\b | \bthe\ night\ that\b | \bis\ (?:told|said|heard)\b
    | \bare\ (?:told|said|heard)\b | \bwas\ told\b | \btakes?\ along\b
    | (?<!here\ )\bis\ no\b(?!\ longer) | (?<!here\ )\bare\ no\b(?!\ longer) | \bput\ in\ order\b
    | \bnobody\ (?:is|listens)\b | \bwhat\ was\ read\ stays\b | \bruns\ beside\b | \bbeside\ it\b
    | \bof\ its\ own\ accord\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Private metaphors and turns of phrase that read like a translation."""
IN_TEXTS = 15
IN_DOCUMENTS = 5


def test_texts_use_ordinary_words() -> None:
    found = [one for one in collect_texts() if RETIRED.search(one.text)]
    shown = "\n".join(f"{one.file}:{one.line}: {one.text}" for one in found)
    assert len(found) <= IN_TEXTS, shown


def test_documents_use_ordinary_words() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = [
        f"{page.name}: {line.strip()}"
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if RETIRED.search(line)
    ]
    assert len(found) <= IN_DOCUMENTS, "\n".join(found)
