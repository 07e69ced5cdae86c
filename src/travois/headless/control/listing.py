"""What there is in a session, for a host that asks; and which settings it may change there."""

from __future__ import annotations

import os

import msgspec

from travois.compose import hooks as hooking
from travois.compose import models as serving
from travois.compose.session import prepare
from travois.core.errors import Fault
from travois.core.models import Effort, Model
from travois.headless.control.driven_session import Driven
from travois.headless.control.lines import Request
from travois.headless.json_shapes import Json, Object
from travois.permissions.rules import Effect, Rule, parse
from travois.permissions.updates import Spec, Update, amend
from travois.prompt.briefing import skills
from travois.providers import catalog
from travois.providers.options import LEVELS
from travois.sessions import home as homes
from travois.settings.chosen import keep

EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")
MODE = "permissions.defaultMode"
CHANGING = frozenset(
    ("model", "effortLevel", MODE, *(f"permissions.{effect}" for effect in EFFECTS))
)
"""Settings that a session which goes on can take over."""


async def models(driven: Driven, request: Request) -> Object:
    """The models that can be reached with the keys that there are."""
    return {"models": reachable(driven)}


def reachable(driven: Driven) -> list[Json]:
    """Each model whose provider has a key here, and the one that answers."""
    _, loaded = prepare(driven.options)
    among, own = serving.known(loaded), driven.session.crew.model
    found: dict[str, Json] = {own.name: _model(own)}
    for name in among.models:
        model = catalog.resolve(name, os.environ, among=among)
        try:
            catalog.endpoint(model, os.environ, among=among)
        except Fault:
            continue
        found.setdefault(name, _model(model))
    return list(found.values())


def _model(model: Model) -> Json:
    """A model to choose; those that are too small to think take no effort."""
    told: Object = {"value": model.name, "displayName": model.id or model.name}
    told |= {"description": f"{model.window:,} tokens", "supportsEffort": not model.frail}
    return told if model.frail else {**told, "supportedEffortLevels": list(LEVELS)}


async def commands(driven: Driven, request: Request) -> Object:
    """The commands of the user's own, skills among them."""
    return {"commands": named(driven)}


def named(driven: Driven) -> list[Json]:
    """Each command with what it is for."""
    return [
        {"name": one.name, "description": one.description, "argumentHint": one.hint}
        for one in driven.run.commands.values()
    ]


async def agents(driven: Driven, request: Request) -> Object:
    """The kinds of agents that can be started."""
    return {"agents": kinds(driven)}


def kinds(driven: Driven) -> list[Json]:
    """Each kind of agent with what it is for."""
    agents = driven.session.crew.agent.agents
    known = agents.kinds.items() if agents is not None else ()
    return [{"name": name, "description": what} for name, what in known]


async def practised(driven: Driven, request: Request) -> Object:
    """The skills as they are on disk: they are read anew before every turn."""
    known = skills(driven.session.crew.agent).skills
    return {"skills": [{"name": one.name, "description": one.description} for one in known]}


async def rules(driven: Driven, request: Request) -> Object:
    """The rules in force, and who said so."""
    known = driven.session.crew.agent.guard.rules
    return {
        "rules": [
            {"behavior": rule.effect, "rule": rule.text, "source": rule.origin} for rule in known
        ]
    }


async def hooks(driven: Driven, request: Request) -> Object:
    """The hooks of settings; those of the host it knows itself."""
    _, loaded = prepare(driven.options)
    known, _ = hooking.known(loaded)
    told: list[Json] = [
        {"event": h.event, "matcher": h.matcher, "what": h.name, "source": h.origin} for h in known
    ]
    return {"hooks": told}


async def settings(driven: Driven, request: Request) -> Object:
    """Take over settings in the middle of a session: all of them, or none."""
    asked = dict(_flat(request.settings or {}))
    if request.source:
        return _kept(request.source, asked)
    if strange := sorted(asked.keys() - CHANGING):
        why = f"a session that goes on takes over only {', '.join(sorted(CHANGING))}"
        raise Fault(f"{', '.join(strange)} cannot be changed here", why=why)
    effort = msgspec.convert(asked.get("effortLevel") or "", Effort)
    agent, guard = driven.session.crew.agent, driven.session.crew.agent.guard
    for effect in EFFECTS:
        texts = msgspec.convert(asked.get(f"permissions.{effect}", ()), tuple[str, ...])
        specs = tuple(Spec(rule.tool, rule.what or None) for rule in _parsed(texts, effect))
        guard = amend(guard, Update("addRules", specs, behavior=effect))
    agent.guard = guard
    if MODE in asked:
        driven.session.enter(str(asked[MODE]))
    if "model" in asked:
        await driven.go_on_with(str(asked["model"] or driven.model))
    if "effortLevel" in asked:
        await driven.exert(effort)
    return {}


def _kept(source: str, asked: Object) -> Object:
    """Keep a choice for the sessions to come, in the user's own file."""
    if source != "userSettings" or asked.keys() != {"effortLevel"}:
        raise Fault("A host may keep nothing in files but effortLevel in userSettings")
    effort = msgspec.convert(asked["effortLevel"], Effort)
    keep(homes.locate(os.environ), "effortLevel", effort)
    return {}


def _parsed(texts: tuple[str, ...], effect: Effect) -> list[Rule]:
    try:
        return [parse(text, effect) for text in texts]
    except ValueError as error:
        raise Fault("A rule cannot be understood", why=str(error)) from None


def _flat(tree: Object) -> list[tuple[str, Json]]:
    """Settings by their whole names."""
    found: list[tuple[str, Json]] = []
    for key, value in tree.items():
        inner = value.items() if key == "permissions" and isinstance(value, dict) else ()
        found += [(f"{key}.{name}", each) for name, each in inner] or [(key, value)]
    return found
