"""Travois: a terminal coding-agent harness that remembers."""

__version__ = "0.1.0"
