"""The lab: a local simulator of the model providers, faithful down to the price of a request."""

from travois.lab.server import Api, server
from travois.lab.talk import Prompt, Reply, call, text, thinking

__all__ = ["Api", "Prompt", "Reply", "call", "server", "text", "thinking"]
