"""Rules that find memory drafts without a model: requests to remember, corrections, repetitions.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from travois.memory.memory import MemoryDraft, MemoryType
from travois.memory.similarity import content_words, have_same_meaning, normalise_language
from travois.memory.speakers import TEXT_TASK_START, Statement, split_spoken_sentences

SignalKind = Literal["remember", "correction", "preference"]
REMEMBER_REQUEST = re.compile(
    r"(?i)(?:^|[:;—,.!?]\s+|\band )(?:and |but |also,? |oh,? |ok(?:ay)?,? |so,? |btw,? |hey,? |"
    r"yes,? |please,? |pl[sz],? |just ){0,3}"
    r"(?:can you |could you |would you |i want you to |i'd like you to )?(?:please )?"
    r"(?:(?:always )?reme?m?ber(?! (?:when|yesterday|last|the time)\b)|memori[sz]e|"
    r"kannst du dir (?:bitte )?merken|(?:make a )?note|keep in mind|don['’]?t forget|do not forget|"
    r"merke? dir|denk(?:e)? dran|vergiss nicht|recuerda|no olvides|acu[eé]rdate|retiens|"
    r"souviens-toi|n'oublie pas|ab (?:jetzt|sofort)|a partir de ahora|désormais|"
    r"for (?:the )?future(?: reference)?|from now on|going forward|in (?:the )?future)\b"
    r"(?: (?:for (?:next time|later|the future|future sessions)))?"
    r"(?: bitte| por favor)?[\s,:!-]*(?:(?:that|to|dass|que)\b[\s,:]*)?"
)
REMEMBER_QUESTION = re.compile(r"(?i)\bremember (?!that|to\b|this|my|our|we|i\b|the|:)[^?]*\?")
"""A question about remembering, which asks for nothing to be remembered."""
DEICTIC_START = re.compile(
    r"(?i)(?:this|that|these|those|it)\b(?! (?:is an? \w|project|repo\w*|codebase|team|"
    r"service|app|package|library|machine|board|chip|api|product|company|customer)\b)"
)
"""The beginning of a text that cannot be understood outside of its conversation."""
QUESTION_SENTENCE = re.compile(
    r"(?i)^(?:do|did|can|could|would|will) (?:you|we|i) (?!please)|\?\s*$"
)
DO_QUESTION_START = re.compile(r"(?i)^(?:do|did|don['’]t|didn['’]t) (?:you|we|i)\b")
CORRECTION_START = re.compile(
    r"(?i)^(?:no+|nope|wrong|stop|not like that|that['’]s not how|that's wrong|that is wrong|"
    r"please don['’]t|"
    r"don['’]t|"
    r"do not|never|actually|please stop|again|you (?:keep|always|still) (?=\w+ing))\b[\s,.!:;—-]*"
)
FALSE_CORRECTION = re.compile(
    r"(?i)^(?:never ?mind|stop(?! \w+ing\b)|again\b(?!.*\b(?:always|never|i |we ))|"
    r"(?:please |i |we )?(?:don['’]t|do not) "
    r"(?:worry|bother|know|think|see|understand|get|need|have|care|panic|hesitate|mind|wait|"
    r"do that))\b"
)
"""Beginnings that look like a correction and are none."""
PROHIBITION_START = re.compile(
    r"(?i)(?:please )?(?:don['’]t|do not|stop) (?!worry|bother|know|think|see|mind|wait)\w+"
)
RETRACTION_START = re.compile(
    r"(?i)^\W*(?:(?:h+m+|no+|ok(?:ay)?|wait|oh|sorry|well|actually|ah)[\s,.!…-]+){0,3}"
    r"(?:scratch that|never ?mind|forget (?:it|that|this|what)|on second thoughts?|leave it|"
    r"strike that|ignore (?:that|this|what i)|not really|just kidding|kidding|"
    r"i take (?:it|that) back|"
    r"no,? wait|that was (?:wrong|a mistake)|undo that)\b"
)
"""The beginning of a sentence that takes back an earlier one."""
ADVICE_WORDS = re.compile(
    r"(?i)\b(?:use|using|instead|always|never|prefer|don['’]t|do not|stop|rather than|not with|"
    r"should|must|only)\b"
)
PREFERENCE_START = re.compile(
    r"(?i)(?:i|we)(?:['’]d)?(?: really| also| just| all)? (?:always|never|prefer|like|love|hate|"
    r"dislike|don['’]t like|do not like|want you to|need you to|usually|would rather|rather|"
    r"don['’]t want|only (?:use|want|do|have))\b"
    r"|my (?:name|role|job|team|timezone|time zone|editor|shell|preferred|preference)\b"
    r"|(?:always|never(?! mind)|prefer)\b|next time\b"
    r"|(?:for|in) all (?:of )?(?:my|our) |we want (?!to\b)"
    r"|(?:don['’]t|do not) ever\b|(?:whenever|every time|each time) you\b"
    r"|.*\b(?:is|are|['’]re|must) always\b"
    r"|.*\b(?:is|are) (?:banned|forbidden|not allowed|verboten|off limits|prohibited)\b"
)
"""The beginning of a clause that says what the user always wants."""
ALWAYS_WORDS = re.compile(
    r"(?i)\b(?:always|never(?! mind)|ever|next time|every time|whenever|in general|each time|"
    r"everywhere|anywhere|period|by default|throughout|as a (?:general )?rule|rule of thumb|"
    r"conventions?|across the board|changed (?:my|our) minds?|told you|fyi|heads[- ]up|"
    r"for the record|so you know|no exceptions|without exception|that['’]?s how we|in doubt|"
    r"unless (?:i|we)|(?:before|after|with|for|on|at) (?:every|each) \w+|everything goes|"
    r"(?:before|when|after|if) you (?:\w+ ){1,3}(?:any\w*|something|an?)\b)"
)
"""Words of a sentence that covers all times and places, or any of a kind."""
INDIRECT_SPEECH = re.compile(
    r"(?i)\b(?:that|which|say|says|saying|mentions?|called|named|about|how|why|whether|let['’]s|"
    r"would)\b|\bto $|^(?:the|an?|my|his|her|their|some)\b.*\b(?:we|you|one|i|they|people)\b|"
    r"^(?:tell|ask|write|add|create|put|make)\b.*\bto\b"
)
"""Words before indirect speech, which does not address the listener."""
LISTENER_ADDRESS = re.compile(
    r"(?i)\b(?:(?:make|be) sure|try|you (?:have|need|ought)|(?:i|we)(?:['’]d)? (?:want|need|expect|"
    r"like) you) to\b|\bi (?:told|said)(?: to)? you(?: that)?\b"
)
CLAUSE_BREAK = re.compile(
    r"[,.;:!?…—–]+\s+|\s-\s|\n|\b(?:and|but|so|because|also|btw|by the way|then|plus|und|aber|y|"
    r"pero|et|mais)\s+"
)
ASIDE_BREAK = re.compile(
    r"(?i)[.;!?…]+\s+|,?\s(?:and |but )?(?:by the way|btw|also|please)\s+"
    r"|,\s+(?=(?:always|every time|everywhere|as a rule|period)\W*$)"
)
EXPERIENCE_CLAUSE = re.compile(
    r"(?i)(?:it|this|that|he|she|they|there|(?:i|we|you)(?= (?:always|never)))?\b.{0,30}?"
    r"\b(?:always|never) (?:get|gets|got|see|sees|seen|have|had|has|run into|forget|forgot|"
    r"finish\w*|hear\w*|find|found|end up|thought|knew|fails?|failed|crash\w*|lose|lost|breaks?|"
    r"broke|hangs?|happen\w*|worked|works|was|been|did|tried|used to)\b"
    r"|(?:it|this|that|he|she|they|there)\b.*\b(?:always|never)\b"
)
"""Clauses that report what happens, and wish for nothing."""
LEAD_IN = re.compile(
    r"(?i)^(?:[-*+•\d.)\s]+|please |just |ok(?:ay)? |oh |hey |hi |yes |and |now |well |"
    r"here |in here )+"
)
SELF_REFERENCE = re.compile(r"(?i)\b(?:i am|i['’]m|my|call me|i (?:work|live|speak|use))\b")
SELF_DESCRIPTION = re.compile(
    r"(?i)(?<!like )(?<!if )\b(?:(?:i am|i['’]m) (?:not |also )?(?:an? (?!bit|little|few|moment)|"
    r"the (?!only|first|last|one|same)|our |new to |based |from |responsible |fluent |native |"
    r"dyslexic|colou?r[- ]?blind|deaf|"
    r"blind|left[- ]handed|in charge|on the \w+ team|(?-i:[A-Z][a-z]{2,}\b))|"
    r"my (?:name|role|job|timezone|time zone)\b|call me\b|i (?:work|live|speak)\b)"
)
"""Lasting facts about the user."""
WISH_WORDS = re.compile(
    r"(?i)\b(?:always|never|only|don['’]t|do not|should|must|prefer\w*|avoid|stop|want|like|hate)\b"
    r"|^(?:use|run|write|keep|put|add|answer|reply|ask|call|name|make|skip|format|commit|push)\b"
)
REFERENCE_WORDS = re.compile(
    r"https?://|\b(?:dashboard|ticket|wiki|board|channel|tracker|runbook)\b", re.IGNORECASE
)


class MemorySignal(msgspec.Struct, frozen=True):
    """A sentence of the user that may be worth remembering."""

    kind: SignalKind
    sentence: str
    seq: int


def find_signals(said: Iterable[Statement]) -> Iterator[MemorySignal]:
    """Yield the user's sentences that signal something to remember, in order."""
    for one in said:
        for sentence in split_spoken_sentences(one.text) if one.voice == "user" else ():
            if found := classify_sentence(sentence):
                yield MemorySignal(found, sentence, one.seq)


def draft_by_rules(fresh: Iterable[Statement], said: Iterable[Statement]) -> Iterator[MemoryDraft]:
    """Yield drafts in the user's words: requests to remember, corrections, repetitions.

    `fresh` is what no extraction has examined yet, `said` is everything.
    """
    before = tuple(find_signals(said))
    for signal in find_signals(fresh):
        if refers_elsewhere(signal.sentence):
            continue
        if (
            signal.kind == "remember"
            or _is_meant_to_last(signal)
            or _repeats_earlier(signal, before)
        ):
            yield draft_from_signal(signal)


def refers_elsewhere(sentence: str) -> bool:
    """Return whether a request to remember cannot be understood from this sentence alone."""
    wish = _extract_wish(sentence)
    return bool(DEICTIC_START.match(wish)) or " " not in wish


def draft_from_signal(signal: MemorySignal) -> MemoryDraft:
    """Make a memory draft from a signal, in the user's words."""
    text = _extract_wish(signal.sentence)
    text = CORRECTION_START.sub("", text) if _starts_with_no(text) else text
    text = text[:1].upper() + text[1:]
    found = _guess_memory_type(text)
    return MemoryDraft(text, found, signal.sentence, scope="user" if found == "user" else None)


def _extract_wish(sentence: str) -> str:
    """Return the wish in a request to remember: the words after it, or else before it."""
    asked = REMEMBER_REQUEST.search(sentence)
    if asked is None:
        return sentence
    after = sentence[asked.end() :].strip(" ,:-!")
    return after if content_words(after) else sentence[: asked.start()].strip(" ,:-!")


def asks_to_remember(text: str) -> bool:
    """Return whether the user asks to remember something."""
    return any(
        classify_sentence(sentence) == "remember" for sentence in split_spoken_sentences(text)
    )


def classify_sentence(sentence: str) -> SignalKind | None:
    """Classify a user's sentence as a memory signal; None if it is ordinary talk."""
    asked = REMEMBER_REQUEST.search(sentence)
    if asked and not DO_QUESTION_START.match(sentence) and not REMEMBER_QUESTION.search(sentence):
        return "remember"
    sentence = normalise_language(sentence)
    if any(
        just.match(sentence) for just in (FALSE_CORRECTION, RETRACTION_START, EXPERIENCE_CLAUSE)
    ) or QUESTION_SENTENCE.search(sentence):
        return None
    if CORRECTION_START.match(sentence) and ADVICE_WORDS.search(sentence):
        return "correction"
    if any(
        PREFERENCE_START.match(clause) for clause in split_clauses(sentence)
    ) or SELF_DESCRIPTION.search(sentence):
        return "preference"
    corrected = any(PROHIBITION_START.match(clause) for clause in split_clauses(sentence))
    return "correction" if corrected else None


def split_clauses(sentence: str) -> Iterator[str]:
    """Split a sentence into clauses without lead-in words, to look for memory signals.

    A task is one clause up to an aside: its object is not addressed to the listener.
    """
    ends = ASIDE_BREAK if TEXT_TASK_START.match(LEAD_IN.sub("", sentence)) else CLAUSE_BREAK
    parts = (LEAD_IN.sub("", part.strip()) for part in ends.split(sentence) if part)
    return (part for part in parts if not EXPERIENCE_CLAUSE.match(part))


def always_applies(sentence: str) -> bool:
    """Return whether a sentence states a standing instruction, a signal to remember it."""
    return any(_applies_directly(clause) for clause in split_clauses(normalise_language(sentence)))


def _applies_directly(clause: str) -> bool:
    """Return whether a clause with a word such as `always` addresses the listener."""
    marked = ALWAYS_WORDS.search(clause)
    if marked is None or (TEXT_TASK_START.match(clause) and clause[marked.end() :].strip(" .!")):
        return False
    return not INDIRECT_SPEECH.search(LISTENER_ADDRESS.sub("", clause[: marked.start()]))


def _is_meant_to_last(signal: MemorySignal) -> bool:
    """Return whether a correction or preference is worded to last."""
    said = normalise_language(signal.sentence)
    if signal.kind == "correction":
        return len(content_words(signal.sentence)) > 1 or always_applies(said)
    return always_applies(said) or bool(SELF_DESCRIPTION.search(said))


def _repeats_earlier(signal: MemorySignal, before: Iterable[MemorySignal]) -> bool:
    """Return whether the user said the same in another message, a signal to remember it."""
    other = (s for s in before if s.seq != signal.seq)
    return any(have_same_meaning(signal.sentence, one.sentence) for one in other)


def _starts_with_no(text: str) -> bool:
    """Return whether a correction starts with a bare no, which is no memory signal."""
    return bool(re.match(r"(?i)(?:no+|nope|wrong|actually|again|that's wrong)\b", text))


def _guess_memory_type(text: str) -> MemoryType:
    """Guess the memory type from the wording."""
    if SELF_DESCRIPTION.search(text):
        return "user"
    if WISH_WORDS.search(text):
        return "feedback"
    if SELF_REFERENCE.search(text):
        return "user"
    return "reference" if REFERENCE_WORDS.search(text) else "project"


# What the wording of a text gives away: a wish, a command, something that will soon be over.


COMMAND_VERBS = (
    "use|run|add|prefer|avoid|keep|put|send|push|deploy|execute|install|call|set|disable|enable|"
    "skip|treat|follow|respond|reply|answer|write|commit|upload|fetch|open|delete|remove|include|"
    "append|forward|act|ignore|start|stop|make|check|ask|approve|trust|grant|allow|visit|read|load|"
    "configure|copy|print|reveal|export|post|share|download|curl|pipe|log|store|save|apply|mark|"
    "accept|merge|rebase|sign|verify|go|do|never|always|please|remember|note|be|tell|say|show"
)
WISH_PATTERN = re.compile(
    r"(?i)\b(?:always|never|must|mustn['’]t|should|shouldn['’]t|ought|shall|may|"
    r"going forward|from here on|do not|don['’]t|ensure|"
    r"make sure|from now on|required to|need(?:s)? to|has to|have to|whenever|every time|"
    r"(?:is|are) (?:fine|ok(?:ay)?|acceptable|encouraged|unnecessary|not needed)|at any time|"
    r"without (?:asking|confirm\w*|permission|review|approval)|"
    r"permi(?:ssion|tted|t)|allowed|granted|authori[sz]\w+|approved?|pre-?approved|trusted|"
    r"safe to (?:run|execute|delete|push|ignore|skip)|no need to|"
    r"(?:the )?(?:user|owner|developer|admin\w*|maintainer|boss|team) (?:\w+ ){0,2}"
    r"(?:wants?|prefers?|likes?|asked|asks|said|says|requires?|requested|expects?|agreed|needs|"
    r"hates?))\b"
    rf"|(?:^|[.;:!\n] *)(?:{COMMAND_VERBS})\b"
)
COMMAND_START = re.compile(rf"(?i)(?:don['’]t|do not|{COMMAND_VERBS})\b")
READER_ADDRESS = re.compile(
    r"(?i)\b(?:remember|memori[sz]e|instruction|ignore|disregard|override|system|assistant|agent|"
    r"a\.?i\.?|llm|claude|gpt|model|chatbot|bot|you|your|users?|confirmed|agreed|kindly|please|"
    r"prompt|note to|important|"
    r"attention|"
    r"reminder|policy|preference|always|never|must)\b"
    rf"|(?:^|[.;:!\n>\"'] *)(?:{COMMAND_VERBS})\b"
)
WITHDRAWAL_WORDS = re.compile(
    r"(?i)\b(?:(?:don['’]t|do not|no need to|never) (?:remember|save|store|memori[sz]e|note|"
    r"record)|"
    r"off the record|(?<!don't )(?<!don’t )(?<!not )forget (?:that|it|this|what)|just kidding|"
    r"only joking|hypothetical\w*|"
    r"just (?:this once|for now|this time|once)|only (?:this once|this time|for now|today|"
    r"for this)|"
    r"for now|for today|for the moment|temporar\w+|this (?:time|once)|yet|"
    r"suppose|supposing|imagine|what if|let['’]s say|in theory|"
    r"(?:for|in|on) this (?:task|pr|change|session|one|branch|commit|ticket|test|file|function|"
    r"run|build|release|plot|page|demo))\b"
    r"|^if\b.*\b(?:would|could|might|['’]d)\b"
)
TIME_LIMIT_WORDS = re.compile(
    r"(?i)\b(?:until|till|while (?:we|i|you)|during|for the (?:rest|duration)|as long as|meanwhile|"
    r"later|at least (?:for|in)|before (?:lunch|i|we)|tomorrow|let me|"
    r"i want to (?:look|see|check|try))\b"
)
THING_AT_HAND = re.compile(
    r"(?i)\b(?:this (?!\w+s\b|project|repo|repository|codebase|team|app|package|library|machine|"
    r"board|chip|api|company|customer|way|kind|for|in|on|at|to|by|and|or)\w+|"
    r"(?:these|those|option|variant) \w+)"
)
"""References to something that only this conversation shows."""
NARROWING_START = re.compile(
    r"(?i)^\W*(?:i mean|that is|well|at least|only|just|but only)\b[^.!?\n]*"
)
"""A continuation that narrows the sentence before it."""
IRONY_WORDS = re.compile(
    r"(?i)\b(?:lol|rofl|lmao|haha\w*|yeah,? right|oh,? (?:great|sure|nice|wonderful|fantastic|"
    r"perfect|brilliant)|just (?:great|what i needed)|(?:fantastic|brilliant|nice|wonderful|great) "
    r"(?:job|work|going))\b|(?<!\w)/s\b|🙄|😂|🤡|;-?\)"
)
ATTRIBUTION = re.compile(
    r"(?i)\b(?:told|tells) (?:me|us)\b|(?<!\bi )(?<!\bwe )(?<!\byou )\b(?:says?|said|insists?|"
    r"claims?|suggests?|suggested|recommends?|recommended|argues?|argued|believes?|wrote|writes|"
    r"keeps? (?:saying|telling)|demands?|e?mailed|posted|used to say)"
    r"(?=\W+(?:that|we|you|to|always|never|i|it|from|every\w*|no|on|don['’]t|must|should)\b|\s*[:\"“„'])"
    r"|\baccording to\b|\basked (?:me|us) to\b|\bwants (?:me|us) to\b"
)
"""Words that attribute an opinion to someone else."""
TEMPORARY_DETAIL = re.compile(
    r"(?i)\b(?:(?<!than )(?:today|yesterday)|tonight|right now|just now|at the moment|"
    r"this (?:session|conversation|turn|task|pr|commit|branch|morning|afternoon|ticket)|for now|"
    r"so far|(?:returns?|gives?|throws?|raises?) (?:an? )?(?:\d{3}|error|exception|null|none|"
    r"undefined)|"
    r"(?:is|are) (?:failing|broken|down|stuck|hanging|red|crashing)|next steps?|to-?do|"
    r"in progress|wip|the (?:\w+ )?(?:bug|crash|typo|regression) (?:is|was|must|seems)|"
    r"lines? \d+|HEAD|the last commit|"
    r"(?:user|developer|they|he|she|i|we) (?:wants?|asked|asks|requested|needs?|"
    r"would like) (?:me |us |you |the (?:assistant|agent) )?"
    r"(?:to|for|that) (?:be )?(?:a |the )?(?:fix\w*|add\w*|implement\w*|writ\w+|creat\w+|"
    r"refactor\w*|"
    r"renam\w+|updat\w+|chang\w+|run|check|look|see|know|remov\w+|delet\w+|mov\w+|debug|"
    r"investigat\w+|"
    r"review\w*|explain|find|help|summar\w+|explanation|convert|port|upgrad\w+|read|list|show))\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
)
DONE_VERBS = (
    "fixed|added|removed|renamed|implemented|updated|refactored|created|moved|changed|replaced|"
    "resolved|merged|committed|pushed|deleted|wrote|written|bumped|migrated|extracted|split|cleaned|"
    "reviewed|explained|converted|installed|completed|finished|tested|verified|corrected|patched"
)
DONE_CLAIM = re.compile(
    rf"(?i)^(?:i|we|the (?:assistant|agent|user))?\s*(?:have |has |had |just |"
    rf"successfully )*(?:{DONE_VERBS})\b"
    rf"|\b(?:was|were|has been|have been|is now|are now|got|now|i|we|we['’]ve|i['’]ve) (?:just |"
    rf"successfully )?(?:{DONE_VERBS})\b"
    r"|\b(?:all|\d+) (?:\w+ )?(?:tests?|checks?|files?|errors?|warnings?|failures?)\b"
    r"|\btests? (?:now )?(?:pass(?:es|ed)?|fail(?:s|ed)?|are green|succeed\w*)\b"
    r"|\bthe (?:\w+ )?(?:bug|issue|error|problem|failure|crash|fix) (?:was|is|came|in|occurs|"
    r"happens)\b"
    r"|\bthe (?:first|second|third|other|latter|former|last|previous|above)\b"
    r"|\b(?:root cause|stack ?trace|traceback)\b"
)
CODE_FACT = re.compile(
    r"(?i)\b(?:function|method|class|module|variable|constant|field|endpoint|route|component|"
    r"file)s?"
    r" [`\"']?[\w./()-]+[`\"']? (?:is|are|lives?|takes?|returns?|has|calls?|does|handles?|defines?|"
    r"contains?|accepts?|uses?|imports?|inherits?|reads?|writes?)\b"
    r"|\b(?:is|are) (?:defined|implemented|located|declared|imported|exported|stored) in\b"
    r"|[`\"']?\w+\(\)[`\"']? (?:is|lives|takes|returns|calls|does|handles|uses|raises)\b"
)
CODE_PLACE = re.compile(
    r"(?i)(?<![\w@])(?:\.{0,2}/)?[\w-]+(?:/[\w.-]+)*\.(?:py|ts|tsx|js|jsx|go|rs|c|h|cpp|java|rb|"
    r"md|json|"
    r"ya?ml|toml|sh|sql|css|html)\b|\b\w+\(\)|\bthis (?:one|file|function|test|line|case|bug|"
    r"error)\b"
    r"|\bthat (?:one|file|function|test|line|case|bug|error)\b|\bthe (?:other|second|first|"
    r"last) one\b"
)
EXACT_NAME = re.compile(
    r"`[^`\n]{2,}`|https?://[^\s)>\"'`]+|(?<!\w)--?[a-z][\w-]+"
    r"|(?<![\w/])~?\.{0,2}/[\w./@-]{2,}|\b[\w-]+(?:/[\w.@-]+)+|\b\w+\.[a-z]{2,5}\b"
    r"|\b[A-Za-z]+_\w+\b|\b[a-z]+[A-Z]\w+\b|\b[A-Z]{2,}[A-Z0-9]*\b"
    r"|\bv?\d+(?:[.:]\d+)+\b|\b\d{2,}\b|(?<=[a-z0-9,;] )[A-Z][a-z]{2,}\b"
)
TASK_START = re.compile(
    r"(?i)^(?:please |can you |could you |now |then |ok(?:ay)?,? |and |just |let['’]s |also |"
    r"first ){0,3}"
    r"(?:fix|add|rename|write|show|print|run|make|create|delete|remove|update|explain|summari[sz]e|"
    r"commit|port|upgrade|check|look|find|stop|use|go|ship|do|try|change|move|refactor|implement|"
    r"test|"
    r"build|install|open|push|merge|review|read|list|start|set|put|replace|convert|format|log|"
    r"debug|"
    r"investigate|tell|give|help|finish|continue|undo|revert|search|translate|generate|install)\b"
)
LASTING_WORDS = re.compile(
    r"(?i)\b(?:prefer\w*|rather|only|not|no|instead|don['’]t|do not|want|hate|love|enough|"
    r"too (?:long|short|many|much)|must|should|"
    r"every|each|"
    r"we (?:use|do|have|support|keep|write|name|put|call|avoid))\b"
)
FACT_VERBS = re.compile(
    r"(?i)\b(?:allows?|requires?|needs?|supports?|listens?|expires?|uses?|costs?|limits?|runs?|"
    r"lives?|belongs?|owns?|means?|provides?|accepts?|happens?|applies|serves?)\b"
)
CAUSE_WORDS = re.compile(r"(?i)\b(?:when|unless|because|since|if|until|due to|depends on)\b")
CHANGE_WORDS = re.compile(
    r"(?i)\b(?:instead|no longer|not any ?more|anymore|changed my mind|actually|switch(?:ed|"
    r"ing)? to|"
    r"moved? to|from now on|rather than|scrap that|on second thought|used to|going forward|"
    r"replaces?|new (?:rule|convention|policy)|correction)\b|^no\b"
)
REMEMBER_THIS = re.compile(
    r"(?i)\b(?:remember|note|save|keep|memori[sz]e|store) (?:that|this|it|all of (?:that|this))"
    r"(?: (?:please|for (?:later|next time|the future|me)|too|as well|down))*\W*$"
)
USER_WORDS = ("user", "nutzer", "nutzerin", "benutzer", "anwender", "usuario", "utilisateur")
"""Words for the user, which are not names."""
QUESTION_END = re.compile(r"\w{4,}\W*\?")
POLITE_REQUEST_START = re.compile(r"(?i)^(?:can|could|would|will) (?:you|we)\b")


def expresses_wish(text: str) -> bool:
    """Return whether a text says what somebody should or may do, or wants: a memory signal."""
    return bool(WISH_PATTERN.search(normalise_language(text)))


def addresses_reader(text: str) -> bool:
    """Return whether a text from a tool addresses its reader instead of stating facts."""
    return bool(READER_ADDRESS.search(normalise_language(text)))


def asks_to_remember_this(sentence: str) -> bool:
    """Return whether the user asks to remember what was said before."""
    return bool(REMEMBER_THIS.search(sentence))


def is_withdrawn(sentence: str) -> bool:
    """Return whether a sentence is withdrawn or only for now, and so no memory signal."""
    return bool(WITHDRAWAL_WORDS.search(normalise_language(sentence)))


def retracts_earlier(after: str) -> bool:
    """Return whether a continuation takes back what was said before it."""
    return bool(RETRACTION_START.match(normalise_language(after)))


def find_doubt(sentence: str, words: str, after: str) -> str:
    """Return why the user's words may not be a lasting wish; empty if nothing suggests so."""
    narrowed = NARROWING_START.match(after) or (
        THING_AT_HAND.search(words) and not asks_to_remember(sentence)
    )
    if TIME_LIMIT_WORDS.search(normalise_language(sentence)) or narrowed:
        return "it may not be meant to last"
    if IRONY_WORDS.search(sentence):
        return "it may have been a joke"
    return "the user reported what someone else says" if reports_others(sentence) else ""


def reports_others(sentence: str) -> bool:
    """Return whether a sentence only reports what someone else says: no memory signal."""
    return bool(ATTRIBUTION.search(normalise_language(sentence)))


def is_bare_command(text: str) -> bool:
    """Return whether a text is only a command, which is not worth remembering."""
    return bool(COMMAND_START.match(normalise_language(text)))


def needs_context(text: str) -> bool:
    """Return whether a text, as a memory, would not be understood without its conversation."""
    return bool(DEICTIC_START.match(text))


def asks_something(message: str) -> bool:
    """Return whether a message asks a question, so that its rest may not be worth remembering."""
    return bool(QUESTION_END.search(message))


def is_task(sentence: str) -> bool:
    """Return whether a sentence of the user is only a task or ordinary talk."""
    if classify_sentence(sentence):
        return False
    sentence = LEAD_IN.sub("", normalise_language(sentence))
    lasts = LASTING_WORDS.search(sentence) or ALWAYS_WORDS.search(sentence)
    return bool(FALSE_CORRECTION.match(sentence)) or (
        bool(TASK_START.match(sentence)) and not lasts
    )


def is_lasting(sentence: str) -> bool:
    """Return whether a sentence of the user shows that it is meant for later, too."""
    said = (sentence, *split_spoken_sentences(sentence))
    return any(classify_sentence(one) is not None or always_applies(one) for one in said)


def may_be_lasting(sentence: str) -> bool:
    """Return whether a sentence may be meant for later, which only the user knows."""
    return bool(LASTING_WORDS.search(normalise_language(sentence)))


def is_question(sentence: str) -> bool:
    """Return whether a sentence is only a question, and so no memory signal."""
    handy = POLITE_REQUEST_START.match(sentence) or asks_to_remember(sentence)
    return sentence.rstrip().endswith("?") and not handy


def changes_mind(sentence: str) -> bool:
    """Return whether a sentence says that something changed: an older memory is outdated."""
    return bool(CHANGE_WORDS.search(normalise_language(sentence)))


def find_temporary_reason(text: str, *, said: bool) -> str:
    """Return why a memory would soon be useless; empty if not. `said`: by the user."""
    if TEMPORARY_DETAIL.search(text):
        return "it is a temporary detail of a task"
    if said:
        spot = CODE_PLACE.search(text) and not ALWAYS_WORDS.search(text)
        return "it is about one place in the code" if spot else ""
    if DONE_CLAIM.search(text):
        return "it reports what was done"
    return "the code already says it" if CODE_FACT.search(text) else ""


def claims_done(text: str, sentence: str) -> bool:
    """Return whether a text claims as done what the user only asked for."""
    return bool(DONE_CLAIM.search(text)) and not DONE_CLAIM.search(sentence)


def states_a_fact(text: str, *, by: str) -> bool:
    """Return whether a tool's or model's statement is worth remembering: facts and causes."""
    return bool((FACT_VERBS if by == "tool" else CAUSE_WORDS).search(text))


def extract_names(text: str) -> Iterator[str]:
    """Yield the names and numbers in a memory draft: paths, URLs, code and people."""
    for found in EXACT_NAME.findall(text):
        name = found.strip("`.,;:").casefold()
        if name in USER_WORDS:
            continue
        yield name.removesuffix("s") if name.isalpha() else name
