"""The lab under its first name: `from travois import lab` and `python -m travois.lab`."""

try:
    from travois_lab import *  # noqa: F403 - whatever the lab exports
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "The lab is not installed; run: pip install 'travois[lab]'"
    ) from error

if __name__ == "__main__":
    from travois_lab.__main__ import main

    raise SystemExit(main())
