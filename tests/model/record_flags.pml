/* SPDX-License-Identifier: Apache-2.0 */
/* Who decides an op (shm_ipc/record.h): the flags of its members and the state of its record. Three
 * members meet in one op; the deadline of one of them may pass, and that one may die between the
 * reason and the poison; another may never come then; or the daemon may end the op. The op is
 * DIRECT (everything is in the page), ROOTED (in the page, one member is the source) or ALL (the
 * bytes are elsewhere).
 *
 * Checked: all members end the op the same way; a rooted op whose source has come completes for
 * everybody; who ends it as aborted finds the reason; a flag and the state are each decided once;
 * nobody waits for ever. That a slow poisoner spares later ops is checked in record_sweep.pml.
 *
 * Negative controls (each must fail): ABORTED_EARLY (a poisoned flag ends the op while others are
 * missing: the source may still come), POISON_FIRST (the reason afterwards), STORE_READY (a member
 * looks at its flag and stores READY), NO_POISON (the aborter ends the op with its reason), NO_HELP
 * (who sees a reason leaves the poison to its writer), NO_CLAIM (who saw OPEN stores the state). */
#define MEMBERS 3

/* Kinds. */
#define DIRECT 0
#define ROOTED 1
#define ALL 2
/* Flags. */
#define MISSING 0
#define READY 1
#define POISONED 2
/* The state. What the flags say is OPEN, DONE (direct), ABORTED, or LOCAL: the state goes on. */
#define OPEN 0
#define LOCAL 1
#define DONE 2
#define ABORTED 3

byte flag[MEMBERS];
byte state;

byte kind;
byte root;
bool differs;  /* the signatures of an ALL op */
byte aborter;  /* MEMBERS: nobody's deadline passes */
bool died;
byte ending;   /* how the first member ended the op: DONE or ABORTED */

/* occl_record_look: one load at a time, the state last. */
inline look() {
    missing = 0;
    poisoned = false;
    source = false;
    i = 0;
    do
    :: atomic {
            i < MEMBERS ->
            if
            :: flag[i] == READY -> source = source || (kind == ROOTED && i == root)
            :: flag[i] == POISONED -> poisoned = true
            :: else -> missing = missing | (1 << i)
            fi;
            i++
        }
    :: atomic {
            i == MEMBERS ->
            now = state;
            if
            :: source -> outcome = DONE
#ifdef ABORTED_EARLY
            :: !source && poisoned -> outcome = ABORTED
            :: !source && !poisoned && missing != 0 -> outcome = OPEN
#else
            :: !source && missing != 0 -> outcome = OPEN
            :: !source && missing == 0 && poisoned -> outcome = ABORTED
#endif
            :: !source && missing == 0 && !poisoned -> outcome = (kind == ALL -> LOCAL : DONE)
            fi;
            poisoned = false;
            source = false;
            i = 0
        }
        break
    od
}

/* Members are missing: any of those that were has come, or there is another state. */
#define FLAG_CHANGED(n) ((missing >> (n) & 1) && flag[n] != MISSING)
#define CHANGED (FLAG_CHANGED(0) || FLAG_CHANGED(1) || FLAG_CHANGED(2) || state != now)

/* The load and the compare-and-swap from what it found: what fails has changed. */
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
    od
}

/* The reason, unless there is one. */
inline give_reason() {
    do
#ifdef NO_CLAIM
    :: now == OPEN || now == LOCAL -> assert(state == now); state = ABORTED; now = ABORTED
#else
    :: atomic {
            now == OPEN || now == LOCAL ->
            if
            :: state == now -> state = ABORTED
            :: else
            fi;
            now = state
        }
#endif
    :: else -> break
    od
}

/* occl_record_abort. Who dies has written the reason. */
inline abort_op(may_die) {
    look();
    if
    :: outcome == DONE
    :: else ->
#ifdef POISON_FIRST
        poison();
        give_reason()
#else
        give_reason();
        if
        :: now != ABORTED
        :: now == ABORTED && may_die -> died = true
#ifdef NO_POISON
        :: now == ABORTED && may_die -> outcome = ABORTED; goto ended
        :: now == ABORTED && !may_die -> poison()
#else
        :: now == ABORTED -> poison()
#endif
        fi
#endif
    fi
}

proctype member(byte me) {
    byte i, missing, outcome, now;
    bool poisoned, source, expired;
    /* occl_record_arrive */
#ifdef STORE_READY
    if
    :: flag[me] == MISSING -> flag[me] = READY
    :: else
    fi;
#else
    atomic {
        if
        :: flag[me] == MISSING -> flag[me] = READY
        :: else
        fi
    }
#endif
    /* advance_record */
    do
    :: true ->
        look();
again:
        if
#ifdef NO_HELP
        :: outcome == OPEN && CHANGED
#else
        :: outcome == OPEN && now == ABORTED -> abort_op(false)
        :: outcome == OPEN && now != ABORTED && CHANGED
#endif
        :: outcome == OPEN && now != ABORTED && me == aborter && !expired ->
            expired = true;
            abort_op(true);
            if
            :: died && me == aborter -> goto gone
            :: else
            fi
        :: outcome == LOCAL && now == OPEN ->
            /* client_decide_all */
            atomic {
                if
                :: state == OPEN -> state = (differs -> ABORTED : LOCAL)
                :: else
                fi;
                now = state
            }
            goto again
        :: outcome == LOCAL && now == LOCAL ->
            /* Executed by whoever; then the same compare-and-swap. */
            atomic {
                if
                :: state == LOCAL -> state = DONE
                :: else
                fi;
                now = state
            }
            goto again
        :: outcome == LOCAL && now == LOCAL && me == aborter && !expired ->
            expired = true;
            abort_op(false)
        :: outcome == LOCAL && now == DONE -> outcome = DONE; break
        :: outcome == LOCAL && now == ABORTED -> outcome = ABORTED; break
        :: outcome == DONE || outcome == ABORTED -> break
        fi
    od;
    assert(outcome == DONE || state == ABORTED);
ended:
    atomic {
        assert(ending == 0 || ending == outcome);
        assert(outcome == DONE || kind != ROOTED || flag[root] == POISONED);
        ending = outcome;
        outcome = OPEN;
        now = OPEN;
        missing = 0
    }
gone:
    skip
}

/* occl_comm_sweep: at any time, or never. */
proctype sweeper() {
    byte i, missing, outcome, now;
    bool poisoned, source;
end:
    abort_op(false);
ended:
    skip
}

init {
    atomic {
        if
        :: kind = DIRECT
        :: kind = ROOTED; root = MEMBERS - 1 /* poisoned after the others */
        :: kind = ALL
        :: kind = ALL; differs = true
        fi;
        if
        :: aborter = MEMBERS; run sweeper(); run member(1)
        :: aborter = 0; run member(1)
        :: aborter = 0 /* member 1 never comes */
        fi;
        run member(0);
        run member(2)
    }
}
