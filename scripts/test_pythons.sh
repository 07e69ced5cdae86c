#!/usr/bin/env bash
# Runs the tests on every other Python from 3.11 on that this machine has, each in an environment of
# its own. The one given as argument has been tested already.
set -eu
tested=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
others=0
for minor in 11 12 13 14 15; do
  python="python3.$minor"
  [ "3.$minor" = "$tested" ] && continue
  "$python" --version >/dev/null 2>&1 || continue
  others=$((others + 1))
  echo "Testing on $("$python" --version)..."
  make --no-print-directory PYTHON="$python" VENV=".venv-3.$minor" unit
done
[ "$others" -gt 0 ] || echo "No other Python from 3.11 on is installed."
