"""What each key does."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Literal, Protocol

from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching, vi_insert_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from travois.tui.editing import Pastes
from travois.tui.menu import Menu
from travois.tui.screen import Screen

ALT_ENTER, SYNCHRONIZED = Keys.F24, Keys.F23
"""Keys that no keyboard has stand for what terminals send in their place."""
NEWLINE = ("\x1b\r", "\x1b\n", "\x1b[13;2u", "\x1b[13;3u", "\x1b[27;2;13~", "\x1b[27;3;13~")
PAGE = 8
TWICE = 0.8
"""Two presses within so many seconds are a double one."""
Press = Callable[[KeyPressEvent], None]


class Desk(Protocol):
    """Who does what the keys ask for."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        ...

    def submit(self, text: str, *, when: Literal["next", "after"]) -> None:
        """Say something: at the next chance, or after what runs."""
        ...

    def interrupt(self) -> None:
        """Stop what runs."""
        ...

    def press(self, what: Literal["rewind", "mode", "expand", "leave"]) -> None:
        """Do one of the things that have a key of their own."""
        ...


def teach() -> None:
    """Let the reader of keys know what terminals send that it does not."""
    ANSI_SEQUENCES.update(dict.fromkeys(NEWLINE, ALT_ENTER))
    for state in "01234":
        known = SYNCHRONIZED if state in "123" else Keys.Ignore
        ANSI_SEQUENCES[f"\x1b[?2026;{state}$y"] = known


class Keyboard:
    """The keys that are ours; the rest is as in every line editor."""

    def __init__(self, screen: Screen, desk: Desk, pastes: Pastes) -> None:
        self._screen, self._desk, self._pastes = screen, desk, pastes
        self._pressed = 0.0

    def bindings(self) -> KeyBindings:
        """All of them, each where it has a meaning."""
        menu = Condition(lambda: self._screen.menu is not None)
        typing, busy = ~menu & ~is_searching, Condition(lambda: self._desk.busy)
        chosen = Condition(self._chosen)
        table: tuple[tuple[Press, Filter, tuple[Keys | str, ...]], ...] = (
            (self._enter, typing & ~chosen, (Keys.Enter,)),
            (self._accept, typing & chosen, (Keys.Enter,)),
            (self._newline, typing & ~busy, (ALT_ENTER,)),
            (self._queue, typing & busy, (ALT_ENTER,)),
            (self._queue, typing & busy & ~has_completions, (Keys.Tab,)),
            (self._complete, typing & (~busy | has_completions), (Keys.Tab,)),
            (self._paste, typing, (Keys.BracketedPaste,)),
            (self._escape, typing & ~vi_insert_mode, (Keys.Escape,)),
            (self._cancel, typing, (Keys.ControlC,)),
            (self._end, typing, (Keys.ControlD,)),
            (self._edit, typing & ~busy, (Keys.ControlG,)),
            (self._suspend, typing & ~busy, (Keys.ControlZ,)),
            (self._clear, ~menu, (Keys.ControlL,)),
            (self._mode, typing, (Keys.BackTab,)),
            (self._expand, ~is_searching, (Keys.ControlO,)),
            (self._synchronize, ~menu | menu, (SYNCHRONIZED,)),
        )
        keys = KeyBindings()
        for press, where, names in table:
            for name in names:
                keys.add(name, filter=where)(press)
        self._choosing(keys, menu)
        return keys

    def _choosing(self, keys: KeyBindings, menu: Filter) -> None:
        named = (Keys.Up, Keys.Down, Keys.Enter, Keys.Escape, Keys.ControlC, Keys.ControlD)
        more = (Keys.ControlP, Keys.ControlN, Keys.Tab, Keys.PageUp, Keys.PageDown)
        typed = (Keys.Backspace, Keys.ControlU, Keys.BracketedPaste)
        for key in (*named, *more, *typed):
            keys.add(key, filter=menu, eager=True)(self._choose)
        keys.add(Keys.Any, filter=menu)(self._choose)

    # --- in a menu -------------------------------------------------------------------------------

    def _choose(self, event: KeyPressEvent) -> None:
        menu = self._screen.menu
        if menu is None or event.key_sequence[0].key == Keys.BracketedPaste:
            return
        if menu.armed():
            _point(menu, event)
        elif event.data.isprintable():
            self._screen.buffer.insert_text(event.data)
        self._screen.refresh()

    # --- in the line -----------------------------------------------------------------------------

    def _chosen(self) -> bool:
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
        text = self._pastes.whole(buffer.text)
        if self._screen.answer(text) or not text.strip():
            return
        buffer.append_to_history()
        buffer.reset()
        self._desk.submit(text, when=when)

    def _accept(self, event: KeyPressEvent) -> None:
        self._screen.buffer.complete_state = None

    def _newline(self, event: KeyPressEvent) -> None:
        self._screen.buffer.insert_text("\n")

    def _complete(self, event: KeyPressEvent) -> None:
        if self._screen.buffer.complete_state:
            self._screen.buffer.complete_next()
        else:
            self._screen.buffer.start_completion(select_first=True)

    def _paste(self, event: KeyPressEvent) -> None:
        self._screen.buffer.insert_text(self._pastes.taken(event.data))

    def _edit(self, event: KeyPressEvent) -> None:
        self._screen.buffer.open_in_editor()

    # --- to stop, and to leave -------------------------------------------------------------------

    def _again(self) -> bool:
        """Whether this is the second press of two."""
        before, self._pressed = self._pressed, monotonic()
        return self._pressed - before < TWICE

    def _escape(self, event: KeyPressEvent) -> None:
        buffer = self._screen.buffer
        if buffer.complete_state:
            buffer.cancel_completion()
        elif self._screen.answer(None):
            return
        elif self._desk.busy:
            self._desk.interrupt()
        elif not self._again():
            self._screen.hint(f"Esc again {'drops the line' if buffer.text else 'goes back'}")
        elif buffer.text:
            buffer.reset()
        else:
            self._desk.press("rewind")

    def _cancel(self, event: KeyPressEvent) -> None:
        if self._screen.answer(None):
            return
        if self._screen.buffer.text:
            self._screen.buffer.reset()
        elif self._desk.busy:
            self._desk.interrupt()
        elif self._again():
            self._desk.press("leave")
        else:
            self._screen.hint("Ctrl-C again leaves")

    def _end(self, event: KeyPressEvent) -> None:
        if self._screen.buffer.text:
            self._screen.buffer.delete()
        elif not self._screen.answer(None):
            self._desk.press("leave")

    def _suspend(self, event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    def _clear(self, event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    def _mode(self, event: KeyPressEvent) -> None:
        self._desk.press("mode")

    def _expand(self, event: KeyPressEvent) -> None:
        self._desk.press("expand")

    def _synchronize(self, event: KeyPressEvent) -> None:
        self._screen.synchronize()


def _point(menu: Menu, event: KeyPressEvent) -> None:
    match event.key_sequence[0].key:
        case Keys.Up | Keys.ControlP:
            menu.move(-1)
        case Keys.Down | Keys.ControlN:
            menu.move(1)
        case Keys.PageUp:
            menu.move(-PAGE)
        case Keys.PageDown:
            menu.move(PAGE)
        case Keys.Tab:
            menu.turn()
        case Keys.Backspace:
            menu.press("\x7f")
        case Keys.Enter:
            menu.take()
        case Keys.Escape | Keys.ControlC | Keys.ControlD:
            menu.turn_away()
        case _ if event.data == " " and menu.several:
            menu.take()
        case _:
            menu.press(event.data)
