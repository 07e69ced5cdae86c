"""Hand tasks to the fleet, which runs them unattended, each in a clone (extra `fleet`)."""

import json
import subprocess
import sys
from pathlib import Path

REPOS = [Path.cwd()]
PROMPT = "Add a docstring to each public function that has none."


def main() -> int:
    tasks = [
        {
            "id": f"docs-{repo.name}",
            "repo": str(repo),
            "prompt": PROMPT,
            "model": "anthropic/claude-opus-5-5",
            "max_usd": 0.5,
            "publish": "patch",
        }
        for repo in REPOS
    ]
    file = Path("tasks.jsonl")
    file.write_text("\n".join(map(json.dumps, tasks)))
    travois = [sys.executable, "-m", "travois", "fleet"]
    return subprocess.run([*travois, "run", str(file)]).returncode


if __name__ == "__main__":
    sys.exit(main())
