"""Key bindings, completion, pastes and images of the input line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Literal, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching, vi_insert_mode
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from travois.core.content import Media, Text, TextOrMedia
from travois.core.errors import UserError
from travois.ports.world import Blobs
from travois.terminal import format_size
from travois.tui.key_file import KeyMap
from travois.tui.layout import clean_display_text
from travois.tui.menu import Menu
from travois.tui.screen import Screen

# The input line: history, completion and pastes.


MAX_PASTE_CHARS = 1_000
MAX_PASTE_LINES = 12
"""Longer pastes are shown by their size."""
MAX_LISTED_FILES = 5_000
"""Files listed for completion; in a larger tree a folder must be typed."""
FILE_LIST_SECONDS = 20.0
"""Seconds that a file listing is reused."""
SKIPPED_FOLDERS = {
    ".git",
    ".hg",
    ".venv",
    "node_modules",
    "__pycache__",
    "target",
    "dist",
    ".mypy_cache",
}
MAX_FILE_COMPLETIONS = 30
MENTION_PATTERN = re.compile(r"(?:^|\s)@(\S*)$")
COMMAND_PATTERN = re.compile(r"/([\w:.-]*)(?:\s+(\S*))?")

MentionSource = Callable[[], list[str]]
CommandSource = Callable[[str | None, str], Iterable[tuple[str, str]]]
"""Completes command names (with descriptions) or, for a named command, its arguments."""


class Pastes:
    """Long pastes, which are shown as a placeholder and sent in full."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """Return the text to insert for a paste; a placeholder if it is long."""
        text = clean_display_text(text.replace("\r\n", "\n").replace("\r", "\n"))
        if len(text) <= MAX_PASTE_CHARS and text.count("\n") < MAX_PASTE_LINES:
            return text
        name = f"[pasted {format_size(len(text.encode()))}]"
        if name in self._kept:
            name = f"{name[:-1]}, {len(self._kept) + 1}]"
        self._kept[name] = text
        return name

    def expand(self, text: str) -> str:
        """Replace the placeholders with the pasted text."""
        for name, paste in self._kept.items():
            text = text.replace(name, paste)
        return text


class InputCompleter(Completer):
    """Completion of slash commands, and of files and MCP resources after `@`."""

    def __init__(self, folder: str, offers: CommandSource, held: MentionSource = list) -> None:
        self._folder = folder
        self._offers = offers
        self._held = held
        self._files: list[str] = []
        self._is_cut = False
        """True if there are more files than were listed."""
        self._listed = -FILE_LIST_SECONDS

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield completions for the text before the cursor."""
        before = document.text_before_cursor
        if found := COMMAND_PATTERN.fullmatch(before):
            name, word = found[1], found[2]
            known = self._offers(None, name) if word is None else self._offers(name, word)
            start = -len(name) if word is None else -len(word)
            for text, meaning in known:
                shown = f"/{text}" if word is None else text
                yield Completion(text, start, display=shown, display_meta=meaning)
        elif found := MENTION_PATTERN.search(before):
            for path in self._matching_paths(found[1]):
                yield Completion(path, -len(found[1]), display=path)
            if self._is_cut:
                yield Completion(
                    "", display=f"(only {MAX_LISTED_FILES:,} files searched; type a folder)"
                )

    def _matching_paths(self, word: str) -> list[str]:
        """Return paths that contain the word; names that start with it come first."""
        if monotonic() - self._listed > FILE_LIST_SECONDS:
            files = list(islice(_walk_files(self._folder), MAX_LISTED_FILES + 1))
            self._files, self._is_cut = files[:MAX_LISTED_FILES], len(files) > MAX_LISTED_FILES
            self._listed = monotonic()
        low = word.lower()
        named = (
            _list_folder(self._folder, os.path.dirname(word)) if self._is_cut or "/" in word else ()
        )
        known = dict.fromkeys((*self._files, *named, *self._held()))
        found = [path for path in known if low in path.lower() and path != word]
        found.sort(key=lambda path: (not _base_name(path).lower().startswith(low), len(path), path))
        return found[:MAX_FILE_COMPLETIONS]


def create_input_buffer(completer: Completer, past: str) -> Buffer:
    """Create the input line, with its history in a file."""
    os.makedirs(os.path.dirname(past), mode=0o700, exist_ok=True)
    return Buffer(
        completer=completer,
        complete_while_typing=True,
        history=FileHistory(past),
        multiline=True,
        tempfile_suffix=".md",
    )


def _base_name(path: str) -> str:
    return os.path.basename(path.rstrip("/"))


def _list_folder(folder: str, part: str) -> list[str]:
    """List a folder for path completion; subfolders end with a slash."""
    try:
        with os.scandir(os.path.join(folder, part)) as entries:
            found = [
                (one.name, "/" if one.is_dir() else "") for one in islice(entries, MAX_LISTED_FILES)
            ]
    except OSError:
        return []
    kept = [os.path.join(part, name) + end for name, end in found if name not in SKIPPED_FOLDERS]
    return [path for path in kept if _can_be_mentioned(path)]


def _can_be_mentioned(path: str) -> bool:
    """Return whether a path can be completed after an `@`."""
    return path.isprintable() and " " not in path


def _walk_files(folder: str) -> Iterator[str]:
    """Yield the files to complete below a folder, without build output and dependencies."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        inside = os.path.relpath(place, folder)
        if inside != "." and _can_be_mentioned(inside):
            yield f"{inside}/"
        for name in sorted(files):
            path = name if inside == "." else f"{inside}/{name}"
            if _can_be_mentioned(path):
                yield path


# Keys that no keyboard has: prompt_toolkit binds only to its own keys, so what terminals send for
# Alt-Enter, and their reply to our query, is mapped to these.
ALT_ENTER = Keys.F24
SYNCHRONIZED_REPLY = Keys.F23
NEWLINE_SEQUENCES = (
    "\x1b\r",
    "\x1b\n",
    "\x1b[13;2u",
    "\x1b[13;3u",
    "\x1b[27;2;13~",
    "\x1b[27;3;13~",
)
MENU_PAGE_ROWS = 8
DOUBLE_PRESS_SECONDS = 0.8
"""Two presses within this many seconds are a double press."""
KeyHandler = Callable[[KeyPressEvent], None]
KeyAction = Literal["rewind", "mode", "expand", "leave", "image"]
ACTION_NAMES = {
    "_switch_mode": "mode",
    "_expand_result": "expand",
    "_open_editor": "editor",
    "_clear_screen": "clear-screen",
    "_suspend": "suspend",
    "_queue": "queue",
    "_paste_image": "image",
}
"""What the user's key file calls the actions."""


class KeyActions(Protocol):
    """The actions that keys trigger."""

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        ...

    def submit(self, text: str, *, when: Literal["next", "after"]) -> None:
        """Send input: to the running turn, or after it."""
        ...

    def interrupt(self) -> None:
        """Stop the running turn."""
        ...

    def handle_key(self, what: KeyAction) -> None:
        """Run the action of a key."""
        ...


def register_key_sequences() -> None:
    """Register key sequences that prompt_toolkit does not know."""
    ANSI_SEQUENCES.update(dict.fromkeys(NEWLINE_SEQUENCES, ALT_ENTER))
    for state in "01234":
        known = SYNCHRONIZED_REPLY if state in "123" else Keys.Ignore
        ANSI_SEQUENCES[f"\x1b[?2026;{state}$y"] = known


class Keyboard:
    """Key bindings of the app; all other keys work as in any line editor."""

    def __init__(
        self, screen: Screen, desk: KeyActions, pastes: Pastes, own: KeyMap | None = None
    ) -> None:
        self._screen, self._desk, self._pastes = screen, desk, pastes
        self._own = own or {}
        """The user's own keys for some of the actions."""
        self._pressed = 0.0

    def build_bindings(self) -> KeyBindings:
        """Build the bindings, each with the state in which it applies."""
        menu = Condition(lambda: self._screen.menu is not None)
        typing, busy = ~menu & ~is_searching, Condition(lambda: self._desk.is_busy)
        unwritten = Condition(lambda: not self._screen.buffer.text and not self._screen.is_asking)
        chosen = Condition(self._has_selected_completion)
        table: tuple[tuple[KeyHandler, Filter, tuple[Keys | str, ...]], ...] = (
            (self._enter, typing & ~chosen, (Keys.Enter,)),
            (self._accept_completion, typing & chosen, (Keys.Enter,)),
            (self._insert_newline, typing & ~busy, (ALT_ENTER,)),
            (self._queue, typing & busy, (ALT_ENTER,)),
            (self._queue, typing & busy & ~has_completions, (Keys.Tab,)),
            (self._complete, typing & (~busy | has_completions), (Keys.Tab,)),
            (self._paste, typing, (Keys.BracketedPaste,)),
            (self._escape, typing & ~vi_insert_mode, (Keys.Escape,)),
            (self._cancel, typing, (Keys.ControlC,)),
            (self._leave_or_delete, typing, (Keys.ControlD,)),
            (self._paste_image, typing, (Keys.ControlV,)),
            (self._open_editor, typing & ~busy, (Keys.ControlG,)),
            (self._suspend, typing & ~busy, (Keys.ControlZ,)),
            (self._clear_screen, ~menu, (Keys.ControlL,)),
            (self._switch_mode, ~is_searching, (Keys.BackTab,)),
            (self._show_shortcuts, typing & unwritten, ("?",)),
            (self._expand_result, ~is_searching, (Keys.ControlO,)),
            (self._enable_synchronized, ~menu | menu, (SYNCHRONIZED_REPLY,)),
        )
        keys = KeyBindings()
        for press, where, names in table:
            action = ACTION_NAMES.get(press.__name__, "")
            for parts in self._own.get(action, tuple((name,) for name in names)):
                keys.add(*parts, filter=where)(press)
        self._bind_menu_keys(keys, menu)
        return keys

    def _bind_menu_keys(self, keys: KeyBindings, menu: Filter) -> None:
        named = (Keys.Up, Keys.Down, Keys.Enter, Keys.Escape, Keys.ControlC, Keys.ControlD)
        more = (Keys.ControlP, Keys.ControlN, Keys.Tab, Keys.PageUp, Keys.PageDown)
        typed = (Keys.Backspace, Keys.ControlU, Keys.BracketedPaste)
        # A key with Alt begins as Escape does: then an Escape is one only if nothing follows it.
        has_alt = any(parts[0] == Keys.Escape for own in self._own.values() for parts in own)
        for key in (*named, *more, *typed):
            is_eager = key != Keys.Escape or not has_alt
            keys.add(key, filter=menu, eager=is_eager)(self._press_menu_key)
        keys.add(Keys.Any, filter=menu)(self._press_menu_key)

    def _press_menu_key(self, event: KeyPressEvent) -> None:
        menu = self._screen.menu
        if menu is None or event.key_sequence[0].key == Keys.BracketedPaste:
            return
        if menu.is_armed():
            _apply_menu_key(menu, event)
        elif event.data.isprintable():
            self._screen.buffer.insert_text(event.data)
        self._screen.refresh()

    def _has_selected_completion(self) -> bool:
        state = self._screen.buffer.complete_state
        return state is not None and state.current_completion is not None

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = self._screen.buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            self._send("next")

    def _queue(self, event: KeyPressEvent) -> None:
        self._send("after")

    def _send(self, when: Literal["next", "after"]) -> None:
        buffer = self._screen.buffer
        text = self._pastes.expand(buffer.text)
        if self._screen.submit_answer(text) or not text.strip():
            return
        buffer.append_to_history()
        buffer.reset()
        self._desk.submit(text, when=when)

    def _accept_completion(self, event: KeyPressEvent) -> None:
        self._screen.buffer.complete_state = None

    def _insert_newline(self, event: KeyPressEvent) -> None:
        self._screen.buffer.insert_text("\n")

    def _complete(self, event: KeyPressEvent) -> None:
        if self._screen.buffer.complete_state:
            self._screen.buffer.complete_next()
        else:
            self._screen.buffer.start_completion(select_first=True)

    def _paste(self, event: KeyPressEvent) -> None:
        if not event.data:  # what terminals send for a clipboard without text
            self._desk.handle_key("image")
            return
        text = mention_dropped_path(event.data, os.getcwd())
        self._screen.buffer.insert_text(self._pastes.shorten(text))

    def _paste_image(self, event: KeyPressEvent) -> None:
        self._desk.handle_key("image")

    def _open_editor(self, event: KeyPressEvent) -> None:
        self._screen.buffer.open_in_editor()

    def _is_double_press(self) -> bool:
        """Tell whether this is the second of two quick presses."""
        before, self._pressed = self._pressed, monotonic()
        return self._pressed - before < DOUBLE_PRESS_SECONDS

    def _escape(self, event: KeyPressEvent) -> None:
        buffer = self._screen.buffer
        if buffer.complete_state:
            buffer.cancel_completion()
        elif self._screen.submit_answer(None):
            return
        elif self._desk.is_busy:
            self._desk.interrupt()
        elif not self._is_double_press():
            self._screen.show_hint(f"Esc again to {'clear the line' if buffer.text else 'rewind'}")
        elif buffer.text:
            buffer.reset()
        else:
            self._desk.handle_key("rewind")

    def _cancel(self, event: KeyPressEvent) -> None:
        if self._screen.submit_answer(None):
            return
        if self._screen.buffer.text:
            self._screen.buffer.reset()
        elif self._desk.is_busy:
            self._desk.interrupt()
        elif self._is_double_press():
            self._desk.handle_key("leave")
        else:
            self._screen.show_hint("Ctrl-C again to exit")

    def _leave_or_delete(self, event: KeyPressEvent) -> None:
        if self._screen.buffer.text:
            self._screen.buffer.delete()
        elif not self._screen.submit_answer(None):
            self._desk.handle_key("leave")

    def _suspend(self, event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    def _clear_screen(self, event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    def _switch_mode(self, event: KeyPressEvent) -> None:
        self._desk.handle_key("mode")

    def _show_shortcuts(self, event: KeyPressEvent) -> None:
        self._screen.show_shortcuts()

    def _expand_result(self, event: KeyPressEvent) -> None:
        self._desk.handle_key("expand")

    def _enable_synchronized(self, event: KeyPressEvent) -> None:
        self._screen.enable_synchronized_output()


def _apply_menu_key(menu: Menu, event: KeyPressEvent) -> None:
    """Apply a key to the open menu."""
    match event.key_sequence[0].key:
        case Keys.Up | Keys.ControlP:
            menu.move(-1)
        case Keys.Down | Keys.ControlN:
            menu.move(1)
        case Keys.PageUp:
            menu.move(-MENU_PAGE_ROWS)
        case Keys.PageDown:
            menu.move(MENU_PAGE_ROWS)
        case Keys.Tab:
            menu.press_tab()
        case Keys.Backspace:
            menu.press("\x7f")
        case Keys.Enter:
            menu.accept()
        case Keys.Escape | Keys.ControlC | Keys.ControlD:
            menu.cancel()
        case _ if event.data == " " and menu.several:
            menu.accept()
        case _:
            menu.press(event.data)


# Images that a prompt names are sent with it.


IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
}
IMAGE_TYPES[".webp"] = "image/webp"
PATH_WORD_PATTERN = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s\\])+)""")
MAX_IMAGE_BYTES = 5_000_000


def attach_named_images(text: str, blobs: Blobs, *, folder: str) -> tuple[TextOrMedia, ...]:
    """Return the typed text, followed by the images whose paths occur in it."""
    return (Text(text), *(_load_image(path, blobs) for path in _find_image_paths(text, folder)))


def _find_image_paths(text: str, folder: str) -> list[str]:
    """Find the words of a prompt that are paths of images; quotes and escapes are resolved."""
    found: dict[str, None] = {}
    for match in PATH_WORD_PATTERN.finditer(text):
        word = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3])
        path = os.path.join(folder, os.path.expanduser(word.removeprefix("@")))
        if os.path.splitext(path)[1].lower() in IMAGE_TYPES and os.path.isfile(path):
            found[path] = None
    return list(found)


def mention_dropped_path(text: str, folder: str) -> str:
    """Return a mention for the path of a file that was dropped on the terminal; else the text."""
    word = text.strip()
    match = PATH_WORD_PATTERN.fullmatch(word)
    if match is None or not word.startswith(("/", "'", '"', "~")):
        return text
    path = os.path.expanduser(match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3]))
    is_image = os.path.splitext(path)[1].lower() in IMAGE_TYPES
    if not os.path.isabs(path) or not os.path.exists(path) or is_image:
        return text
    name = path.removeprefix(f"{folder.rstrip('/')}/")
    return f"@{name} " if _can_be_mentioned(name) else text


def _load_image(path: str, blobs: Blobs) -> Media:
    """Store a pasted or named image for sending; raise `UserError` if it is too large."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read", why=error.strerror or str(error)) from None
    if len(data) > MAX_IMAGE_BYTES:
        raise UserError(f"{path} is too large", why="the limit is 5 MB", fix="Use a smaller one.")
    kind = IMAGE_TYPES[os.path.splitext(path)[1].lower()]
    return Media("image", kind, blobs.put(data), len(data), os.path.basename(path))
