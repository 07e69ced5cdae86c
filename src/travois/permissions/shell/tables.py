"""What a rule with a wildcard may cover of programs that do more than look.

A rule such as `Bash(npm test:*)` trusts the program with the project as it is, not with another
configuration, another folder, or a program of its own. See `options.table` and `options.spec` for
the notation.
"""

from __future__ import annotations

from travois.core.display_text import listed

RULED = """
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

ALWAYS = listed(
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
RESERVED = listed(
    "if then else elif fi for while until do done case esac in select function time coproc"
    " { } ! [[ ]]"
)
"""Words of the shell's own grammar."""
HAZARDS = listed(
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
SHORT_HAZARDS = frozenset("cCeEoOxXirRpPwF")
