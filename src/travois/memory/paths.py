"""The folder of a project's memories."""

from __future__ import annotations

import os
from contextlib import suppress

from travois.sessions.home import Project, TravoisHome


def project_folder_key(home: TravoisHome, project: Project) -> str:
    """Return the folder of a project's memories, relative to the memory root.

    A repository is known by another key once it has a first commit; what was remembered before
    stays where it is, and the later key leads to it, so that other checkouts find it, too.
    """
    projects = home.path / "memory" / "projects"
    own = projects / project.key
    for earlier in project.also:
        if (projects / earlier).is_dir() and not os.path.lexists(own):
            with suppress(OSError):
                own.symlink_to(earlier)
            return f"projects/{earlier}"
    name = os.path.basename(os.readlink(own)) if own.is_symlink() else project.key
    return f"projects/{name}"
