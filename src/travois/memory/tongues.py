"""The little words on which it depends how a sentence is meant, as other people write them.

Chat spellings, and the closed word classes of German, Spanish and French. In other languages a
wish is recognised by the model alone, and waits for a person's word.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
"""What is written for an English word that the rules know."""
WRITTEN = re.compile(
    "|".join(rf"(?P<m{number}>\b(?:{said})\b)" for number, said in enumerate(MEANT.values())),
    re.IGNORECASE,
)
ENGLISH = tuple(MEANT)


@lru_cache(4_096)
def plainly(text: str) -> str:
    """The text with such words as the rules know them."""
    return WRITTEN.sub(lambda hit: ENGLISH[int((hit.lastgroup or "m0")[1:])], text)
