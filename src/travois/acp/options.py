"""Options that the editor offers: permission modes and models."""

from __future__ import annotations

import os

from travois.compat.claude_json import Json, JsonObject
from travois.compose.hooks import fire_model_switch
from travois.compose.live_session import LiveSession
from travois.compose.models import model_catalog
from travois.compose.options import Options
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.core.models import ModelCard
from travois.permissions.decide import PERMISSION_MODES, PermissionMode
from travois.providers import catalog

MODE_LABELS: dict[PermissionMode, tuple[str, str]] = {
    "default": ("Default", "Ask before any edit or command that no rule allows"),
    "accept-edits": ("Accept edits", "Edit files in the workspace without asking"),
    "plan": ("Plan", "Read and plan; change nothing until you approve the plan"),
    "auto": ("Auto", "Run sandboxed, offline work in the workspace without asking"),
    "dont-ask": ("Don't ask", "Deny what no rule allows, without asking"),
    "bypass": ("Bypass", "Run everything without asking"),
}


class SessionChoices:
    """The mode and model options of a session."""

    def __init__(self, session: LiveSession, options: Options) -> None:
        self._session = session
        self._reached = reachable_model_names(options)

    @property
    def model(self) -> ModelCard:
        """The current model."""
        return self._session.runtime.model

    def modes_json(self) -> JsonObject:
        """Return the modes, for editors without config options."""
        listed: list[Json] = [
            {"id": mode, "name": name, "description": what}
            for mode, name, what in self._available_modes()
        ]
        return {
            "currentModeId": self._session.runtime.agent.permissions.guard.mode,
            "availableModes": listed,
        }

    def config_options(self, *, mode: str = "") -> list[Json]:
        """Return all options with their current values; `mode` overrides the current mode."""
        held = mode or self._session.runtime.agent.permissions.guard.mode
        modes: list[Json] = [
            {"value": one, "name": name, "description": what}
            for one, name, what in self._available_modes()
        ]
        models: list[Json] = [{"value": name, "name": name} for name in self._model_names()]
        return [
            _select_option_json("mode", "Mode", held, options=modes),
            _select_option_json("model", "Model", self.model.name, options=models),
        ]

    def config_option_update(self, *, mode: str = "") -> JsonObject:
        """Return the update for changed options."""
        told = self.config_options(mode=mode)
        return {"sessionUpdate": "config_option_update", "configOptions": told}

    async def choose(self, what: str, value: str) -> None:
        """Set an option; raise `UserError` if the value is invalid."""
        match what:
            case "mode":
                self._session.enter(value)
            case "model" if value in self._model_names():
                async with fire_model_switch(self._session.runtime.agent, value, source="editor"):
                    await self._session.switch_with_summary(value)
            case _:
                raise UserError(
                    f"{value!r} is not a valid {what}", fix="Choose one of the options."
                )

    def _model_names(self) -> dict[str, None]:
        return dict.fromkeys((self.model.name, *self._reached))

    def _available_modes(self) -> list[tuple[PermissionMode, str, str]]:
        """Return the available modes; bypass only if the session started with it."""
        held = self._session.runtime.agent.permissions.guard.mode
        return [
            (one, *MODE_LABELS[one])
            for one in PERMISSION_MODES
            if one != "bypass" or held == "bypass"
        ]


def _select_option_json(id: str, name: str, value: str, *, options: list[Json]) -> Json:
    told: JsonObject = {"type": "select", "id": id, "name": name, "category": id}
    return {**told, "currentValue": value, "options": options}


def reachable_model_names(options: Options) -> tuple[str, ...]:
    """Return the models to offer in the editor: those whose API keys are set."""
    among = model_catalog(load_workspace(options)[1])
    return tuple(
        name
        for name in among.models
        if _has_api_key(catalog.resolve_model(name, os.environ, among=among), among)
    )


def needs_api_key(options: Options) -> bool:
    """Return whether the editor can start no session because no API key is set."""
    loaded = load_workspace(options)[1]
    among, chosen = model_catalog(loaded), loaded.settings.model
    if not chosen.strip() and not catalog.has_default_model(os.environ, among=among):
        return True
    try:
        return not _has_api_key(catalog.resolve_model(chosen, os.environ, among=among), among)
    except UserError:
        return False


def _has_api_key(model: ModelCard, among: catalog.Catalog) -> bool:
    """Return whether a model's endpoint resolves, with its API key if it needs one."""
    try:
        catalog.resolve_endpoint(model, os.environ, among=among)
    except UserError:
        return False
    return True
