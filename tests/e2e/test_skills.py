"""Skills, styles and plugins with the real program: told, used, typed, and back after all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Program
from tests.e2e.test_instructions import head, texts

BODY = "Say hello to $ARGUMENTS as ${CLAUDE_SKILL_DIR}/tone.md asks."


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def skill(folder: Path, name: str, body: str, lines: str = "") -> None:
    put(folder / name / "SKILL.md", f"---\ndescription: About {name}.\n{lines}---\n{body}\n")


@pytest.fixture
def skills(program: Program) -> Path:
    folder = program.home.parent / ".claude/skills"
    skill(folder, "greet", BODY)
    put(folder / "greet/tone.md", "Warmly.")
    return folder


def use(name: str, args: str = "") -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": "Skill", "input": {"name": name, "args": args}}}]}


def read(path: object) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": "Read", "input": {"file_path": str(path)}}}]}


def bash(command: str) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}


DONE = {"say": [{"text": "done"}]}


def results(body: Any) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_the_model_uses_a_skill_and_reads_its_files_and_the_head_stays(
    program: Program, skills: Path
) -> None:
    with lab.server([use("greet", "Ada"), read(skills / "greet/tone.md"), DONE, DONE]) as api:
        program.url = api.url
        done = program.ask("hello")
        assert (done.code, done.err) == (0, "")
        skill(skills, "late", "Later.")
        program.ask("go on", "-c")
        api.no_invalid()
    first, listing, last = api.bodies[0], texts(api.bodies[0])[1], api.bodies[3]
    assert listing.splitlines()[2:-1] == ["- greet: About greet."]
    assert "About greet" not in json.dumps([first["system"], first["tools"]])
    told, tone = results(api.bodies[2])
    assert f"Say hello to Ada as {skills}/greet/tone.md asks." in told and "Warmly." in tone
    assert "- late: About late." in texts(last)[-2] and "greet" not in texts(last)[-2]
    assert {head(body) for body in api.bodies} == {head(first)}


def test_settings_of_another_agent_quiet_skills_and_keep_their_commands_text(
    program: Program, skills: Path
) -> None:
    skill(skills, "loud", "Loud. !`echo ran`")
    put(program.folder / ".claude/commands/go.md", "Go. !`echo ran`")
    said = {"skillOverrides": {"greet": "off"}, "disableSkillShellExecution": True}
    put(program.home.parent / ".claude/settings.json", json.dumps(said))
    with lab.server([use("loud"), DONE]) as api:
        program.url = api.url
        program.ask("/go")
        api.no_invalid()
    listing, go = (texts(api.bodies[0])[at] for at in (1, -2))
    assert listing.splitlines()[2:-1] == ["- loud: About loud."]
    assert (go, "Loud. !`echo ran`" in results(api.bodies[1])[0]) == ("Go. !`echo ran`", True)


def test_without_skills_nothing_is_paid_for_them(program: Program) -> None:
    with lab.server([DONE]) as api:
        program.url = api.url
        program.ask("hello")
    assert "Skill" not in {tool["name"] for tool in api.bodies[0]["tools"]}
    assert not any(text.startswith("<skills>") for text in texts(api.bodies[0]))


def test_the_user_types_one_also_one_that_the_model_may_not_use(
    program: Program, skills: Path
) -> None:
    skill(skills, "mine", "Mine: $0.", "disable-model-invocation: true\n")
    with lab.server([use("mine"), DONE, DONE]) as api:
        program.url = api.url
        program.ask("hello")
        assert "Only the user can use this skill." in results(api.bodies[1])[0]
        program.ask("/mine now")
        api.no_invalid()
    assert "- mine:" not in texts(api.bodies[0])[1]
    assert texts(api.bodies[2])[-2].splitlines()[1:] == ["Mine: now.", "</skill>"]
    assert texts(api.bodies[2])[-1] == "/mine now"


def test_its_rules_hold_for_one_turn_and_in_a_project_only_by_trust(program: Program) -> None:
    folder = program.folder / ".claude/skills"
    skill(folder, "build", "Build. !`echo hidden`", "allowed-tools: Bash(touch built:*)\n")
    turn = [use("build"), bash("touch built"), DONE]
    with lab.server([*turn, *turn, bash("touch built"), DONE]) as api:
        program.url = api.url
        assert "1 of its settings, which are ignored (skill)" in program.ask("a").err
        text, denied = results(api.bodies[2])
        assert "!`echo hidden`" in text and "Permission denied" in denied
        assert program.run("trust").code == 0
        assert program.ask("b").err == ""
        assert "Permission denied" not in results(api.bodies[5])[1]
        assert "\nBuild. hidden\n" in results(api.bodies[5])[0]
        program.ask("c", "-c")
        assert "Permission denied" in results(api.bodies[7])[-1]


def test_what_it_denies_holds_for_one_turn_and_what_means_nothing_is_said_once(
    program: Program, skills: Path
) -> None:
    head = "disallowed-tools: Bash(touch:*)\nmodel: opus\neffort: high\nshell: bash\n"
    skill(skills, "calm", "Calmly.", head)
    turn = [use("calm"), use("calm", "again"), bash("touch a"), DONE]
    with lab.server([*turn, bash("touch b"), DONE]) as api:
        program.url = api.url
        done = program.ask("work", "--allowedTools", "Bash(touch:*)")
        program.ask("work", "-c", "--allowedTools", "Bash(touch:*)")
        api.no_invalid()
    assert done.err.count("calm/SKILL.md: model, effort ignored without `context: fork`") == 1
    assert not (program.folder / "a").exists()
    assert (program.folder / "b").exists()


HOOKS = """hooks:
  PostToolUse:
    - matcher: Bash
      hooks:
        - {type: command, command: "echo ${CLAUDE_SKILL_DIR} >> heard"}
"""


def test_its_hooks_listen_from_its_first_use_on_in_a_project_only_by_trust(
    program: Program, skills: Path
) -> None:
    skill(skills, "mine", "Mine.", HOOKS)
    skill(program.folder / ".claude/skills", "theirs", "Theirs.", HOOKS)
    turn = [bash("touch a"), use("mine"), use("theirs"), bash("touch b"), DONE]
    with lab.server([*turn, *turn]) as api:
        program.url = api.url
        allowed = ("--allowedTools", "Bash(touch:*)")
        assert "which are ignored (hooks)" in program.ask("work", *allowed).err
        heard = program.folder / "heard"
        assert heard.read_text().splitlines() == [f"{skills}/mine"]
        assert program.run("trust").code == 0
        assert program.ask("work", *allowed).err == ""
        api.no_invalid()
    theirs = f"{program.folder}/.claude/skills/theirs"
    assert sorted(heard.read_text().splitlines()[1:]) == sorted((f"{skills}/mine", theirs))


def test_an_agent_knows_its_skills_and_has_its_own_hooks_model_and_effort(
    program: Program, skills: Path
) -> None:
    stop = "hooks:\n  Stop:\n    - hooks: [{type: command, command: 'cat > ended'}]\n"
    head = "name: bee\ndescription: d\neffort: low\ntools: Read, Agent(plan)\nskills: greet, no\n"
    put(program.home.parent / ".claude/agents/bee.md", f"---\n{head}{stop}---\nYou are a bee.")
    hum = lab.call("Agent", description="hum", prompt="Hum.", subagent_type="bee")
    more = lab.call("Agent", description="hum", prompt="More.", subagent_type="explore")
    program.extra = {"CLAUDE_CODE_SUBAGENT_MODEL": "haiku"}
    with lab.server([{"say": [hum]}, {"say": [more]}, {"say": [{"text": "Hum."}]}, DONE]) as api:
        program.url = api.url
        done = program.ask("work")
        api.no_invalid()
    first, bee = api.bodies[:2]
    assert "skill no was not preloaded: unknown skill" in done.err
    assert "haiku" in bee["model"] and "haiku" not in first["model"]
    assert (bee["output_config"], "output_config" in first) == ({"effort": "low"}, False)
    assert any("Say hello to" in text for text in texts(bee))
    assert "There is no agent type 'explore'. Types: plan, fork." in results(api.bodies[2])[0]
    heard = json.loads((program.folder / "ended").read_text())
    assert (heard["hook_event_name"], heard["agent_type"]) == ("SubagentStop", "bee")


def test_the_person_talks_to_an_agent_of_their_own_and_goes_on_with_it(
    program: Program, skills: Path
) -> None:
    lines = "name: bee\ndescription: d\neffort: low\nmodel: haiku\ntools: Read, Agent(plan)\n"
    lines += "skills: greet\ninitialPrompt: Wake up.\npermissionMode: plan\n"
    ended = "[{hooks: [{type: command, command: 'cat > ended'}]}]"
    lines += f"hooks: {{Stop: {ended}, Stopp: {ended}}}\n"
    put(program.home.parent / ".claude/agents/bee.md", f"---\n{lines}---\nYou are a bee.")
    put(program.home.parent / ".claude/settings.json", '{"agent": "Bee"}')
    program.url = "http://127.0.0.1:9"
    assert "--agent: there is no agent 'wasp'" in program.ask("x", "--agent", "wasp").err
    with lab.server([{"say": [lab.call("Read", file_path="a")]}, DONE, DONE]) as api:
        program.url = api.url
        told = program.run("-p", "hum", "--output-format", "stream-json").lines[0]
        more = program.run("-p", "more", "-c", "--agent", "plan")
        api.no_invalid()
    assert "--agent: a resumed session keeps its agent" in more.err
    assert "hooks.Stopp is ignored: unknown event" in more.err
    assert json.loads((program.folder / "ended").read_text())["hook_event_name"] == "Stop"
    assert (told["tools"], told["permissionMode"]) == (["Read", "Agent"], "plan")
    first, last = api.bodies[0], api.bodies[-1]
    assert "haiku" in first["model"] and first["output_config"] == {"effort": "low"}
    assert json.dumps(first["system"]).count("You are a bee.") == 1
    assert texts(first)[-2:] == ["Wake up.", "hum"]
    assert sum("Say hello to" in text for text in texts(last)) == 1
    assert {head(body) for body in api.bodies} == {head(first)}


def test_one_about_some_files_is_told_when_such_a_file_is_touched(program: Program) -> None:
    skill(program.folder / ".claude/skills", "sql", "Sql.", "paths: '**/*.sql'\n")
    skill(program.folder / "db/.claude/skills", "below", "Below.")
    put(program.folder / "db/a.sql", "select 1;")
    with lab.server([read("db/a.sql"), DONE]) as api:
        program.url = api.url
        program.ask("look")
        api.no_invalid()
    assert not any("sql:" in text for text in texts(api.bodies[0]))
    note = next(text for text in texts(api.bodies[1]) if text.startswith("<skills>"))
    assert note.splitlines()[2:-1] == ["- below: About below.", "- sql: About sql."]


def test_one_that_forks_is_done_by_an_agent_of_its_own(program: Program, skills: Path) -> None:
    lines = "context: fork\nagent: explore\nmodel: haiku\neffort: low\n"
    skill(skills, "study", "Study $ARGUMENTS.", lines)
    with lab.server(
        [
            {"when": {"last_text": "Study bees."}, "say": [{"text": "Bees hum."}]},
            {"when": {"last_text": "Call the Skill tool"}, **use("study", "bees")},
            DONE,
        ]
    ) as api:
        program.url = api.url
        assert program.ask("/study bees").out == "done\n"
        api.no_invalid()
    assert "Bees hum." in results(api.bodies[-1])[0]
    child = next(body for body in api.bodies if "Study bees." in texts(body)[-1])
    assert "haiku" in child["model"] and child["output_config"] == {"effort": "low"}


def test_the_model_uses_a_command_that_says_what_it_is_for(program: Program) -> None:
    put(program.folder / ".claude/commands/tidy.md", "---\ndescription: Tidies.\n---\nTidy $1.")
    put(program.folder / ".claude/commands/mine.md", "Mine.")
    put(program.folder / ".opencode/command/look.md", "---\ndescription: Looks.\n---\nLook.")
    with lab.server([use("tidy", "all"), DONE]) as api:
        program.url = api.url
        program.ask("work")
        api.no_invalid()
    assert texts(api.bodies[0])[1].splitlines()[2:-1] == ["- tidy: Tidies."]
    assert "\nTidy all.\n" in results(api.bodies[1])[0]


def test_a_command_for_an_agent_is_left_to_one_if_there_is_such_an_agent(program: Program) -> None:
    folder = program.folder / ".opencode/command"
    put(folder / "look.md", "---\nagent: explore\nmodel: haiku\n---\nLook at $1.")
    put(folder / "ask.md", "---\nagent: nobody\n---\nAsk about $1.")
    with lab.server(
        [
            {"when": {"last_text": "Look at bees."}, "say": [{"text": "Bees hum."}]},
            {"when": {"last_text": "/look bees"}, **use("look", "bees")},
            DONE,
            DONE,
        ]
    ) as api:
        program.url = api.url
        assert program.ask("/look bees").err == ""
        program.ask("/ask bees")
        api.no_invalid()
    child = next(body for body in api.bodies if "Look at bees." in texts(body)[-1])
    assert "haiku" in child["model"]
    assert "Bees hum." in results(api.bodies[2])[0]
    assert texts(api.bodies[3])[-2] == "Ask about bees."
    assert not any(text.startswith("<skills>") for text in texts(api.bodies[0]))


def test_after_a_compaction_the_last_use_of_each_is_back(program: Program, skills: Path) -> None:
    for number in range(14):
        lines = (f"line {n} of {number}: value_{number}_{n}" for n in range(120))
        put(program.folder / f"f{number}.txt", "\n".join(lines))
    used = [lab.call("Skill") | {"input": {"name": "greet", "args": w}} for w in ("Ada", "Bob")]
    work = [*used, *(lab.call("Read", file_path=f"f{n}.txt") for n in range(14))]

    def model(prompt: lab.Prompt, state: dict[str, Any]) -> Any:
        if "This is the harness" in prompt.last_text:
            return "Nothing to add."
        state["at"] = state.get("at", -1) + 1
        return [work[state["at"]]] if state["at"] < len(work) else "done"

    early = {
        "context": {"threshold": 14_000, "tailTokens": 3_000, "offload": False, "clear": False}
    }
    with lab.server(model) as api:
        program.url = api.url
        done = program.ask("hello", "--settings", json.dumps(early))
        api.no_invalid()
    assert "Compacted (auto)" in done.err
    said = "\n".join(texts(api.bodies[-1]))
    assert said.count("Say hello to Bob as") == 1
    assert "Say hello to Ada as" not in said
    assert "- greet: About greet." in said
    assert {head(body) for body in api.bodies} == {head(api.bodies[0])}


def test_a_style_and_a_plugin_are_chosen_by_the_user(program: Program) -> None:
    kit = program.home.parent / "kit"
    put(kit / ".claude-plugin/plugin.json", '{"name": "kit", "version": "2"}')
    skill(kit / "skills", "plan", "Plan in ${CLAUDE_PLUGIN_ROOT}.")
    put(kit / "output-styles/pirate.md", "---\nname: Pirate\n---\nSpeak like a pirate.")
    style = ("--settings", '{"outputStyle": "kit:pirate"}', "--plugin-dir", str(kit))
    with lab.server([use("kit:plan"), DONE, DONE]) as api:
        program.url = api.url
        done = program.ask("hello", *style)
        assert (done.code, done.err) == (0, "")
        unknown = program.ask("hello", "--settings", '{"outputStyle": "none such"}')
        assert "unknown output style 'none such'" in unknown.err
    system = json.dumps(api.bodies[0]["system"])
    assert system.count("Speak like a pirate.") == 1 and "How to work" not in system
    assert f"Plan in {kit}." in results(api.bodies[1])[0]
    put(program.home / "settings.json", json.dumps({"plugins": [str(kit)]}))
    with lab.server([DONE]) as api:
        program.url = api.url
        told = program.ask("hello", *style[:2], "--output-format", "stream-json").lines[0]
    assert (told["skills"], told["output_style"]) == (["kit:plan"], "kit:pirate")
    assert told["plugins"] == [{"name": "kit", "path": str(kit), "version": "2"}]
    (listed,) = json.loads(program.run("plugins", "--json").out)
    assert (listed["name"], listed["version"], listed["folder"]) == ("kit", "2", str(kit))


def test_a_plugin_may_force_its_style_and_its_agent_and_bring_programs(program: Program) -> None:
    kit = program.home.parent / "kit"
    put(kit / "plugin.json", '{"name": "kit"}')
    put(kit / "output-styles/p.md", "---\nforce-for-plugin: true\n---\nSpeak like a pirate.")
    put(kit / "agents/mate.md", "---\nname: mate\ndescription: d\n---\nYou are the mate.")
    put(kit / "settings.json", '{"agent": "mate"}')
    put(kit / "bin/ahoy", "#!/bin/sh\necho aye aye")
    (kit / "bin/ahoy").chmod(0o755)
    put(program.folder / ".claude/commands/none.md", "None: !`grep x /dev/null`.")
    own = program.home / "skills/own"
    skill(own.parent, "own", "Own.")
    put(own / "run.sh", "echo own")
    with lab.server([bash("ahoy"), bash(f"sh {own}/run.sh"), DONE]) as api:
        program.url = api.url
        allowed = ("--allowedTools", "Bash(ahoy) Bash(sh:*)")
        done = program.ask("/none", *allowed, "--plugin-dir", str(kit))
        api.no_invalid()
    assert (done.code, texts(api.bodies[0])[-2]) == (0, "None: .")
    system = json.dumps(api.bodies[0]["system"])
    assert "Speak like a pirate." in system and "You are the mate." in system
    assert results(api.bodies[2]) == ["aye aye", "own"]


def test_another_style_begins_another_conversation(program: Program) -> None:
    style = "---\nname: Pirate\ndescription: Arr.\n---\nSpeak like a pirate."
    put(program.home / "output-styles/pirate.md", style)
    with lab.server([DONE, DONE]) as api:
        program.url = api.url
        glass = Glass(program, *program.model, "--plain", rows=40)
        glass.until("\n>")
        glass.type("/output-style none\r")
        there = "Choose one of: default, Pirate, Explanatory, Learning."
        glass.until("There is no output style none", there)
        glass.type("/output-style pirate\r")
        glass.wait(lambda: glass.text.count("Type a task.") == 2, "another conversation")
        glass.type("ahoy\r")
        glass.until("done")
        glass.type("/quit\r")
        assert glass.end() == 0
    assert "Speak like a pirate." in json.dumps(api.bodies[0]["system"])
