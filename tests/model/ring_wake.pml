/* SPDX-License-Identifier: Apache-2.0 */
/* Doorbell of a submission ring (shm_ipc/wake.h): a client publishes entries and rings when it sees
 * the lane's flag; the control loop turns the ring into a wake of the lane's parker; the lane raises
 * its flag, looks at the ring once more and parks without a time limit.
 *
 * Stores of client and lane pass through store buffers, as on a real processor: a load may overtake
 * an older store of the same thread unless a fence stands between. A lost wake-up leaves the lane
 * parked with entries in the ring: spin reports an invalid end state.
 *
 * Negative controls (each must fail): NO_CLIENT_FENCE, NO_LANE_FENCE, NO_SECOND_LOOK, NO_TOKEN. */
#define ENTRIES 3

#define TAIL 0
#define FLAG 1

byte memory[2];                      /* what everybody sees */
chan client_stores = [2] of { byte, byte }; /* place, value: not visible yet */
chan lane_stores = [2] of { byte, byte };

byte doorbells;  /* messages that the loop has not read */
byte sequence;   /* the parker's word without its lowest bit; wraps in reality, small here */
bool sleeping;   /* the parker's lowest bit */
bool parked;     /* the lane is in the kernel */
byte head;

#define DRAINED(buffer) (empty(buffer))

active proctype client_buffer() {
    byte place, value;
end:
    do
    :: atomic { client_stores ? place, value -> memory[place] = value }
    od
}

active proctype lane_buffer() {
    byte place, value;
end:
    do
    :: atomic { lane_stores ? place, value -> memory[place] = value }
    od
}

active proctype client() {
    byte published;
    do
    :: published < ENTRIES ->
        published++;
        client_stores ! TAIL, published;
#ifndef NO_CLIENT_FENCE
        DRAINED(client_stores);
#endif
        if
        :: memory[FLAG] == 1 -> doorbells++
        :: else
        fi
    :: else -> break
    od
}

active proctype loop() {
    bool was_sleeping;
end:
    do
    :: doorbells > 0 ->
        doorbells--;
        /* occl_parker_wake: one compare-and-swap, then the system call. */
        atomic { sequence++; was_sleeping = sleeping; sleeping = false }
        if
        :: was_sleeping -> parked = false
        :: else
        fi
    od
}

active proctype lane() {
    byte token;
    do
    :: head == ENTRIES -> break
    :: head < ENTRIES && memory[TAIL] > head -> head++
    :: head < ENTRIES && memory[TAIL] == head ->
        token = sequence; /* occl_parker_prepare */
        lane_stores ! FLAG, 1;
#ifndef NO_LANE_FENCE
        DRAINED(lane_stores);
#endif
#ifndef NO_SECOND_LOOK
        if
        :: memory[TAIL] > head -> goto awake
        :: else
        fi;
#endif
        /* occl_parker_park: the announcement is a compare-and-swap against the token, the system
         * call compares once more. */
        atomic {
            if
#ifndef NO_TOKEN
            :: sequence != token -> goto awake
#endif
            :: else -> sleeping = true
            fi
        }
        atomic {
            if
#ifndef NO_TOKEN
            :: sequence == token && sleeping -> parked = true
            :: else
#else
            :: true -> parked = true
#endif
            fi
        }
        !parked;
        sleeping = false;
awake:
        lane_stores ! FLAG, 0
    od
}
