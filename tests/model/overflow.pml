/* SPDX-License-Identifier: Apache-2.0 */
/* The overflow rule (shm_ipc/record.h): OPS ops share the claim of a single record, two members
 * submit them in any order and may withdraw each of them, the daemon matches what comes through the
 * ring and gives an op's counts back when all its members have submitted it.
 *
 * Checked: no op is taken by one member into the record and by the other into the ring; every op
 * ends on every member (else an invalid end state); the claim is free in the end.
 *
 * Negative controls (each must fail): CLAIM_OVER_COUNT (take a free claim although counts are left),
 * COUNT_APART (look at the claim and count in two steps), DROP_AT_WITHDRAW (the daemon gives a count
 * back when a member withdraws, before all have come), DROP_AT_REFUSAL (it gives a count back when it
 * has no room for the op, which is submitted again then). */
#define MEMBERS 2
#ifndef OPS
#define OPS 2
#endif
#define NONE 0
#define RECORD 1
#define RING 2
#define OPEN 0
#define DIRECT 1
#define ABORTED 2

/* The claim's word: overflow and the claiming op (0: free). Always read and changed together. */
byte overflow;
byte claimed;
byte state;
byte arrived;
byte left;

byte path[6]; /* op * MEMBERS + member */
bool ended[6]; /* ring ops: told by the daemon */
chan requests = [4] of { byte, byte, bool }; /* op, member, withdraw */
byte members_done;

#define AT(op, member) ((op) * MEMBERS + (member))

inline take(op, how) {
    path[AT(op, me)] = how;
    assert(path[AT(op, 1 - me)] == NONE || path[AT(op, 1 - me)] == how)
}

inline submit(op) {
    how = NONE;
    atomic {
        if
#ifdef CLAIM_OVER_COUNT
        :: claimed == 0 -> claimed = op + 1; how = RECORD
        :: claimed == op + 1 -> how = RECORD
        :: claimed != 0 && claimed != op + 1 -> overflow++; how = RING
#else
        :: claimed == 0 && overflow == 0 -> claimed = op + 1; how = RECORD
        :: claimed == op + 1 -> how = RECORD
        :: else ->
            how = RING;
#ifndef COUNT_APART
            overflow++
#endif
#endif
        fi;
        take(op, how)
    }
#ifdef COUNT_APART
    if
    :: how == RING -> overflow++
    :: else
    fi;
#endif
    if
    :: how == RECORD ->
        atomic { arrived++; mine = arrived }
        if
        :: mine == MEMBERS -> atomic { if :: state == OPEN -> state = DIRECT :: else fi }
        :: else
        fi
    :: else -> requests ! op, me, false
    fi;
    mine = 0
}

/* One step: nobody looks at the other fields while the record is claimed and all have left. */
inline reset() {
    d_step {
        arrived = 0;
        state = OPEN;
        left = 0;
        claimed = 0
    }
}

#define WAITS(op, how) (submitted[op] && !gone[op] && path[AT(op, me)] == how)

/* What a member can do about an op: submit it, leave its record, withdraw it there, see the end of
 * its ring op, withdraw that. Nothing of it possible and the op not gone: the member waits. */
#define STEPS(op)                                                                                  \
    :: !submitted[op] -> submitted[op] = true; submit(op)                                          \
    :: WAITS(op, RECORD) && state != OPEN ->                                                       \
        gone[op] = true;                                                                           \
        finished++;                                                                                \
        atomic { left++; mine = left }                                                             \
        if                                                                                         \
        :: mine == MEMBERS -> reset()                                                              \
        :: else                                                                                    \
        fi;                                                                                        \
        mine = 0                                                                                   \
    :: WAITS(op, RECORD) && state == OPEN && !withdrawn[op] ->                                     \
        withdrawn[op] = true;                                                                      \
        atomic { if :: state == OPEN -> state = ABORTED :: else fi }                               \
    :: WAITS(op, RING) && ended[AT(op, me)] -> gone[op] = true; finished++                         \
    :: WAITS(op, RING) && !ended[AT(op, me)] && !withdrawn[op] ->                                  \
        withdrawn[op] = true;                                                                      \
        requests ! op, me, true

proctype member(byte me) {
    byte how, mine, finished;
    bool submitted[OPS], gone[OPS], withdrawn[OPS];
    do
    :: finished == OPS -> break
    STEPS(0)
    STEPS(1)
#if OPS > 2
    STEPS(2)
#endif
    od;
    members_done++
}

active proctype controller() {
    byte op, who, i;
    bool withdraw, refused;
    byte submitted[OPS];
#ifdef DROP_AT_WITHDRAW
    bool dropped[6];
#endif
end:
    do
    :: requests ? op, who, withdraw ->
        if
        :: withdraw ->
            ended[AT(op, who)] = true;
#ifdef DROP_AT_WITHDRAW
            if
            :: !dropped[AT(op, who)] && submitted[op] < MEMBERS ->
                dropped[AT(op, who)] = true;
                overflow--
            :: else
            fi
#endif
        :: !withdraw && submitted[op] == 0 && !refused && nfull(requests) ->
            /* No room for another op: the member is told so, keeps its count and comes again. */
            refused = true;
#ifdef DROP_AT_REFUSAL
            overflow--;
#endif
            requests ! op, who, false
        :: !withdraw ->
            submitted[op]++;
            if
            :: submitted[op] == MEMBERS ->
                for (i : 0 .. MEMBERS - 1) {
                    ended[AT(op, i)] = true;
#ifdef DROP_AT_WITHDRAW
                    if
                    :: !dropped[AT(op, i)] -> overflow--
                    :: else
                    fi
#else
                    overflow--
#endif
                }
            :: else
            fi
        fi
    :: members_done == MEMBERS && empty(requests) ->
        assert(overflow == 0 && claimed == 0);
        break
    od
}

init {
    atomic {
        run member(0);
        run member(1)
    }
}
