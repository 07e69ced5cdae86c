"""What the person may choose in the editor: the mode and the model."""

from __future__ import annotations

import os

from travois.compat.claude_json import Json, Object
from travois.compose.hooks import switching
from travois.compose.models import known
from travois.compose.options import Options
from travois.compose.session import prepare
from travois.core.errors import Fault
from travois.core.models import Model
from travois.permissions.decide import MODES, Mode
from travois.providers import catalog
from travois.sdk import Session

ABOUT: dict[Mode, tuple[str, str]] = {
    "default": ("Default", "Asks before anything is changed or run that the rules leave open"),
    "accept-edits": ("Accept edits", "Edits in the workspace are not asked about"),
    "plan": ("Plan", "Looks and plans; changes nothing until you agree to a plan"),
    "auto": ("Auto", "What stays in the workspace, offline and in the sandbox, runs unasked"),
    "dont-ask": ("Don't ask", "What the rules do not allow is denied"),
    "bypass": ("Bypass", "Nothing is asked about"),
}


class Choices:
    """The choices of one session."""

    def __init__(self, session: Session, options: Options) -> None:
        self._session = session
        self._reached = reachable(options)

    @property
    def card(self) -> Model:
        """The model that answers."""
        return self._session.crew.model

    def modes(self) -> Object:
        """The modes, for editors that know no options."""
        listed: list[Json] = [
            {"id": mode, "name": name, "description": what} for mode, name, what in self._offered()
        ]
        return {
            "currentModeId": self._session.crew.agent.permissions.guard.mode,
            "availableModes": listed,
        }

    def options(self, *, mode: str = "") -> list[Json]:
        """All choices, with what holds; `mode` is one that is about to."""
        held = mode or self._session.crew.agent.permissions.guard.mode
        modes: list[Json] = [
            {"value": one, "name": name, "description": what} for one, name, what in self._offered()
        ]
        models: list[Json] = [{"value": name, "name": name} for name in self._models()]
        return [
            _select("mode", "Mode", held, options=modes),
            _select("model", "Model", self.card.name, options=models),
        ]

    def update(self, *, mode: str = "") -> Object:
        """The same, as something that changed."""
        told = self.options(mode=mode)
        return {"sessionUpdate": "config_option_update", "configOptions": told}

    async def choose(self, what: str, value: str) -> None:
        """Let a choice hold; raises `Fault` if it cannot."""
        match what:
            case "mode":
                self._session.enter(value)
            case "model" if value in self._models():
                async with switching(self._session.crew.agent, value, source="editor"):
                    await self._session.switch_with_summary(value)
            case _:
                raise Fault(f"{value!r} is no choice for {what!r}", fix="Choose what is offered.")

    def _models(self) -> dict[str, None]:
        return dict.fromkeys((self.card.name, *self._reached))

    def _offered(self) -> list[tuple[Mode, str, str]]:
        """Bypass holds from the start or not at all."""
        held = self._session.crew.agent.permissions.guard.mode
        return [(one, *ABOUT[one]) for one in MODES if one != "bypass" or held == "bypass"]


def _select(id: str, name: str, value: str, *, options: list[Json]) -> Json:
    told: Object = {"type": "select", "id": id, "name": name, "category": id}
    return {**told, "currentValue": value, "options": options}


def reachable(options: Options) -> tuple[str, ...]:
    """The models of the catalogue whose keys are set."""
    among = known(prepare(options)[1])
    return tuple(
        name
        for name in among.models
        if _served(catalog.resolve(name, os.environ, among=among), among)
    )


def keyless(options: Options) -> bool:
    """Whether a session cannot begin because nobody has set a key."""
    loaded = prepare(options)[1]
    among, chosen = known(loaded), loaded.settings.model
    if not chosen.strip() and not catalog.configured(os.environ, among=among):
        return True
    try:
        return not _served(catalog.resolve(chosen, os.environ, among=among), among)
    except Fault:
        return False


def _served(model: Model, among: catalog.Catalog) -> bool:
    try:
        catalog.endpoint(model, os.environ, among=among)
    except Fault:
        return False
    return True
