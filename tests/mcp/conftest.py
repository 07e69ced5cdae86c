"""What tests of MCP tools share with those of the built-in tools."""

from tests.tools.conftest import world

__all__ = ["world"]
