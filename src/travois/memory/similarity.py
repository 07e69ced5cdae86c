"""Similarity of two texts by their words, without a model or an index.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The little words on which it depends how a sentence is meant, as other people write them.


ENGLISH_EQUIVALENTS = {
    "i'm": r"im(?= (?:an?|not|the|new|from|based)\b)",
    "don't": r"dont|bitte keine?n?|keine?n? (?=\w+ (?:verwenden|benutzen|nehmen))",
    "doesn't": "doesnt",
    "please": r"pls|plz|plis|bitte|por favor|s'il (?:te|vous) pla[iî]t|stp|svp",
    "you": "u|ya",
    "every time": r"jedes ?mal|cada vez(?! más)|chaque fois|evry time",
    "always": r"immer(?! (?:noch|mehr|wieder))|grundsätzlich|stets|siempre|toujours|sempre|"
    r"alwyas|allways",
    "never": r"nie(?:mals)?(?: wieder)?|nunca|jamás|jamais|nevr",
    "from now on": r"ab (?:jetzt|sofort|heute)|k[üu]nftig|in zukunft|von nun an|"
    r"a partir de ahora|de ahora en adelante|désormais|dorénavant|à partir de maintenant",
    "for now": r"vorerst|fürs erste|erst ?mal|im moment|zunächst|por ahora|de momento|"
    r"por el momento|pour l'instant|pour le moment",
    "this time": r"diesmal|dieses mal|nur (?:heute|jetzt|kurz)|heute|esta vez|s[oó]lo hoy|hoy|"
    r"cette fois(?:-ci)?|aujourd'hui",
    "i prefer": r"ich (?:bevorzuge|mag lieber|hätte lieber|will lieber|möchte lieber)|prefiero|"
    r"je préfère",
    "never mind": r"vergiss (?:es|das)|doch nicht|egal|olvídalo|olvidalo|déjalo|laisse tomber|"
    r"nvm|nevermind",
    "i am a": r"ich bin (?:ein|eine|der|die)?(?= ?[A-ZÄÖÜ])|soy|je suis une?",
    "instead of": r"statt|anstatt|anstelle von|en vez de|en lugar de|au lieu de",
    "not": r"nicht|keine?n?|ne|pas",
    "if": r"wenn|falls|quand",
    "suppose": r"angenommen|stell dir vor|was wäre,? wenn|supón(?:gamos)?|imagina|supposons|"
    r"imagine",
    "says": r"sagt(?:e)?|schreibt|schrieb|meint(?:e)?|dice|dijo|escribe|écrit|a dit",
    "i want": r"ich (?:will|möchte)|quiero|je veux",
    "we": r"wir|nosotros|nous",
}
"""Other spellings and translations of English words that the rules use."""
EQUIVALENTS_PATTERN = re.compile(
    "|".join(
        rf"(?P<m{number}>\b(?:{said})\b)"
        for number, said in enumerate(ENGLISH_EQUIVALENTS.values())
    ),
    re.IGNORECASE,
)
ENGLISH_PHRASES = tuple(ENGLISH_EQUIVALENTS)


@lru_cache(4_096)
def normalise_language(text: str) -> str:
    """Replace foreign function words by the English ones that memory rules know."""
    return EQUIVALENTS_PATTERN.sub(
        lambda hit: ENGLISH_PHRASES[int((hit.lastgroup or "m0")[1:])], text
    )


WORD_PATTERN = re.compile(r"[^\W_]+(?:[._/@#+'’-]+[^\W_]+)*[+#]*", re.UNICODE)
WORD_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ed", "es", "s", "ly")
FILLER_TEXT = """a about after again all also an and any are as at be been before being both but
by can could did do does during each else ever every for from had has have he her here his how i if
in into is it its itself just let like may me might more most my no nor now of off on once one only
or other our out over own per please really same shall she should so some still such than that the
their them then there these they this those through thing to too under until up upon us use very via
was we were what when where whether which while who whom whose will with within would yes you your
user always never not don't doesn't won't can't isn't dont cannot avoid without stop instead note
want remember prefer project repository repo team work make sure keep mind memory code must
ask need needs"""
FILLER_WORDS = frozenset(FILLER_TEXT.split())
"""Words that tell nothing about what a text is about."""
SYNONYMS = {
    word: group.split()[0]
    for group in (
        "short brief concise terse succinct",
        "answer reply response respond message output explanation",
        "german deutsch",
        "test pytest testing spec",
        "comment comments docstring annotation",
        "commit commits committing",
        "indent indentation indenting",
        "begin start launch",
        "delete remove drop erase",
        "create add introduce",
        "change modify edit alter touch",
        "folder directory dir",
        "error failure crash",
        "deploy deployment release ship rollout",
        "staging stage",
        "database db postgres postgresql",
        "friday fridays",
        "bullet bullets list lists",
        "dependency dependencies package packages library libraries",
        "push pushing",
        "name naming called call",
        "write written wrote writing",
    )
    for word in group.split()
}
"""Words that mean the same where work is spoken of, by the one that stands for them."""
DENIAL_WORDS = re.compile(
    r"(?i)\b(?:no|not|never|instead of|rather than|avoid|without|stop|don['’]?t|doesn['’]?t|"
    r"isn['’]?t|aren['’]?t|"
    r"won['’]?t|"
    r"can['’]?t|mustn['’]?t|shouldn['’]?t|cannot|neither|nor|forbidden|hates?|dislikes?)\b"
)
MIN_SAME_LIKENESS = 0.7
MIN_CONTAINED_SHARE = 0.85
"""Least share of common words, of both texts or of the shorter one, for the same meaning."""
MIN_COMPARABLE_WORDS = 2
SAME_ROOT_LETTERS = 6
"""Equal first letters of two words that count as forms of one."""


@lru_cache(4_096)
def stem_word(word: str) -> str:
    """Return a word's stem, to compare memories."""
    word = word.casefold().replace("’", "'").removesuffix("'s").strip("'")
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    if word in SYNONYMS:
        return SYNONYMS[word]
    cut = (word.removesuffix(ending) for ending in WORD_ENDINGS if word.isalpha())
    roots = [root for root in cut if root != word and len(root) >= 3]
    meant = (SYNONYMS[root] for root in roots if root in SYNONYMS)
    root = roots[0] if roots else word
    return next(meant, root.rstrip("e") if len(root) > 3 or roots else root)


@lru_cache(2_048)
def content_words(text: str) -> frozenset[str]:
    """Return the stems of a memory's content words."""
    words = (word.casefold() for word in WORD_PATTERN.findall(text))
    return frozenset(stem_word(word) for word in words if word not in FILLER_WORDS)


def share_covered(text: str, by: frozenset[str]) -> float:
    """Return the share of a memory's content words found in `by`; 1 if it has none."""
    about = content_words(text)
    held = about & by
    forms = {word[:SAME_ROOT_LETTERS] for word in by if len(word) >= SAME_ROOT_LETTERS}
    near = sum(
        word[:SAME_ROOT_LETTERS] in forms for word in about - held if len(word) >= SAME_ROOT_LETTERS
    )
    return (len(held) + near) / len(about) if about else 1.0


def measure_likeness(one: str, other: str) -> float:
    """Return the similarity of two memories: their share of common words, from 0 to 1."""
    a, b = content_words(one), content_words(other)
    return len(a & b) / len(a | b) if a | b else 0.0


def have_same_meaning(one: str, other: str) -> bool:
    """Return whether two texts say the same, as far as words tell."""
    a, b = content_words(one), content_words(other)
    if min(len(a), len(b)) < MIN_COMPARABLE_WORDS or contains_denial(one) != contains_denial(other):
        return bool(a) and a == b and contains_denial(one) == contains_denial(other)
    return measure_likeness(one, other) >= MIN_SAME_LIKENESS or len(
        a & b
    ) >= MIN_CONTAINED_SHARE * min(len(a), len(b))


def contains_denial(text: str) -> bool:
    """Return whether a memory's text contains a negation."""
    return bool(DENIAL_WORDS.search(normalise_language(text)))
