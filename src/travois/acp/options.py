"""Modes and models to choose from in the editor."""

from __future__ import annotations

import os

from travois.compat.claude_json import Json, Object
from travois.compose.hooks import fire_model_switch
from travois.compose.models import model_catalog
from travois.compose.options import Options
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.core.models import ModelCard
from travois.permissions.decide import MODES, Mode
from travois.providers import catalog
from travois.sdk import Session

ABOUT: dict[Mode, tuple[str, str]] = {
    "default": ("Default", "Ask before any edit or command that no rule allows"),
    "accept-edits": ("Accept edits", "Edit files in the workspace without asking"),
    "plan": ("Plan", "Read and plan; change nothing until you approve the plan"),
    "auto": ("Auto", "Run sandboxed, offline work in the workspace without asking"),
    "dont-ask": ("Don't ask", "Deny what no rule allows, without asking"),
    "bypass": ("Bypass", "Run everything without asking"),
}


class Choices:
    """The mode and model options of a session."""

    def __init__(self, session: Session, options: Options) -> None:
        self._session = session
        self._reached = reachable(options)

    @property
    def card(self) -> ModelCard:
        """The current model."""
        return self._session.crew.model

    def modes(self) -> Object:
        """Return the modes, for editors without config options."""
        listed: list[Json] = [
            {"id": mode, "name": name, "description": what} for mode, name, what in self._offered()
        ]
        return {
            "currentModeId": self._session.crew.agent.permissions.guard.mode,
            "availableModes": listed,
        }

    def options(self, *, mode: str = "") -> list[Json]:
        """Return all options with their current values; `mode` overrides the current mode."""
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
        """Return the update for changed options."""
        told = self.options(mode=mode)
        return {"sessionUpdate": "config_option_update", "configOptions": told}

    async def choose(self, what: str, value: str) -> None:
        """Set an option; raise `Fault` if the value is invalid."""
        match what:
            case "mode":
                self._session.enter(value)
            case "model" if value in self._models():
                async with fire_model_switch(self._session.crew.agent, value, source="editor"):
                    await self._session.switch_with_summary(value)
            case _:
                raise UserError(
                    f"{value!r} is not a valid {what}", fix="Choose one of the options."
                )

    def _models(self) -> dict[str, None]:
        return dict.fromkeys((self.card.name, *self._reached))

    def _offered(self) -> list[tuple[Mode, str, str]]:
        """Return the available modes; bypass only if the session started with it."""
        held = self._session.crew.agent.permissions.guard.mode
        return [(one, *ABOUT[one]) for one in MODES if one != "bypass" or held == "bypass"]


def _select(id: str, name: str, value: str, *, options: list[Json]) -> Json:
    told: Object = {"type": "select", "id": id, "name": name, "category": id}
    return {**told, "currentValue": value, "options": options}


def reachable(options: Options) -> tuple[str, ...]:
    """Return the models in the catalogue whose API keys are set."""
    among = model_catalog(load_workspace(options)[1])
    return tuple(
        name
        for name in among.models
        if _served(catalog.resolve(name, os.environ, among=among), among)
    )


def keyless(options: Options) -> bool:
    """Tell whether no session can start because no API key is set."""
    loaded = load_workspace(options)[1]
    among, chosen = model_catalog(loaded), loaded.settings.model
    if not chosen.strip() and not catalog.configured(os.environ, among=among):
        return True
    try:
        return not _served(catalog.resolve(chosen, os.environ, among=among), among)
    except UserError:
        return False


def _served(model: ModelCard, among: catalog.Catalog) -> bool:
    try:
        catalog.endpoint(model, os.environ, among=among)
    except UserError:
        return False
    return True
