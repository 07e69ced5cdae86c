"""Travois: a terminal coding-agent harness that remembers."""

from travois.version import __version__

TYPE_CHECKING = False  # as in typing, which `--version` should not have to import
if TYPE_CHECKING:
    from travois.compose.options import Options
    from travois.hooks.config import Listener
    from travois.ports.tool import Tool
    from travois.sdk import Session

__all__ = ["Listener", "Options", "Session", "Tool", "__version__"]
PUBLIC_MODULES = {
    "Listener": "travois.hooks.config",
    "Options": "travois.compose.options",
    "Session": "travois.sdk",
    "Tool": "travois.ports.tool",
}


def __getattr__(name: str) -> object:
    """Load the library only where it is used: `travois --version` should not pay for it."""
    if name not in PUBLIC_MODULES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(PUBLIC_MODULES[name]), name)
