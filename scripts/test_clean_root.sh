#!/usr/bin/env bash
# Runs `make test` as on a fresh machine: a Debian that has Python, git and make and nothing else,
# in namespaces of its own, on a clean clone. Needs root, for the mounts; `--as user` drops it.
#
#   scripts/test_clean_root.sh [--as root|user|both] [--shared DIR] [--at DIR] [--cache DIR]
#                              [COMMIT] [-- COMMAND...]
#
#   --as      who runs the tests: root, an ordinary user without sudo, or one after the other (both)
#   --shared  a folder to show, read-only, as `shared` beside the clone (the corpora)
#   --at      where the clone lies in the clean root (~/travois); /tmp/travois is worth a try, too
#   --cache   what is kept between runs (~/.cache/travois-clean-root): Debian, packages, wheels, logs
#   COMMIT    what to test (HEAD); uncommitted changes are not part of it
#   COMMAND   what to run in the clone instead of `make test`
#
# How this machine reaches its package registries (settings of pip and apt, proxies, certificates,
# folders of wheels) holds in there, too.
set -euo pipefail

SUITE=bookworm
PACKAGES=python3,python3-venv,git,make,ca-certificates
REGISTRY_VARIABLES='^(PIP_[A-Z_]*|(http|https|no)_proxy|(HTTP|HTTPS|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)='

fail() { echo "test_clean_root: $*" >&2; exit 2; }

main() {
  local who=both shared="" at="" commit=HEAD cache="${XDG_CACHE_HOME:-$HOME/.cache}/travois-clean-root"
  while [ $# -gt 0 ]; do
    case "$1" in
      --as) who=$2; shift 2 ;;
      --shared) shared=$(realpath "$2"); shift 2 ;;
      --at) at=$2; shift 2 ;;
      --cache) cache=$(realpath -m "$2"); shift 2 ;;
      --) shift; break ;;
      -*) fail "unknown option $1 (see the head of $0)" ;;
      *) commit=$1; shift ;;
    esac
  done
  [ $# -gt 0 ] || set -- make test
  local users
  case "$who" in
    root | user) users=$who ;;
    both) users="root user" ;;
    *) fail "--as takes root, user or both, not $who" ;;
  esac
  [ "$(id -u)" = 0 ] || fail "run this as root: it mounts file systems"
  commit=$(git -C "$(dirname "$0")" rev-parse --verify "$commit^{commit}")
  make_base "$cache"

  local failed=0 user
  for user in $users; do
    test_as "$user" "$@" || failed=1
  done
  return "$failed"
}

# Makes the clean Debian once; each run gets a copy of it.
make_base() {
  [ -e "$1/base.done" ] && return
  command -v debootstrap >/dev/null || install_debootstrap
  rm -rf "$1/base" && mkdir -p "$1/base" "$1/debs"
  echo "Making a clean Debian ($SUITE) in $1/base..."
  # The mirror that this machine uses, where it has one; debootstrap knows another.
  local mirror
  mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | head -n 1 || true)
  debootstrap --variant=minbase --include="$PACKAGES" --cache-dir="$1/debs" "$SUITE" "$1/base" \
    ${mirror:+"$mirror"} >"$1/debootstrap.log" || fail "debootstrap failed; see $1/debootstrap.log"
  touch "$1/base.done"
}

install_debootstrap() {
  command -v apt-get >/dev/null || fail "debootstrap is missing; install it with your package manager"
  echo "Installing debootstrap (apt-get)..."
  apt-get update -qq && apt-get install -qq -y debootstrap >/dev/null || fail "debootstrap is missing"
}

# Runs the command as one kind of user in a fresh copy, and shows how it ended.
test_as() {
  local user=$1 root="$cache/root-$1" log="$cache/$1.log" home=/home/tester
  shift
  [ "$user" = root ] && home=/root
  local clone=${at:-$home/travois}
  rm -rf --one-file-system "$root"
  cp -a --reflink=auto "$cache/base" "$root"
  chroot "$root" useradd --create-home --shell /bin/bash tester
  copy_registry_settings "$root" "$root$home"
  git clone --quiet --no-hardlinks "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)" "$root$clone"
  git -C "$root$clone" checkout --quiet --detach "$commit"
  mkdir -p "$cache/pip-$user" "$cache/apt" "$root$home/.cache/pip"
  [ "$user" = root ] || chroot "$root" chown -R tester: "$home" "$clone"
  [ "$user" = root ] || chown -R --reference="$root$home" "$cache/pip-$user"

  echo "Running '$*' as $user on $commit in $clone; the log is $log"
  local status=0 before=$SECONDS
  export root user clone home shared cache
  unshare --mount --pid --ipc --uts --fork --kill-child \
    bash -euc "$(declare -f enter_root); enter_root \"\$@\"" enter_root "$@" \
    >"$log" 2>&1 </dev/null || status=$?
  tail -n 25 "$log"
  echo "As $user: exit $status after $(((SECONDS - before) / 60)) minutes, on $commit"
  return "$status"
}

# Lets pip and apt in the new root reach what they reach here.
copy_registry_settings() {
  local root=$1 home=$2 file folder
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  if command -v apt-config >/dev/null; then
    apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/90host" || true
    cp -a /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/trusted.gpg.d "$root/etc/apt/" 2>/dev/null || true
  fi
  env | grep -E "$REGISTRY_VARIABLES" >"$root/etc/registry.env" || true
  python3 -m pip config debug 2>/dev/null | sed -n 's/^  \(.*\), exists: True$/\1/p' | while read -r file; do
    mkdir -p "$home/.config/pip"
    case "$file" in
      /etc/*) install -D -m 644 "$file" "$root$file" ;;
      *) install -m 644 "$file" "$home/.config/pip/pip.conf" ;;
    esac
  done
  # Every file and folder that these settings name: certificates are copied, wheels mounted later.
  cat "$root/etc/registry.env" "$root/etc/pip.conf" "$home/.config/pip/pip.conf" 2>/dev/null |
    grep -oE '(=|file://|\s)/[^ ,:]+' | sed -E 's#^[^/]*(//)?##; s#/simple/?$##' | sort -u |
    while read -r file; do
      if [ -f "$file" ]; then install -D -m 644 "$file" "$root$file"; fi
      if [ -d "$file" ] && [ ! -d "$root$file" ]; then echo "$file"; fi
    done >"$root/etc/registry.folders"
}

# Runs in the new namespaces: mounts what a machine has, makes the copy the root, drops root.
enter_root() {
  local node folder
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
  mount --bind "$cache/pip-$user" "$root$home/.cache/pip"
  mount --bind "$cache/apt" "$root/var/cache/apt/archives"
  while read -r folder; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    mount -o remount,bind,ro "$root$folder"
  done <"$root/etc/registry.folders"
  if [ -n "$shared" ]; then
    folder="$root$(dirname "$clone")/shared"
    mkdir -p "$folder"
    mount --bind "$shared" "$folder"
    mount -o remount,bind,ro "$folder"
  fi
  hostname clean-root
  mapfile -t variables <"$root/etc/registry.env"
  cd "$root"
  # Not chroot: the kernel refuses user namespaces, and so the sandbox, to a process in a chroot.
  pivot_root . mnt
  umount -l /mnt
  cd "$clone"
  local drop=()
  [ "$user" = root ] || drop=(setpriv --reuid=tester --regid=tester --init-groups)
  exec env -i HOME="$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 TERM=xterm "${variables[@]}" "${drop[@]}" "$@"
}

main "$@"
