"""Literal parts of a request: paths, URLs, quotations, numbers, commands, texts to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

import msgspec

# What things look like that a request names, and the words around those that look like any
# word.


FILE_ENDINGS = {
    "javascript": "js",
    "kotlin": "kt",
    "markdown": "md",
    "python": "py",
    "ruby": "rb",
    "rust": "rs",
    "shell": "sh",
    "test": "test",
    "tests": "test",
    "text": "txt",
    "typescript": "ts",
    "yml": "yml",
}
"""How files end that people call otherwise."""
WELL_KNOWN_FILES = {
    "changelog": "CHANGELOG.md",
    "dockerfile": "Dockerfile",
    "gitignore": ".gitignore",
    "license": "LICENSE",
    "makefile": "Makefile",
    "pyproject": "pyproject.toml",
    "readme": "README.md",
}
"""What files are called that everybody knows."""
NUMBER_WORDS = (
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
TRAILING_TEXT_PATTERNS = (
    r"^remember\ that\b:?\ (?P<kept>.+[^?\s])\s*$",
    r"\b(?:todos?|to-do|tasks?|list|steps)\b[^:\n]*:\s(?P<items>.+)$",
    r"""\b(?:create|make|add|write|start|save|put)\b.*?\s
        (?:with|that\ has|which\ has|containing)\s(?:just\ |only\ )?
        (?P<content>(?!(?:an?|the|some|all|every|each|my|our)\b)[^\s`"“'].*?)
        \s(?:in|inside)\ it\W*$""",
    r"""\b(?:create|make|add|write|start|save|put)\b.*?\s
        (?:(?:that|which)\ (?:says|reads|contains|holds)|containing|saying|reading
        |with(?:\ the)?\ (?:text|contents?|lines?|words?)|with(?=\ \S+$)):?\s
        (?:(?:just|only|the\ (?:words?|text|line))\ )?
        (?P<content>(?!(?:an?|the|some|all|every|each|my|our)\b)[^\s`"“'].*)$""",
    r"""^(?:write|put|save)\ the\ (?:words?|text|line|string)\ (?P<content>[^\s`"“'][^`"“']*?)
        \ (?:in|to|into|as)\ (?:an?\ )?(?:\w+\ )?(?:file\ )?(?:called\ |named\ )?
        [\w/-]*\.\w+\W*$""",
    r"\b(?:commit|revision|rev|sha|hash)\ (?P<rev>(?=[a-f]*\d)[0-9a-f]{4,40})\b",
    r"""\b(?:against|with|from|to|vs\.?|versus)
        \ (?P<rev>(?:origin/)?(?:main|master|develop))\b(?![./~^])""",
    rf"^(?:show|find)\ (?:(?:the|our|my)\ )?(?P<known>{'|'.join(WELL_KNOWN_FILES)})(?:\ file)?\W*$",
    rf"\b(?:in|does|of|lines?)\ (?:the|our|my)\ (?P<known>{'|'.join(WELL_KNOWN_FILES)})\b",
)
FILE_TYPE_PATTERNS = (
    rf"""(?<!\w)(?P<type>{"|".join(FILE_ENDINGS)}|cfg|cpp|css|csv|html|ini|java|jpg|json|jsx|lock|log|lua
        |pdf|php|png|scss|sql|svg|toml|tsx|vue|xml|yaml|go|c)
        (?=\ (?:files?|modules?|scripts?|sources?|code)\b)""",
    r"""^(?:list|find|show|where\ are|what|which)
        \ (?:(?:all|every|of|the|our|my)\ )*(?P<type>tests)\W*$""",
    r"(?<![\w/])\.(?P<type>[a-z]\w*)(?=\ files?\b)",
    r"\bend(?:ing|s)?\ (?:in|with)\ \.?(?P<type>\w+)",
)
QUOTED_PATTERN = r"""
`(?P<code>[^`\n]+)`|"(?P<double>[^"\n]+)"|“(?P<curly>[^”\n]+)”|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)
"""
UNQUOTED_PATTERN = r"""
(?P<url>https?://[^\s<>"'`]*[^\s<>"'`.,;:!?)]
  |\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev)\b(?:/[\w./%#?=&+-]*\w)?)
|(?P<glob>[\w./{},-]*\*[\w./{},*-]*)
|(?P<path>(?<![\w.])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+(?:[\w.@+-]*[\w@+-])?
  |(?<![\w.])[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}\b|(?<![\w.])\.[A-Za-z][\w.-]*\w(?!\ files?)
  |\b(?:Makefile|Dockerfile|README|LICENSE|CHANGELOG|CONTRIBUTING|Procfile|Gemfile|Justfile)\b)
|(?P<rev>\b(?:HEAD(?:[~^]\d*)*|(?:main|master)(?:[~^]\d*)+|(?=[a-f]*\d)[0-9a-f]{7,40}
  |v\d+(?:\.\d+)+)(?![\w.]))
|(?P<number>(?<![\w.])\d+\b(?![.%]\d))
|(?P<name>\b[A-Za-z_]\w*\(\)|\b\w*[A-Za-z]_\w+|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*
  |\b(?:TODO|FIXME|XXX|HACK)(?=s?\b)|\b[A-Z]{2,}[A-Z0-9_]{2,}\b)
"""
THING_WORDS = r"""(?:words?|terms?|strings?|phrases?|functions?|class(?:es)?|variables?|constants?
    |methods?|settings?|symbols?|identifiers?|text|definitions?|occurrences?|us(?:ag)?es?|mentions?
    |references?|instances?|calls?|lines?|places?|files?|code|anything|something|everything|stuff|imports?)"""
PLACE_LOOKAHEAD = (
    r"(?=\s*[.?!]*$|\ (?:in|under|inside|within|across|from|anywhere|somewhere|everywhere)\b)"
)
CONTAINS_VERBS = r"""(?:mention|contain|use|import|reference|call|include|have|has|say|invoke
    |need)s?|talks?\ about|refers?\ to|depends?\ on|about
    |(?:contain|mention|us|import|referenc|call|hav)ing"""
CUE_PATTERNS = (
    r"""\b(?:replace|rename|change|turn|swap|substitute)(?:\ (?:the|word|every|all|each))*
        \ (?P<old>[\w.-]*\w)\ (?:out\ )?(?:with|by|to|into|for)\ (?P<new>[\w.-]*\w)""",
    r"\b(?:the|in|under|of|inside)\ (?P<folder>[\w.-]+)\ (?:folder|directory|dir)\b",
    r"\b(?:folder|directory|dir)\ (?:called\ |named\ )?(?P<folder>[\w.-]+)\s*[.?!]?$",
    r"(?:^list|\b(?:in|under|inside|within))\ (?:the\ )?(?P<folder>[a-z][\w-]*)\s*[.?!]?$",
    r"^find\ in\ (?P<folder>[a-z][\w-]*)(?=\ for\b)",
    rf"\b(?P<count>{'|'.join(NUMBER_WORDS)})\ (?:\w+\ ){{0,2}}(?:commits|changes|entries|lines)\b",
    r"\bfiles?\ (?:(?:that\ )?(?:is|are)\ )?(?:named|called)\ (?P<called>[\w-]+)",
    rf"""^find\ (?:(?:all|any|every|each)\ )?(?:of\ )?(?:(?:the\ )?{THING_WORDS}
        \ (?:(?:of|to|with|for|that|which|where|it\ says|{CONTAINS_VERBS})\ )*
        (?:the\ (?:{THING_WORDS})\ )?)?
        (?P<word>[\w-]+){PLACE_LOOKAHEAD}""",
    r"^find\ .*?\ for\ (?:the\ word\ )?(?P<word>[\w-]+)\s*[.?!]?$",
    r"""\b(?:word|term|string|phrase|function|class|variable|constant|method|setting)
        \ (?P<word>[\w-]+)""",
    rf"\b(?:{CONTAINS_VERBS})\ (?:the\ (?:{THING_WORDS})\ )?(?P<word>[\w-]+){PLACE_LOOKAHEAD}",
    rf"""\b(?:where|^is|^are)(?:\ is|['’]s|\ are)?\ (?:the\ (?:{THING_WORDS})\ )?(?P<word>[\w-]+)
        (?:\ is|\ are)?\ (?:used|mentioned|defined|declared|called|referenced|imported|set)\b""",
    rf"\b(?:{THING_WORDS})\ (?:of|to)\ (?P<word>[\w-]+){PLACE_LOOKAHEAD}",
    r"\b(?:does|times)\ (?P<word>[\w-]+)\ (?:appear|occur|show\ up|shows\ up)s?\b",
    r"\b(?:by|of|did|has|from)\ (?P<person>(?-i:[A-Z][a-z]+))\b",
)
STOP_WORDS = (
    "a|an|the|it|this|that|there|here|file|files|current|same|again|now|today|yet|full|detail"
    "|short|general|order|git"
)
UNSEARCHED_WORDS = (
    "these|those|them|has|have|still|be|was|can|should|would|will|did|one|any|all|some|my|our"
    "|your|me|you|we|is|are|out|more|bug|bugs|issue|issues|problem|problems|error|errors|mistake"
    "|mistakes|typo|typos|way|ways|reason|cause|solution|test|tests|code|function|functions|class"
    "|classes|anything|something|everything|nothing|folder|directory|repo|project|what|which"
    "|where|who|how|why|if|used|done|changed|time|about|for|to|of|in|on|with|and|or|not|do|does"
    "|better|best|ideas|plan|place|places|line|lines|information|info|details|help|examples"
    "|example|commit|commits|changes|branch"
)
"""Words that nobody searches a project for without marks around them."""


# Command lines in requests: those after a word like run, and those that stand alone.


PROGRAM_NAMES = (
    "bash|bun|bundle|cargo|cat|cmake|composer|curl|date|deno|df|docker|dotnet|du|echo|env|file|find"
    "|free|gcc|gh|git|go|gradle|grep|head|hostname|id|java|just|kubectl|ls|make|mvn|mypy|nl|node"
    "|npm|npx|pip3?|pnpm|poetry|printenv|ps|pwd|pytest|python3?|rake|rg|ruby|ruff|rustc|sh|sort"
    "|stat|tail|tox|tree|tsc|uname|uptime|uv|wc|which|whoami|yarn"
)
PROSE_WORD = re.compile(
    r"[,?]|(?<![\w-])(?:an?|and|because|but|if|it|my|our|so|sure|that|the|them|then|this|until|please|again"
    r"|with|works?|fails?)\b",
    re.IGNORECASE,
)
"""What stands in sentences, and hardly ever in commands."""
COMMAND_AFTER_VERB = re.compile(
    r"(?:run|start|try|do)(?: the)?(?: shell)?(?: command)?:?"
    rf" ((?:(?:{PROGRAM_NAMES})(?![\w'’.:-])|\./[\w./-]+)(?:\s[^\n\"`]*?)?)"
    r"(?:[\s,]+(?:please|pls|thanks|for me|now|here))*\s*[.!?]?",
    re.IGNORECASE,
)
COMMAND_PATTERNS = (
    re.compile(rf"((?:{PROGRAM_NAMES})\s(?:[^\n\"`]*\s)?--?[A-Za-z\d][^\n\"`]*)"),
    re.compile(
        r"((?:cargo|bash|deno|go|node|pytest|python3?|ruby|ruff|sh) [\w./ -]*[./][\w./ -]*)"
    ),
    re.compile(r"(\./[\w./-]+(?: [\w./=-]+)*)"),
    re.compile(
        r"((?:npm|pnpm|yarn|cargo|docker|pip|uv|tox|make|go)"
        r" (?:compose )?(?:test|check|lint|build|install|run [\w:-]+|ps|ls|images|list|freeze"
        r"|version|fmt|vet)"
        r"|git (?:fetch|pull|branch|remote|tag)|pwd|whoami|pytest|uptime|hostname|date|env|tree)"
    ),
)
"""A program with options; one that takes files, with one; what everybody types."""
GIT_TOOL_COMMAND = re.compile(
    r"git (?:status|diff(?: --staged| --cached| --stat)?|log(?: -n ?\d+| -\d+)?"
    r"|(?:show|diff|blame) [\w./~^-]+)"
)
"""What our own tools tell better."""


def find_command(text: str) -> tuple[int, int] | None:
    """Find the command in a request that is one, or asks to run one."""
    if GIT_TOOL_COMMAND.fullmatch(text.strip()):
        return None
    for pattern in (COMMAND_AFTER_VERB, *COMMAND_PATTERNS):
        match = pattern.fullmatch(text)
        if match and not PROSE_WORD.search(match[1]):
            return match.span(1)
    return None


# A request without its manners: what is asked for, in the verbs that the examples use.


POLITE_OPENING = re.compile(
    r"""^\W*(?:(?:please|pls|plz|kindly|hey|yo|now|ok|okay|so|and|then|just|quickly|quick|simply
    |(?:can|could|would|will|should)\ (?:you|u|ya)(?:\ (?:please|pls|just|quickly|maybe|perhaps))*
    |you\ (?:should|can)|always|let\ us|let['’]?s|i\ want\ you\ to|i['’]?d\ like\ you\ to
    |(?:(?:would|do)\ you\ )?mind(?=\ \w+ing)|go\ ahead\ and|be\ so\ kind\ (?:as|and)\ to
    |do\ me\ a\ favou?r\ and|help\ me(?:\ to)?
    |for\ the\ future|from\ now\ on)(?:[,:]|(?=\s))\s*)+(?=\w)""",
    re.VERBOSE | re.IGNORECASE,
)
"""How one turns to somebody."""
WISH_OPENING = re.compile(
    r"""^(?:i['’]?d\ (?:like|love)\ to
    |i\ (?:would\ like|want|wanna|need|have)\ (?!a\ (?:\w+\ )?file)(?:to\ )?
    |i(?:\ am|['’]m)\ (?:trying|looking)\ to|can\ i(?:\ please)?|could\ i|may\ i|i\ only\ need
    |(?:i\ only|only|just)\ (?=show|list|read))\s*(?=\w)""",
    re.VERBOSE | re.IGNORECASE,
)
"""How one says what one would like oneself: enough for a look."""
VERB_SYNONYMS = {
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
VERB_PATTERNS = tuple(
    (
        verb,
        re.compile(rf"^(?:{said})(?!\w|['’.(/=-])(?:\ (?:me|us)\b)?", re.VERBOSE | re.IGNORECASE),
    )
    for verb, said in VERB_SYNONYMS.items()
)
WRITE_REQUEST = re.compile(
    r"(?:run|create|remember|write|make|put|add|save|store|new|start|replace|change|todos?)\b",
    re.IGNORECASE,
)
"""How a request begins that has a text in it to keep, or a command."""
READ_VERBS = (
    "show",
    "open",
    "print",
    "display",
    "view",
    "read",
    "find",
    "search",
    "locate",
    "list",
)
WORKSPACE_REFERENCE = re.compile(
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
POLITE_ENDING = re.compile(
    r"""(?:[\s,]+(?:please|pls|plz|thanks|thank\ you|thx|for\ me|right\ now|real\ quick|quickly
    |if\ you\ can|asap|ok|okay|will\ you|would\ you|could\ you|can\ you|to\ the\ screen
    |on\ the\ screen|at\ all|around|so\ far))+(?=[\s.!?]*$)""",
    re.VERBOSE | re.IGNORECASE,
)


def strip_polite_opening(text: str) -> str:
    """Strip polite openings from a request."""
    return POLITE_OPENING.sub("", text)


@lru_cache(maxsize=512)
def normalize_request(text: str) -> str:
    """Normalize a request's wording: one verb for its synonyms, no polite phrases."""
    text = strip_polite_opening(text)
    if find_command(text):
        return text
    text = _fix_swapped_letters(WISH_OPENING.sub("", text))
    for verb, said in VERB_PATTERNS:
        if match := said.match(text):
            text = verb + text[match.end() :]
            break
    return (
        text
        if WRITE_REQUEST.match(text)
        else POLITE_ENDING.sub("", WORKSPACE_REFERENCE.sub(_replace_workspace_reference, text))
    )


def _replace_workspace_reference(match: re.Match[str]) -> str:
    """Drop a mention of the workspace from a request, or replace it by `here`."""
    if match["quoted"]:
        return match[0]
    return f"{match['is']}here" if match["is"] else ""


def _fix_swapped_letters(text: str) -> str:
    """Fix two swapped letters in a leading read-only verb."""
    word, _, rest = text.partition(" ")
    low = word.casefold()
    for verb in READ_VERBS:
        if low != verb and low[:1] == verb[0] and sorted(low) == sorted(verb):
            return f"{verb} {rest}"
    return text


MarkedKind = Literal["url", "glob", "path", "rev", "number", "name", "text"]
"""What looks like itself wherever it stands."""
CuedKind = Literal[
    "kept",
    "items",
    "content",
    "command",
    "known",
    "type",
    "old",
    "new",
    "folder",
    "count",
    "called",
    "word",
    "person",
]
"""What only the words around it tell."""
SpanKind = MarkedKind | CuedKind
MARKED_KINDS: tuple[MarkedKind, ...] = get_args(MarkedKind)
CUED_KINDS: tuple[CuedKind, ...] = get_args(CuedKind)

MARKED_SPAN = re.compile(f"{QUOTED_PATTERN}|{UNQUOTED_PATTERN}", re.VERBOSE)
BARE_SPAN = re.compile(UNQUOTED_PATTERN, re.VERBOSE)
EARLY_PATTERNS = tuple(
    re.compile(pattern, re.VERBOSE | re.IGNORECASE | re.DOTALL)
    for pattern in TRAILING_TEXT_PATTERNS + FILE_TYPE_PATTERNS
)
CUE_EXPRESSIONS = tuple(re.compile(cue, re.VERBOSE | re.IGNORECASE) for cue in CUE_PATTERNS)
STOP_WORD = re.compile(STOP_WORDS, re.IGNORECASE)
UNSEARCHED_WORD = re.compile(f"{STOP_WORDS}|{UNSEARCHED_WORDS}", re.IGNORECASE)
NOT_PATHS = frozenset(("and/or", "e.g", "i.e", "etc"))
KIND_WORDS: dict[SpanKind, str] = {
    "called": "name",
    "content": "text",
    "count": "number",
    "glob": "pattern",
    "kept": "something",
    "known": "file",
    "new": "text",
    "old": "text",
    "path": "file",
    "rev": "commit",
    "type": "python",
}
"""What stands for a thing that is named, where its kind is not a good word for it."""
CONTRACTIONS = ((re.compile(r"n['’]t\b"), " not"), (re.compile(r"(?<=\w)['’]s\b"), " is"))


class RequestSpan(msgspec.Struct, frozen=True):
    """A part of a request that can be copied."""

    kind: SpanKind
    text: str
    start: int
    end: int
    mark: str = ""
    """How it was quoted: a backtick, a quotation mark, or not at all."""


@lru_cache(maxsize=512)
def find_request_spans(text: str) -> tuple[RequestSpan, ...]:
    """Find all literal parts of a request, from left to right, without overlaps."""
    text = normalize_request(text)
    found: list[RequestSpan] = []
    for span in _candidate_spans(text):
        if not any(span.start < other.end and other.start < span.end for other in found):
            found.append(span)
    return tuple(sorted(found, key=lambda span: span.start))


def mask_request_spans(text: str) -> str:
    """Replace each literal part of a request by a word for its kind: the pattern."""
    parts: list[str] = []
    at, text = 0, normalize_request(asked := text)
    for span in find_request_spans(asked):
        said = "command" if span.mark == "`" else KIND_WORDS.get(span.kind, span.kind)
        parts += text[at : span.start], said
        at = span.end
    shaped = "".join((*parts, text[at:]))
    for pattern, whole in CONTRACTIONS:
        shaped = pattern.sub(whole, shaped)
    return shaped


def _candidate_spans(text: str) -> Iterator[RequestSpan]:
    """List the commands, quotations, paths and other literal parts of a request."""
    if run := find_command(text):
        yield RequestSpan("command", text[slice(*run)], *run)
    for pattern in EARLY_PATTERNS:
        yield from _spans_after_cue(pattern, text)
    for match in MARKED_SPAN.finditer(text):
        quoted = match.lastgroup in ("code", "double", "curly", "single")
        said = match[match.lastgroup or 0]
        if quoted or (said.casefold() not in NOT_PATHS and "..." not in said):
            mark = ("`" if match.lastgroup == "code" else '"') if quoted else ""
            yield RequestSpan(_span_kind(said), said, *match.span(), mark)
    for cue in CUE_EXPRESSIONS:
        yield from (span for span in _spans_after_cue(cue, text) if not _is_stop_word_span(span))


def _spans_after_cue(pattern: re.Pattern[str], text: str) -> Iterator[RequestSpan]:
    """List the parts of a request that a cue pattern captures, each with its kind."""
    for match in pattern.finditer(text):
        for kind in (*CUED_KINDS, "rev"):
            if kind in pattern.groupindex:
                yield RequestSpan(kind, match[kind], *match.span(kind))


def _is_stop_word_span(span: RequestSpan) -> bool:
    words = UNSEARCHED_WORD if span.kind in ("word", "called") else STOP_WORD
    return words.fullmatch(span.text) is not None


def _span_kind(text: str) -> SpanKind:
    """Return the kind of a literal part of a request, such as a path or a URL."""
    match = BARE_SPAN.fullmatch(text)
    found: list[SpanKind] = [kind for kind in MARKED_KINDS if match and match.lastgroup == kind]
    if found == ["path"] and "/" in text and "." not in text.rpartition("/")[2]:
        return "folder"
    return found[0] if found else "text"


# Whether a request wishes for a call, and does not only speak of what the call would name.


def _compile_words(said: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{said})\b", re.IGNORECASE)


WRITE_TOOL_OPENINGS = {
    "Bash": _compile_words(
        r"run|execute|start|launch|try|call|do|build|test|use|let|(?:fire|kick)\s+(?:off|up)|invoke"
    ),
    "Edit": _compile_words(r"replace|change|rename|swap|turn|substitute|fix|in\s+\S+"),
    "Remember": _compile_words("remember that"),
    "TodoWrite": _compile_words(
        r"(?:[\w']+\s+){0,6}?(?:todos?|to-do|tasks?|list|steps)\b[^:\n]*:\s"
    ),
    "Write": _compile_words(
        r"create|make|add|write|start|save|put|new|store|i (?:want|need) a (?:new )?file"
    ),
}
"""How a wish for something that leaves a trace begins; what is only talked of is not done."""
REQUIRED_TOOL_WORDS = {
    "GitBlame": _compile_words(
        r"who|whose|blame|annotat\w*|authors?|wrote|written|introduced|responsible|when"
    ),
    "GitLog": _compile_words(
        r"commit\w*|histor\w*|log|change[sd]?|evolved?|story|work\w*|done|happened|lately|touched"
    ),
    "Glob": _compile_words(
        r"find|show|list|wh(?:at|ich|ere)|files?|there|any\w*|have|glob|match\w*|contents?|tree|exists?"
        r"|folders?|directory|every\w*|sources|scripts?|layout|do|does|all"
    ),
    "Grep": _compile_words(
        r"find|show|list|wh(?:ere|ich|o|at)|any\w*|used?|mention\w*|contain\w*|occur\w*|appears?|all"
        r"|every|count|many|often|lines?|does|do|is|are|has"
    ),
}
"""Words of which a request to look has one."""
EXCLUDED_TOOL_WORDS = {
    "Read": _compile_words("^find|used|mentioned|who|whose"),
    "Grep": _compile_words("files? (?:is |are )?(?:called|named)"),
    "Glob": _compile_words(
        "in (?:the )?file|used|mentioned|referenced|imported|(?<!file )(?<!files )called"
        "|contain(?:s|ing)|mention(?:s|ing)"
    ),
    "GitLog": re.compile(
        r"(?-i:\bI\b|\bi\b)|\bmy\b(?!.*commit)|\b(?:days?|weeks?|yesterday)\b",
        re.IGNORECASE,
    ),
}
"""Words with which another call is meant."""
ACTION_REQUEST = re.compile(
    r"(?:(?:can|could|should|shall|may)\s+(?:we|i)\s+)?(?:also\s+)?(?:add|append|build|change(?!s)|clean"
    r"|commit(?=\s+(?:all|and|everything|it|my|our|the|this)\b)|copy|create|delete|deploy|design|discard|drop"
    r"|edit|empty|erase|fix|implement|insert|install|make|merge|move|optimi[sz]e|port|push|put|rebase"
    r"|refactor|remove|rename|replace|reset|revert|review|rewrite|run|set|start|stash|stop|translate"
    r"|undo|uninstall|update|upgrade|use|write)\b",
    re.IGNORECASE,
)
"""How a request begins that is for more than a look."""


BROAD_QUESTION = _compile_words(
    r"better|best|bugs?|how to|ways?|improve\w*|faster|wrong|pros|cons|ideas?|plan|explain|why"
    r"|mistakes?|problems?|issues?|means?|meaning|summar\w+|secure|command that|yeah|web|online"
    r"|compare (?!commit).* and"
)
"""What a look does not answer."""


def requests_tool(tool: str, text: str) -> bool:
    """Return whether the wording of a request calls for this tool."""
    if tool == "Bash" and any(span.kind == "command" for span in find_request_spans(text)):
        return True
    if tool in WRITE_TOOL_OPENINGS:
        said = normalize_request(text) if tool == "Remember" else strip_polite_opening(text)
        return WRITE_TOOL_OPENINGS[tool].match(said) is not None
    asked = mask_request_spans(text)
    if "\n" in text.strip() or ACTION_REQUEST.match(asked) or BROAD_QUESTION.search(asked):
        return False
    if tool in EXCLUDED_TOOL_WORDS and EXCLUDED_TOOL_WORDS[tool].search(asked):
        return False
    return tool not in REQUIRED_TOOL_WORDS or REQUIRED_TOOL_WORDS[tool].search(asked) is not None
