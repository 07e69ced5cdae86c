from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from travois.kernel.faults import Fault
from travois.store.home import Home
from travois.store.layers import Value, load
from travois.store.settings import Loaded, Permissions, Settings, Timeouts

LAYERS = ("user", "project", "local", "given", "flags", "managed")


class Places:
    """The places that settings come from, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.root = folder / "work"
        self.managed = folder / "etc.json"
        self.home.path.mkdir()
        (self.root / ".travois").mkdir(parents=True)

    def write(self, layer: str, content: object) -> Path:
        paths = {
            "managed": self.managed,
            "user": self.home.settings,
            "project": self.root / ".travois" / "settings.json",
            "local": self.root / ".travois" / "settings.local.json",
            "given": self.home.path / "given.json",
        }
        paths[layer].write_text(content if isinstance(content, str) else json.dumps(content))
        return paths[layer]

    def load(
        self,
        *,
        given: str = "",
        environ: dict[str, str] | None = None,
        chosen: dict[str, Value] | None = None,
    ) -> Loaded:
        return load(
            self.home,
            str(self.root),
            environ=environ or {},
            given=given,
            chosen=chosen,
            managed=self.managed,
        )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_with_no_files_at_all_the_defaults_hold(places: Places) -> None:
    loaded = places.load()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.notices == ()


def test_each_layer_overrides_the_one_before_and_is_named(places: Places) -> None:
    seen: list[tuple[str, str]] = []
    for layer in ("user", "project", "local"):
        path = places.write(layer, {"model": layer})
        loaded = places.load()
        seen.append((loaded.settings.model, loaded.origin("model")))
        assert seen[-1] == (layer, str(path))
    given = places.load(given='{"model": "given"}')
    environ = places.load(given='{"model": "given"}', environ={"TRAVOIS_MODEL": "env"})
    flag = places.load(environ={"TRAVOIS_MODEL": "env"}, chosen={"model": "flag"})
    found = [(x.settings.model, x.origin("model")) for x in (given, environ, flag)]
    assert found == [("given", "--settings"), ("env", "TRAVOIS_MODEL"), ("flag", "command line")]
    path = places.write("managed", {"model": "managed"})
    last = places.load(chosen={"model": "flag"})
    assert (last.settings.model, last.origin("model")) == ("managed", str(path))


def test_settings_inside_an_object_are_merged_one_by_one(places: Places) -> None:
    places.write("user", {"timeouts": {"connect": 1, "idle": 2}})
    places.write("project", {"timeouts": {"idle": 3}})
    loaded = places.load(environ={"TRAVOIS_TIMEOUTS_FIRST_BYTE": "4.5"})
    assert loaded.settings.timeouts == Timeouts(connect=1, first_byte=4.5, idle=3)


def test_rules_of_all_layers_are_united_and_each_keeps_its_origin(places: Places) -> None:
    managed = places.write("managed", {"permissions": {"deny": ["Bash(rm:*)"]}})
    user = places.write("user", {"permissions": {"deny": ["WebFetch"], "allow": ["Bash(ls)"]}})
    project = places.write("project", {"permissions": {"deny": ["WebFetch", "Read(.env)"]}})
    loaded = places.load(chosen={"permissions.allow": ("Edit",), "permissions.deny": ("Write",)})
    deny = ("WebFetch", "Read(.env)", "Write", "Bash(rm:*)")
    assert loaded.settings.permissions == Permissions(allow=("Bash(ls)", "Edit"), deny=deny)
    origins = [loaded.origin("permissions.deny", rule) for rule in deny]
    assert origins == [str(user), str(project), "command line", str(managed)]


RULES = st.lists(st.sampled_from(["Bash", "Bash(rm:*)", "Read(~/.ssh/**)", "WebFetch"]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            layer: st.fixed_dictionaries(
                {"deny": RULES, "allow": RULES},
                optional={"defaultMode": st.sampled_from(["bypass", "default", "acceptEdits"])},
            )
            for layer in LAYERS
        }
    )
)
def test_what_any_layer_denies_stays_denied_and_no_workspace_file_allows(
    tmp_path_factory: pytest.TempPathFactory, layers: dict[str, dict[str, list[str]]]
) -> None:
    places = Places(tmp_path_factory.mktemp("layers"))
    for layer in set(LAYERS) - {"flags"}:
        places.write(layer, {"permissions": layers[layer]})
    flags = {f"permissions.{key}": value for key, value in layers["flags"].items()}
    loaded = places.load(given=str(places.home.path / "given.json"), chosen=flags)  # type: ignore[arg-type]
    found = loaded.settings.permissions
    assert set(found.deny) == {rule for part in layers.values() for rule in part["deny"]}
    ours = ("managed", "user", "given", "flags")
    assert set(found.allow) == {rule for layer in ours for rule in layers[layer]["allow"]}
    modes = [layers[layer].get("defaultMode") for layer in LAYERS]
    workspace = {LAYERS.index("project"), LAYERS.index("local")}
    kept = [m for i, m in enumerate(modes) if m and (i not in workspace or m == "default")]
    assert found.default_mode == (kept[-1] if kept else "default")


def test_a_workspace_may_tighten_but_not_widen_and_says_what_was_ignored(places: Places) -> None:
    path = places.write(
        "project",
        {
            "permissions": {
                "allow": ["Bash"],
                "ask": ["Edit"],
                "defaultMode": "bypassPermissions",
                "additionalDirectories": ["/"],
            },
            "env": {"LD_PRELOAD": "evil.so"},
            "maxBudgetUsd": 0,
        },
    )
    places.write("local", {"permissions": {"defaultMode": "plan"}, "envPassthrough": ["TOKEN"]})
    loaded = places.load()
    assert loaded.settings == Settings(permissions=Permissions(ask=("Edit",), default_mode="plan"))
    ignored = {notice.split(": ")[1].split(" is")[0] for notice in loaded.notices}
    assert ignored == {
        "permissions.allow",
        "permissions.defaultMode",
        "permissions.additionalDirectories",
        "env.LD_PRELOAD",
        "maxBudgetUsd",
        "envPassthrough",
    }
    assert loaded.notices[0].startswith(str(path))


def test_modes_go_by_the_names_of_other_agents_too() -> None:
    names = ("acceptEdits", "bypassPermissions", "dontAsk", "plan")
    modes = [Permissions(default_mode=name).mode for name in names]
    assert modes == ["accept-edits", "bypass", "dont-ask", "plan"]


def test_bad_json_names_file_line_and_column(places: Places) -> None:
    path = places.write("user", '{\n  "model": "x",\n  // a comment\n}')
    with pytest.raises(Fault) as caught:
        places.load()
    assert str(path) in caught.value.what
    assert caught.value.why.startswith("line 3, column 3: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"model": "x",\n "maxTurns": "many"}', ("maxTurns (line 2)", "Expected `int`")),
        ('{"maxTurns": -1}', ("maxTurns (line 1)", ">= 0")),
        ('{"timeouts": {"idle": 0}}', ("timeouts.idle (line 1)", "> 0")),
        ('{"timeouts": 5}', ("timeouts (line 1)", "Expected `object`")),
        ('{"permissions": {"deny": "Bash"}}', ("permissions.deny (line 1)", "Expected `array`")),
        ('{"permissions": {"deny": [1]}}', ("permissions.deny (line 1)", "Expected `str`")),
        ('{"permissions": {"defaultMode": "yes"}}', ("permissions.defaultMode", "'yes'")),
        ('{"permissions": {"deny": ["Bash(rm"]}}', ("cannot be understood", "'Bash(rm'")),
        ("[1]", ("not a JSON object", "should look like")),
    ],
)
def test_a_wrong_value_names_file_key_and_what_was_expected(
    places: Places, content: str, words: tuple[str, ...]
) -> None:
    path = places.write("user", content)
    with pytest.raises(Fault) as caught:
        places.load()
    assert all(word in str(caught.value) for word in (str(path), *words)), str(caught.value)


def test_unknown_keys_are_told_with_the_nearest_known_one(places: Places) -> None:
    path = places.write("user", {"modle": "x", "timeouts": {"idel": 1}, "zzz": 1})
    loaded = places.load(environ={"TRAVOIS_MODLE": "x", "TRAVOIS_HOME": "/h", "OTHER": "y"})
    assert loaded.settings == Settings()
    assert loaded.notices == (
        f"{path}: modle is not a setting; did you mean model?",
        f"{path}: timeouts.idel is not a setting; did you mean timeouts.idle?",
        f"{path}: zzz is not a setting",
        "TRAVOIS_MODLE is not a setting; did you mean TRAVOIS_MODEL?",
    )


def test_a_wrong_variable_is_named(places: Places) -> None:
    with pytest.raises(Fault, match="TRAVOIS_MAX_TURNS: maxTurns is wrong: Expected `int`"):
        places.load(environ={"TRAVOIS_MAX_TURNS": "many"})
    assert places.load(environ={"TRAVOIS_MAX_TURNS": "3"}).settings == Settings(max_turns=3)


def test_settings_for_one_run_that_cannot_be_read_are_a_fault(places: Places) -> None:
    with pytest.raises(Fault, match=r"--settings nowhere\.json cannot be read"):
        places.load(given="nowhere.json")


def test_an_empty_file_and_a_byte_order_mark_are_no_trouble(places: Places) -> None:
    places.write("managed", "")
    places.write("user", '\ufeff{"model": "x"}')
    assert places.load().settings == Settings(model="x")
