"""Everything that the simulated providers remember, from one request to the next."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from travois.core.errors import UserError
from travois_lab.cache import Cache
from travois_lab.clock import Clock
from travois_lab.exchange import Exchange
from travois_lab.faults import Faults, parse_rules
from travois_lab.ledger import Ledger
from travois_lab.limiter import Limiter, Rates
from travois_lab.memo import Memo
from travois_lab.objects import Json
from travois_lab.personas import HABITS, persona
from travois_lab.prefix import PrefixCache
from travois_lab.profiles import Profile, persona_profile, profiles
from travois_lab.refusal import Refusal
from travois_lab.script import Script, load, parse
from travois_lab.talk import Program, Prompt, Reply, State, as_reply
from travois_lab.threads import Threads


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How strict the lab is, and whom it plays."""

    dialect: str = "compatible"
    """Whose chat completions to imitate: compatible, openai, openrouter, mistral, ..."""
    strict: bool = True
    """Refuse unknown request fields, as the real API does."""
    keys: tuple[str, ...] = ()
    """Keys that are let in; any key is, when there are none here."""
    workspace: str = "default"
    enforced_binding: bool = True
    """Refuse thinking blocks whose history was changed, unless the request says otherwise."""
    models: dict[str, Json] = {}
    """Models to add or change: `{"tiny": {"like": "claude-haiku-4-5", "window": 8000}}`."""
    faults: tuple[Any, ...] = ()
    first_byte: float = 0.0
    """Simulated seconds between a request and the first byte of its answer."""
    time: Literal["virtual", "real"] = "virtual"
    capacity: int | None = None
    seed: int = 0
    organization: str = "org_lab"
    rates: Rates = Rates()
    """Requests and tokens allowed in a minute."""


class World:
    """The state of the lab."""

    def __init__(self, model: object = None, options: Options | None = None) -> None:
        self.options = options or Options()
        self.clock = Clock(flows=self.options.time == "real")
        self.profiles = profiles(self.options.models)
        self.script = as_script(model)
        self.speak = self.script.answer if self.script else speaker(model)
        self.faults = Faults(parse_rules(list(self.options.faults)), seed=self.options.seed)
        self.reset()

    def reset(self) -> None:
        """Forget all requests and all caches; scripts and faults stay where they are."""
        self.ledger = Ledger()
        self.cache = Cache(capacity=self.options.capacity)
        self.prefixes = PrefixCache()
        self.answered: dict[str, Exchange] = {}
        """What was answered under which id, for the features that refer back to it."""
        self.stored: dict[str, Json] = {}
        """Responses that were asked to be kept, with the items that led to them."""
        self.memo = Memo()
        self.threads = Threads()
        self.limiter = Limiter(self.options.rates)
        self.loose: set[str] = set()
        """Calls that were made with arguments that are not JSON."""

    def profile(self, model: str) -> Profile:
        """The model of that id; refuses one that the provider does not know."""
        found = self.profiles.get(model)
        if found is not None:
            return found
        if model.partition(":")[0] in HABITS:
            return persona_profile(model, self.profiles)
        raise Refusal(f"model: {model}", status=404)

    def answer(self, prompt: Prompt) -> Reply:
        """What the model says: a persona by its id, anything else by the script."""
        habit = persona(prompt.model)
        return habit(prompt) if habit else self.speak(prompt)

    def summarize(self, prompt: Prompt) -> Reply | None:
        """The summary that the script has for this conversation, if it has one."""
        return self.script.find(prompt) if self.script else None

    def name(self, prefix: str, exchange: Exchange, index: int = 0) -> str:
        """An id that no other answer has, and that the same requests get again."""
        seed = f"{self.options.seed}/{exchange.n}/{index}/{prefix}/".encode()
        return prefix + blake2b(seed + exchange.digest, digest_size=11).hexdigest()


def as_script(model: object) -> Script | None:
    """The script in a file or in Python values; None if the model is anything else."""
    if isinstance(model, Script):
        return model
    if isinstance(model, list | tuple):
        return parse(list(model))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(model, str) and persona(model) is None:
        return load(model)
    return None


def speaker(model: object) -> Callable[[Prompt], Reply]:
    """The model behind a persona's name or a Python function; an echo where there is none."""
    if callable(model):
        return _program(model)
    habit = persona(model if isinstance(model, str) else "lab-echo")
    if habit is None or not isinstance(model, str | None):
        raise UserError(
            "lab: no such model", why=f"got {type(model).__name__}", fix="see docs/lab.md"
        )
    return habit


def _program(function: Program | Callable[..., Any]) -> Callable[[Prompt], Reply]:
    state: State = {}
    return lambda prompt: as_reply(function(prompt, state))
