"""Programs by what they are for: builders and test runners, and calls that change a repository."""

from __future__ import annotations

from travois.core.display_text import listed
from travois.permissions.shell.plan import Step, git_subcommand

BUILDERS = listed(
    """
    pytest py.test tox nox make gmake ninja just task rake rspec minitest phpunit pest jest vitest
    mocha ava tap karma cypress eslint oxlint prettier stylelint xo ruff black isort flake8 pylint
    mypy pyright basedpyright pyre ty tsc vue-tsc svelte-check ctest gradle gradlew mvn mvnw sbt ant
    golangci-lint staticcheck gotestsum gofumpt goimports rubocop standardrb brakeman phpstan psalm
    php-cs-fixer pint coverage unittest doctest hypothesis webpack rollup esbuild parcel tsup turbo
    nx lerna markdownlint markdownlint-cli2 xcodebuild cabal stack lein swiftlint ktlint detekt
    scons waf bats shellspec goreleaser tsx ts-node vale commitlint yamllint ansible-lint
    """
)
"""Programs that build, test, lint or format a project, whatever they are told."""
TOOL_CHAINS: dict[str, frozenset[str]] = {
    "go": listed("test build vet fmt generate run"),
    "cargo": listed("test build check clippy run bench fmt doc nextest rustc llvm-cov"),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"),
        listed("run run-script test t start build lint format typecheck check x"),
    ),
    "mise": listed("run r tasks"),
    "dotnet": listed("test build run format publish pack"),
    "bazel": listed("test build run coverage"),
    "bazelisk": listed("test build run coverage"),
    "buck2": listed("test build run"),
    "mix": listed("test compile format credo dialyzer"),
    "swift": listed("test build run"),
    "zig": listed("test build fmt run"),
    "deno": listed("test lint fmt task check bench"),
    "dart": listed("test analyze format compile run"),
    "flutter": listed("test analyze build"),
    "meson": listed("compile test"),
    "cmake": listed("--build"),
    "biome": listed("check lint format ci"),
    "playwright": listed("test"),
    "pre-commit": listed("run"),
    "vite": listed("build"),
    "next": listed("build lint"),
    "composer": listed("test run run-script"),
    "hatch": listed("test fmt build"),
}
"""What tool chains are told to do the same, by program."""
RUNNERS = {
    **dict.fromkeys(("rtk", "npx", "bunx", "uvx", "xvfb-run"), ""),
    **dict.fromkeys(("uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi"), "run"),
    **dict.fromkeys(("pnpm", "yarn", "npm", "bundle", "mise"), "exec"),
    **dict.fromkeys(("python", "python3"), "-m"),
}
"""Programs that only start another one, with the word that stands before it."""
MAX_RUNNERS = 4
GIT_CHANGES = listed(
    """
    add am apply bisect branch checkout cherry-pick clean clone commit config fast-import fetch
    filter-branch filter-repo gc init lfs maintenance merge mv notes pack-refs prune pull push
    rebase reflog remote repack replace reset restore revert rm sparse-checkout stash submodule
    switch symbolic-ref tag update-index update-ref worktree write-tree commit-tree read-tree
    """
)
"""Subcommands of git that change a repository, wherever their options do not make them look."""


def is_builder(step: Step) -> bool:
    """Return whether a call builds, tests, lints or formats a project."""
    words = [word.text for word in step.argv]
    for _ in range(MAX_RUNNERS):
        if not words:
            return False
        name = words[0].rpartition("/")[2]
        rest = [word for word in words[1:] if not word.startswith("-") or word in ("-m", "--build")]
        if name in BUILDERS or TOOL_CHAINS.get(name, frozenset()).intersection(rest[:1]):
            return True
        lead = RUNNERS.get(name)
        if lead is None or (lead and rest[:1] != [lead]):
            return False
        words = rest[1:] if lead else rest
    return False


def changes_repository(step: Step) -> bool:
    """Return whether a call of git is known to do more than look."""
    if step.name != "git" or step.needs == "nothing":
        return False
    return git_subcommand(step) in GIT_CHANGES
