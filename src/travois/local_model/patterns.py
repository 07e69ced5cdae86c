"""What things look like that a request names, and the words around those that look like any word.

What is written first is found first; a thing that has been found is no part of another.
"""

from __future__ import annotations

TYPES = {
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
FILES = {
    "changelog": "CHANGELOG.md",
    "dockerfile": "Dockerfile",
    "gitignore": ".gitignore",
    "license": "LICENSE",
    "makefile": "Makefile",
    "pyproject": "pyproject.toml",
    "readme": "README.md",
}
"""What files are called that everybody knows."""
COUNTS = (
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
TAILS = (
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
    rf"^(?:show|find)\ (?:(?:the|our|my)\ )?(?P<known>{'|'.join(FILES)})(?:\ file)?\W*$",
    rf"\b(?:in|does|of|lines?)\ (?:the|our|my)\ (?P<known>{'|'.join(FILES)})\b",
)
ENDINGS = (
    rf"""(?<!\w)(?P<type>{"|".join(TYPES)}|cfg|cpp|css|csv|html|ini|java|jpg|json|jsx|lock|log|lua
        |pdf|php|png|scss|sql|svg|toml|tsx|vue|xml|yaml|go|c)
        (?=\ (?:files?|modules?|scripts?|sources?|code)\b)""",
    r"""^(?:list|find|show|where\ are|what|which)
        \ (?:(?:all|every|of|the|our|my)\ )*(?P<type>tests)\W*$""",
    r"(?<![\w/])\.(?P<type>[a-z]\w*)(?=\ files?\b)",
    r"\bend(?:ing|s)?\ (?:in|with)\ \.?(?P<type>\w+)",
)
MARKED = r"""
`(?P<code>[^`\n]+)`|"(?P<double>[^"\n]+)"|“(?P<curly>[^”\n]+)”|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)
"""
BARE = r"""
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
THING = r"""(?:words?|terms?|strings?|phrases?|functions?|class(?:es)?|variables?|constants?
    |methods?|settings?|symbols?|identifiers?|text|definitions?|occurrences?|us(?:ag)?es?|mentions?
    |references?|instances?|calls?|lines?|places?|files?|code|anything|something|everything|stuff|imports?)"""
PLACE = r"(?=\s*[.?!]*$|\ (?:in|under|inside|within|across|from|anywhere|somewhere|everywhere)\b)"
SAYS = r"""(?:mention|contain|use|import|reference|call|include|have|has|say|invoke|need)s?
    |talks?\ about|refers?\ to|depends?\ on|about
    |(?:contain|mention|us|import|referenc|call|hav)ing"""
CUES = (
    r"""\b(?:replace|rename|change|turn|swap|substitute)(?:\ (?:the|word|every|all|each))*
        \ (?P<old>[\w.-]*\w)\ (?:out\ )?(?:with|by|to|into|for)\ (?P<new>[\w.-]*\w)""",
    r"\b(?:the|in|under|of|inside)\ (?P<folder>[\w.-]+)\ (?:folder|directory|dir)\b",
    r"\b(?:folder|directory|dir)\ (?:called\ |named\ )?(?P<folder>[\w.-]+)\s*[.?!]?$",
    r"(?:^list|\b(?:in|under|inside|within))\ (?:the\ )?(?P<folder>[a-z][\w-]*)\s*[.?!]?$",
    r"^find\ in\ (?P<folder>[a-z][\w-]*)(?=\ for\b)",
    rf"\b(?P<count>{'|'.join(COUNTS)})\ (?:\w+\ ){{0,2}}(?:commits|changes|entries|lines)\b",
    r"\bfiles?\ (?:(?:that\ )?(?:is|are)\ )?(?:named|called)\ (?P<called>[\w-]+)",
    rf"""^find\ (?:(?:all|any|every|each)\ )?(?:of\ )?(?:(?:the\ )?{THING}
        \ (?:(?:of|to|with|for|that|which|where|it\ says|{SAYS})\ )*(?:the\ (?:{THING})\ )?)?
        (?P<word>[\w-]+){PLACE}""",
    r"^find\ .*?\ for\ (?:the\ word\ )?(?P<word>[\w-]+)\s*[.?!]?$",
    r"""\b(?:word|term|string|phrase|function|class|variable|constant|method|setting)
        \ (?P<word>[\w-]+)""",
    rf"\b(?:{SAYS})\ (?:the\ (?:{THING})\ )?(?P<word>[\w-]+){PLACE}",
    rf"""\b(?:where|^is|^are)(?:\ is|['’]s|\ are)?\ (?:the\ (?:{THING})\ )?(?P<word>[\w-]+)
        (?:\ is|\ are)?\ (?:used|mentioned|defined|declared|called|referenced|imported|set)\b""",
    rf"\b(?:{THING})\ (?:of|to)\ (?P<word>[\w-]+){PLACE}",
    r"\b(?:does|times)\ (?P<word>[\w-]+)\ (?:appear|occur|show\ up|shows\ up)s?\b",
    r"\b(?:by|of|did|has|from)\ (?P<person>(?-i:[A-Z][a-z]+))\b",
)
IDLE = (
    "a|an|the|it|this|that|there|here|file|files|current|same|again|now|today|yet|full|detail"
    "|short|general|order|git"
)
UNSOUGHT = (
    "these|those|them|has|have|still|be|was|can|should|would|will|did|one|any|all|some|my|our"
    "|your|me|you|we|is|are|out|more|bug|bugs|issue|issues|problem|problems|error|errors|mistake"
    "|mistakes|typo|typos|way|ways|reason|cause|solution|test|tests|code|function|functions|class"
    "|classes|anything|something|everything|nothing|folder|directory|repo|project|what|which"
    "|where|who|how|why|if|used|done|changed|time|about|for|to|of|in|on|with|and|or|not|do|does"
    "|better|best|ideas|plan|place|places|line|lines|information|info|details|help|examples"
    "|example|commit|commits|changes|branch"
)
"""Words that nobody searches a project for without marks around them."""
