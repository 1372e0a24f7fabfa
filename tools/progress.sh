# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: where the checkout is, how Bazel is called, and one quiet
# line of progress while a long command writes into a log.

occl_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# Bazel refuses such a path, also behind a link without, but only after packages were installed.
if [[ $occl_root == *[[:space:]]* ]]; then
    echo "$(basename "$0"): Bazel needs a path without spaces, found '$occl_root'" >&2
    exit 1
fi

# Bazel keeps its caches below the home directory; services and containers may start without HOME.
if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
    export HOME
fi

# OCCL_BAZEL_STARTUP: extra start-up options, for instance an output base of one's own when several
# people share a checkout.
occl_bazel() {
    local startup
    read -ra startup <<<"${OCCL_BAZEL_STARTUP:-}"
    # A subshell becomes Bazel, so that a signal to a background command does not miss it.
    if [ "$BASHPID" != "$$" ]; then
        cd "$occl_root" && exec bazel "${startup[@]}" "$@" </dev/null
    fi
    (cd "$occl_root" && exec bazel "${startup[@]}" "$@" </dev/null)
}

occl_say() {
    printf '%s\n' "$*" >&2
}

# occl_progress LABEL LOG COMMAND...: runs the command with all its output in LOG and returns its
# status. On a terminal one line is rewritten; elsewhere a line appears every 30 s, so that a log
# of a long run shows that it lives.
occl_progress() {
    local label=$1 log=$2 start=$SECONDS next=30 pid last status=0 traps
    shift 2
    "$@" >"$log" 2>&1 &
    pid=$!
    traps=$(trap -p INT TERM)
    # shellcheck disable=SC2064 # the pid of now
    trap "kill $pid 2>/dev/null; exit 130" INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        last=$(tail -c 4096 "$log" | tr '\r' '\n' | grep -aoE '^\[[0-9,]+ / [0-9,]+\].*' | tail -n 1)
        if [ -t 2 ]; then
            printf '\r\033[K%.110s' "$label: $((SECONDS - start)) s ${last:-}" >&2
        elif [ $((SECONDS - start)) -ge "$next" ]; then
            printf '%.110s\n' "$label: $((SECONDS - start)) s ${last:-}" >&2
            next=$((SECONDS - start + 30))
        fi
        sleep 0.3
    done
    wait "$pid" || status=$?
    trap - INT TERM
    eval "$traps" # those of the caller
    [ -t 2 ] && printf '\r\033[K' >&2
    if [ "$status" -eq 0 ]; then
        occl_say "$label: done in $((SECONDS - start)) s"
    else
        occl_say "$label: failed after $((SECONDS - start)) s"
    fi
    return "$status"
}

# Bazel never removes anything from its disk cache (.bazelrc): what was not used for longest goes,
# from 12 GiB on down to 8. A complete test run of one version uses about 6.5.
occl_trim_cache() {
    local dir=$HOME/.cache/occl-bazel
    [ -d "$dir" ] || return 0
    # Time of last use, size in KiB, name; whatever vanishes meanwhile is no error.
    find "$dir" -type f -printf '%A@\t%k\t%p\n' 2>/dev/null | sort -rn |
        awk -F'\t' -v most=$((12 << 20)) -v kept=$((8 << 20)) '
            { total += $2; if (total > kept) old[++count] = $3 }
            END { if (total > most) for (i = 1; i <= count; i++) print old[i] }' |
        xargs -d '\n' -r rm -f || true
}
