"""Which calls of programs cannot do their work without the network.

It decides only what is asked about before it runs in a sandbox that has no network: the sandbox
holds without it. What is not listed runs there, and the result says if it lacked the network.
"""

from __future__ import annotations

import re

from travois.core.display_text import listed
from travois.permissions.hosts import allows
from travois.permissions.protected_paths import protected
from travois.permissions.shell.plan import Step

REMOTE = listed(
    """
    curl wget http https xh aria2c ssh scp sftp mosh rsync ftp lftp ping ping6 traceroute tracepath
    mtr dig nslookup host whois nc ncat netcat telnet nmap gh glab hub tea apt apt-get aptitude dnf
    yum zypper apk pacman brew port snap flatpak rustup docker podman nerdctl kubectl oc helm k9s
    terraform tofu pulumi ansible ansible-playbook aws gcloud gsutil az doctl heroku fly flyctl
    vercel netlify wrangler firebase supabase huggingface-cli hf ollama twine yt-dlp
    psql mysql redis-cli mongosh
    """
)
"""Programs that are there to talk to other machines, or to a service outside the sandbox."""
LOCAL_HOSTS = re.compile(
    r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#].*)?"
)
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
FETCHERS = frozenset(("curl", "wget", "http", "https", "xh"))
NPM = """
    install i add ci update upgrade up outdated view info show search publish unpublish login
    logout whoami audit access owner dist-tag ping deprecate token star create
    adduser profile team org hook install-test it install-ci-test cit dlx import
"""
FETCHING: dict[str, frozenset[str]] = {
    "git": listed("clone fetch pull push ls-remote submodule lfs svn send-email"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), listed(NPM)),
    **dict.fromkeys(("pip", "pip3"), listed("install download wheel index search")),
    "pipx": listed("install upgrade upgrade-all inject run reinstall install-all"),
    "uv": listed("sync add lock remove publish self"),
    "uv pip": listed("install sync compile"),
    "uv tool": listed("install upgrade run"),
    "uv python": listed("install"),
    "poetry": listed("install add update lock publish self search"),
    "pdm": listed("install add update lock sync publish"),
    **dict.fromkeys(("conda", "mamba"), listed("install create update upgrade search env")),
    "cargo": listed("install add update fetch publish search login owner yank vendor"),
    "go": listed("get install"),
    "go mod": listed("download"),
    "gem": listed("install update fetch push search outdated signin"),
    "bundle": listed("install update add outdated"),
    "composer": listed("install require update create-project search outdated"),
    "dotnet": listed("restore add nuget tool workload"),
    "nuget": listed("install restore push search"),
    "mix": listed("deps.get deps.update hex.publish archive.install"),
    "vale": listed("sync"),
    "mise": listed("install use upgrade self-update"),
    "pre-commit": listed("install-hooks autoupdate"),
}
"""Subcommands that fetch from a registry or talk to a server, by program."""
GIT_REMOTE = listed("update show prune set-head")


FETCH_OPTIONS = {
    "curl": re.compile(
        r"-[fsSLgvIiN46]*[oOAmw]?|--(?:fail|silent|show-error|location|compressed|head|include"
        r"|verbose|output|max-time|retry|connect-timeout|user-agent|globoff)"
    ),
    "wget": re.compile(
        r"-[qcS46]*[OP]?|-nv|--(?:quiet|no-verbose|continue|timeout|tries)(?:=\w*)?"
        r"|--(?:output-document|directory-prefix)(?:=.*)?"
    ),
}
"""Options with which a program only fetches what its words name, to where they say."""


def fetches_from(step: Step, hosts: tuple[str, ...]) -> bool:
    """Return whether a call only fetches from hosts that the settings let every command reach.

    It decides only whether to ask: the sandbox reaches no other hosts, whatever is overlooked.
    """
    known, words = FETCH_OPTIONS.get(step.name), step.argv[1:]
    if known is None or any(word.kind != "plain" or protected(word.text) for word in words):
        return False
    if not all(known.fullmatch(word.text) for word in words if word.text.startswith("-")):
        return False
    urls = [word.text for word in words if URL.match(word.text)]
    rules = [f"domain:{host}" for host in hosts]
    return bool(urls) and all(any(allows(rule, url) for rule in rules) for url in urls)


def needs_network(step: Step) -> bool:
    """Return whether a call is there to reach another machine."""
    words = _words(step)
    if step.name in FETCHERS:
        return not _is_local(step)
    if step.name in REMOTE:
        return not _only_tells(step)
    if step.name == "git" and words[:1] == ["remote"]:
        return bool(GIT_REMOTE.intersection(words[1:2]))
    if step.name == "yarn" and not words:
        return not _only_tells(step)
    return _fetches(step.name, words) or _fetches(" ".join((step.name, *words[:1])), words[1:])


def _fetches(told: str, words: list[str]) -> bool:
    return bool(FETCHING.get(told, frozenset()).intersection(words[:1]))


def _words(step: Step) -> list[str]:
    """Return the words of a call that are neither options nor the values of its first options."""
    found: list[str] = []
    words = iter(word.text for word in step.argv[1:])
    for word in words:
        if word in ("-C", "-c", "--prefix", "--cwd", "--directory", "--filter", "-F", "-w"):
            next(words, "")
        elif not word.startswith(("-", "+")):
            found.append(word)
    return found


def _only_tells(step: Step) -> bool:
    """Whether a program is only asked for its version or its help."""
    words = [word.text for word in step.argv[1:]]
    return bool(words) and words[-1] in ("--version", "-V", "version", "--help", "help")


def _is_local(step: Step) -> bool:
    """Whether all addresses of a fetch are of this machine: the servers of the session itself."""
    words = [word.text for word in step.argv[1:]]
    hosts = [word for word in words if URL.match(word) or LOCAL_HOSTS.fullmatch(word)]
    known = all(word.kind != "open" or LOCAL_HOSTS.fullmatch(word.text) for word in step.argv[1:])
    return bool(hosts) and known and all(LOCAL_HOSTS.fullmatch(host) for host in hosts)
