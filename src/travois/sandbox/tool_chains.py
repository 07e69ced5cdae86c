"""The files in a home folder that tool chains need: the sandbox's allow-list, by program family.

Everything else in a home folder is hidden from commands. A `ToolChain` lists what its family reads,
which of that are caches, which settings are shown unless they contain a credential, and which
credentials stay hidden inside shown folders. Paths are relative to the home folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from posixpath import isabs, join
from typing import Literal

import msgspec

from travois.permissions.paths import is_inside, normalize_path

ToolChainName = Literal[
    "git",
    "python",
    "conda",
    "node",
    "bun",
    "deno",
    "rust",
    "go",
    "java",
    "ruby",
    "php",
    "dotnet",
    "haskell",
    "julia",
    "nix",
    "homebrew",
    "versions",
    "c",
    "models",
]


class ToolChain(msgspec.Struct, frozen=True):
    """The paths that one family of programs needs in a home folder."""

    reads: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    """Readable caches; a command writes to a copy that is dropped when it ends."""
    settings: tuple[str, ...] = ()
    """Files shown unless they contain a credential."""
    withheld: tuple[str, ...] = ()
    """Credentials inside folders that are shown."""


def _split_paths(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TOOL_CHAINS: Mapping[ToolChainName, ToolChain] = {
    "git": ToolChain(
        reads=_split_paths(".config/git/ignore .config/git/attributes .gitignore_global"),
        settings=_split_paths(".gitconfig .config/git/config"),
    ),
    "python": ToolChain(
        reads=_split_paths(
            ".pyenv .local/lib .local/share/uv .local/pipx .local/share/pipx .virtualenvs "
            ".local/share/virtualenvs .local/share/pypoetry .local/share/hatch .local/share/pdm "
            ".rye"
        ),
        caches=_split_paths(
            ".cache/pip .cache/uv .cache/pypoetry .cache/pdm .cache/pre-commit .cache/hatch "
            ".cache/ruff .cache/mypy .cache/black"
        ),
        settings=_split_paths(
            ".config/pip/pip.conf .pip/pip.conf .config/uv/uv.toml .config/pypoetry/config.toml"
        ),
        withheld=_split_paths(
            ".local/share/uv/credentials .config/pypoetry/auth.toml .rye/credentials "
            ".local/share/hatch/credentials"
        ),
    ),
    "conda": ToolChain(
        reads=_split_paths(
            "miniconda3 anaconda3 miniforge3 mambaforge micromamba .local/share/mamba "
            ".conda/envs .conda/pkgs .conda/environments.txt"
        ),
        settings=_split_paths(".condarc .mambarc"),
    ),
    "node": ToolChain(
        reads=_split_paths(
            ".nvm .volta .fnm .local/share/fnm .nodenv .nodebrew .npm-global .npm-packages "
            ".node_modules .local/share/pnpm .yarn .config/yarn/global .corepack"
        ),
        caches=_split_paths(
            ".npm/_cacache .npm/_npx .cache/node .cache/pnpm .cache/yarn .cache/Cypress "
            ".cache/ms-playwright .cache/puppeteer .cache/typescript .cache/electron "
            ".cache/node-gyp .pnpm-store .local/share/pnpm/store"
        ),
        settings=_split_paths(".npmrc .yarnrc .yarnrc.yml .config/pnpm/rc"),
    ),
    "bun": ToolChain(
        reads=_split_paths(".bun"),
        caches=_split_paths(".bun/install/cache"),
        settings=_split_paths(".bunfig.toml"),
    ),
    "deno": ToolChain(reads=_split_paths(".deno"), caches=_split_paths(".cache/deno")),
    "rust": ToolChain(
        reads=_split_paths(".rustup .cargo"),
        caches=_split_paths(".cargo/registry .cargo/git .cache/sccache"),
        settings=_split_paths(".cargo/config.toml .cargo/config"),
        withheld=_split_paths(".cargo/credentials.toml .cargo/credentials"),
    ),
    "go": ToolChain(
        reads=_split_paths("go/bin .goenv .gvm"),
        caches=_split_paths("go/pkg .cache/go-build .cache/golangci-lint .cache/staticcheck"),
        settings=_split_paths(".config/go/env"),
    ),
    "java": ToolChain(
        reads=_split_paths(".sdkman .jenv .jabba .jdks .m2/wrapper .gradle/wrapper .sbt/boot"),
        caches=_split_paths(
            ".m2/repository .gradle/caches .gradle/native .gradle/daemon .gradle/jdks .ivy2/cache "
            ".ivy2/local .cache/coursier .cache/bazel .konan"
        ),
        settings=_split_paths(
            ".m2/settings.xml .m2/toolchains.xml .gradle/gradle.properties .mavenrc "
            ".sbt/repositories"
        ),
    ),
    "ruby": ToolChain(
        reads=_split_paths(
            ".rbenv .rvm .rubies .gem/ruby .gem/specs .local/share/gem/ruby .bundle/plugin "
            ".local/share/chruby"
        ),
        caches=_split_paths(".bundle/cache .cache/gem"),
        settings=_split_paths(".gemrc .bundle/config"),
    ),
    "php": ToolChain(
        reads=_split_paths(".phpenv .config/composer/vendor .composer/vendor"),
        caches=_split_paths(".cache/composer .composer/cache"),
        settings=_split_paths(".config/composer/config.json .composer/config.json"),
    ),
    "dotnet": ToolChain(
        reads=_split_paths(".dotnet"),
        caches=_split_paths(".nuget/packages .local/share/NuGet"),
        settings=_split_paths(".nuget/NuGet/NuGet.Config .config/NuGet/NuGet.Config"),
    ),
    "haskell": ToolChain(
        reads=_split_paths(".ghcup .stack .cabal/bin .local/state/cabal"),
        caches=_split_paths(".cabal/packages .cabal/store .cache/cabal"),
        settings=_split_paths(".cabal/config .config/cabal/config .stack/config.yaml"),
        withheld=_split_paths(".stack/upload"),
    ),
    "julia": ToolChain(
        reads=_split_paths(".juliaup .julia"),
        caches=_split_paths(".julia/compiled"),
        withheld=_split_paths(".julia/servers .julia/logs .julia/config"),
    ),
    "nix": ToolChain(
        reads=_split_paths(
            ".nix-profile .nix-defexpr .local/state/nix .guix-profile .config/guix/current"
        ),
        caches=_split_paths(".cache/nix"),
    ),
    "homebrew": ToolChain(reads=_split_paths(".linuxbrew"), caches=_split_paths(".cache/Homebrew")),
    "versions": ToolChain(
        reads=_split_paths(
            ".asdf .local/share/mise .local/share/rtx .proto .tenv .tfenv "
            ".local/share/aquaproj-aqua .tool-versions .opam .swiftly .local/share/swiftly "
            ".elan .foundry .kiex .kerl"
        ),
        settings=_split_paths(".config/mise/config.toml .asdfrc"),
    ),
    "c": ToolChain(
        reads=_split_paths(".conan2/profiles .vcpkg"),
        caches=_split_paths(".cache/ccache .ccache .conan2/p .cache/vcpkg"),
        settings=_split_paths(".config/ccache/ccache.conf"),
    ),
    "models": ToolChain(
        caches=_split_paths(
            ".cache/huggingface/hub .cache/huggingface/datasets .cache/torch nltk_data "
            ".keras/models"
        ),
    ),
}
"""The families by name; `sandbox.hiddenToolChains` removes some."""

RELOCATION_VARIABLES: Mapping[str, str] = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "PIPX_HOME": ".local/share/pipx",
    "PIP_CACHE_DIR": ".cache/pip",
    "UV_CACHE_DIR": ".cache/uv",
    "UV_TOOL_DIR": ".local/share/uv/tools",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv/python",
    "WORKON_HOME": ".virtualenvs",
    "CONDA_PREFIX": "miniconda3",
    "MAMBA_ROOT_PREFIX": "micromamba",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "FNM_DIR": ".fnm",
    "PNPM_HOME": ".local/share/pnpm",
    "BUN_INSTALL": ".bun",
    "DENO_DIR": ".cache/deno",
    "PLAYWRIGHT_BROWSERS_PATH": ".cache/ms-playwright",
    "GOPATH": "go",
    "GOMODCACHE": "go/pkg",
    "GOCACHE": ".cache/go-build",
    "JAVA_HOME": ".jdks",
    "SDKMAN_DIR": ".sdkman",
    "GRADLE_USER_HOME": ".gradle",
    "COURSIER_CACHE": ".cache/coursier",
    "RBENV_ROOT": ".rbenv",
    "GEM_HOME": ".gem/ruby",
    "COMPOSER_HOME": ".composer",
    "DOTNET_ROOT": ".dotnet",
    "NUGET_PACKAGES": ".nuget/packages",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "JULIA_DEPOT_PATH": ".julia",
    "CCACHE_DIR": ".ccache",
    "VIRTUAL_ENV": ".virtualenvs",
    "HF_HUB_CACHE": ".cache/huggingface/hub",
    "TORCH_HOME": ".cache/torch",
}
"""Environment variables that move a tool chain's folder, with the usual place."""


class ToolChainPaths(msgspec.Struct, frozen=True):
    """The absolute paths that tool chains need."""

    reads: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def list_tool_chain_paths(
    home: str, environ: Mapping[str, str], *, hidden: Collection[ToolChainName] = ()
) -> ToolChainPaths:
    """Return the tool chains' paths in a home folder, and in folders named by variables."""
    chains = [chain for name, chain in TOOL_CHAINS.items() if name not in hidden]
    roots = tuple(_iterate_relocated(home, environ))
    return ToolChainPaths(
        reads=_expand_names((p for chain in chains for p in chain.reads), home, roots),
        caches=_expand_names((p for chain in chains for p in chain.caches), home, roots),
        settings=_expand_names((p for chain in chains for p in chain.settings), home, roots),
        withheld=_expand_names((p for c in TOOL_CHAINS.values() for p in c.withheld), home, roots),
    )


def _iterate_relocated(home: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield tool chain folders with their relocated places; never one that contains the home."""
    for name, usual in RELOCATION_VARIABLES.items():
        for place in environ.get(name, "").split(":"):
            if (
                isabs(place)
                and not is_inside(home, place)
                and normalize_path(place) != join(home, usual)
            ):
                yield usual, normalize_path(place)


def _expand_names(
    names: Iterable[str], home: str, roots: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """Return the absolute paths of tool chain files, below the home and relocated folders."""
    found = dict[str, None]()
    for name in names:
        found[join(home, name)] = None
        for usual, place in roots:
            if name == usual or name.startswith(f"{usual}/"):
                found[place + name[len(usual) :]] = None
    return tuple(found)
