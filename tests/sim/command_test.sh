#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Exit status and messages of occl-sim as a command.
set -u
sim=tools/sim/occl-sim
failures=0

# expect NAME STATUS PART WORDS...: runs occl-sim with WORDS; PART must stand in its output.
expect() {
    name=$1 status=$2 part=$3
    shift 3
    output=$("$sim" "$@" 2>&1)
    found=$?
    if [ "$found" -ne "$status" ]; then
        echo "FAIL $name: status $found, expected $status: $output"
        failures=1
    elif ! printf '%s' "$output" | grep -q -- "$part"; then
        echo "FAIL $name: '$part' is not in: $output"
        failures=1
    else
        echo "PASS $name"
    fi
}

expect sim_holds 0 "all invariants held" cluster --seed 3 --seeds 5 --faults delay,reorder
expect sim_mismatch_holds 0 "all invariants held" cluster --seed 3 --nodes 1 --faults mismatch
expect sim_ordered_hangs 1 "no progress: .*(seed 1)" cluster --seed 1 --ordered
expect sim_equal_orders_complete 0 "all invariants held" cluster --seed 1 --ordered --same-order
expect sim_sessions_hold 0 "all invariants held" sessions --seed 3 --seeds 5 --faults all
expect sim_sessions_trace 0 "seed 2 ok: sessions: trace [0-9a-f]*" sessions --seed 2 --verbose
expect sim_verbose 0 "seed 2 ok: .* preemptions" cluster --seed 2 --verbose
expect sim_help 0 "usage: occl-sim cluster" --help
expect sim_no_command 2 "expected a command"
expect sim_wrong_command 2 'found "clutser"' clutser
expect sim_wrong_number 2 'found "many"' cluster --ranks many
expect sim_wrong_fault 2 'found "rain"' cluster --faults rain
exit "$failures"
