#!/usr/bin/env bash
# Installs the system programs that some tests need. As root on Debian or Ubuntu they are installed,
# and each is announced; anywhere else the tests of that part skip and say why.
set -u

declare -A packages=(
  [chromedriver]="chromium chromium-driver"  # the session page in a real browser
  [git-lfs]="git-lfs"                        # git LFS inside the sandbox
)

missing=()
for program in "${!packages[@]}"; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Not installed: ${missing[*]}. Their tests will skip (installing them needs root and apt-get)."
  exit 0
fi

export DEBIAN_FRONTEND=noninteractive
updated=no
for program in "${missing[@]}"; do
  echo "Installing ${packages[$program]} for the tests (apt-get)..."
  if [ "$updated" = no ]; then
    apt-get update -qq >/dev/null 2>&1 || echo "apt-get update failed; trying with the lists at hand."
    updated=yes
  fi
  # shellcheck disable=SC2086 - a list of packages
  apt-get install -qq -y --no-install-recommends ${packages[$program]} >/dev/null 2>&1 ||
    echo "${packages[$program]} could not be installed; the tests that need it will skip."
done
exit 0
