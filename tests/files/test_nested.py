"""Tables and lists below a key of front matter."""

from __future__ import annotations

from travois.files.front_matter import nested

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
    assert nested(HEAD, "hooks") == {
        "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [first, second]}],
        "Stop": [{"hooks": [third, {"command": "one line"}]}],
    }
    assert nested(HEAD, "servers") == ["plain", {"named": {"args": ["-y", "it's"]}}]
    assert nested(HEAD, "flat") == [1, "two", None]


def test_what_is_not_there_or_makes_no_sense_is_nothing() -> None:
    assert nested(HEAD, "none") is None
    assert nested("hooks:\n  a: b\n", "hooks") is None
    assert nested("---\nhooks:\n  a:\n    b: c\n   d: e\n---\n", "hooks") is None
    assert nested('---\nhooks: "\\x"\n---\n', "hooks") is None
    deep = "".join(f"{' ' * n}k:\n" for n in range(2_000))
    assert nested(f"---\nhooks:\n {deep}---\n", "hooks") is None
