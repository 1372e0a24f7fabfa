#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks a Promela model exhaustively, then each of its negative controls, which have to fail.
#
#   run_model.sh MODEL.pml [CONTROL...]
#
# Prints one line `PASS name: ...` or `FAIL name: ...` for the model and for each control.
set -euo pipefail

model=$(realpath "$1")
shift
name=$(basename "$model" .pml)

if ! command -v spin >/dev/null; then
    echo "FAIL $name: spin is not installed; tools/install-deps --test installs it"
    exit 1
fi

scratch=$(mktemp -d "${TEST_TMPDIR:-/tmp}/occl-model.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# explore DEFINE...: prints `errors N` of the exhaustive search; fails if it was not exhaustive.
explore() {
    local folder=$scratch/${1:-plain}
    mkdir -p "$folder"
    cd "$folder"
    spin -a ${1:+-D"$1"} "$model" >spin.log 2>&1 || {
        cat spin.log >&2
        return 1
    }
    gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
    # Its exit status tells nothing beyond the log; a log without a count of errors fails below.
    ./pan -m1000000 -w22 >pan.log 2>&1 || true
    if grep -qE 'max search depth too small|out of memory|pan: reached' pan.log; then
        cat pan.log >&2
        return 1
    fi
    grep -oE 'errors: [0-9]+' pan.log
}

failed=0
found=$(explore)
if [ "$found" = "errors: 0" ]; then
    echo "PASS $name: $(grep -oE '^ *[0-9.e+]+ states, stored' "$scratch/plain/pan.log" | xargs)"
else
    echo "FAIL $name: $found"
    cat "$scratch/plain/pan.log"
    failed=1
fi
for control in "$@"; do
    found=$(explore "$control")
    if [ "$found" = "errors: 1" ]; then
        echo "PASS $name.$control: the mistake is found"
    else
        echo "FAIL $name.$control: the mistake is not found"
        failed=1
    fi
done
exit "$failed"
