"""Figures that anyone can re-run: `make bench`, or `python -m bench NAME`."""
