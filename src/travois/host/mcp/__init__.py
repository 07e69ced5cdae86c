"""Servers of tools, reached through the official SDK, which is imported when one is needed."""
