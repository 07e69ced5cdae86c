"""On which terms models may be used, as the user or the machine's administrator says."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from travois.core.errors import Fault
from travois.core.models import Price


class Terms(msgspec.Struct, frozen=True):
    """Which models may answer, under which names, at which prices, and with whose key."""

    available: tuple[str, ...] = ()
    """The only ones that may; all if there are none."""
    denied: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    """What a provider calls a model, by its id."""
    prices: dict[str, Price] = {}
    """By id."""
    multiplier: float = 1.0
    """For all other prices."""
    helper: str = ""
    """A command that prints the key for Anthropic's API."""

    def offer(self, model: str) -> bool:
        """Whether a model, as `provider/id`, may answer."""
        listed = not self.available or any(_means(word, model) for word in self.available)
        return listed and not any(_means(word, model) for word in self.denied)

    def fault(self, model: str) -> Fault:
        """Why it may not."""
        listed = ", ".join(self.available)
        barred = any(_means(word, model) for word in self.denied)
        why = "deniedModels has it" if barred else f"availableModels has {listed}"
        return Fault(f"{model} may not be used here", why=why, fix="Choose another --model.")

    def priced(self, id: str, price: Price) -> Price:
        """What a model costs, by its own price where it has one."""
        return self.prices.get(id) or _times(price, self.multiplier)

    def key(self, provider: str) -> str:
        """The command that prints the key for a provider; empty if there is none."""
        return self.helper if provider == "anthropic" else ""


def sent(headers: Mapping[str, str], env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers of a provider, those in variables with what is in them; without any that is empty."""
    told = ((name, env.get(v[1:], "") if v[:1] == "$" else v) for name, v in headers.items())
    return tuple((name.lower(), value) for name, value in told if value)


def asked(query: Mapping[str, str]) -> str:
    """What stands behind an address."""
    from urllib.parse import urlencode

    return f"?{urlencode(query)}" if query else ""


def _means(word: str, model: str) -> bool:
    """Whether a word of a list is a model's name, its id, or the beginning or a part of that."""
    id = model.partition("/")[2]
    return word in (model, id, *id.split("-")) or id.startswith(f"{word}-")


def _times(price: Price, factor: float) -> Price:
    if factor == 1.0:
        return price
    return replace(
        price,
        input=price.input * factor,
        output=price.output * factor,
        read=price.read * factor,
        write=price.write * factor,
        write_1h=price.write_1h * factor,
        above=price.above and _times(price.above, factor),
    )
