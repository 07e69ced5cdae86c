"""Tables and lists below a key of front matter."""

from __future__ import annotations

from travois.files.front_matter import parse_nested_value

HEAD = """---
name: guard
hooks:
  PreToolUse:
    - matcher: "Bash|Edit"  # both
      hooks:
        - type: command
          command: "./check.sh 'a: b'"
          timeout: 30
        - {type: http, url: "http://localhost/x", headers: {a: b}}
  Stop:
  - hooks:
    - type: command
      command: |
        echo a
          echo b
      once: true
    -
      command: >-
        one
        line
servers:
  - plain
  - named:
      args: ["-y", 'it''s']
flat: [1, two, null]
---
hooks:
  not: this
"""


def test_what_people_write_is_read_as_they_mean_it() -> None:
    first = {"type": "command", "command": "./check.sh 'a: b'", "timeout": 30}
    second = {"type": "http", "url": "http://localhost/x", "headers": {"a": "b"}}
    third = {"type": "command", "command": "echo a\n  echo b", "once": True}
    assert parse_nested_value(HEAD, "hooks") == {
        "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [first, second]}],
        "Stop": [{"hooks": [third, {"command": "one line"}]}],
    }
    assert parse_nested_value(HEAD, "servers") == ["plain", {"named": {"args": ["-y", "it's"]}}]
    assert parse_nested_value(HEAD, "flat") == [1, "two", None]


def test_what_is_not_there_or_makes_no_sense_is_nothing() -> None:
    assert parse_nested_value(HEAD, "none") is None
    assert parse_nested_value("hooks:\n  a: b\n", "hooks") is None
    assert parse_nested_value("---\nhooks:\n  a:\n    b: c\n   d: e\n---\n", "hooks") is None
    assert parse_nested_value('---\nhooks: "\\x"\n---\n', "hooks") is None
    deep = "".join(f"{' ' * n}k:\n" for n in range(2_000))
    assert parse_nested_value(f"---\nhooks:\n {deep}---\n", "hooks") is None
