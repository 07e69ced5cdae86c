"""The llama.cpp server process: `python -P -m travois.local_model.serve`.

A bad file can make it abort, which in our own process would end the session (decision 0014). It is
told what to serve in one line on its standard input, says in one line where it listens, and ends
when its standard input does: with whoever started it. What it logs goes to standard error.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from travois.local_model.gguf import read_chat_template

CHATML_TEMPLATE = Path(__file__).with_name("chatml.jinja")
PROMPT_BATCH_TOKENS = 256
"""The tokens of a prompt read before it checks for a cancelled request."""
PROMPT_CACHE_MIB = 1_024
"""The MiB for cached prompts besides the current one."""
LOG_WARNINGS_ONLY = 2
"""Warnings and errors are logged, nothing else."""


class ServeOrder(msgspec.Struct, frozen=True):
    """The model to serve, its window, its API key and its port."""

    path: str
    window: int
    key: str
    threads: int = 1
    port: int = 0
    """Where to listen; nought for a port that is free."""


class ServerReady(msgspec.Struct, frozen=True):
    """The address that the server listens on."""

    url: str


def main() -> None:
    """Serve a local model with llama.cpp until standard input ends."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServeOrder)
    with os.fdopen(os.dup(1), "wb") as told:
        os.dup2(2, 1)  # whatever llama.cpp prints is no word of ours
        running, url = start_llama_server(order)
        told.write(msgspec.json.encode(ServerReady(url)) + b"\n")
    sys.stdin.buffer.read()
    os._exit(0 if running else 1)  # taking it apart can wait for ever


def start_llama_server(order: ServeOrder) -> tuple[object, str]:
    """Start a llama.cpp server; return it with its URL; raises RuntimeError if it fails."""
    llama: Any = import_module("xllamacpp")
    asked = llama.CommonParams()
    asked.model.path = order.path
    asked.hostnames, asked.port, asked.api_keys = ["127.0.0.1"], order.port, [order.key]
    asked.n_ctx, asked.n_parallel, asked.fit_params = order.window, 1, False
    asked.n_batch = asked.n_ubatch = PROMPT_BATCH_TOKENS
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = order.threads
    asked.cache_ram_mib, asked.verbosity = PROMPT_CACHE_MIB, LOG_WARNINGS_ONLY
    asked.use_jinja, asked.ui, asked.warmup = True, False, False
    asked.chat_template = choose_chat_template(read_chat_template(Path(order.path)))
    server = llama.Server(asked)
    return server, server.listening_address


def choose_chat_template(own: str) -> str:
    """Return our chat template for local models whose own knows no tools; empty to use theirs.

    Turn markers are learnt, so ours can only replace one that has the same markers, or none.
    """
    return (
        "" if "tools" in own or (own and "<|im_start|>" not in own) else CHATML_TEMPLATE.read_text()
    )


if __name__ == "__main__":
    main()
