"""What is kept before a command line runs."""

from __future__ import annotations

import pytest

from travois.permissions.shell.destruction import PossibleLoss, find_possible_loss
from travois.permissions.shell.judge import plan_command


def loss(command: str) -> PossibleLoss | None:
    return find_possible_loss(plan_command(command, cwd="/w/p", home="/home/u"), cwd="/w/p")


@pytest.mark.parametrize(
    "command",
    ["ls -la", "git status", "git diff | head -5", "cat a > /dev/null", "mkdir -p x", "touch y"],
)
def test_what_only_looks_or_adds_destroys_nothing(command: str) -> None:
    assert loss(command) is None


@pytest.mark.parametrize(
    "command",
    [
        "python x.py",
        "make clean",
        "git checkout -- .",
        "git reset --hard",
        "git stash drop",
        "$X y",
    ],
)
def test_what_is_not_known_may_destroy_anything_in_the_workspace(command: str) -> None:
    assert loss(command) == PossibleLoss()


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("rm -rf node_modules", {"/w/p/node_modules"}),
        ("rm -rf ../other /tmp/x/y", {"/w/other", "/tmp/x/y"}),
        ("cd sub && rm -r x", {"/w/p/sub/x"}),
        ("(cd ../q; shred -u secret)", {"/w/q/secret"}),
        ("mv a /elsewhere/b", {"/w/p/a", "/elsewhere/b"}),
        ("cp a ~/b", {"/home/u/b"}),
        ("dd if=/dev/zero of=/data/disk.img", {"/data/disk.img"}),
        ("echo x | tee -a /var/log/mine", {"/var/log/mine"}),
        ("echo x > ../out", {"/w/out"}),
        ("sed -i s/a/b/ /etc/conf/x", {"/etc/conf/x"}),
        ("find ../build -name '*.o' -delete", {"/w/build"}),
        ("ls | xargs rm -rf ../tmp", {"/w/tmp"}),
        ("sudo rm -rf /x/y", {"/x/y"}),
        ("bash -c 'rm -rf ../z'", {"/w/z"}),
        ("rsync -a --delete a/ ../b/", {"/w/b"}),
        ("tar -xf a.tar -C ../into", {"/w/into"}),
        ("unzip -o x.zip -d ../into", {"/w/into"}),
        ("git clean -fdx", {"/w/p"}),
        ("git -C ../r clean -ffdX", {"/w/r"}),
        ("git worktree remove --force ../tree", {"/w/tree"}),
        ("git gc --prune=now", {"/w/p/.git"}),
        ("git reflog expire --expire=now --all", {"/w/p/.git"}),
        ("cargo clean", {"/w/p/target"}),
        ("npm ci", {"/w/p/node_modules"}),
        ("chmod -R 000 ../keys", {"/w/keys"}),
        ("for d in a b; do rm -r ../$d; done", {"/w/a", "/w/b"}),
    ],
)
def test_what_a_command_names_is_kept_too(command: str, paths: set[str]) -> None:
    found = loss(command)
    assert found is not None
    assert paths <= set(found.paths)
