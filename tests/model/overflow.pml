/* SPDX-License-Identifier: Apache-2.0 */
/* The overflow rule (shm_ipc/record.h): OPS ops share the claim of a single record, two members
 * submit them in any order and may withdraw each of them, the daemon matches what comes through the
 * ring and gives an op's counts back when all its members have submitted it. It may have no room for
 * an op: then the member comes again, or its deadline passes meanwhile; the op is over for it then,
 * and its last word, which says so, counts as its submission, however often it has to come.
 *
 * Checked: no op is taken by one member into the record and by the other into the ring; every op
 * ends on every member (else an invalid end state); the claim is free in the end.
 *
 * Negative controls (each must fail): CLAIM_OVER_COUNT (take a free claim although counts are left),
 * COUNT_APART (look at the claim and count in two steps), DROP_AT_WITHDRAW (the daemon gives a count
 * back when a member withdraws, before all have come), DROP_AT_REFUSAL (it gives a count back when it
 * has no room for the op, which is submitted again then), DROP_AT_DEADLINE (a member whose deadline
 * passes while the daemon has no room gives its count back and leaves no word), SILENT_DEADLINE (it
 * keeps the count and leaves no word), FORGOTTEN_WORD (a last word that finds no room does not come
 * again). */
#define MEMBERS 2
#ifndef OPS
#define OPS 2
#endif
#define REFUSALS 2
#define SUBMIT 0
#define WITHDRAW 1
#define LAST_WORD 2
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
bool bounced[6]; /* the daemon had no room for it */
bool owed[6]; /* a last word that the daemon has not taken */
chan requests = [4] of { byte, byte, byte }; /* op, member, what */
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
    :: else -> requests ! op, me, SUBMIT
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

/* The op is over here before the daemon had room for it: the others must not wait for this member. */
#ifdef DROP_AT_DEADLINE
#define last_word(op) overflow--
#else
#ifdef SILENT_DEADLINE
#define last_word(op) skip
#else
#define last_word(op) owed[AT(op, me)] = true; requests ! op, me, LAST_WORD
#endif
#endif
#ifdef FORGOTTEN_WORD
#define word_again(op) owed[AT(op, me)] = false
#else
#define word_again(op) requests ! op, me, LAST_WORD
#endif

/* What a member can do about an op: submit it, leave its record, withdraw it there, see the end of
 * its ring op, withdraw that, submit it again, let its deadline pass instead, repeat its last word.
 * Nothing of it possible and the op not gone: the member waits. */
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
    :: WAITS(op, RING) && !ended[AT(op, me)] && !withdrawn[op] && !bounced[AT(op, me)] ->          \
        withdrawn[op] = true;                                                                      \
        requests ! op, me, WITHDRAW                                                                \
    :: WAITS(op, RING) && bounced[AT(op, me)] && !withdrawn[op] ->                                 \
        bounced[AT(op, me)] = false;                                                               \
        requests ! op, me, SUBMIT                                                                  \
    :: WAITS(op, RING) && bounced[AT(op, me)] ->                                                   \
        bounced[AT(op, me)] = false;                                                               \
        gone[op] = true;                                                                           \
        finished++;                                                                                \
        last_word(op)                                                                              \
    :: gone[op] && bounced[AT(op, me)] ->                                                          \
        bounced[AT(op, me)] = false;                                                               \
        word_again(op)

#if OPS > 2
#define OWES (owed[AT(0, me)] || owed[AT(1, me)] || owed[AT(2, me)])
#else
#define OWES (owed[AT(0, me)] || owed[AT(1, me)])
#endif

proctype member(byte me) {
    byte how, mine, finished;
    bool submitted[OPS], gone[OPS], withdrawn[OPS];
    do
    :: finished == OPS && !OWES -> break
    STEPS(0)
    STEPS(1)
#if OPS > 2
    STEPS(2)
#endif
    od;
    members_done++
}

active proctype controller() {
    byte op, who, what, i, refusals;
    byte submitted[OPS];
    bool here[6];
#ifdef DROP_AT_WITHDRAW
    bool dropped[6];
#endif
end:
    do
    :: requests ? op, who, what ->
        if
        :: what == WITHDRAW && here[AT(op, who)] ->
            ended[AT(op, who)] = true;
#ifdef DROP_AT_WITHDRAW
            if
            :: !dropped[AT(op, who)] && submitted[op] < MEMBERS ->
                dropped[AT(op, who)] = true;
                overflow--
            :: else
            fi
#endif
        :: what == WITHDRAW && !here[AT(op, who)] -> skip /* it is told that there was no room */
        :: what != WITHDRAW && submitted[op] == 0 && refusals < REFUSALS ->
            /* No room for another op: the member is told so, keeps its count and comes again. */
            refusals++;
#ifdef DROP_AT_REFUSAL
            overflow--;
#endif
            bounced[AT(op, who)] = true
        :: what != WITHDRAW ->
            submitted[op]++;
            here[AT(op, who)] = true;
            owed[AT(op, who)] = false;
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
