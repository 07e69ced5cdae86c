"""A request without its manners: what is asked for, in the verbs that the examples use.

Only the beginning, the end and what names the workspace itself are touched; what is quoted and
what is to be kept or written stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from travois.local_model.commands import command

MANNERS = re.compile(
    r"""^\W*(?:(?:please|pls|plz|kindly|hey|yo|now|ok|okay|so|and|then|just|quickly|quick|simply
    |(?:can|could|would|will|should)\ (?:you|u|ya)(?:\ (?:please|pls|just|quickly|maybe|perhaps))*
    |you\ (?:should|can)|always|let\ us|let['’]?s|i\ want\ you\ to|i['’]?d\ like\ you\ to
    |(?:(?:would|do)\ you\ )?mind(?=\ \w+ing)|go\ ahead\ and|be\ so\ kind\ (?:as|and)\ to
    |do\ me\ a\ favou?r\ and|help\ me(?:\ to)?
    |for\ the\ future|from\ now\ on)(?:[,:]|(?=\s))\s*)+(?=\w)""",
    re.VERBOSE | re.IGNORECASE,
)
"""How one turns to somebody."""
WANTS = re.compile(
    r"""^(?:i['’]?d\ (?:like|love)\ to
    |i\ (?:would\ like|want|wanna|need|have)\ (?!a\ (?:\w+\ )?file)(?:to\ )?
    |i(?:\ am|['’]m)\ (?:trying|looking)\ to|can\ i(?:\ please)?|could\ i|may\ i|i\ only\ need
    |(?:i\ only|only|just)\ (?=show|list|read))\s*(?=\w)""",
    re.VERBOSE | re.IGNORECASE,
)
"""How one says what one would like oneself: enough for a look."""
VERBS = {
    "show": r"""show(?:ing)?|open(?:ing)?(?:\ up)?|print(?:ing)?|display|cat|view|read|see|output
        |type\ out|(?:pull|bring)\ up|dump
        |(?:let|lemme)\ (?:me\ )?(?:see|look\ at|view|read|check|open)|inspect|less
        |(?:have|take|get)\ (?:a\ )?(?:quick\ )?(?:look|peek|glance)\ (?:at|in|into)
        |(?:look|peek|glance)\ (?:at|into)|gimme|give|get|tell|walk\ me\ through|present""",
    "find": r"""find|(?:search|scan|grep|look|comb|go)(?:\ in|\ through)?\ (?:all\ )?
        (?:the|this|my|our)\ (?:whole\ |entire\ )?
        (?:repo(?:sitory)?|project|code|code\ ?base|folder|files|sources?)\ for
        |(?:search|look|hunt|grep|scan|check)(?:\ around)?\ for|search|scan|sweep|comb(?:\ through)?
        |grep|rip\ ?grep|rg|locate|look\ up|(?:hunt|track)\ down|hunt|seek|spot""",
    "list": r"list|ls|enumerate",
    "run": r"run|execute|launch|(?:fire|kick)\ (?:off|up)|invoke|spin\ up|start\ up",
    "where is": r"""where(?:['’]s|\ can\ i\ find|\ did\ (?:i|we)\ (?:put|leave|save)
        |\ do\ (?:i|we)\ (?:keep|store))""",
    "create": r"""create|i\ (?:want|need)(?=\ a\ (?:new\ )?file\b)
        |(?:make|set\ up|start|generate|add)(?=\ (?:me\ )?(?:an?\ )?(?:\w+\ )?file\b)""",
    "remember that": r"""(?:remember|memori[sz]e|(?:keep|bear)\ in\ mind
        |(?:make\ a\ )?note(?:\ down|\ to\ self)?|(?:do\ not|don['’]?t|never)\ forget
        |(?:jot|write)\ down)
        (?:\ for\ (?:later|next\ time|(?:the\ )?future))?[,:]?(?:\ that\b)?:?(?=\ \w)""",
}
"""What people say for one and the same thing."""
VERB = tuple(
    (
        verb,
        re.compile(rf"^(?:{said})(?!\w|['’.(/=-])(?:\ (?:me|us)\b)?", re.VERBOSE | re.IGNORECASE),
    )
    for verb, said in VERBS.items()
)
TRACES = re.compile(
    r"(?:run|create|remember|write|make|put|add|save|store|new|start|replace|change|todos?)\b",
    re.IGNORECASE,
)
"""How a request begins that has a text in it to keep, or a command."""
KNOWN = ("show", "open", "print", "display", "view", "read", "find", "search", "locate", "list")
HERE = re.compile(
    r"""(?P<quoted>`[^`]*`|"[^"]*"|“[^”]*”|(?<!\w)'[^'\n]*'(?!\w))
    |(?:in|across|through)\ (?:all|every|any|each)(?:\ of)?(?:\ the|\ my|\ our)?
    \ (?:files?|code)\b
    |(?P<is>\b(?:is|are|['’]s|have|got|lives?|lies?|sits?)\ )?
    \b(?:in|of|from|within|inside|across|throughout|for|on|through)\ (?:all\ of\ )?
    (?:here|(?:(?:this|my|our|the\ (?:current|whole|entire|present))\ (?:git\ |whole\ |entire\ )?{0}
    |the\ (?:whole\ )?{0}(?=\W*$|\ for\b)))\b""".replace(
        "{0}",
        r"(?:folder|director(?:y|ies)|dir|repo(?:sitory)?|project|workspace|code\ ?base|code)",
    ),
    re.VERBOSE | re.IGNORECASE,
)
"""What names the workspace itself: all that is asked for is there."""
TAIL = re.compile(
    r"""(?:[\s,]+(?:please|pls|plz|thanks|thank\ you|thx|for\ me|right\ now|real\ quick|quickly
    |if\ you\ can|asap|ok|okay|will\ you|would\ you|could\ you|can\ you|to\ the\ screen
    |on\ the\ screen|at\ all|around|so\ far))+(?=[\s.!?]*$)""",
    re.VERBOSE | re.IGNORECASE,
)


def addressed(text: str) -> str:
    """A request without what only turns to somebody."""
    return MANNERS.sub("", text)


@lru_cache(maxsize=512)
def plain(text: str) -> str:
    """What a request says, with one verb for all that mean the same."""
    text = addressed(text)
    if command(text):
        return text
    text = _mended(WANTS.sub("", text))
    for verb, said in VERB:
        if match := said.match(text):
            text = verb + text[match.end() :]
            break
    return text if TRACES.match(text) else TAIL.sub("", HERE.sub(_here, text))


def _here(match: re.Match[str]) -> str:
    if match["quoted"]:
        return match[0]
    return f"{match['is']}here" if match["is"] else ""


def _mended(text: str) -> str:
    """A text whose first word is a verb that only looks, if two of its letters changed places."""
    word, _, rest = text.partition(" ")
    low = word.casefold()
    for verb in KNOWN:
        if low != verb and low[:1] == verb[0] and sorted(low) == sorted(verb):
            return f"{verb} {rest}"
    return text
