/* SPDX-License-Identifier: Apache-2.0 */
/* Forgetting tags (shm_ipc/tag_batch.h): MEMBERS members submit up to OPS ops each under one tag, in
 * one cell, and look at the batch when they please, or never again. Up to BATCHES batches. Another tag
 * of the cell has one op more: a tag that is forgotten goes on with another number than before.
 *
 * Checked: the k-th op of each member has the same number at all of them, so that it meets its peers;
 * a member's numbers only grow, so that no op meets anything of an earlier one. No statement waits:
 * a state without a next step would be an error.
 *
 * Negative controls (each must fail): NO_MARK (a member that has voted changes its count without
 * marking the cell), NO_SECOND_LOOK (it sets its stale bit and does not look at the word), LOOK_FIRST
 * (it looks before it sets the bit), NO_CLOSE (the batch is evaluated while it is OPEN), DIGEST_FIRST
 * (the evaluator reads the digests before the stale bits), DECIDE_OVER_MARK (its last step does not
 * look at marks in the word), CLEAR_FIRST (a renewal takes the stale bit back before the new digest
 * is there), NO_ACT (a member that finds the batch decided goes on with its old count), NO_ACKS (the
 * next batch begins before all have acted), START_AT_ZERO (a tag begins at 0 again).
 * FORGETS fails when anything is ever forgotten, FORGETS_TWICE when that happens twice: they show
 * that the model gets there. */
#ifndef MEMBERS
#define MEMBERS 2
#define OPS 3
#define BATCHES 3
#endif
#define ALL ((1 << MEMBERS) - 1)

#define NEW 0
#define OPEN 1
#define CLOSED 2
#define DECIDED 3
/* cell: marked while CLOSED; to be forgotten when DECIDED */
#define WORD(number, phase, cell) ((number) * 8 + (phase) * 2 + (cell))
#define NUMBER(word) ((word) / 8)
#define PHASE(word) (((word) / 2) % 4)
#define CELL(word) ((word) % 2)

byte word;
byte voted_mask, acted_mask;
byte advance;
bool stale[MEMBERS];
byte digest[MEMBERS], reach[MEMBERS];

byte number_of[OPS]; /* of the k-th op, + 1; 0: nobody has submitted it */
byte forgotten;          /* the tag was forgotten by member 0 */

inline publish() {
#ifdef CLEAR_FIRST
    stale[me] = false;
#endif
    digest[me] = count;
    reach[me] = count - start;
    stale[me] = false;
    marked = false
}

inline act() {
    if
    :: CELL(w) ->
        start = start + advance;
#ifdef START_AT_ZERO
        start = 0;
#endif
        count = start;
        if
        :: me == 0 -> forgotten++
        :: else
        fi;
#ifdef FORGETS
        assert(forgotten < 1);
#endif
#ifdef FORGETS_TWICE
        assert(forgotten < 2);
#endif
    :: else
    fi;
    voted = false;
    acted_mask = acted_mask | (1 << me)
}

inline read_stale() {
    i = 0;
    do
    :: i < MEMBERS -> agreed = agreed && !stale[i]; i++
    :: else -> break
    od
}

inline read_digests() {
    i = 0;
    most = 0;
    do
    :: i < MEMBERS ->
        if
        :: i == 0 -> value = digest[0]
        :: else -> agreed = agreed && digest[i] == value
        fi;
        most = (reach[i] > most -> reach[i] : most);
        i++
    :: else -> break
    od
}

inline evaluate() {
    agreed = true;
#ifndef NO_CLOSE
    atomic {
        won = (word == w);
        if
        :: won -> w = WORD(NUMBER(w), CLOSED, 0); word = w
        :: else
        fi
    }
#else
    won = true;
#endif
    if
    :: won ->
#ifdef DIGEST_FIRST
        read_digests();
        read_stale();
#else
        read_stale();
        read_digests();
#endif
        if
        :: agreed -> advance = most + 1
        :: else
        fi;
        voted_mask = 0;
        acted_mask = 0;
        do
        :: atomic {
#ifdef DECIDE_OVER_MARK
            word = WORD(NUMBER(w), DECIDED, agreed);
            break
#else
            if
            :: word == w -> word = WORD(NUMBER(w), DECIDED, (agreed && !CELL(w))); break
            :: else -> w = word; assert(PHASE(w) == CLOSED)
            fi
#endif
        }
        od
    :: else
    fi;
    i = 0;
    value = 0;
    most = 0;
    agreed = false;
    won = false
}

inline visit() {
    w = word;
    if
    :: !voted ->
        if
        :: PHASE(w) == OPEN ->
            publish();
            voted = true;
            voted_mask = voted_mask | (1 << me)
        :: else
        fi
    :: voted && PHASE(w) == OPEN && voted_mask == ALL ->
        if
        :: marked -> publish()
        :: else
        fi;
        evaluate()
    :: voted && PHASE(w) == DECIDED -> act()
    :: else
    fi
}

inline touch() {
    if
    :: voted && !marked ->
#ifdef LOOK_FIRST
        w = word;
        stale[me] = true;
#else
        stale[me] = true;
        w = word;
#endif
#ifdef NO_SECOND_LOOK
        w = WORD(0, OPEN, 0);
#endif
        do
        :: PHASE(w) == CLOSED && !CELL(w) ->
            atomic {
                if
                :: word == w -> word = w + 1; break
                :: else -> w = word
                fi
            }
        :: else -> break
        od;
        if
#ifndef NO_ACT
        :: PHASE(w) == DECIDED -> act()
#endif
        :: else -> marked = true
        fi
    :: else
    fi
}

inline submit() {
#ifndef NO_MARK
    touch();
#endif
    atomic {
        if
        :: number_of[ops] == 0 -> number_of[ops] = count + 1
        :: else -> assert(number_of[ops] == count + 1)
        fi;
        assert(count >= next);
        count++;
        next = count;
        ops++
    }
}

inline propose() {
    w = word;
    value = acted_mask;
    atomic {
        if
        :: word == w && NUMBER(w) < BATCHES &&
#ifdef NO_ACKS
           (PHASE(w) == NEW || PHASE(w) == DECIDED) ->
#else
           (PHASE(w) == NEW || (PHASE(w) == DECIDED && value == ALL)) ->
#endif
            word = WORD(NUMBER(w) + 1, OPEN, 0)
        :: else
        fi;
        value = 0
    }
}

proctype member(byte me) {
    byte w, count, start, next, ops, i, value, most;
    bool voted, marked, agreed, won;
    do
    :: visit()
    :: propose()
    :: ops < OPS -> submit()
    :: break
    od
}

init {
    atomic {
        byte m;
        for (m : 0 .. MEMBERS - 1) {
            run member(m)
        }
    }
}
