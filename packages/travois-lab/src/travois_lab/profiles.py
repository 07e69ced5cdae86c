"""What the simulated providers know of their models."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from travois.core.cost import compute_cost
from travois.core.errors import UserError
from travois.core.models import Price, Usage
from travois_lab.objects import Json

EFFORTS = ("low", "medium", "high", "xhigh", "max")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model: its limits, its prices, and what its provider lets a request ask of it."""

    id: str
    family: Literal["anthropic", "openai"] = "anthropic"
    window: int = 200_000
    output: int = 64_000
    price: Price = Price()
    fast: Price | None = None
    long: Price | None = None
    long_above: int = 0
    cache_min: int = 1024
    rank: int = 0
    """A model reads the thinking of models of its own rank and below."""
    binds: bool = False
    """Its thinking is bound to everything before it."""
    thinking: tuple[str, ...] = ()
    thinking_default: str = "disabled"
    thinking_salt: Literal["messages", "tools"] = "messages"
    effort: str = "high"
    effort_disabled: str = "max"
    """The highest effort that goes with thinking switched off."""
    display: Literal["omitted", "summarized", "updates"] = "omitted"
    keeps_thinking: bool = True
    system_messages: bool = True
    forced_choice: bool = True
    prefill: bool = False

    def bill(self, usage: Usage, *, speed: str = "standard", geo: str = "global") -> float:
        """What a request costs, in US dollars."""
        price = self.price
        if speed == "fast" and self.fast is not None:
            price = self.fast
        if self.long is not None and usage.prompt > self.long_above:
            price = self.long
        return compute_cost(usage, price) * (1.1 if geo == "us" else 1.0)


@cache
def _table(package: str, name: str) -> Json:
    return tomllib.loads(files(package).joinpath(name).read_text("utf-8"))


def _rows() -> dict[str, Json]:
    """The catalogue's rows of the providers that the lab plays, and what the lab adds to them."""
    rows: dict[str, Json] = {}
    for name, row in _table("travois.providers", "catalog.toml")["models"].items():
        family, _, id = name.partition("/")
        if family in ("anthropic", "openai"):
            told = {key: value for key, value in row.items() if key != "quirks"}  # of our requests
            rows[id] = {**told, "family": family}
    _overlay(rows, _table("travois_lab", "models.toml")["models"])
    return rows


def _overlay(rows: dict[str, Json], changes: dict[str, Json]) -> None:
    for id, row in changes.items():
        like = str(row.get("like", id))
        if like != id and like not in rows:
            raise UserError(f"lab model {id!r}", why=f"it is like {like!r}, which is not known")
        rows[id] = {**rows.get(like, {}), **{k: v for k, v in row.items() if k != "like"}}


def profiles(extra: dict[str, Json] | None = None) -> dict[str, Profile]:
    """All models by id: those of the catalogue, and `extra` rows that change or add some."""
    if not extra:
        return dict(_known())
    rows = _rows()
    _overlay(rows, extra)
    return {id: _profile(id, row) for id, row in rows.items()}


@cache
def _known() -> dict[str, Profile]:
    return {id: _profile(id, row) for id, row in _rows().items()}


def persona_profile(id: str, known: dict[str, Profile]) -> Profile:
    """A built-in persona's model: the newest Opus under another name."""
    return msgspec.structs.replace(known["claude-opus-5-5"], id=id)


def _profile(id: str, row: Json) -> Profile:
    defaults: Json = _table("travois_lab", "models.toml")["defaults"]
    try:
        return msgspec.convert({**defaults, **row, "id": id}, Profile)
    except msgspec.ValidationError as error:
        raise UserError(f"lab model {id!r}", why=str(error), fix="see lab/models.toml") from None
