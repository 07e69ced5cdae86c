"""The library's first module still gives its names, and warns."""

from __future__ import annotations

import importlib

import pytest

from travois.compose.live_session import LiveSession


def test_the_first_names_still_work_and_say_that_they_will_go() -> None:
    sdk = importlib.import_module("travois.sdk")
    with pytest.warns(DeprecationWarning, match="goes with 0.2"):
        assert sdk.Session is LiveSession


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    sdk = importlib.import_module("travois.sdk")
    with pytest.raises(AttributeError, match="Sesion"):
        _ = sdk.Sesion
