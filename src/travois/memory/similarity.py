"""Similarity of two texts by their words, without a model or an index.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The little words on which it depends how a sentence is meant, as other people write them.


MEANT = {
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
WRITTEN = re.compile(
    "|".join(rf"(?P<m{number}>\b(?:{said})\b)" for number, said in enumerate(MEANT.values())),
    re.IGNORECASE,
)
ENGLISH = tuple(MEANT)


@lru_cache(4_096)
def plainly(text: str) -> str:
    """Return the text with foreign function words replaced by the English ones in the rules."""
    return WRITTEN.sub(lambda hit: ENGLISH[int((hit.lastgroup or "m0")[1:])], text)


WORD = re.compile(r"[^\W_]+(?:[._/@#+'’-]+[^\W_]+)*[+#]*", re.UNICODE)
ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ed", "es", "s", "ly")
TELLING_NOTHING = """a about after again all also an and any are as at be been before being both but
by can could did do does during each else ever every for from had has have he her here his how i if
in into is it its itself just let like may me might more most my no nor now of off on once one only
or other our out over own per please really same shall she should so some still such than that the
their them then there these they this those through thing to too under until up upon us use very via
was we were what when where whether which while who whom whose will with within would yes you your
user always never not don't doesn't won't can't isn't dont cannot avoid without stop instead note
want remember prefer project repository repo team work make sure keep mind memory code must
ask need needs"""
FILLER = frozenset(TELLING_NOTHING.split())
"""Words that tell nothing about what a text is about."""
CONCEPTS = {
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
DENIAL = re.compile(
    r"(?i)\b(?:no|not|never|instead of|rather than|avoid|without|stop|don['’]?t|doesn['’]?t|"
    r"isn['’]?t|aren['’]?t|"
    r"won['’]?t|"
    r"can['’]?t|mustn['’]?t|shouldn['’]?t|cannot|neither|nor|forbidden|hates?|dislikes?)\b"
)
ALIKE = 0.7
HELD = 0.85
"""Least share of common words, of both texts or of the shorter one, for the same meaning."""
FEWEST = 2
ROOT = 6
"""Equal first letters of two words that count as forms of one."""


@lru_cache(4_096)
def stem(word: str) -> str:
    """Return the stem that all forms of a word share."""
    word = word.casefold().replace("’", "'").removesuffix("'s").strip("'")
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    if word in CONCEPTS:
        return CONCEPTS[word]
    cut = (word.removesuffix(ending) for ending in ENDINGS if word.isalpha())
    roots = [root for root in cut if root != word and len(root) >= 3]
    meant = (CONCEPTS[root] for root in roots if root in CONCEPTS)
    root = roots[0] if roots else word
    return next(meant, root.rstrip("e") if len(root) > 3 or roots else root)


@lru_cache(2_048)
def content(text: str) -> frozenset[str]:
    """Return the stems of a text's content words."""
    words = (word.casefold() for word in WORD.findall(text))
    return frozenset(stem(word) for word in words if word not in FILLER)


def covered(text: str, by: frozenset[str]) -> float:
    """Return the share of a text's content words found in `by`; 1 if it has none."""
    about = content(text)
    held = about & by
    forms = {word[:ROOT] for word in by if len(word) >= ROOT}
    near = sum(word[:ROOT] in forms for word in about - held if len(word) >= ROOT)
    return (len(held) + near) / len(about) if about else 1.0


def likeness(one: str, other: str) -> float:
    """Return the share of common content words of two texts, from 0 to 1."""
    a, b = content(one), content(other)
    return len(a & b) / len(a | b) if a | b else 0.0


def same(one: str, other: str) -> bool:
    """Return whether two texts say the same, as far as words tell."""
    a, b = content(one), content(other)
    if min(len(a), len(b)) < FEWEST or denies(one) != denies(other):
        return bool(a) and a == b and denies(one) == denies(other)
    return likeness(one, other) >= ALIKE or len(a & b) >= HELD * min(len(a), len(b))


def denies(text: str) -> bool:
    """Return whether a text contains a negation."""
    return bool(DENIAL.search(plainly(text)))
