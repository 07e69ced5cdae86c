"""The catalogue of all tools, in the order in which models see them."""

from __future__ import annotations

from travois.ports.tool import AnyTool
from travois.tools import (
    agent,
    apply_patch,
    codebase_search,
    edit,
    git,
    interaction,
    memory_and_skills,
    notebook,
    read,
    search,
    symbols,
    tasks,
    wake_up,
    worktree,
)
from travois.tools.shell import background, bash
from travois.tools.web.fetch import WEB_FETCH
from travois.tools.web.search import WEB_SEARCH

TOOLS: tuple[AnyTool, ...] = (
    bash.BASH,
    read.READ,
    edit.EDIT,
    edit.WRITE,
    search.GREP,
    search.GLOB,
    symbols.SYMBOLS,
    codebase_search.CODEBASE_SEARCH,
    edit.MULTI_EDIT,
    apply_patch.APPLY_PATCH,
    notebook.NOTEBOOK_EDIT,
    background.BASH_OUTPUT,
    background.KILL_SHELL,
    background.MONITOR_JOB,
    background.TASK_OUTPUT,
    background.TASK_STOP,
    background.BASH_INPUT,
    wake_up.SCHEDULE_WAKE_UP,
    git.GIT_STATUS,
    git.GIT_DIFF,
    git.GIT_LOG,
    git.GIT_SHOW,
    git.GIT_BLAME,
    tasks.TODO_WRITE,
    tasks.TASK_CREATE,
    tasks.TASK_UPDATE,
    tasks.TASK_GET,
    tasks.TASK_LIST,
    WEB_FETCH,
    WEB_SEARCH,
    memory_and_skills.RECALL,
    memory_and_skills.REMEMBER,
    agent.AGENT,
    agent.AGENT_STOP,
    agent.SEND_MESSAGE,
    interaction.ASK_USER_QUESTION,
    interaction.ENTER_PLAN_MODE,
    interaction.EXIT_PLAN_MODE,
    worktree.ENTER_WORKTREE,
    worktree.EXIT_WORKTREE,
    memory_and_skills.SKILL,
)
