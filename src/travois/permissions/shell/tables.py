"""Programs that only look, or change only what they name, with the options that keep it so.

See `options.table` and `options.spec` for the notation.
"""

from __future__ import annotations

from travois.core.display_text import split_names

READ_ONLY_PROGRAMS = """
ls: -aAbBcCdDfFgGhHiklLmnNopqQrRsStTuUvxXZ1 -I_ -w_ --all --almost-all --author --color?
    --full-time --group-directories-first --human-readable --inode --recursive --reverse --size
    --sort= --time= --time-style= --classify? --directory --si --no-group --format= --width=
    --hide= --ignore= --indicator-style= --numeric-uid-gid --quote-name --block-size= --literal
    --file-type --escape --dereference --zero --kibibytes ; file* tame cwd
cat: -AbeEnstTuv --number --show-all --show-ends --show-tabs --squeeze-blank --number-nonblank
    --show-nonprinting ; file* tame
head, tail: -qvz -n_ -c_ --lines= --bytes= --quiet --silent --verbose ; file* tame number
nl: -p -b_ -d_ -f_ -h_ -i_ -l_ -n_ -s_ -v_ -w_ ; file* tame
wc: -clmLw --lines --words --chars --bytes --max-line-length --total= ; file* tame
sort: -bdfgiMhnRrVcCmsuz -k_ -t_ -S_ --key= --field-separator= --numeric-sort --reverse --unique
    --human-numeric-sort --version-sort --ignore-case --stable --check? --sort=
    --general-numeric-sort --month-sort --ignore-leading-blanks --zero-terminated ; file*
uniq: -cdDiuz -f_ -s_ -w_ --count --repeated --unique --ignore-case --skip-fields= --skip-chars=
    --all-repeated? --group? --check-chars= ; file
cut: -nsz -b_ -c_ -d_ -f_ --bytes= --characters= --delimiter= --fields= --complement
    --only-delimited --output-delimiter= ; file* tame
tr: -cCdst --complement --delete --squeeze-repeats --truncate-set1 ; text* tame
join: -iz -a_ -e_ -j_ -o_ -t_ -v_ -1_ -2_ --header --ignore-case ; file* tame
paste: -sz -d_ --delimiters= --serial ; file* tame
comm: -123z --check-order --nocheck-order --total --output-delimiter= ; file* tame
expand: -i -t_ --tabs= --initial ; file* tame
unexpand: -a -t_ --tabs= --all --first-only ; file* tame
fold: -bs -w_ --width= --spaces --bytes ; file* tame number
fmt: -cstu -w_ -p_ -g_ --width= ; file* tame number
column: -txeJ -c_ -s_ -o_ -N_ -R_ -n_ --table --separator= --output-separator= ; file* tame
rev: ; file* tame
tac: -br -s_ --separator= ; file* tame
seq: -w -f_ -s_ --equal-width --format= --separator= ; text* tame number
expr, true, false, :, echo: ; text* tame words
factor, sleep, groups: ; text* tame
numfmt: -d_ --to= --from= --field= --suffix= --format= --padding= --delimiter= ; text* tame
diff: -abBcdeEHinNpqrRstTuwWyZ -U_ -C_ -I_ -x_ -W_ -L_ --brief --unified? --context? --recursive
    --new-file --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-case --text
    --side-by-side --width= --color? --exclude= --label= --suppress-common-lines
    --strip-trailing-cr --report-identical-files --minimal --no-dereference ; file* tame number
    deep
cmp: -bls -i_ -n_ --print-bytes --verbose --silent --quiet --bytes= ; file* tame
diff3: -aeEmTxX3A ; file* tame
md5sum, sha1sum, sha224sum, sha256sum, sha384sum, sha512sum, b2sum: -bcstwz --binary --check --tag
    --text --zero --status --quiet --strict --warn ; file* tame
shasum: -bct -a_ --algorithm= ; file* tame
md5: -qr ; file* tame
cksum: -a_ --algorithm= --untagged ; file* tame
sum: -rs ; file* tame
file: -bhiLkNrsSv0 -F_ -e_ --brief --mime --mime-type --mime-encoding --dereference
    --no-dereference --keep-going ; file*
realpath: -emLPqsz --canonicalize-existing --canonicalize-missing --strip --no-symlinks
    --relative-to= --relative-base= ; file* tame
readlink: -efmnqsvz --canonicalize --canonicalize-existing --no-newline ; file* tame
dirname: -z --zero ; text* tame
basename: -az -s_ --multiple --suffix= --zero ; text* tame
base64: -dDi -w_ --decode --wrap= --ignore-garbage ; file
base32: -di -w_ --decode --wrap= ; file
od: -abcdfhiloOsvxXeDFHIL -A_ -j_ -N_ -t_ -w_ -S_ --address-radix= --format= --skip-bytes=
    --read-bytes= ; file* tame
hexdump: -bcCdovx -n_ -s_ -e_ ; file* tame
xxd: -abCeEipuU -c_ -g_ -l_ -o_ -s_ ; file
strings: -afw -n_ -t_ -e_ --bytes= --radix= --all ; file* number response
stat: -fLtx -c_ --format= --printf= --terse --dereference --file-system ; file* tame
du: -abchHkLlmsSx0 -d_ -B_ -t_ --max-depth= --summarize --human-readable --all --apparent-size
    --exclude= --total --block-size= --threshold= --time? --one-file-system --si ; file* tame cwd
df: -aBhHiklPTv -t_ -x_ --human-readable --total --type= --output? --inodes --print-type
    --portability --local ; text* tame
tree: -adfFhiJlNpqrstuvxCDAQSgncU -L_ -I_ -P_ --dirsfirst --filesfirst --noreport --prune
    --gitignore --du --si --charset= --filelimit= --matchdirs --ignore-case --sort? --inodes ;
    file* cwd
grep: -acEFGhHiIlLnoPqrRsUvVwxyzbTu -A_ -B_ -C_ -m_ -e_ -f< -d_ -D_ --after-context=
    --before-context= --context= --color? --colour? --count --exclude= --exclude-dir= --include=
    --extended-regexp --fixed-strings --basic-regexp --perl-regexp --files-with-matches
    --files-without-match --ignore-case --invert-match --line-number --line-regexp --max-count=
    --no-filename --with-filename --only-matching --quiet --silent --recursive --regexp= --file<
    --dereference-recursive --word-regexp --no-messages --null --byte-offset --binary-files=
    --text --line-buffered --label= --no-ignore-case --initial-tab --null-data ; text file* tame
    pattern number deep
rg: -abcFHiIlLnNopPqsSuUvwx0. -A_ -B_ -C_ -d_ -e_ -E_ -f< -g_ -j_ -m_ -M_ -r_ -t_ -T_
    --after-context= --before-context= --context= --color= --colors= --column --count
    --count-matches --files --files-with-matches --files-without-match --fixed-strings --glob=
    --iglob= --heading --no-heading --hidden --ignore-case --invert-match --json --line-number
    --line-regexp --max-columns= --max-count= --max-depth= --max-filesize= --multiline
    --multiline-dotall --no-filename --no-ignore --no-ignore-vcs --no-line-number --no-messages
    --null --only-matching --passthru --pcre2 --pretty --quiet --regexp= --replace= --smart-case
    --case-sensitive --sort= --sortr= --stats --text --threads= --trim --type= --type-not=
    --type-list --unrestricted --vimgrep --with-filename --word-regexp --version --no-config
    --file< --path-separator= --encoding= --engine= --crlf --follow --depth= --no-ignore-parent ;
    text file* pattern deep cwd
fd: -aHIsiFgplLd0u1q -e_ -t_ -d_ -E_ -S_ -c_ -j_ --hidden --no-ignore --extension= --type=
    --max-depth= --min-depth= --exclude= --absolute-path --glob --full-path --size= --color=
    --case-sensitive --ignore-case --fixed-strings --changed-within= --changed-before=
    --max-results= --print0 --list-details --unrestricted --quiet --version ; text file* pattern
    cwd
pwd: -LP ; tame
date: -uIR -d_ --utc --universal --date= --iso-8601? --rfc-3339= --rfc-email -r< --reference< ;
    plus
cal: -13jmsy ; text* tame
id: -acgGnruzZ --user --group --groups --name --real ; text* tame
whoami, logname, users, arch, times: ; tame
who: -abdHlmpqrstTu ; tame
w: -hsfio ; text* tame
tty: -s ; tame
hostname: -sI --short --all-ip-addresses ;
uname: -asnrvmpio --all --kernel-name --machine ; tame
nproc: --all --ignore= ; tame
uptime: -ps --pretty --since ; tame
free: -bkmghtwv -c_ -s_ --human --mega --giga --total --wide ; tame
lscpu: -aceJpxy ; tame
lsblk: -abdfilmnoprstJPT ; text* tame
vmstat: -ansdwt ; text* tame
ps: -AaedfFjlLmMTuxwHNycr -o_ -p_ -u_ -U_ -C_ -t_ -G_ -g_ -s_ -O_ --sort= --no-headers --forest
    --pid= --ppid= --user= --format= --headers --cols= --width= ; text* tame
pgrep: -acfilnovwx -u_ -U_ -P_ -g_ -G_ -t_ -d_ --full --list-name --newest ; text* tame
pidof: -csqx -o_ ; text* tame
pstree: -acghlnpsStTuUZA ; text* tame
lsof: -nPtlRUvVbCFHNOwX -i_ -p_ -u_ -c_ -a -s_ -g_ -d_ ; file* local
ss: -natulpeimosxdwhHZ46bEOQ -f_ -A_ --tcp --udp --listening --numeric --processes --all
    --summary --extended --unix --no-header --options --memory --info ; text* local
netstat: -naltupersiogvWM46cx --tcp --udp --listening --numeric --all --programs ;
which: -as --all ; text* tame
whereis: -bmsu ; text* tame
type: -aftpP ; text* tame
locale: -akcm --all-locales --charmaps ; text* tame
getconf: -a ; text*
printenv: -0 --null ; text* tame
ulimit: -aHS -c_ -n_ -u_ -v_ -s_ -f_ -l_ -m_ -t_ ;
umask: -Sp ;
history: ; number-text
help: -dms ; text* tame
jobs: -lnprs ; tame
dirs: -lpv ;
crontab: -l ; asked
man: -wWkf ; file*
apropos: -aeilsw ; text*
whatis: -rw ; text*
iconv: -clst -f_ -t_ --from-code= --to-code= --list ; file*
tokei: -fC -e_ -t_ -s_ -o_ --files --hidden --sort= --type= --output= ; file* cwd
exit, return, break, continue: ; text*
node, npm, pip, pip3, ruby, php, gcc, g++, cc, c++, clang, clang++, cmake, ninja, docker, bash,
    zsh, dash, fish, curl, wget, tar, zip, sqlite3, make, gawk, gh, lua, swift, ffmpeg,
    rsync, vim, nvim, emacs, tmux, less, nano: --version ; asked
python, python3: -V --version ; asked
java, javac: -version= --version ; asked
perl: -v ; asked
ssh: -V ; asked
ffprobe: -version= ; asked
"""
"""Read-only programs, and the arguments that keep them so."""

EDITING_PROGRAMS = """
mkdir: -pv -m_ --parents --verbose --mode= ; write*
touch: -acm -d_ -t_ -r< --date= --no-create --reference< ; write*
rmdir: -pv --parents --verbose --ignore-fail-on-non-empty ; write*
rm: -dfiIrRv --force --recursive --verbose --dir --one-file-system ; write*
mv: -finvuT --force --no-clobber --verbose --update? --no-target-directory ; write*
cp: -finpvuT --force --no-clobber --verbose --preserve? --update? --no-target-directory ; file*
tee: -ai --append --ignore-interrupts ; write*
truncate: -co -s_ --size= --no-create ; write*
"""
"""Programs that change exactly the files they name, and what they may be given."""


# Subcommands of git that only look, with the options that keep it so.


GIT_DIFF_OPTIONS = """
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
GIT_REVISION_OPTIONS = """
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

GIT_READ_ONLY = """
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

GIT_PARTLY_READ_ONLY = """
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
"""Subcommands that are read-only in some forms; `special.git` decides which."""

GIT_LISTING_WORDS = {
    "remote": ("", "get-url"),
    "notes": ("", "list", "show"),
    "stash": ("list",),
    "worktree": ("list",),
    "submodule": ("", "status", "summary"),
    "bisect": ("log",),
    "sparse-checkout": ("list",),
    "lfs": ("ls-files", "status", "env"),
}
"""The first words that keep a subcommand read-only."""

GIT_HISTORY_MOVES = """
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


# What a rule with a wildcard may cover of programs that do more than look.


RULE_COVERED_PROGRAMS = """
pytest, python -m pytest, python3 -m pytest: -qvsxlhV -r_ -k_ -m_ -n_ -W_ --quiet --verbose
    --exitfirst --maxfail= --tb= --durations= --durations-min= --lf --last-failed --ff
    --failed-first --nf --sw --stepwise --co --collect-only --no-header --no-summary --color=
    --capture= --showlocals --runxfail --strict-markers --strict-config --numprocesses= --timeout=
    --reruns= --cov? --cov-report~ --no-cov --disable-warnings --deselect= --ignore<
    --ignore-glob= --setup-show --fixtures --markers --version --help --asyncio-mode=
    --import-mode= --benchmark-skip --benchmark-only --dist= --forked --snapshot-update
    --hypothesis-show-statistics --hypothesis-seed= --random-order --random-order-seed=
    --cov-branch --cov-fail-under= --cov-append ; file*
npm test, npm t, npm run, npm run-script, npm start, pnpm test, pnpm run, yarn test, yarn run:
    -sdq --silent --quiet --verbose --if-present --no-color --color? --loglevel= --workspaces --ws
    --foreground-scripts --ignore-scripts --no-audit --no-fund --offline --prefer-offline
    --parallel --sequential --stream --bail --no-bail --aggregate-output --recursive ; text*
    passes
npm ci: --ignore-scripts --no-audit --no-fund --omit= --include= --prefer-offline --offline ;
npm install: -DEPOS --save-dev --save --save-exact --no-save --no-audit --no-fund
    --legacy-peer-deps ; text*
npm ls: -al --all --long --json --parseable --depth= --omit= ; text*
bun test: -t_ --test-name-pattern= --bail? --timeout= --coverage --only --todo ; file*
make: -BksSwnqt -j_ -l_ --jobs? --keep-going --silent --quiet --always-make --dry-run
    --no-print-directory --print-directory --output-sync? --question ; targets
cargo test, cargo build, cargo check, cargo clippy, cargo run, cargo bench: -qvr -p_ -j_ -F_
    --quiet --verbose --release --lib --bins --bin= --tests --test= --examples --example=
    --benches --all --all-targets --all-features --no-default-features --features= --package=
    --workspace --exclude= --jobs= --no-run --no-fail-fast --locked --offline --frozen
    --message-format= --color= --doc --keep-going --timings --profile= --check ; text* passes
cargo fmt: --check --all -v -q --quiet --verbose -p_ --package= ; text* passes
go test, go build: -v= -race= -short= -cover= -count= -run= -timeout= -bench= -benchmem= -tags=
    -json= -failfast= -parallel= -cpu= -list= -x= -n= -p= -trimpath= -skip= -shuffle= -fullpath=
    -covermode= -vet= ; file*
go vet: -v= -n= -x= -json= -tags= ; file*
go fmt: -n= -x= ; file*
eslint: --ext= --quiet --max-warnings= --no-color --color --format~ -f~ --cache --no-cache --debug
    --version --ignore-pattern= --no-ignore --report-unused-disable-directives --stats ; file*
prettier: -cl --check --list-different --no-color --loglevel= --log-level= --ignore-unknown -u
    --no-error-on-unmatched-pattern --cache --no-cache ; file*
ruff check: -qvsn --quiet --verbose --silent --no-cache --select= --ignore= --extend-select=
    --statistics --output-format= --show-fixes --diff --no-fix --exit-zero --preview
    --target-version= --show-files ; file*
ruff format: --check --diff -qv --quiet --verbose --preview --no-cache ; file*
mypy: -v --strict --ignore-missing-imports --show-error-codes --no-error-summary --pretty
    --no-incremental --no-color-output --follow-imports= --show-column-numbers -p_ -m_ --package=
    --module= --warn-unused-ignores --check-untyped-defs --disallow-untyped-defs --python-version=
    --namespace-packages --explicit-package-bases --exclude= --verbose ; file*
tsc: --noEmit --pretty --strict --skipLibCheck --listFiles --version -v --incremental --showConfig
    --explainFiles --target= --module= --moduleResolution= --lib= --jsx= ;
docker ps: -aqnls --all --quiet --no-trunc --size --latest --last= --filter= -f_ --format= ;
docker images: -aq --all --quiet --no-trunc --digests --filter= -f_ --format= ; text*
docker logs: -ft -n_ --follow --tail= --since= --until= --timestamps --details ; text*
kubectl get: -Aw -n_ -o~ -l_ -L_ --namespace= --all-namespaces --output~ --selector= --watch
    --show-labels --sort-by= --field-selector= --no-headers --ignore-not-found --show-kind ; text*
kubectl describe: -A -n_ -l_ --namespace= --all-namespaces --selector= --show-events? ; text*
gh pr: -c -R_ -s_ -L_ -q_ -l_ -A_ -S_ -B_ -H_ --comments --json= --jq= --repo= --state= --limit=
    --label= --author= --search= --base= --head= --name-only --patch -t_ -b_ --title= --body=
    --draft --fill --assignee= --reviewer= --milestone= --squash --rebase --merge ; text*
gh issue: -c -R_ -s_ -L_ -q_ -l_ -A_ -S_ --comments --json= --jq= --repo= --state= --limit=
    --label= --author= --search= -t_ -b_ --title= --body= --assignee= --milestone= ; text*
gh run: -R_ -L_ -q_ -w_ -j_ -b_ -s_ --log --log-failed --json= --jq= --repo= --limit= --job=
    --workflow= --branch= --status= --verbose --exit-status ; text*
terraform plan: -no-color= -input= -lock= -refresh= -target= -detailed-exitcode=
    -compact-warnings= ;
terraform validate: -no-color= -json= ;
terraform fmt: -check= -diff= -recursive= ; file*
tar: -cxtvzjJpOh -f< --list --create --extract --verbose --gzip --bzip2 --xz --file< --exclude=
    --strip-components= --no-same-owner -C< --directory< ; file* dashed archive
zip: -rqvjluxD0123456789 --exclude= --recurse-paths --quiet ; file*
unzip: -lvtzpqZ ; file*
cpio: -itvdm ;
git commit: -aqvsne -m_ --message= --all --amend --no-edit --quiet --verbose --signoff --no-verify
    --allow-empty --allow-empty-message --author= --date= --dry-run --short --fixup= --squash= -F<
    --file< --only -o --include -i --no-signoff --reset-author --trailer= --status --no-status
    --cleanup= --porcelain -p --patch --untracked-files? ; text*
git add: -AuvnfpNi --all --update --verbose --dry-run --force --patch --intent-to-add
    --ignore-errors --no-all --refresh --chmod= --renormalize ; text*
git push: -uvqfnd --set-upstream --verbose --quiet --force --force-with-lease? --dry-run --tags
    --follow-tags --delete --all --no-verify --atomic --porcelain --progress ; text* remote
git pull: -qvr --quiet --verbose --rebase? --no-rebase --ff-only --ff --no-ff --no-edit
    --autostash --no-autostash --tags --no-tags --prune --all --depth= --dry-run --squash
    --no-commit ; text* remote
git fetch: -qvpatf --quiet --verbose --prune --all --tags --no-tags --depth= --dry-run --unshallow
    --force --multiple --prune-tags --deepen= --jobs= -j_ ; text* remote
git ls-remote: -htq --heads --tags --refs --quiet --exit-code --get-url --sort= --symref
    --branches ; text* remote
git clone: -qvn -b_ -o_ -j_ --quiet --verbose --branch= --depth= --single-branch --no-tags --bare
    --mirror --no-checkout --origin= --filter= --shallow-since= --sparse --progress
    --no-single-branch --jobs= ; text* remote
git checkout: -qfbBtdm --quiet --force --track? --detach --merge --ours --theirs --orphan
    --no-track --progress --no-progress -p --patch --guess --no-guess ; text*
git switch: -qfcCdmt --quiet --force --create= --force-create= --detach --merge --track?
    --no-track --orphan= --discard-changes --guess --no-guess ; text*
git restore: -qSWp -s_ --quiet --staged --worktree --source= --ours --theirs --merge --patch ;
    text*
git reset: -qNp --quiet --soft --mixed --hard --merge --keep --patch --no-refresh ; text*
git stash: -aukqpS -m_ --all --include-untracked --keep-index --no-keep-index --quiet --message=
    --patch --staged --index --stat ; text*
git merge: -qvn -m_ --quiet --verbose --no-edit --edit --ff --no-ff --ff-only --squash --no-squash
    --commit --no-commit --message= --abort --continue --quit --stat --no-stat --signoff
    --no-verify --autostash --no-autostash --allow-unrelated-histories ; text*
git rebase: -qvifn --quiet --verbose --interactive --onto= --continue --abort --skip --quit
    --autosquash --no-autosquash --autostash --no-autostash --root --keep-base --rebase-merges?
    --fork-point --no-fork-point --no-verify --stat --no-stat --reapply-cherry-picks ; text*
git cherry-pick: -ensx -m_ --edit --no-commit --signoff --continue --abort --skip --quit
    --mainline= --ff --allow-empty --keep-redundant-commits ; text*
git revert: -ens -m_ --edit --no-edit --no-commit --signoff --continue --abort --skip --quit
    --mainline= ; text*
git rm: -rfnq --force --dry-run --cached --quiet --ignore-unmatch ; text*
git mv: -fknv --force --dry-run --verbose ; text*
git branch: -arvlqidDmMcCft -u_ --all --list --delete --move --copy --force --track? --no-track
    --set-upstream-to= --unset-upstream --show-current --merged? --no-merged? --contains= --sort=
    --format= --verbose --remotes ; text*
git tag: -adfl -m_ -n? --annotate --delete --force --list --message= --sort= --format= --contains=
    --points-at= --merged? ; text*
git worktree: -bBfqdv --force --detach --quiet --lock --porcelain --verbose --no-checkout ; file*
git init: -q -b_ --quiet --bare --initial-branch= ; file*
git clean: -dfnqxX -e_ --force --dry-run --quiet --exclude= ; file*
curl: -sSLIfivkGgq -X_ -H_ -A_ -m_ -w_ -r_ -u_ --silent --show-error --location --head --fail
    --include --verbose --request= --header= --user-agent= --max-time= --connect-timeout=
    --compressed --retry= --http1.1 --http2 --get --fail-with-body --no-progress-meter --globoff ;
    text* values
pip install: -qvU -e< -r< --quiet --verbose --upgrade --no-deps --user --dry-run --requirement<
    --no-cache-dir --pre ; text*
pip list: --outdated --format= --not-required --user -o ;
pip show: -f --files ; text*
cp: -rRaLPdfinpvuT --recursive --archive --force --no-clobber --verbose --update? ; write* edits
scp: -rpqvC346 -P_ -i< ; text*
ssh: -4679AaCnqTtvXx -p_ -l_ ; text* runs
rsync: -avzrtnhPplogDuxHAXicq --archive --verbose --compress --recursive --dry-run
    --human-readable --progress --partial --exclude= --include= --stats --checksum --update ;
    text*
ip: -46dfhjoprs --brief --json --color? --details --statistics ; ip
less: -FRXSNnMmiIEerqQsWw --no-init --quit-if-one-screen --RAW-CONTROL-CHARS --chop-long-lines ;
    file*
more: -dflpcsu ; file*
chmod: -vcfR --verbose --changes --silent --recursive ; text file*
ln: -sfnvr --symbolic --force --verbose --relative --no-dereference ; file*
"""
"""By the first words of the call."""

EXACT_RULE_PROGRAMS = split_names(
    """
    . alias at batch bind busybox chroot chrt compgen complete coproc csplit dd declare doas ed
    emacs enable eval ex exec expect export fc flock function gdb getopts hash ionice kill killall
    let local ltrace mapfile nano nc ncat noglob nsenter numactl nvim open parallel pkexec pkill
    popd pushd readarray readonly repeat rlwrap runuser script set setsid shopt shred socat source
    split strace su sudo suspend systemd-run taskset telnet toybox trap typeset unalias unbuffer
    unshare vi view vim wait watch xdg-open zmodload
    """
)
"""Programs that run or write whatever their words say: a rule must name the whole call."""
SHELL_KEYWORDS = split_names(
    "if then else elif fi for while until do done case esac in select function time coproc"
    " { } ! [[ ]]"
)
"""Words of the shell's own grammar."""
HAZARDOUS_OPTIONS = split_names(
    """
    config configfile config-file rcfile rc-file settings plugin plugins plugin-dir require import
    loader preload rulesdir resolve-plugins-relative-to rootdir root root-dir prefix directory dir
    chdir cwd workdir project project-dir manifest-path file makefile exec eval execute execdir
    command cmd script script-shell shell run run-script hook init-file interpreter rsh pager
    editor browser web open output out outfile out-file outdir out-dir output-dir output-file
    log-file logfile write fix fix-dangerously in-place inplace overwrite save-to delete remove
    purge host remote kubeconfig registry proxy userconfig globalconfig node-options node-arg
    node-args wrapper toolexec vettool compiler linker rustc config-env load load-plugin
    extension-dir classpath cp agentlib javaagent agentpath path env env-file expose inspect
    upload-pack receive-pack template separate-git-dir checkpoint-action to-command
    use-compress-program rsync-path proxycommand identity-file post-process filter-program
    workspace include-path library-path gpg-program server url base-url endpoint-url token
    """
)
"""Options of any program that name another configuration, folder, program or target."""
HAZARDOUS_SHORT_OPTIONS = frozenset("cCeEoOxXirRpPwF")
