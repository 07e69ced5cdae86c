"""Texts of every kind that a window is filled with, made by rule: the same bytes on any machine.

They judge the estimate of tokens (`bench.tokens`, `tests/core/test_contents.py`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

SIZE = 12_000
"""How many characters each text has."""
WORDS = {
    "english": "the of and to in a is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all their there would when who will more if out so said what its about "
    "into than them can only other new some could time these two may then do first any my now such like "
    "our over man even most made after also did many before must through years where much your way well "
    "down should because each just those people how too little state good very make world still own see "
    "men work long get here between both life being under never day same another know while last might "
    "great old year off come since against go came right used take three server window request because",
    "german": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden "
    "aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder "
    "aber vor zur bis mehr durch man sein wurde sei Prozent hatte kann gegen vom können schon wenn habe "
    "seine Mark ihre dann unter wir soll ich eines Jahr zwei Jahren Übersetzung Schlüssel Größe ändern",
    "russian": "и в не на я быть он с что а по это она этот к но они мы весь который из у то за свой от "
    "год человек так о для ты же все тот мочь вы себя как время если уже когда другой или наш рука говорить "
    "жизнь первый день один новый слово дело место сказать вопрос работа система файл ошибка сервер запрос "
    "хороший большой потому после через между только очень знать стать сделать сообщение значение",
    "arabic": "في من على إلى أن هذا التي الذي كان عن مع هو ما لا بعد كل ذلك قد هذه بين عند حتى لم كما إذا "
    "الناس العمل الوقت الخطأ الملف الخادم الطلب النظام الكلمة السؤال الجديد الأول الحياة اليوم",
    "hindi": "और के का में है की से को यह कि पर ने एक नहीं हो था लिए भी इस वह जो कर तो या अपने समय काम "
    "लोग दिन फ़ाइल त्रुटि सर्वर अनुरोध प्रणाली शब्द सवाल नया पहला जीवन आज बहुत अच्छा",
    "greek": "και το της η του που να με από για την στο είναι τα οι δεν τον μας θα ότι στην αυτό μια όταν "
    "χρόνος άνθρωπος εργασία αρχείο σφάλμα σύστημα αίτημα λέξη ερώτηση νέος πρώτος ζωή ημέρα",
}
SIGNS = {
    "chinese": "的一是不了在人有我他这中大来上个国和说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运",
    "japanese": "のにはをたがでてとしれさあるいるもするからなことれるとしてそのおりこのでもまたはんをすなはって日本人年大会一国月分出時中事者上自行生私発部間見対場方手前後内新社地学高今先小何気長動同回実動開業思話理体政定全現立下子文目東所明言意法当",
    "korean": "이다는에의가을를한하고지로도은기사대해서자그인리것수어시나일있보부정상고전라만면들에서으로했다하는합니다않은때문에사람시간파일오류서버요청시스템단어질문",
    "emoji": "😀😂🤣😊😍🙏👍🔥✅❌🚀🎉💡📦🐛🔧📝⚠️🟢🔴⭐🧪🏗️🤖👀💥📈🗂️",
}
LINES = 20


class Chance:
    """Numbers that look random and are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        """The next number, from nought to below the limit."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % limit

    def choose(self, among: Sequence[str]) -> str:
        """One of these."""
        return among[self.below(len(among))]

    def data(self, size: int) -> bytes:
        """So many bytes."""
        return bytes(self.below(256) for _ in range(size))


Lines = Iterator[str]
"""Pieces of a text, without end."""


def _sentences(language: str) -> Callable[[Chance], Lines]:
    words = WORDS[language].split()

    def made(chance: Chance) -> Lines:
        while True:
            said = " ".join(chance.choose(words) for _ in range(6 + chance.below(14)))
            yield said[0].upper() + said[1:] + chance.choose((". ", ". ", "? ", ".\n\n"))

    return made


def _signs(language: str) -> Callable[[Chance], Lines]:
    def made(chance: Chance) -> Lines:
        while True:
            said = "".join(chance.choose(SIGNS[language]) for _ in range(8 + chance.below(20)))
            yield said + chance.choose(("，", "。", "。\n"))

    return made


NAMES = (
    *("request", "window", "session", "model", "result", "token", "count"),
    *("reply", "server", "path", "line", "value", "index"),
)


def _name(chance: Chance) -> str:
    return "_".join(chance.choose(NAMES) for _ in range(1 + chance.below(2)))


def python(chance: Chance) -> Lines:
    while True:
        one, two, three = _name(chance), _name(chance), _name(chance)
        yield (
            f"def {one}_{two}({two}: int, {three}: str = '') -> list[str]:\n"
            f'    """Return the {one} of a {two}."""\n'
            f"    if {two} > {chance.below(100)} and not {three}.startswith('{two}'):\n"
            f"        raise ValueError(f'{{{three}}} is no {one}')\n"
            f"    return [self.{three}[i] for i in range({two})]\n\n\n"
        )


def deep_code(chance: Chance) -> Lines:
    while True:
        pad = "    " * (3 + chance.below(6))
        yield f"{pad}if ({_name(chance)} !== null) {{\n{pad}    this.{_name(chance)}({chance.below(10)});\n{pad}}}\n"


def minified_script(chance: Chance) -> Lines:
    while True:
        a, b = chance.choose("abcdefnrt"), chance.choose("eniou")
        yield f"function {a}{b}({a},{b}){{return {a}.{_name(chance)}&&({b}=[{chance.below(99)},!0]),{a}?{b}:void 0}}"


def minified_style(chance: Chance) -> Lines:
    while True:
        yield f".{_name(chance)}-{chance.below(9)}>a:hover{{margin:0 {chance.below(20)}px;color:#{chance.data(3).hex()}}}"


def html(chance: Chance) -> Lines:
    while True:
        name = _name(chance)
        yield f'  <li class="{name}"><a href="/{name}/{chance.below(999)}">{name.title()}</a></li>\n'


def _record(chance: Chance) -> dict[str, object]:
    return {
        "id": chance.below(100_000),
        "name": _name(chance),
        "active": chance.below(2) == 0,
        "score": chance.below(10_000) / 100,
        "tags": [_name(chance) for _ in range(chance.below(4))],
        "parent": None,
    }


def pretty_json(chance: Chance) -> Lines:
    while True:
        yield json.dumps(_record(chance), indent=2) + ",\n"


def minified_json(chance: Chance) -> Lines:
    while True:
        yield json.dumps(_record(chance), separators=(",", ":")) + ","


def escaped_json(chance: Chance) -> Lines:
    while True:
        yield json.dumps(json.dumps(_record(chance), indent=1)) + ",\n"


def coded_base64(chance: Chance) -> Lines:
    while True:
        yield base64.b64encode(chance.data(300)).decode()


def wrapped_base64(chance: Chance) -> Lines:
    while True:
        yield base64.b64encode(chance.data(57)).decode() + "\n"


def hexadecimal(chance: Chance) -> Lines:
    while True:
        yield chance.data(100).hex()


def hashes(chance: Chance) -> Lines:
    while True:
        yield f"{chance.data(20).hex()}  {_name(chance)}.tar.gz\n"


def uuids(chance: Chance) -> Lines:
    while True:
        text = chance.data(16).hex()
        yield "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])) + "\n"


def hex_dump(chance: Chance) -> Lines:
    at = 0
    while True:
        data = chance.data(16)
        pairs = " ".join(data[i : i + 2].hex() for i in range(0, 16, 2))
        yield f"{at:08x}: {pairs}  {''.join(chr(b) if 32 < b < 127 else '.' for b in data)}\n"
        at += 16


def log_lines(chance: Chance) -> Lines:
    second = 0
    while True:
        second += chance.below(7)
        level = chance.choose(("INFO", "DEBUG", "WARN", "ERROR"))
        yield (
            f"2026-11-{1 + second // 9000 % 28:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.{chance.below(1000):03}Z "
            f"{level:5} [worker-{chance.below(16)}] app.{_name(chance)}: {_name(chance)} took {chance.below(900)} ms (id={chance.data(4).hex()})\n"
        )


def traceback(chance: Chance) -> Lines:
    while True:
        name = _name(chance)
        yield f'  File "/usr/lib/python3.12/site-packages/app/{name}.py", line {chance.below(900)}, in {name}\n    return self.{_name(chance)}({name})\n'


def diff(chance: Chance) -> Lines:
    while True:
        name, at = _name(chance), chance.below(900)
        yield (
            f"@@ -{at},6 +{at},7 @@ def {name}(self):\n     {name} = self.{_name(chance)}\n-    return {name}.{_name(chance)}\n"
            f"+    if {name} is None:\n+        return {chance.below(100)}\n     # {_name(chance)}\n"
        )


def markdown_table(chance: Chance) -> Lines:
    yield "| name | count | share |\n|------|------:|-------|\n"
    while True:
        yield f"| {_name(chance)} | {chance.below(100_000):,} | {chance.below(1000) / 10}% |\n"


def drawn_table(chance: Chance) -> Lines:
    rule = f"+{'-' * 24}+{'-' * 12}+{'-' * 10}+\n"
    yield rule
    while True:
        yield f"| {_name(chance):22} | {chance.below(100_000):10} | {_name(chance)[:8]:8} |\n{rule}"


def boxed_table(chance: Chance) -> Lines:
    rule = f"├{'─' * 24}┼{'─' * 12}┼{'─' * 10}┤\n"
    yield rule
    while True:
        yield f"│ {_name(chance):22} │ {chance.below(100_000):10} │ {_name(chance)[:8]:8} │\n{rule}"


def narrow_rules(chance: Chance) -> Lines:
    while True:
        yield "+" + "+".join("-" * (4 + chance.below(10)) for _ in range(7)) + "+\n"


def comma_separated(chance: Chance) -> Lines:
    while True:
        yield f"{chance.below(10_000)},{_name(chance)},{chance.below(1_000_000) / 1000},{chance.below(2)},2026-0{1 + chance.below(9)}-1{chance.below(10)}\n"


def tab_separated(chance: Chance) -> Lines:
    while True:
        yield f"{chance.below(10_000)}\t{_name(chance)}\t{chance.below(1_000)}\t{chance.below(2)}\t{_name(chance)}\n"


def matrix(chance: Chance) -> Lines:
    while True:
        yield " ".join(str(chance.below(10)) for _ in range(30)) + "\n"


def floats(chance: Chance) -> Lines:
    while True:
        yield " ".join(f"{chance.below(2_000_000) / 1e6 - 1: .6f}" for _ in range(8)) + "\n"


def integers(chance: Chance) -> Lines:
    while True:
        yield f"{chance.below(1 << 30)}\n"


def file_list(chance: Chance) -> Lines:
    while True:
        yield f"-rw-r--r-- 1 root root {chance.below(1 << 20):8} Nov {1 + chance.below(28):2} {chance.below(24):02}:{chance.below(60):02} {_name(chance)}.py\n"


def paths(chance: Chance) -> Lines:
    while True:
        yield f"./src/{_name(chance)}/{_name(chance)}/test_{_name(chance)}.py\n"


def addresses(chance: Chance) -> Lines:
    while True:
        yield f"https://example.com/{_name(chance)}/{chance.below(99_999)}?{_name(chance)}={chance.data(4).hex()}&page={chance.below(50)}\n"


def test_progress(chance: Chance) -> Lines:
    done = 0
    while True:
        done += 1
        yield f"tests/test_{_name(chance)}.py {'.' * (20 + chance.below(50))} [{done % 101:3}%]\n"


def progress_bar(chance: Chance) -> Lines:
    done = 0
    while True:
        done = done % 100 + 1
        yield f"\r{done:3}%|{'#' * (done // 2)}{' ' * (50 - done // 2)}| {done * 10}/1000 [00:{done % 60:02}<00:{chance.below(60):02}]"


def block_bar(chance: Chance) -> Lines:
    done = 0
    while True:
        done = done % 100 + 1
        yield f"\r{done:3}%|{'█' * (done // 2)}{' ' * (50 - done // 2)}| {done * 10}/1000"


def coloured(chance: Chance) -> Lines:
    while True:
        yield f"\x1b[3{chance.below(8)}m{_name(chance)}\x1b[0m \x1b[1m{chance.below(100)}\x1b[0m\n"


def capitals(chance: Chance) -> Lines:
    while True:
        yield f"#define {_name(chance).upper()}_{_name(chance).upper()} {chance.below(64)}\n"


def camel_case(chance: Chance) -> Lines:
    while True:
        yield f"{_name(chance).title().replace('_', '')}{_name(chance).title().replace('_', '')}Factory;\n"


def sparse_lines(chance: Chance) -> Lines:
    while True:
        yield chance.choose(NAMES) + "\n" * (2 + chance.below(5))


def windows_lines(chance: Chance) -> Lines:
    while True:
        yield f"{_name(chance)} = {chance.choose(NAMES)}\r\n"


def columns(chance: Chance) -> Lines:
    while True:
        yield f"{_name(chance):40}{_name(chance):>40}{chance.below(1000):12}\n"


def dotted_names(chance: Chance) -> Lines:
    while True:
        name = _name(chance)
        yield f"{name} {'.' * (60 - len(name))} ok\n"


def headings(chance: Chance) -> Lines:
    while True:
        yield f"{'=' * 70}\n{_name(chance)}: {' '.join(chance.choose(NAMES) for _ in range(5))}\n{'-' * 70}\n"


def _repeated(piece: str) -> Callable[[Chance], Lines]:
    def made(chance: Chance) -> Lines:
        while True:
            yield piece

    return made


KINDS: dict[str, Callable[[Chance], Lines]] = {
    **{f"{language} prose": _sentences(language) for language in WORDS},
    **{language: _signs(language) for language in SIGNS},
    **{
        made.__name__.replace("_", " "): made
        for made in (
            *(python, deep_code, minified_script, minified_style, html, pretty_json, minified_json),
            *(escaped_json, coded_base64, wrapped_base64, hexadecimal, hashes, uuids, hex_dump),
            *(log_lines, traceback, diff, markdown_table, drawn_table, boxed_table, narrow_rules),
            *(comma_separated, tab_separated, matrix, floats, integers, file_list, paths),
            *(addresses, test_progress, progress_bar, block_bar, coloured, capitals, camel_case),
            *(sparse_lines, windows_lines, columns, dotted_names, headings),
        )
    },
}
"""What tools bring and people say; each judge must agree with the estimate about these."""
RUNS = {
    **{
        f"{piece!r}, no end": _repeated(piece) for piece in (".", "-", "=", "*", "#", "_", "~", "+")
    },
    **{
        f"{piece!r}, no end": _repeated(piece)
        for piece in ("\n", "\r\n", " ", "\t", " \n", "/", "%")
    },
    **{
        f"{piece!r}, no end": _repeated(piece)
        for piece in ("x", "A", "0", "9", "=-", "+-", "─", "═")
    },
    **{
        f"{piece!r}, no end": _repeated(piece)
        for piece in ("!", "<", ">", ":", "'", "|", "\\", "z")
    },
    "lines of dots": _repeated("." * 80 + "\n"),
    "lines of dashes": _repeated("-" * 79 + "\n"),
    "lines of spaces": _repeated(" " * 80 + "\n"),
    "lines of eight spaces": _repeated(" " * 8 + "\n"),
    "lines of =-": _repeated("=-" * 39 + "\n"),
}
"""What says nothing, at any length; tokenizers differ here by up to eight times."""


def made(kind: str) -> str:
    """The text of a kind."""
    lines = (KINDS.get(kind) or RUNS[kind])(Chance(1))
    text = ""
    while len(text) < SIZE:
        text += "".join(islice(lines, LINES))
    return text[:SIZE]
