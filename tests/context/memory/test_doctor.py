"""The doctor of memories: what each kind of trouble looks like, and what is none."""

from __future__ import annotations

from travois.context.memory.doctor import Finding, Health, examine
from travois.context.memory.memory import Evidence, Memory

DAY = 86_400.0
SAID = (Evidence("s", 1, "user", "so it is"),)


def note(name: str, text: str, **more: object) -> Memory:
    return Memory(name, text, "project", evidence=SAID, modified=99 * DAY, **more)


def health(**more: object) -> Health:
    plain = {"now": 100 * DAY, "stale": lambda _: (), "secret": lambda _: ""}
    return Health(**(plain | more))


def kinds(*memories: Memory) -> list[tuple[str, str, str]]:
    found = examine(memories, health())
    return [(one.kind, one.memory.name, one.other.name if one.other else "") for one in found]


def test_sound_memories_have_no_findings() -> None:
    assert (
        kinds(
            note("port", "The API listens on port 8080"),
            note("uv", "Install packages with uv"),
            note("ci", "The pipeline runs on every push to main"),
            note("lint", "Run the linter before each commit"),
        )
        == []
    )


def test_each_kind_is_found() -> None:
    told = note("old", "The port is in config.toml")
    assert examine([told], health(stale=lambda _: ("config.toml",))) == [
        Finding("stale", told, "changed since: config.toml")
    ]
    assert examine([told], health(secret=lambda text: "web token" if "port" in text else "")) == [
        Finding("secret", told, "it holds what looks like a secret (web token)")
    ]
    long = note("long", "Much", body="word " * 1000)
    assert examine([long], health()) == [Finding("too long", long, "it has 5,000 characters")]
    bare = Memory("bare", "Nobody said it", "project", modified=99 * DAY)
    assert [one.kind for one in examine([bare], health())] == ["without evidence"]


def test_what_is_never_recalled_is_of_no_use_after_sixty_days() -> None:
    told = note("old", "The port is in config.toml")
    later = {"now": 170 * DAY}
    assert [(one.kind, one.what) for one in examine([told], health(**later))] == [
        ("unused", "it was never recalled")
    ]
    used = health(**later, recalled={"project/old": (3, 165 * DAY)})
    assert examine([told], used) == []
    idle = health(**later, recalled={"project/old": (3, 105 * DAY)})
    assert [one.what for one in examine([told], idle)] == ["last recalled 65 days ago"]


def test_two_that_say_the_same_are_duplicates() -> None:
    assert kinds(
        note("a", "Run the integration tests with pytest -n 2"),
        note("b", "Integration tests run with pytest -n 2"),
    ) == [("duplicate", "a", "b")]


def test_two_that_cannot_both_be_true_are_contradictory() -> None:
    assert kinds(
        note("a", "Always squash commits before merging feature branches"),
        note("b", "Never squash commits before merging feature branches"),
    ) == [("contradictory", "a", "b")]
    assert kinds(
        note("a", "The billing service listens on port 8080"),
        note("b", "The billing service listens on port 9090"),
    ) == [("contradictory", "a", "b")]


def test_ten_thousand_are_examined() -> None:
    many = [note(f"m{n}", f"Service {n} of area{n % 97} runs on host{n}") for n in range(10_000)]
    assert examine(many, health()) == []
