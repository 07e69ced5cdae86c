"""What a program wrote, as a model can read it: decoded, without screen effects, and bounded."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from travois.engine.ports import Captured, Env
from travois.tools import text as texts

LIMIT = 10_000
"""How many characters a model sees of one output."""
LOOK = 256 * 1024
"""How many bytes of a long output are looked at, at each end."""
TIDY = 1_000
"""How many characters a cut may give up to fall between two lines."""
ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?"
    r"|[ -/]*[0-~])?"
)
OVERSTRUCK = re.compile(r"[^\n]\x08")
SILENT = re.compile(r"[\x07\x08\x0e\x0f]")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


class Readable(msgspec.Struct, frozen=True):
    """Text for a model, what there is to say about it, and whether it is all there was."""

    text: str
    remarks: tuple[str, ...] = ()
    whole: bool = True


class Part(NamedTuple):
    """A stretch of output as text; None if it is not text."""

    text: str | None
    label: str = ""


def readable(output: Captured) -> Readable:
    """The output if it is short, else its beginning and its end."""
    if output.total <= 2 * LOOK and not output.missing:
        part = _part(output.joined())
        if part.text is not None and len(part.text) <= LIMIT:
            return Readable(part.text, _remarks(part))
        front = back = part
    else:
        front = _part(_uncut(output.head[:LOOK], "end"))
        end = output.tail if output.missing else output.head[-LOOK:] + output.tail
        back = _part(_uncut(end[-LOOK:], "start"))
    if front.text is None or back.text is None:
        remark = f"The output is not text: {output.total:,} bytes of binary data."
        return Readable("", (remark,), whole=False)
    first, last = _beginning(front.text), _end(back.text)
    hidden = max(0, output.total - len((first + last).encode(errors="surrogatepass")))
    gap = f"\n[... about {hidden:,} of {output.total:,} bytes left out ...]\n"
    return Readable(first + gap + last, _remarks(front, back), whole=False)


def spilled(output: Captured, env: Env, *, call: str) -> str:
    """Keep the output in a file; returns the words that tell where, and how to read on."""
    if output.file:
        return f"All of it is in {output.file}: use Read with offset and limit, or Grep."
    if output.missing:
        gap = b"\n[... %d bytes were not kept ...]\n" % output.missing
        data, what = output.head + gap + output.tail, "Its beginning and end, as far as kept, are"
    else:
        data, what = output.joined(), "All of it is"
    try:
        path = env.spill(call, data)
    except OSError as error:
        return f"The rest could not be kept: {error}."
    return f"{what} in {path}: use Read with offset and limit, or Grep."


def _part(data: bytes) -> Part:
    nul = "NUL bytes are shown as \\0" if b"\0" in data else ""
    decoded = texts.decode(data)
    if decoded is None and nul:
        decoded = texts.decode(data.replace(b"\0", b"\\0"))
    elif nul:
        nul = ""
    if decoded is None or (nul and decoded.encoding.codec != "utf-8"):
        return Part(None)
    plain = _plain(texts.shown(decoded.text))
    strange = len(CONTROL.findall(plain))
    if strange > len(plain) / 50:
        return Part(None)
    label = decoded.encoding.label
    said = f"The output is not UTF-8; it is shown as {label}" if label else ""
    return Part(CONTROL.sub(_visible, plain) if strange else plain, said or nul)


def _plain(text: str) -> str:
    """The text as it stands on a screen in the end: no colours, last state of each line."""
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    if "\x08" in text:
        text = OVERSTRUCK.sub("", text)
    if "\r" in text:
        lines = text.replace("\r\n", "\n").split("\n")
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return SILENT.sub("", text)


def _visible(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


def _uncut(data: bytes, side: str) -> bytes:
    """The bytes without a UTF-8 character that was cut in two on that side."""
    if side == "start":
        return re.sub(rb"\A[\x80-\xbf]{1,3}", b"", data)
    return re.sub(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z", b"", data)


def _beginning(text: str) -> str:
    kept = text[: LIMIT // 2]
    cut = kept.rfind("\n")
    return kept[:cut] if cut > len(kept) - TIDY else kept


def _end(text: str) -> str:
    kept = text[-LIMIT // 2 :]
    return kept[kept.find("\n", 0, TIDY) + 1 :]


def _remarks(*parts: Part) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{part.label}." for part in parts if part.label))
