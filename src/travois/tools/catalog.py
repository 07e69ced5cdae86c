"""All tools, in the order in which models are told of them."""

from __future__ import annotations

from travois.ports.tool import AnyTool
from travois.tools import (
    agent,
    apply_patch,
    ask,
    edit,
    git,
    message,
    notebook,
    read,
    remember,
    search,
    skill,
    symbols,
    tasks,
    todo,
    worktree,
    write,
)
from travois.tools import interaction as plan
from travois.tools import knowledge as recall
from travois.tools.shell import background as jobs
from travois.tools.shell import bash as shell
from travois.tools.shell import terminal
from travois.tools.web import fetch as web
from travois.tools.web import search as websearch

TOOLS: tuple[AnyTool, ...] = (
    shell.BASH,
    read.READ,
    edit.EDIT,
    write.WRITE,
    search.GREP,
    search.GLOB,
    symbols.SYMBOLS,
    edit.MULTI_EDIT,
    apply_patch.APPLY_PATCH,
    notebook.NOTEBOOK_EDIT,
    jobs.BASH_OUTPUT,
    jobs.KILL_SHELL,
    jobs.MONITOR_JOB,
    jobs.TASK_OUTPUT,
    jobs.TASK_STOP,
    terminal.BASH_INPUT,
    git.STATUS,
    git.DIFF,
    git.LOG,
    git.SHOW,
    git.BLAME,
    todo.TODO,
    tasks.TASK_CREATE,
    tasks.TASK_UPDATE,
    tasks.TASK_GET,
    tasks.TASK_LIST,
    web.FETCH,
    websearch.SEARCH,
    recall.RECALL,
    remember.REMEMBER,
    agent.AGENT,
    agent.AGENT_STOP,
    message.SEND_MESSAGE,
    ask.ASK,
    plan.ENTER_PLAN,
    plan.PLAN,
    worktree.ENTER_WORKTREE,
    worktree.EXIT_WORKTREE,
    skill.SKILL,
)
