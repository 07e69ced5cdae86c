"""All tools, in the order in which models are told of them."""

from __future__ import annotations

from travois.ports.tool import AnyTool
from travois.tools import (
    agent,
    apply_patch,
    edit,
    git,
    interaction,
    knowledge,
    notebook,
    read,
    search,
    symbols,
    tasks,
    worktree,
)
from travois.tools import agent as message
from travois.tools import edit as write
from travois.tools import interaction as plan
from travois.tools import knowledge as recall
from travois.tools.shell import background
from travois.tools.shell import background as jobs
from travois.tools.shell import bash as shell
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
    background.BASH_INPUT,
    git.STATUS,
    git.DIFF,
    git.LOG,
    git.SHOW,
    git.BLAME,
    interaction.TODO,
    tasks.TASK_CREATE,
    tasks.TASK_UPDATE,
    tasks.TASK_GET,
    tasks.TASK_LIST,
    web.FETCH,
    websearch.SEARCH,
    recall.RECALL,
    knowledge.REMEMBER,
    agent.AGENT,
    agent.AGENT_STOP,
    message.SEND_MESSAGE,
    interaction.ASK,
    plan.ENTER_PLAN,
    plan.PLAN,
    worktree.ENTER_WORKTREE,
    worktree.EXIT_WORKTREE,
    knowledge.SKILL,
)
