"""Travois: a terminal coding-agent harness that remembers."""

from travois.version import __version__

TYPE_CHECKING = False  # as in typing, which `--version` should not have to import
if TYPE_CHECKING:
    from travois.compose.live_session import LiveSession as Session
    from travois.compose.options import Options
    from travois.hooks.config import Listener
    from travois.ports.tool import Tool

__all__ = ["Listener", "Options", "Session", "Tool", "__version__"]
PUBLIC_MODULES = {
    "Listener": ("travois.hooks.config", "Listener"),
    "Options": ("travois.compose.options", "Options"),
    "Session": ("travois.compose.live_session", "LiveSession"),
    "Tool": ("travois.ports.tool", "Tool"),
}


def __getattr__(name: str) -> object:
    """Load the library only where it is used: `travois --version` should not pay for it."""
    if name not in PUBLIC_MODULES:
        raise AttributeError(name)
    from importlib import import_module

    module, attribute = PUBLIC_MODULES[name]
    return getattr(import_module(module), attribute)
