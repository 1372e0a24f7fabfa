/* SPDX-License-Identifier: Apache-2.0 */
/* A lane that executes strands of a record it was told of some time ago (occl_record_lane_enter): the
 * op may be over and the slot may serve another one. Two members run two ops in the same slot; the
 * lane tries both at any moment.
 *
 * Checked: each strand of each op runs exactly once and while its op is LOCAL, an op is DONE only with
 * all strands, a claimed record starts clean, nobody waits for ever.
 *
 * Negative controls (each must fail): NO_HOLD (the lane looks at the word without entering),
 * NO_CHECK (it enters and does not look whose record it is), LATE_ENTER (it may enter when all
 * members have left). */
#define MEMBERS 2
#define OPS 2
#define STRANDS 2
#define LANE 16 /* one lane inside, in the upper half of `left` */

#define FREE 0
#define OPEN 0
#define LOCAL 1
#define DONE 2

byte word;
byte state;
byte arrived;
byte left;
byte next;
byte done;
byte runs[4]; /* op * STRANDS + strand */

inline reset() {
    arrived = 0;
    next = 0;
    done = 0;
    state = OPEN;
    left = 0;
    word = FREE
}

/* Claims and runs strands; which op they belong to is what the record says after the claim. */
inline execute() {
    do
        /* The real counter goes on counting; beyond the strands it makes no difference. */
    :: atomic { strand = next; if :: next < STRANDS -> next++ :: else fi }
        if
        :: strand >= STRANDS -> break
        :: else
        fi;
        atomic {
            assert(word != FREE);
            assert(state == LOCAL);
            runs[(word - 1) * STRANDS + strand]++;
            assert(runs[(word - 1) * STRANDS + strand] == 1)
        }
        atomic { done++; finished = done }
        if
        :: finished == STRANDS -> atomic { assert(state == LOCAL); state = DONE }
        :: else
        fi
    od;
    strand = 0;
    finished = 0
}

proctype member(byte me) {
    byte op, mine, strand, finished;
    for (op : 0 .. OPS - 1) {
        atomic {
            (word == FREE || word == op + 1);
            if
            :: word == FREE ->
                assert(state == OPEN && arrived == 0 && next == 0 && done == 0);
                word = op + 1
            :: else
            fi
        }
        atomic { arrived++; mine = arrived }
        if
        :: mine == MEMBERS -> state = LOCAL
        :: else -> state != OPEN
        fi;
        /* A member may help, or leave the work to others; one of them has to. */
        if
        :: true -> execute()
        :: me == 1 -> skip
        fi;
        state == DONE;
        assert(runs[op * STRANDS] == 1 && runs[op * STRANDS + 1] == 1);
        atomic { left++; mine = left }
        if
        :: mine == MEMBERS -> reset()
        :: else
        fi;
        mine = 0
    }
}

proctype lane() {
    byte told, after, strand, finished;
    bool inside;
end:
    do
    :: told < 2 ->
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
#ifdef NO_CHECK
            execute();
#else
            if
            :: word == told + 1 ->
                if
                :: state == LOCAL -> execute()
                :: else
                fi
            :: else
            fi;
#endif
#ifndef NO_HOLD
            atomic { left = left - LANE; after = left }
            if
            :: after == MEMBERS -> reset()
            :: else
            fi;
#endif
            inside = false;
            after = 0
        :: else
        fi
    :: told == 0 -> told = 1 /* it hears of the second op */
    :: told == 1 -> told = 2 /* and of no more */
    od
}

init {
    byte i;
    atomic {
        run lane();
        for (i : 0 .. MEMBERS - 1) {
            run member(i)
        }
    }
}
