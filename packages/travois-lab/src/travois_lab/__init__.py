"""The lab: a local simulator of the model providers, faithful down to the price of a request."""

from travois_lab.server import Api, server
from travois_lab.talk import Prompt, Reply, call, searched, text, thinking

__all__ = ["Api", "Prompt", "Reply", "call", "searched", "server", "text", "thinking"]
