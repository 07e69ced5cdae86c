"""Whether a request wishes for a call, and does not only speak of what the call would name."""

from __future__ import annotations

import re

from travois.local_model.plain import addressed, plain
from travois.local_model.reading import shape, spans


def _words(said: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{said})\b", re.IGNORECASE)


BEGINS = {
    "Bash": _words(
        r"run|execute|start|launch|try|call|do|build|test|use|let|(?:fire|kick)\s+(?:off|up)|invoke"
    ),
    "Edit": _words(r"replace|change|rename|swap|turn|substitute|fix|in\s+\S+"),
    "Remember": _words("remember that"),
    "TodoWrite": _words(r"(?:[\w']+\s+){0,6}?(?:todos?|to-do|tasks?|list|steps)\b[^:\n]*:\s"),
    "Write": _words(
        r"create|make|add|write|start|save|put|new|store|i (?:want|need) a (?:new )?file"
    ),
}
"""How a wish for something that leaves a trace begins; what is only talked of is not done."""
EVOKED = {
    "GitBlame": _words(
        r"who|whose|blame|annotat\w*|authors?|wrote|written|introduced|responsible|when"
    ),
    "GitLog": _words(
        r"commit\w*|histor\w*|log|change[sd]?|evolved?|story|work\w*|done|happened|lately|touched"
    ),
    "Glob": _words(
        r"find|show|list|wh(?:at|ich|ere)|files?|there|any\w*|have|glob|match\w*|contents?|tree|exists?"
        r"|folders?|directory|every\w*|sources|scripts?|layout|do|does|all"
    ),
    "Grep": _words(
        r"find|show|list|wh(?:ere|ich|o|at)|any\w*|used?|mention\w*|contain\w*|occur\w*|appears?|all"
        r"|every|count|many|often|lines?|does|do|is|are|has"
    ),
}
"""Words of which a request to look has one."""
BARRED = {
    "Read": _words("^find|used|mentioned|who|whose"),
    "Grep": _words("files? (?:is |are )?(?:called|named)"),
    "Glob": _words(
        "in (?:the )?file|used|mentioned|referenced|imported|(?<!file )(?<!files )called"
        "|contain(?:s|ing)|mention(?:s|ing)"
    ),
    "GitLog": re.compile(
        r"(?-i:\bI\b|\bi\b)|\bmy\b(?!.*commit)|\b(?:days?|weeks?|yesterday)\b",
        re.IGNORECASE,
    ),
}
"""Words with which another call is meant."""
ACTS = re.compile(
    r"(?:(?:can|could|should|shall|may)\s+(?:we|i)\s+)?(?:also\s+)?(?:add|append|build|change(?!s)|clean"
    r"|commit(?=\s+(?:all|and|everything|it|my|our|the|this)\b)|copy|create|delete|deploy|design|discard|drop"
    r"|edit|empty|erase|fix|implement|insert|install|make|merge|move|optimi[sz]e|port|push|put|rebase"
    r"|refactor|remove|rename|replace|reset|revert|review|rewrite|run|set|start|stash|stop|translate"
    r"|undo|uninstall|update|upgrade|use|write)\b",
    re.IGNORECASE,
)
"""How a request begins that is for more than a look."""


MORE = _words(
    r"better|best|bugs?|how to|ways?|improve\w*|faster|wrong|pros|cons|ideas?|plan|explain|why"
    r"|mistakes?|problems?|issues?|means?|meaning|summar\w+|secure|command that|yeah|web|online"
    r"|compare (?!commit).* and"
)
"""What a look does not answer."""


def wished(tool: str, text: str) -> bool:
    """Whether a text is a wish for such a call."""
    if tool == "Bash" and any(span.kind == "command" for span in spans(text)):
        return True
    if tool in BEGINS:
        said = plain(text) if tool == "Remember" else addressed(text)
        return BEGINS[tool].match(said) is not None
    asked = shape(text)
    if "\n" in text.strip() or ACTS.match(asked) or MORE.search(asked):
        return False
    if tool in BARRED and BARRED[tool].search(asked):
        return False
    return tool not in EVOKED or EVOKED[tool].search(asked) is not None
