"""Travois: a terminal coding-agent harness that remembers."""

from travois.version import __version__

TYPE_CHECKING = False  # as in typing, which `--version` should not have to import
if TYPE_CHECKING:
    from travois.app.options import Options
    from travois.app.sdk import Session

__all__ = ["Options", "Session", "__version__"]


def __getattr__(name: str) -> object:
    """Load the library only where it is used: `travois --version` should not pay for it."""
    if name == "Session":
        from travois.app.sdk import Session

        return Session
    if name == "Options":
        from travois.app.options import Options

        return Options
    raise AttributeError(name)
