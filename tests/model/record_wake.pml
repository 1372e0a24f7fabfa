/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a record (shm_ipc/wake.h, client_lib/wait.c): three members meet in an op, which is
 * DIRECT, ROOTED or ALL as in record_flags.pml; one of them may never come, or not wait; or the op is
 * aborted while two are there. Sleeps have no bound here.
 *
 * Checked: when nothing moves any more nobody sleeps on an op that is decided or aborted.
 *
 * The order of the C functions: a waiter looks at all flags and the state, reads the event,
 * announces itself, looks again at the state and at one flag (the source's, or else of the first
 * who was missing), sleeps while the event is as it was. Who changes something looks for sleepers
 * then, and if there are any and the change decides, changes the event and wakes. All of that is
 * sequentially consistent (claim, add, look), so interleaving describes it.
 *
 * All describe the op alike here. When they differ in the root a waiter may watch the wrong flag;
 * that op ends as a mismatch after one bounded sleep.
 *
 * Negative controls (each must fail): NO_SECOND_LOOK, NO_SECOND_STATE (the second look leaves the
 * state out), SLEEPERS_FIRST (an arriver looks for sleepers before its flag is there), NO_EVENT (a
 * waker does not change the event), EVENT_LATE (a waiter reads the event after its second look),
 * FIRST_MISSING (in a rooted op, too, the first missing one is watched), SILENT_POISON (who poisons
 * does not wake), SILENT_DECISION (who decides the state does not wake). */
#define MEMBERS 3

#define DIRECT 0
#define ROOTED 1
#define ALL 2

#define MISSING 0
#define READY 1
#define POISONED 2

#define OPEN 0
#define LOCAL 1
#define DONE 2
#define ABORTED 3

byte flag[MEMBERS];
byte state;
bool event[MEMBERS]; /* it has changed since the member read it */
byte sleepers;
bool asleep[MEMBERS];
bool taken; /* the only strand of an ALL op */

byte kind;
byte root;

inline look() {
    missing = MEMBERS;
    poisoned = false;
    source = false;
    i = 0;
    do
    :: atomic {
            i < MEMBERS ->
            if
            :: flag[i] == READY -> source = source || (kind == ROOTED && i == root)
            :: flag[i] == POISONED -> poisoned = true
            :: else -> missing = (missing == MEMBERS -> i : missing)
            fi;
            i++
        }
    :: atomic {
            i == MEMBERS ->
            now = state;
            if
            :: source -> outcome = DONE
            :: !source && missing < MEMBERS -> outcome = OPEN
            :: !source && missing == MEMBERS && poisoned -> outcome = ABORTED
            :: !source && missing == MEMBERS && !poisoned ->
                outcome = (kind == ALL -> LOCAL : DONE)
            fi;
            poisoned = false;
            source = false;
            i = 0
        }
        break
    od
}

/* occl_event_wake. */
inline wake() {
    if
    :: sleepers != 0 ->
#ifndef NO_EVENT
        d_step {
            event[0] = true;
            event[1] = true;
            event[2] = true
        }
#endif
        d_step {
            asleep[0] = false;
            asleep[1] = false;
            asleep[2] = false
        }
    :: else
    fi
}

/* From OPEN or LOCAL; wakes when it won. */
inline decide(from, to) {
    atomic {
        won = (state == from);
        if
        :: won -> state = to
        :: else
        fi;
        now = state
    }
    if
    :: won ->
#ifndef SILENT_DECISION
        wake();
#endif
        won = false
    :: else
    fi
}

inline poison() {
    i = 0;
    do
    :: i < MEMBERS ->
        atomic {
            if
            :: flag[i] == MISSING -> flag[i] = POISONED
            :: else
            fi;
            i++
        }
    :: else -> i = 0; break
    od;
#ifndef SILENT_POISON
    wake()
#endif
}

/* occl_event_sleep with record_changed. `watched` is MEMBERS: only the state. */
inline sleep() {
#ifndef EVENT_LATE
    event[me] = false;
#endif
    sleepers++;
#ifndef NO_SECOND_LOOK
    if
    :: watched < MEMBERS && flag[watched] != MISSING -> changed = true
    :: else
    fi;
#ifndef NO_SECOND_STATE
    changed = changed || state != now;
#endif
#endif
#ifdef EVENT_LATE
    event[me] = false;
#endif
    if
    :: !changed ->
        /* The system call compares and enqueues in one step. */
        atomic {
            asleep[me] = !event[me];
            event[me] = false
        }
end_asleep:
        !asleep[me]
    :: else
    fi;
    atomic {
        sleepers--;
        event[me] = false;
        changed = false
    }
}

proctype member(byte me; bool waits) {
    byte i, missing, outcome, now, watched;
    bool poisoned, source, won, changed, seen;
#ifdef SLEEPERS_FIRST
    seen = (sleepers != 0);
#endif
    atomic {
        if
        :: flag[me] == MISSING -> flag[me] = READY
        :: else -> goto wait
        fi
    }
    /* follow_up */
#ifndef SLEEPERS_FIRST
    seen = (sleepers != 0);
#endif
    if
    :: seen || !waits ->
        look();
        if
        :: outcome == LOCAL && now == OPEN -> decide(OPEN, LOCAL)
        :: outcome != OPEN && !(outcome == LOCAL && now == OPEN) -> wake()
        :: else
        fi
    :: else
    fi;
wait:
    seen = false;
    do
    :: !waits -> break
    :: waits ->
        look();
        if
        :: outcome == OPEN && now == ABORTED -> poison()
        :: outcome == OPEN && now != ABORTED ->
#ifdef FIRST_MISSING
            watched = missing;
#else
            watched = (kind == ROOTED -> root : missing);
#endif
            sleep()
        :: outcome == LOCAL && now == OPEN -> decide(OPEN, LOCAL)
        :: outcome == LOCAL && now == LOCAL ->
            atomic { won = !taken; taken = true }
            if
            :: won ->
                won = false;
                decide(LOCAL, DONE)
            :: else ->
                watched = MEMBERS;
                sleep()
            fi
        :: outcome == DONE || outcome == ABORTED || now == DONE ||
           (outcome == LOCAL && now == ABORTED) ->
            break
        fi
    od;
    skip;
    d_step {
        outcome = 0;
        now = 0;
        missing = 0;
        watched = 0
    }
}

/* A deadline, or the daemon. */
proctype aborter() {
    byte i, missing, outcome, now;
    bool poisoned, source, won;
    look();
    if
    :: outcome == DONE
    :: else ->
        do
        :: now == OPEN || now == LOCAL ->
            atomic {
                if
                :: state == now -> state = ABORTED
                :: else
                fi;
                now = state
            }
        :: else -> break
        od;
        if
        :: now == ABORTED -> poison()
        :: else -> wake()
        fi
    fi
}

#define COME (flag[0] != MISSING && flag[1] != MISSING && flag[2] != MISSING)
#define DECIDED (COME || state == ABORTED || (kind == ROOTED && flag[root] == READY))

active proctype observer() {
    timeout;
    assert(!DECIDED || !(asleep[0] || asleep[1] || asleep[2]))
}

init {
    atomic {
        if
        :: kind = DIRECT
        :: kind = ROOTED; select(root : 1 .. 2)
        :: kind = ALL
        fi;
        run member(0, true);
        if
        :: run aborter();
            run member(1, true)
        :: run member(1, true);
            run member(2, true)
        :: run member(1, false);
            run member(2, true)
        :: run member(2, true)
        fi
    }
}
