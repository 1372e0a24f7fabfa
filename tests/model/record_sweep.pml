/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever ends an op without being its member (daemon/comm_fail.c): the sweeper reads whose a claim
 * is and may then be slow; meanwhile the op ends, the claim becomes free and serves the next ops.
 * Two lines, OPS ops after each other, of which other ranks may be the members each time.
 *
 * The communicator has ENDED: any open op is a right target. Or it lives and the rank of line 0 has
 * left: AFTER its first op, then the other ops are of other ranks and go on; or BEFORE it arrived at
 * the first op, which has to be ended.
 *
 * Checked: a flag is poisoned only while the claim is of the poisoner's op; both members of an op end
 * it the same way; an op of ranks that are there completes; nobody waits for ever.
 *
 * Negative controls (each must fail): NO_CLAIM_CHECK (the poisoner does not look whose claim it is
 * after it has read the flag), CHECK_FIRST (it looks before), RETRY_POISON (a poison that failed is
 * tried with the new value), STALE_LOOK (the sweeper believes flags that it read after it had looked
 * whose claim it is). */
#define OPS 3

#define ENDED 0
#define AFTER 1
#define BEFORE 2

#define OPEN 0
#define DONE 1
#define ABORTED 2

#define READY 1
#define POISONED 2
#define FLAG(print, bits) ((print) * 4 + (bits))
#define PRINT(flag) ((flag) / 4)

byte mode;
byte claim; /* print of the op, 0: free */
byte left;
byte state;
byte flag[2];
bool gone;        /* daemon: the first rank of line 0 has left */
byte ending[OPS]; /* how the first member ended the op */

/* occl_record_look of a direct op. */
inline look(print) {
    seen[0] = flag[0];
    seen[1] = flag[1];
    atomic {
        now = state;
        if
        :: PRINT(seen[0]) != print || PRINT(seen[1]) != print -> outcome = OPEN
        :: else ->
            outcome = (seen[0] == FLAG(print, READY) && seen[1] == FLAG(print, READY) ->
                       DONE : ABORTED)
        fi
    }
}

inline poison(print) {
    i = 0;
    do
    :: i < 2 ->
#ifdef CHECK_FIRST
        if
        :: claim != print -> break
        :: else
        fi;
        value = flag[i];
#else
        value = flag[i];
#ifndef NO_CLAIM_CHECK
        if
        :: claim != print -> break
        :: else
        fi;
#endif
#endif
        do
        :: PRINT(value) == print -> break
        :: else ->
            atomic {
                if
                :: flag[i] == value ->
                    assert(claim == print);
                    flag[i] = FLAG(print, POISONED);
                    break
#ifdef RETRY_POISON
                :: else -> value = flag[i]
#else
                :: else -> break
#endif
                fi
            }
        od;
        i++
    :: else -> break
    od;
    i = 0;
    value = 0
}

/* occl_record_abort after its look. */
inline abort_op(print) {
    if
    :: outcome == DONE
    :: else ->
        atomic {
            if
            :: now == OPEN && state == OPEN -> state = ABORTED
            :: else
            fi;
            now = state
        }
        if
        :: now == ABORTED -> poison(print)
        :: else
        fi
    fi
}

proctype member(byte me) {
    byte op, i, value, outcome, now;
    byte seen[2];
    for (op : 0 .. OPS - 1) {
        if
        :: mode == BEFORE && me == 0 -> gone = true; goto stop
        :: mode == BEFORE && me == 1 && op == 1 -> goto stop
        :: else
        fi;
        atomic {
            (claim == 0 || claim == op + 1);
            claim = op + 1
        }
        atomic {
            if
            :: flag[me] != FLAG(op + 1, POISONED) -> flag[me] = FLAG(op + 1, READY)
            :: else
            fi
        }
        do
        :: true ->
            look(op + 1);
            if
            :: outcome == OPEN && now == ABORTED -> abort_op(op + 1)
            :: outcome == OPEN && now == OPEN -> (flag[1 - me] != seen[1 - me] || state != now)
            :: outcome != OPEN -> break
            fi
        od;
        atomic {
            assert(ending[op] == 0 || ending[op] == outcome);
            assert(mode != AFTER || outcome == DONE);
            ending[op] = outcome;
            outcome = OPEN;
            now = OPEN;
            seen[0] = 0;
            seen[1] = 0
        }
        atomic { left++; value = left }
        if
        :: value == 2 ->
            if
            :: state != OPEN -> state = OPEN
            :: else
            fi;
            left = 0;
            claim = 0
        :: else
        fi;
        value = 0;
        if
        :: mode == AFTER && me == 0 -> gone = true
        :: else
        fi
    }
stop:
    skip
}

/* One sweep; BEFORE: one of those that see that somebody waits. */
proctype sweeper() {
    byte print, i, value, outcome, now;
    byte seen[2];
end:
    atomic {
        claim != 0 && (mode == ENDED || gone) && (mode != BEFORE || PRINT(flag[1]) == claim);
        print = claim
    }
    look(print);
    if
    :: mode == ENDED -> abort_op(print)
    :: else ->
        /* needed_and_left: line 0 is missing, line 1 is there and names its peer, who has left. */
        if
        :: outcome == OPEN && PRINT(seen[0]) != print && seen[1] == FLAG(print, READY) &&
           (mode == BEFORE || print == 1) ->
#ifndef STALE_LOOK
            if
            :: claim != print -> goto stop
            :: else
            fi;
#endif
            look(print);
            abort_op(print)
        :: else
        fi
    fi;
stop:
    skip
}

init {
    atomic {
        select(mode : ENDED .. BEFORE);
        run sweeper();
        run member(0);
        run member(1)
    }
}
