"""Programs that only look, or change only what they name, with the options that keep it so.

See `options.table` and `options.spec` for the notation.
"""

from __future__ import annotations

LOOKS = """
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
"""What each program may be given so that it changes nothing."""

EDITS = """
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
