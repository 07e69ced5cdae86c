#!/usr/bin/env bash
# Installs the system packages that some tests need. As root on Debian or Ubuntu they are installed,
# and each is announced; anywhere else the tests of that part skip and say why.
set -u

has_program() { command -v "$1" >/dev/null; }
has_library() { ldconfig -p 2>/dev/null | grep -q "$1"; }

missing=()
has_program chromedriver || missing+=(chromium chromium-driver)  # the session page and the browser
has_library libatomic.so.1 || missing+=(libatomic1)              # Playwright's driver
has_library libgomp.so.1 || missing+=(libgomp1)                  # llama.cpp
has_program curl || missing+=(curl)                              # hosts that the sandbox lets through
has_program git-lfs || missing+=(git-lfs)                        # git LFS in the sandbox
has_program patch || missing+=(patch)                            # a command that rewind undoes
has_program postgres || compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null ||
  missing+=(postgresql)                                          # sessions and a fleet in a database
has_program strace || missing+=(strace)                          # what programs that only look do
has_program tmux || missing+=(tmux)                              # the terminal inside tmux
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! has_program apt-get; then
  echo "Not installed: ${missing[*]}. The tests that need them will skip."
  exit 0
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1 || echo "apt-get update failed; using the package lists at hand."
for package in "${missing[@]}"; do
  echo "Installing $package for the tests (apt-get)..."
  apt-get install -qq -y --no-install-recommends "$package" >/dev/null 2>&1 ||
    echo "$package could not be installed; the tests that need it will skip."
done
exit 0
