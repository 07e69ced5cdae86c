"""The lab under its first name: `from travois import lab` and `python -m travois.lab`."""

try:
    from travois_lab import *  # noqa: F403 - whatever the lab exports
except ModuleNotFoundError as error:
    from travois.files.installation import extra_command

    raise ModuleNotFoundError(f"The lab is not installed; run: {extra_command('lab')}") from error

if __name__ == "__main__":
    from travois_lab.__main__ import main

    raise SystemExit(main())
