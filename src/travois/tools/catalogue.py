"""All tools, in the order in which models are told of them."""

from __future__ import annotations

from travois.engine.tool import AnyTool
from travois.tools import (
    agent,
    ask,
    edit,
    git,
    message,
    notebook,
    plan,
    read,
    recall,
    remember,
    search,
    shell,
    skill,
    todo,
    web,
    write,
    websearch,
)

TOOLS: tuple[AnyTool, ...] = (
    shell.BASH,
    read.READ,
    edit.EDIT,
    write.WRITE,
    search.GREP,
    search.GLOB,
    edit.MULTI_EDIT,
    notebook.NOTEBOOK_EDIT,
    shell.BASH_OUTPUT,
    shell.KILL_SHELL,
    git.STATUS,
    git.DIFF,
    git.LOG,
    git.SHOW,
    git.BLAME,
    todo.TODO,
    web.FETCH,
    recall.RECALL,
    remember.REMEMBER,
    websearch.SEARCH,
    agent.AGENT,
    agent.AGENT_STOP,
    message.SEND_MESSAGE,
    ask.ASK,
    plan.PLAN,
    skill.SKILL,
)
