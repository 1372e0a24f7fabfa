/* SPDX-License-Identifier: Apache-2.0 */
/* A lane that executes strands of a record it was told of some time ago (occl_record_lane_enter):
 * the op may be over and the record may serve another one. Two members run two LOCAL ops in the same
 * record, one of them may abort; the lane tries both ops at any moment, a strand each time.
 *
 * Checked: each strand runs at most once, for the op that its executor means, while the record is of
 * that op and no member has been told that the buffers are its own again; an op is DONE only with all
 * strands; a claimed record starts clean; nobody waits for ever.
 *
 * Negative controls (each must fail): NO_HOLD (the lane looks without entering), NO_CHECK (it does
 * not look whose record it is), LATE_ENTER (it enters when all members have left), WORD_FIRST (it
 * looks whose record it is before it looks at the state: the next op may come in between),
 * BUSY_LATE (it raises lanes_busy after its look at the state), NO_SETTLE (who aborts does not wait
 * for executors), RESET_AFTER (the claim is freed before the record is clean). */
#define MEMBERS 2
#define OPS 2
#define STRANDS 2
#define LANE 16 /* one lane inside, in the upper half of `left` */

#define FREE 0
#define OPEN 0
#define LOCAL 1
#define DONE 2
#define ABORTED 3

byte word; /* print of the op */
byte left;
byte state;
byte next;
byte done;
byte lanes_busy;
byte busy[MEMBERS];
byte arrived[OPS]; /* the flags: other prints in another op */

byte runs[4];       /* op * STRANDS + strand */
bool returned[OPS]; /* a member has its buffers back */

inline reset() {
#ifdef RESET_AFTER
    left = 0;
    word = FREE;
    next = 0;
    done = 0;
    state = OPEN
#else
    next = 0;
    done = 0;
    state = OPEN;
    left = 0;
    word = FREE
#endif
}

/* One strand of the op the executor means, which need not be the record's. */
inline execute(op) {
    /* The real counter goes on counting; beyond the strands it makes no difference. */
    atomic {
        strand = next;
        if
        :: next < STRANDS -> next++
        :: else
        fi
    }
    if
    :: strand >= STRANDS
    :: else ->
        atomic {
            assert(word == op + 1);
            assert(!returned[op]);
            runs[op * STRANDS + strand]++;
            assert(runs[op * STRANDS + strand] == 1)
        }
        atomic { assert(!returned[op]); done++; number = done }
        if
        :: number == STRANDS ->
            atomic {
                if
                :: state == LOCAL -> state = DONE
                :: else
                fi
            }
        :: else
        fi;
        number = 0
    fi
}

proctype member(byte me) {
    byte op, strand, number;
    for (op : 0 .. OPS - 1) {
        atomic {
            (word == FREE || word == op + 1);
            if
            :: word == FREE ->
                assert(state == OPEN && left % LANE == 0 && next == 0 && done == 0);
                word = op + 1
            :: else
            fi
        }
        atomic { arrived[op]++; number = arrived[op] }
        if
        :: number == MEMBERS -> state = LOCAL
        :: else -> state != OPEN
        fi;
        number = 0;
        /* Member 1 executes, leaves the work to others, or ends the op. */
        if
        :: true ->
            busy[me]++;
            strand = 0;
            do
            :: state == LOCAL && strand < STRANDS -> execute(op)
            :: else -> break
            od;
            strand = 0;
            busy[me]--
        :: me == 1
        :: me == 1 ->
            atomic {
                if
                :: state == LOCAL -> state = ABORTED
                :: else
                fi
            }
        fi;
        state != LOCAL;
        if
        :: state == ABORTED ->
#ifndef NO_SETTLE
            lanes_busy == 0;
            busy[1 - me] == 0;
#endif
            returned[op] = true
        :: else -> assert(state == DONE && runs[op * STRANDS] == 1 && runs[op * STRANDS + 1] == 1)
        fi;
        atomic { left++; number = left }
        if
        :: number == MEMBERS -> reset()
        :: else
        fi;
        number = 0
    }
}

inline lane_leave() {
#ifndef NO_HOLD
    atomic { left = left - LANE; number = left }
    if
    :: number == MEMBERS -> reset()
    :: else
    fi;
#endif
    number = 0
}

#if defined(NO_CHECK)
#define MEANT(op) (state == LOCAL)
#else
#define MEANT(op) (word == op + 1)
#endif

proctype lane() {
    byte told, strand, number;
    bool inside, found;
end:
    do
    :: told < OPS ->
#ifdef NO_HOLD
        inside = true;
#else
        atomic {
            if
#ifdef LATE_ENTER
            :: true -> left = left + LANE; inside = true
#else
            :: left % LANE < MEMBERS -> left = left + LANE; inside = true
            :: else -> inside = false
#endif
            fi
        }
#endif
        if
        :: inside ->
#ifndef BUSY_LATE
            lanes_busy++;
#endif
#ifdef WORD_FIRST
            found = MEANT(told);
            found = found && state == LOCAL;
#else
            found = (state == LOCAL);
            found = found && MEANT(told);
#endif
#ifdef BUSY_LATE
            lanes_busy++;
#endif
            if
            :: found -> execute(told)
            :: else
            fi;
            lanes_busy--;
            lane_leave();
            strand = 0;
            found = false;
            inside = false
        :: else
        fi
    :: told < OPS -> told++ /* it hears of the next op, and of no more */
    od
}

init {
    atomic {
        run lane();
        run member(0);
        run member(1)
    }
}
