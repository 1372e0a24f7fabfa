/* SPDX-License-Identifier: Apache-2.0 */
/* Runs (shm_ipc/record.h, enter, join_run and client_leave of client_lib/submit.c): two members submit
 * the untagged stream in order, without waiting, and complete it in any order. RUN ops share a claim,
 * and all runs of the stream the same one here: so a member that is ahead finds it busy.
 *
 * Checked: no op is taken by one member into the record and by the other into the ring; a run's ops
 * in the ring come first; the claim is freed exactly when all members have left all their ops of it;
 * every op ends on every member; the claim is free in the end.
 *
 * Negative controls (each must fail): FULL_LENGTH (a member that joins late counts the whole run),
 * ONE_BY_ONE (the daemon gives a count back at each submission), CLAIM_OVER_COUNT (a free claim is
 * taken although counts are left), LEAVE_EACH (a member leaves the claim with every op). */
#define MEMBERS 2
#define RUN 2
#define OPS 4

#define NONE 0
#define RECORD 1
#define RING 2

#define PRINT(op) ((op) / RUN + 1)
#define AT(op, member) ((op) * MEMBERS + (member))

/* The claim's word, always read and changed as one. */
byte overflow;
byte claimed; /* print of the run, 0: free */
byte left;

byte ready[OPS];
byte path[8]; /* AT */
bool gone[8]; /* AT */
byte submitted[OPS];
bool ended[OPS]; /* ring ops: told by the daemon */

inline check_freed() {
    d_step {
        n = 0;
        do
        :: n < OPS ->
            assert(PRINT(n) != claimed || path[AT(n, 0)] == RING ||
                   (gone[AT(n, 0)] && gone[AT(n, 1)]));
            n++
        :: else -> break
        od;
        n = 0
    }
}

inline submit(op) {
    atomic {
        if
#ifdef CLAIM_OVER_COUNT
        :: claimed == 0 -> claimed = PRINT(op); how = RECORD
        :: claimed != 0 && claimed != PRINT(op) -> overflow++; how = RING
#else
        :: claimed == 0 && overflow == 0 -> claimed = PRINT(op); how = RECORD
        :: claimed != PRINT(op) && (claimed != 0 || overflow != 0) -> overflow++; how = RING
#endif
        :: claimed == PRINT(op) -> how = RECORD
        fi;
        path[AT(op, me)] = how;
        assert(path[AT(op, 1 - me)] == NONE || path[AT(op, 1 - me)] == how);
        assert(op % RUN == 0 || how == RECORD || path[AT(op - 1, me)] == RING);
        /* join_run: the member's own memory */
        if
        :: how == RECORD && joined != PRINT(op) ->
            joined = PRINT(op);
#ifdef FULL_LENGTH
            remaining = RUN
#else
            remaining = RUN - op % RUN
#endif
        :: else
        fi
    }
    if
    :: how == RECORD -> ready[op]++
    :: else -> submitted[op]++
    fi;
    how = NONE
}

inline leave(op) {
    atomic {
        gone[AT(op, me)] = true;
        remaining--;
#ifdef LEAVE_EACH
        how = RECORD
#else
        how = (remaining == 0 -> RECORD : NONE)
#endif
    }
    if
    :: how == RECORD ->
        atomic { left++; how = left }
        if
        :: how == MEMBERS ->
            check_freed();
            left = 0;
            claimed = 0
        :: else
        fi
    :: else
    fi;
    how = NONE
}

#define STEP(op)                                                                                   \
    :: next > op && path[AT(op, me)] == RECORD && ready[op] == MEMBERS && !gone[AT(op, me)] ->     \
        leave(op)                                                                                  \
    :: next > op && path[AT(op, me)] == RING && ended[op] && !gone[AT(op, me)] ->                  \
        gone[AT(op, me)] = true

proctype member(byte me) {
    byte next, how, joined, remaining, n;
    do
    :: next < OPS -> submit(next); next++
    STEP(0)
    STEP(1)
    STEP(2)
    STEP(3)
    :: next == OPS && gone[AT(0, me)] && gone[AT(1, me)] && gone[AT(2, me)] && gone[AT(3, me)] ->
        break
    od
}

/* Retires a ring op when all members have submitted it, and gives the counts back then. */
#ifdef ONE_BY_ONE
#define RETIRE(op)                                                                                 \
    :: submitted[op] > counted[op] -> counted[op]++; overflow--                                    \
    :: counted[op] == MEMBERS && !ended[op] -> ended[op] = true
#else
#define RETIRE(op)                                                                                 \
    :: submitted[op] == MEMBERS && !ended[op] -> ended[op] = true; overflow--; overflow--
#endif

active proctype daemon() {
    byte counted[OPS];
end:
    do
    RETIRE(0)
    RETIRE(1)
    RETIRE(2)
    RETIRE(3)
    od
}

active proctype observer() {
    timeout;
    assert(claimed == 0 && overflow == 0);
    assert(gone[0] && gone[1] && gone[2] && gone[3] && gone[4] && gone[5] && gone[6] && gone[7])
}

init {
    atomic {
        run member(0);
        run member(1)
    }
}
