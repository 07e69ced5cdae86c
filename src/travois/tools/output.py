"""Program output made readable for a model: decoded, without terminal codes, and shortened."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from travois.context.tool_results import clip_ends, describe_omission, estimate_text_tokens
from travois.core.patterns import compile_lazily
from travois.ports.world import CapturedOutput
from travois.tools.text import decode_text, show_invalid_bytes

DEFAULT_OUTPUT_TOKENS = 8_000
"""Tokens shown of an output that no call asked for."""
CUT_OUTPUT_CHARS = 3_600
"""Characters shown of an output that is too long to be shown whole: enough to see what it is, and
how it ended. The rest is in a file, and what is needed of it is read there."""
GAP_MARKER_TOKENS = 120
"""The tokens for what is said in place of the middle."""
MAX_END_BYTES = 256 * 1024
"""Bytes examined at each end of a long output."""
TERMINAL_ESCAPE = compile_lazily(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?"
    r"|[ -/]*[0-~])?"
)
OVERSTRIKE = compile_lazily(r"[^\n]\x08")
SILENT_CHARACTERS = compile_lazily(r"[\x07\x08\x0e\x0f]")
CONTROL_CHARACTERS = compile_lazily(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


class ReadableOutput(msgspec.Struct, frozen=True):
    """Output as text for a model, remarks on it, and its total number of lines."""

    text: str
    remarks: tuple[str, ...] = ()
    lines: int = 0


class DecodedPart(NamedTuple):
    """A stretch of output as text; None if it is not text."""

    text: str | None
    label: str = ""


SaveOutput = Callable[[bytes], str]
"""Keeps bytes in a file; returns its path. Raises OSError."""


def make_readable(
    output: CapturedOutput, *, tokens: int = DEFAULT_OUTPUT_TOKENS, keep: SaveOutput | None = None
) -> ReadableOutput:
    """Return a program's output if it is short, else its two ends and where to read the rest.

    All numbers are those of the output as the program wrote it.
    """
    part = None
    if output.total <= 2 * MAX_END_BYTES and not output.missing_bytes:
        part = _decode_part(output.head_and_tail())
        if part.text is not None and estimate_text_tokens(part.text) <= tokens:
            return ReadableOutput(part.text, _encoding_remarks(part), output.line_count)
    front, back = (part, part) if part is not None else _decode_ends(output)
    if front.text is None or back.text is None:
        remark = f"The output is not text: {output.total:,} bytes of binary data."
        return ReadableOutput(
            "", (f"{remark} {_describe_saved_output(output, keep)}".rstrip(),), output.line_count
        )
    total = output.total if part is None else len(front.text)
    clipped = clip_ends(
        front.text,
        back.text,
        tokens - GAP_MARKER_TOKENS,
        head=0.5,
        total=total,
        lines=output.line_count,
        chars=CUT_OUTPUT_CHARS,
    )
    unit = "bytes" if part is None else "characters"
    if part is None:  # the middle is not at hand as text: what is shown is counted as it was
        ends = len((clipped.head + clipped.tail).encode(errors="surrogatepass"))
        clipped = replace(clipped, characters=max(0, total - ends))
    missing = describe_omission(clipped, total=total, lines=output.line_count, unit=unit)
    gap = (
        f"[{missing}. {_describe_saved_output(output, keep, line=clipped.next_line)}".rstrip()
        + "]\n"
    )
    head = clipped.head if clipped.head.endswith("\n") else f"{clipped.head}\n"
    return ReadableOutput(
        head + gap + clipped.tail, _encoding_remarks(front, back), output.line_count
    )


def _decode_ends(output: CapturedOutput) -> tuple[DecodedPart, DecodedPart]:
    """Return the two ends of a program's output that is too long to decode as a whole."""
    end = output.tail if output.missing_bytes else output.head[-MAX_END_BYTES:] + output.tail
    front = _decode_part(_trim_split_character(output.head[:MAX_END_BYTES], "end"))
    return front, _decode_part(_trim_split_character(end[-MAX_END_BYTES:], "start"))


def _describe_saved_output(
    output: CapturedOutput, keep: SaveOutput | None, *, line: int = 1
) -> str:
    """Save a program's output to a file; return the words that tell how to read it."""
    onward = f"continue with Read offset={line}, or use Grep."
    if output.file:
        what = "The first part of it" if output.is_capped else "All of it"
        return f"{what} is in {output.file}; {onward}"
    if keep is None:
        return "It was not saved."
    data, what = output.head_and_tail(), "All of it is"
    if output.missing_bytes:
        gap = b"\n[... %d bytes were not saved ...]\n" % output.missing_bytes
        data = output.head + gap + output.tail
        what = f"All but {output.missing_bytes:,} bytes in the middle, which were not saved, is"
    try:
        path = keep(data)
    except OSError as error:
        return f"It could not be saved: {error}."
    return f"{what} in {path}; {onward}"


def _decode_part(data: bytes) -> DecodedPart:
    """Decode part of a program's output, without terminal codes, unless it is binary."""
    nul = "NUL bytes are shown as \\0" if b"\0" in data else ""
    decoded = decode_text(data)
    if decoded is None and nul:
        decoded = decode_text(data.replace(b"\0", b"\\0"))
    elif nul:
        nul = ""
    if decoded is None or (nul and decoded.encoding.codec != "utf-8"):
        return DecodedPart(None)
    plain = strip_terminal_codes(show_invalid_bytes(decoded.text))
    strange = len(CONTROL_CHARACTERS.findall(plain))
    if strange > len(plain) / 50:
        return DecodedPart(None)
    label = decoded.encoding.label
    said = f"The output is not UTF-8; decoded as {label}" if label else ""
    return DecodedPart(
        CONTROL_CHARACTERS.sub(_escape_control, plain) if strange else plain, said or nul
    )


def strip_terminal_codes(text: str) -> str:
    """Return a program's output as a screen shows it in the end, without colours."""
    if "\x1b" in text:
        text = TERMINAL_ESCAPE.sub("", text)
    if "\x08" in text:
        text = OVERSTRIKE.sub("", text)
    if "\r" in text:
        lines = text.replace("\r\n", "\n").split("\n")
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return SILENT_CHARACTERS.sub("", text)


def _escape_control(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


def _trim_split_character(data: bytes, side: str) -> bytes:
    """Trim a UTF-8 character that a cut through the output has split on that side."""
    if side == "start":
        return re.sub(rb"\A[\x80-\xbf]{1,3}", b"", data)
    return re.sub(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z", b"", data)


def _encoding_remarks(*parts: DecodedPart) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{part.label}." for part in parts if part.label))
