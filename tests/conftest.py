"""How the tests run: on a build machine, the same examples each time; elsewhere, new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("build", derandomize=True, deadline=None)
settings.register_profile("long", max_examples=2_000, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("build")
os.environ["CLAUDE_CONFIG_DIR"] = os.devnull  # the settings of whoever runs the tests are theirs
