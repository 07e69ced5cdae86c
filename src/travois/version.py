"""The version of Travois."""

__version__ = "0.1.0"
