"""Subcommands of git that only look, with the options that keep it so.

See `options.table` and `options.spec` for the notation.
"""

from __future__ import annotations

DIFF = """
-pubwWaRszDq -U_ -S_ -G_ -l_ -B? -M? -C? --patch --stat? --shortstat --numstat --name-only
--name-status --summary --raw --no-patch --unified= --color? --no-color --word-diff?
--word-diff-regex= --check --full-index --binary --abbrev? --find-renames? --find-copies?
--no-renames --diff-filter= --ignore-all-space --ignore-space-change --ignore-blank-lines
--ignore-space-at-eol --no-ext-diff --no-textconv --exit-code --quiet --cached --staged
--merge-base --relative? --minimal --patience --histogram --diff-algorithm= --function-context
--submodule? --compact-summary --dirstat? --color-moved? --no-prefix --src-prefix= --dst-prefix=
--output-indicator-new= --output-indicator-old= --output-indicator-context= --inter-hunk-context=
--pickaxe-regex --pickaxe-all --text --line-prefix= --no-indent-heuristic --indent-heuristic
--default-prefix --ours --theirs --base
"""
REVISIONS = """
-n_ -L_ -igFEP --max-count= --skip= --since= --after= --until= --before= --author= --committer=
--grep= --all-match --invert-grep --regexp-ignore-case --fixed-strings --extended-regexp --merges
--no-merges --first-parent --all --branches? --tags? --remotes? --glob= --exclude= --reflog
--reverse --topo-order --date-order --author-date-order --parents --children --left-right --cherry
--cherry-pick --cherry-mark --left-only --right-only --boundary --oneline --pretty? --format=
--abbrev-commit --no-abbrev-commit --date= --graph --decorate? --no-decorate --decorate-refs=
--follow --full-history --simplify-by-decoration --ancestry-path --source --show-notes? --no-notes
--notes? --encoding= --count --objects --no-walk? --relative-date --log-size --min-parents=
--max-parents= --no-expand-tabs --mailmap --use-mailmap --dense --sparse --simplify-merges
--show-pulls --full-diff --cc -cm --remove-empty --walk-reflogs
"""

GIT_LOOKS = """
status: -sbvz --short --branch --porcelain? --long --verbose --untracked-files? --ignored?
    --show-stash --column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames -u?
    --null --ignore-submodules? --find-renames? ; text*
diff: @diff ; text* number
log, show, whatchanged, reflog: @diff @revisions ; text* number
shortlog: @revisions -snec --summary --numbered --email --group= ; text* number
rev-list: @revisions --disk-usage? --header --timestamp --use-bitmap-index ; text* number
rev-parse: -q --abbrev-ref? --verify --short? --show-toplevel --show-prefix --show-cdup --git-dir
    --absolute-git-dir --git-common-dir --is-inside-work-tree --is-bare-repository
    --is-inside-git-dir --symbolic-full-name --symbolic --all --branches? --tags? --remotes?
    --quiet --revs-only --no-revs --flags --no-flags --show-superproject-working-tree
    --is-shallow-repository --show-object-format? --path-format= --git-path= ; text*
blame: -bcCeflMnpstw -L_ -S< --line-porcelain --porcelain --incremental --show-name --show-number
    --show-email --date= --root --since= --reverse --first-parent --abbrev= --ignore-rev=
    --color-lines --color-by-age ; text*
annotate: -flnsw -L_ ; text*
ls-files: -cdmoiskutvz -x_ --cached --deleted --modified --others --ignored --stage --unmerged
    --exclude= --exclude-standard --full-name --error-unmatch --abbrev? --eol --directory
    --no-empty-directory --deduplicate --recurse-submodules --format= ; text*
ls-tree: -drtlz --long --name-only --name-status --full-name --full-tree --abbrev? --format=
    --object-only ; text*
grep: -aIiwvEFGPnlLcqhHopWz -e_ -A_ -B_ -C_ -m_ --cached --untracked --text --ignore-case
    --word-regexp --invert-match --line-number --count --name-only --files-with-matches
    --files-without-match --heading --break --show-function --and --or --not --all-match --quiet
    --column --fixed-strings --extended-regexp --perl-regexp --only-matching --color? --no-color
    --max-depth= --full-name --after-context= --before-context= --context= --recurse-submodules
    --no-recurse-submodules --max-count= --threads= --null ; text* number
cat-file: -tspe --batch-check? --batch? --batch-all-objects --unordered --buffer
    --allow-unknown-type ; text*
describe: --tags --all --long --always --dirty? --broken? --abbrev= --match= --exclude=
    --exact-match --contains --first-parent --candidates= --debug ; text*
name-rev: --tags --refs= --exclude= --all --name-only --always ; text*
merge-base: -a --all --is-ancestor --octopus --independent --fork-point ; text*
for-each-ref: --count= --sort= --format= --contains? --merged? --no-merged? --points-at=
    --no-contains? --ignore-case --color? --exclude= ; text*
show-ref: -dqs --head --heads --tags --branches --verify --hash? --abbrev? --dereference ; text*
show-branch: -ar --all --remotes --topo-order --date-order --current --list --sha1-name --no-name
    --color? --more= ; text*
count-objects: -vH --verbose --human-readable ;
diff-tree: -rtm --root --cc --no-commit-id --pretty? --stdin @diff ; text*
diff-index: -m @diff ; text*
diff-files: -q @diff ; text*
range-diff: --no-dual-color --creation-factor= --left-only --right-only @diff ; text*
cherry: -v --abbrev? ; text*
check-ignore: -qvnz --verbose --quiet --no-index --non-matching ; text*
check-attr: -az --all --cached ; text*
var: -l ; text
version: --build-options ;
hash-object: --no-filters -t_ ; file*
"""
"""Each subcommand and what it may be given; `@diff` and `@revisions` stand for the above."""

GIT_LISTS = """
branch: -arvlqi --all --remotes --verbose --list --show-current --contains= --no-contains=
    --merged? --no-merged? --points-at= --sort= --format= --column? --no-column --color?
    --no-color --abbrev? --no-abbrev --ignore-case ; text*
tag: -lni --list --contains= --no-contains= --merged? --no-merged? --points-at= --sort= --format=
    --column? --color? --ignore-case ; text* number
remote: -v --verbose --push --all ; text*
config: -lz --list --get --get-all --get-regexp --show-origin --show-scope --name-only --null
    --local --global --system --worktree --get-urlmatch --includes --type= --bool --int --default=
    ; text*
notes, stash, bisect, sparse-checkout, lfs: ; text*
worktree: --porcelain -vz ; text*
submodule: --recursive --cached --quiet ; text*
symbolic-ref: -q --short --quiet ; text
"""
"""Subcommands that look only in some of their forms; `gitline` says which."""

LISTING_WORDS = {
    "remote": ("", "get-url"),
    "notes": ("", "list", "show"),
    "stash": ("list",),
    "worktree": ("list",),
    "submodule": ("", "status", "summary"),
    "bisect": ("log",),
    "sparse-checkout": ("list",),
    "lfs": ("ls-files", "status", "env"),
}
"""What must be the first word for a subcommand to look only."""

GIT_MOVES = """
checkout, switch: -bBqfmtdcC --quiet --force --merge --detach --track? --no-track --guess
    --no-guess --ours --theirs --orphan= --create= --force-create= --discard-changes --progress
    --no-progress --ignore-other-worktrees --conflict= ; text*
restore: -qSWm -s_ --quiet --staged --worktree --source= --ours --theirs --merge --conflict=
    --progress --no-progress --ignore-unmerged ; text*
reset: -qN --quiet --hard --soft --mixed --keep --merge --no-refresh ; text*
merge: -qvne -X_ -m_ --quiet --verbose --no-edit --edit --ff --no-ff --ff-only --squash --no-squash
    --commit --no-commit --stat --no-stat --abort --continue --quit --strategy-option= --message=
    --autostash --no-autostash --allow-unrelated-histories --log? --no-log --no-verify ; text*
rebase: -qvmf -X_ --quiet --verbose --onto= --abort --continue --skip --quit --merge --autostash
    --no-autostash --autosquash --no-autosquash --strategy-option= --keep-base --root --no-ff
    --force-rebase --update-refs --fork-point --no-fork-point --stat --no-stat ; text*
cherry-pick, revert: -xnes -m_ -X_ --no-commit --no-edit --edit --signoff --mainline= --abort
    --continue --skip --quit --ff --allow-empty --keep-redundant-commits --strategy-option= ; text*
pull: -qv -X_ --quiet --verbose --rebase? --no-rebase --ff --no-ff --ff-only --no-edit --edit
    --autostash --no-autostash --squash --no-squash --commit --no-commit --prune --tags --no-tags
    --all --strategy-option= --stat --no-stat ; text*
stash: -quak -m_ --quiet --include-untracked --all --keep-index --no-keep-index --index --message=
    --staged ; text*
worktree: -fbBdq --force --detach --quiet --track --no-track --guess-remote --no-guess-remote
    --orphan --lock --checkout --no-checkout --reason= ; text*
clone: -qvnls -b_ -o_ --quiet --verbose --no-checkout --local --no-hardlinks --shared --bare
    --mirror --branch= --origin= --depth= --single-branch --no-single-branch --no-tags --progress
    ; text*
add: -AunfvN --all --update --force --dry-run --verbose --no-all --intent-to-add ; text*
commit: -aqvns -m_ --all --quiet --message= --amend --no-edit --allow-empty --allow-empty-message
    --signoff --no-verify --verbose ; text*
"""
"""Subcommands of git whose files come out of commits, and what is run beside them, with the options
that make git start no program of the caller's choice."""
