/* SPDX-License-Identifier: Apache-2.0 */
/* Life of an arrival record (shm_ipc/record.h, wake.h): members enter, arrive, wait on the state word,
 * may abort, leave; the last one out resets it and the next op claims the same slot. Two ops one
 * after the other, so that every member of the second may meet every stage of the first.
 *
 * Checked: nobody sleeps for ever (invalid end state), all members of an op see the same end, a
 * claimed record starts clean.
 *
 * State stores and looks at `sleepers` are compare-and-swaps and sequentially consistent loads, so
 * interleaving describes them; STORE_BUFFERED replaces the claim by a plain store that may become
 * visible after the look, as on a real processor.
 *
 * Negative controls (each must fail): LOOK_FIRST (look for sleepers before deciding), ANNOUNCE_LATE,
 * STORE_BUFFERED, NO_CLAIM (decide by test and store), RESET_EARLY (the first leaver resets). */
#ifndef MEMBERS
#define MEMBERS 3
#endif
#define OPS 2

#define FREE 0 /* word; op n is n + 1 */
#define OPEN 0
#define DIRECT 1
#define ABORTED 2

byte word;
byte state;
byte arrived;
byte left;
byte sleepers;
bool asleep[MEMBERS];
byte outcome[OPS];

inline wake_all() {
    d_step {
        k = 0;
        do
        :: k < MEMBERS -> asleep[k] = false; k++
        :: else -> break
        od;
        k = 0
    }
}

/* Decides OPEN -> to, then wakes. `seen` is the end that the caller believes in. */
inline decide(to) {
#ifdef LOOK_FIRST
    looked = sleepers;
#endif
#ifdef NO_CLAIM
    if
    :: state == OPEN -> state = to; won = true
    :: else -> won = false
    fi;
#else
#ifdef STORE_BUFFERED
    /* The store sits in the buffer: visible only after the look below. */
    looked = sleepers;
    atomic { won = (state == OPEN); if :: won -> state = to :: else fi };
#else
    atomic { won = (state == OPEN); if :: won -> state = to :: else fi };
#endif
#endif
    if
    :: won ->
#if !defined(LOOK_FIRST) && !defined(STORE_BUFFERED)
        looked = sleepers;
#endif
        if
        :: looked > 0 -> wake_all()
        :: else
        fi;
        seen = to
    :: else -> seen = state
    fi;
    won = false;
    looked = 0
}

inline sleep_on_state() {
#ifdef ANNOUNCE_LATE
    atomic { if :: state == OPEN -> asleep[me] = true :: else fi };
    sleepers++;
    !asleep[me];
    sleepers--
#else
    sleepers++;
    /* The system call compares the word with OPEN and enqueues in one step. */
    atomic { if :: state == OPEN -> asleep[me] = true :: else fi };
    !asleep[me];
    sleepers--
#endif
}

inline reset() {
    arrived = 0;
    state = OPEN;
    left = 0;
    word = FREE
}

proctype member(byte me) {
    byte op, seen, mine, looked, k;
    bool won;
    for (op : 0 .. OPS - 1) {
        /* occl_record_enter; a busy slot is tried again (the overflow rule has its own model). */
        atomic {
            (word == FREE || word == op + 1);
            if
            :: word == FREE ->
                assert(state == OPEN && arrived == 0 && left == 0);
                word = op + 1
            :: else
            fi
        }
        atomic { arrived++; mine = arrived }
        if
        :: mine == MEMBERS -> decide(DIRECT)
        :: else ->
            seen = OPEN;
            do
            :: state != OPEN -> seen = state; break
            :: state == OPEN -> sleep_on_state()
            :: state == OPEN -> decide(ABORTED); break
            od
        fi;
        /* Every member ends the op the same way. */
        atomic {
            assert(seen != OPEN);
            assert(outcome[op] == 0 || outcome[op] == seen);
            outcome[op] = seen
        }
        atomic { left++; mine = left }
        if
#ifdef RESET_EARLY
        :: mine == 1 -> reset()
#else
        :: mine == MEMBERS -> reset()
#endif
        :: else
        fi;
        seen = 0;
        mine = 0
    }
}

init {
    byte i;
    atomic {
        for (i : 0 .. MEMBERS - 1) {
            run member(i)
        }
    }
}
