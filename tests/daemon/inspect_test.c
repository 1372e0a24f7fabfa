/* SPDX-License-Identifier: Apache-2.0 */
/* Inspection among tenants that lie: what one of them writes into its pages, asks for and does with
 * its processes neither reaches nor crowds the answers of others, and costs the loop small steps.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#define MS 1000000ull
/* More pages full of ops than all limits together hold. */
#define CROWD_COMMS 80
#define CROWD_RANKS 8
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWNESS 10
#else
#define SLOWNESS 1
#endif

/* ---- pages full of ops that nobody has submitted ---- */

struct invented {
    struct occl_op_key key;
    uint64_t print;
    bool known;
};

/* A key for each record, so that no look at the page can tell the op from a true one. */
static const struct invented *inventions(void) {
    static struct invented table[OCCL_RECORDS];
    static uint32_t known;
    for (uint32_t i = 0; known < OCCL_RECORDS; i++) {
        const struct occl_op_key keys[] = {
            {0u << 16 | 1u, 1 + i, 0},
            {OCCL_PEERS_ALL, 1 + i, 0},
            {OCCL_PEERS_ALL, 0, i % (OCCL_RUNS * OCCL_RUN_OPS)},
        };
        for (size_t k = 0; k < 3; k++) {
            struct occl_place place = occl_place_of(keys[k]);
            if (!table[place.slot].known)
                known++;
            table[place.slot] = (struct invented){keys[k], place.print, true};
        }
    }
    return table;
}

static void fill_page(const struct client_comm *comm) {
    const struct invented *table = inventions();
    struct occl_signature sig = {.dtype = 7, .count = 4};
    for (uint32_t slot = 0; slot < OCCL_RECORDS; slot++) {
        struct occl_line *line = occl_line_at(occl_record_at(&comm->records, slot), 0);
        sig.kind = slot < OCCL_PAIRS ? OCCL_OP_SEND : OCCL_OP_ALL_REDUCE;
        occl_line_fill(line, table[slot].key, &sig);
        line->submit_ticks = line->wait_since_ticks = 1;
        occl_publish64(&line->flag,
                       occl_flag_make(table[slot].print, OCCL_FLAG_READY | OCCL_FLAG_BLOCKED));
        occl_publish64(&occl_claim_of(&comm->records, slot)->word,
                       OCCL_WORD_CLAIMED | table[slot].print);
    }
}

/* ---- a daemon with a socket for operators and two for tenants ---- */

struct stage {
    struct fixture f;
    char paths[2][112];
    struct client crowd;
    struct client_comm crowd_comms[CROWD_COMMS];
    struct client honest[3];
    struct client_comm honest_comms[3];
    struct client operator, owner;
};

static void attach(struct client *c, struct stage *s, int path, const char *job) {
    struct occl_msg_hello hello;
    client_connect(c, &s->f, s->paths[path]);
    client_hello_fill(&hello, job, "");
    client_hello_raw(c, &hello);
    assert_int_equal(c->in.h.type, OCCL_MSG_WELCOME);
    c->welcome = c->in.welcome;
    c->page = mmap(NULL, c->welcome.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fds[0], 0);
    assert_ptr_not_equal(c->page, MAP_FAILED);
}

static void attach_admin(struct client *c, struct stage *s, const char *path) {
    struct occl_msg_hello hello;
    client_connect(c, &s->f, path);
    client_hello_fill(&hello, "", "");
    hello.role = OCCL_ROLE_ADMIN;
    client_hello_raw(c, &hello);
}

static void make_crowd(struct stage *s) {
    attach(&s->crowd, s, 0, "crowd");
    occl_publish32(&s->crowd.page->threads_using, 1);
    occl_publish32(&s->crowd.page->threads_waiting, 1);
    for (uint32_t i = 0; i < CROWD_COMMS; i++) {
        struct occl_unique_id_wire id;
        client_unique_id(1000 + i, &id);
        for (uint32_t rank = 0; rank < CROWD_RANKS; rank++)
            (void)client_comm_ask(&s->crowd, &id, rank, CROWD_RANKS, 0);
        for (uint32_t rank = 0; rank < CROWD_RANKS; rank++) {
            struct client_comm comm;
            while (client_receive(&s->crowd, 5000) && s->crowd.in.h.type == OCCL_MSG_EVENT)
                continue; /* the daemon may have found a cycle in the pages so far */
            client_comm_take(&s->crowd, &comm);
            if (rank)
                client_comm_unmap(&comm);
            else
                s->crowd_comms[i] = comm;
        }
        fill_page(&s->crowd_comms[i]);
    }
}

/* Ranks 0 and 2 wait for rank 1. */
static void make_honest(struct stage *s) {
    static const struct occl_op_key key = {OCCL_PEERS_ALL, 0, 4};
    for (int i = 0; i < 3; i++)
        attach(&s->honest[i], s, 1, "honest");
    clients_make_comm(s->honest, 3, 7, s->honest_comms);
    for (uint32_t i = 0; i < 3; i++) {
        occl_publish32(&s->honest[i].page->threads_using, 1);
        occl_publish32(&s->honest[i].page->threads_waiting, i != 1);
        if (i != 1)
            (void)client_arrive(&s->honest[i], &s->honest_comms[i], key, OCCL_OP_ALL_REDUCE, true,
                                800 * MS);
    }
}

static struct stage *stage_open(void) {
    static struct stage s;
    memset(&s, 0, sizeof s);
    fixture_prepare(&s.f);
    for (int i = 0; i < 2; i++)
        (void)snprintf(s.paths[i], sizeof s.paths[i], "%s%d", s.f.socket, i + 1);
    (void)snprintf(s.f.config.socket, sizeof s.f.config.socket, "%s,%s,%s", s.f.socket, s.paths[0],
                   s.paths[1]);
    fixture_start(&s.f);
    make_crowd(&s);
    make_honest(&s);
    attach_admin(&s.operator, & s, NULL);
    attach_admin(&s.owner, &s, s.paths[1]);
    return &s;
}

static void stage_close(struct stage *s) {
    for (uint32_t i = 0; i < CROWD_COMMS; i++)
        client_comm_unmap(&s->crowd_comms[i]);
    for (int i = 0; i < 3; i++) {
        client_comm_unmap(&s->honest_comms[i]);
        client_close(&s->honest[i]);
    }
    client_close(&s->crowd);
    client_close(&s->operator);
    client_close(&s->owner);
    fixture_stop(&s->f);
}

static json_t *ask(struct client *c, const char *request) {
    int status;
    json_t *answer = client_admin(c, request, &status);
    if (!answer)
        fail_msg("%s: %s", request, c->in.admin.detail.text);
    return answer;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint32_t entries_of(const json_t *list, const char *job) {
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += strcmp(text_of(json_array_get(list, i), "job"), job) == 0;
    return count;
}

static void expect_culprit(const json_t *why) {
    const json_t *culprits = json_object_get(why, "culprits");
    for (size_t i = 0; i < json_array_size(culprits); i++) {
        const json_t *culprit = json_array_get(culprits, i);
        if (strcmp(text_of(culprit, "job"), "honest"))
            continue;
        assert_int_equal(json_integer_value(json_object_get(culprit, "rank")), 1);
        assert_string_equal(text_of(culprit, "verdict"), "late");
        return;
    }
    fail_msg("the honest job's late rank is not named");
}

/* ---- cases ---- */

static void a_crowded_page_hides_nobody(void **state) {
    struct stage *s = stage_open();
    (void)state;
    json_t *why = ask(&s->operator, "{\"verb\":\"why\"}");
    expect_culprit(why);
    assert_int_equal(entries_of(json_object_get(why, "waits"), "honest"), 1);
    /* It is seen that the crowd does not fit, and how much does not. */
    assert_true(entries_of(json_object_get(why, "cut"), "crowd") > 0);
    assert_int_equal(entries_of(json_object_get(why, "cut"), "honest"), 0);
    assert_true(json_integer_value(json_object_get(why, "cut_total")) > 0);
    json_decref(why);
    json_t *ops = ask(&s->operator, "{\"verb\":\"ops\"}");
    assert_int_equal(entries_of(json_object_get(ops, "ops"), "honest"), 1);
    uint32_t shown = entries_of(json_object_get(ops, "ops"), "crowd");
    assert_true(json_is_true(json_object_get(ops, "truncated")));
    /* Shown and cut are all that there is. */
    assert_int_equal(shown + json_integer_value(json_object_get(ops, "cut_total")),
                     CROWD_COMMS * OCCL_RECORDS);
    json_decref(ops);
    /* One communicator has room, also of the crowd. */
    ops = ask(&s->operator, "{\"verb\":\"ops\",\"comm\":\"comm-80\"}");
    assert_int_equal(json_array_size(json_object_get(ops, "ops")), OCCL_RECORDS);
    assert_true(json_is_false(json_object_get(ops, "truncated")));
    json_decref(ops);
    stage_close(s);
}

static void an_owner_sees_nothing_of_others(void **state) {
    static const char *const verbs[] = {"status", "jobs",   "comms",  "ops",  "why",
                                        "usage",  "config", "doctor", "ping", "version"};
    struct stage *s = stage_open();
    (void)state;
    json_t *why = ask(&s->owner, "{\"verb\":\"why\"}");
    expect_culprit(why);
    json_decref(why);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char request[64];
        (void)snprintf(request, sizeof request, "{\"verb\":\"%s\"}", verbs[i]);
        json_t *answer = ask(&s->owner, request);
        char *text = json_dumps(answer, 0);
        /* Neither the other tenant, nor paths of the host. */
        if (strstr(text, "crowd") || strstr(text, s->f.folder) || strstr(text, "@1"))
            fail_msg("%s tells too much: %.3000s", verbs[i], text);
        free(text);
        json_decref(answer);
    }
    json_t *status = ask(&s->owner, "{\"verb\":\"status\"}");
    static const struct {
        const char *key;
        json_int_t value;
    } sums[] = {{"sessions", 3}, {"tenants", 1}, {"jobs", 1}, {"comms", 1}, {"ops_waiting", 1}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        assert_int_equal(json_integer_value(json_object_get(status, sums[i].key)), sums[i].value);
    json_decref(status);
    /* Filters open nothing. */
    json_t *ops = ask(&s->owner, "{\"verb\":\"ops\",\"job\":\"crowd\"}");
    assert_int_equal(json_array_size(json_object_get(ops, "ops")), 0);
    json_decref(ops);
    stage_close(s);
}

static uint64_t cpu_ns(void) {
    struct timespec at;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

static void post(struct client *c, const char *text) {
    struct occl_msg_admin msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_ADMIN, ++c->request);
    (void)snprintf(msg.text, sizeof msg.text, "%s", text);
    client_send(c, &msg, sizeof msg, -1);
}

/* One answer, round by round; the longest round. */
static uint64_t longest_round(struct stage *s, const char *verb) {
    char request[64];
    uint64_t longest = 0, all = 0;
    uint32_t rounds = 0;
    (void)snprintf(request, sizeof request, "{\"verb\":\"%s\"}", verb);
    post(&s->operator, request);
    while (rounds < 1000000) {
        uint64_t start = cpu_ns();
        (void)occl_daemon_step(s->f.daemon, 0);
        uint64_t took = cpu_ns() - start;
        longest = took > longest ? took : longest;
        all += took;
        rounds++;
        s->operator.fixture = NULL; /* a look without a round */
        bool answered = client_receive(&s->operator, 0);
        s->operator.fixture = & s->f;
        if (answered)
            break;
    }
    assert_int_equal(s->operator.in.admin.detail.status, OCCL_OK);
    print_message("%s: %u rounds, %.1f ms, the longest %.2f ms\n", verb, rounds, (double)all / 1e6,
                  (double)longest / 1e6);
    return longest;
}

/* The crowd's pages take tens of milliseconds to look at, and the answers have megabytes; a round
 * never takes long. A host that takes the core away shows as a long round now and then; what the
 * daemon does shows every time. */
#define LOOKS 5
static void the_loop_is_never_held(void **state) {
    static const char *const verbs[] = {"status", "jobs", "comms", "ops", "why", "usage"};
    struct stage *s = stage_open();
    (void)state;
    (void)fixture_pump(&s->f, 600, NULL, NULL); /* the first look for stalls is over */
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        uint64_t longest = UINT64_MAX;
        for (int look = 0; look < LOOKS && longest >= 2 * MS * SLOWNESS; look++)
            longest = longest_round(s, verbs[i]);
        assert_true(longest < 2 * MS * SLOWNESS);
    }
    stage_close(s);
}

/* Jobs of one tenant share what is the tenant's: the later one has its part, too. */
static void jobs_of_one_tenant_leave_room(void **state) {
    struct stage *s = stage_open();
    struct client c[3];
    struct client_comm comms[3];
    static const struct occl_op_key key = {OCCL_PEERS_ALL, 3, 0};
    (void)state;
    for (int i = 0; i < 3; i++)
        attach(&c[i], s, 0, "neighbour");
    clients_make_comm(c, 3, 77, comms);
    (void)client_arrive(&c[0], &comms[0], key, OCCL_OP_BARRIER, true, 900 * MS);
    occl_publish32(&c[0].page->threads_using, 1);
    occl_publish32(&c[0].page->threads_waiting, 1);
    json_t *why = ask(&c[1], "{\"verb\":\"why\"}");
    assert_int_equal(entries_of(json_object_get(why, "waits"), "neighbour"), 1);
    assert_int_equal(entries_of(json_object_get(why, "culprits"), "neighbour"), 2);
    assert_true(entries_of(json_object_get(why, "cut"), "crowd") > 0);
    json_decref(why);
    for (int i = 0; i < 3; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    stage_close(s);
}

static void who_asks_too_much_is_told(void **state) {
    struct stage *s = stage_open();
    static struct client many[OCCL_LOCAL_RANKS_MAX + 8];
    uint32_t count = sizeof many / sizeof *many, busy = 0, answered = 0;
    (void)state;
    for (uint32_t i = 0; i < count; i++)
        attach(&many[i], s, 1, "askers");
    for (uint32_t i = 0; i < count; i++)
        post(&many[i], "{\"verb\":\"ping\"}");
    for (uint32_t i = 0; i < count; i++) {
        assert_true(client_receive(&many[i], 5000));
        assert_int_equal(many[i].in.h.type, OCCL_MSG_ADMIN_REPLY);
        if (many[i].in.admin.detail.status == OCCL_E_BUSY)
            busy += strstr(many[i].in.admin.detail.text, "busy: too many requests") != NULL;
        else
            answered += many[i].in.admin.detail.status == OCCL_OK;
    }
    assert_int_equal(busy + answered, count);
    assert_in_range(busy, 1, 8);
    /* A rank's second request before the answer to its first. */
    post(&many[0], "{\"verb\":\"why\"}");
    post(&many[0], "{\"verb\":\"why\"}");
    assert_true(client_receive(&many[0], 5000));
    assert_int_equal(many[0].in.admin.detail.status, OCCL_E_BUSY);
    assert_non_null(strstr(many[0].in.admin.detail.text, "this session's last request"));
    assert_true(client_receive(&many[0], 5000));
    assert_int_equal(many[0].in.admin.detail.status, OCCL_OK);
    /* An administration session's are answered in their order. */
    post(&s->owner, "{\"verb\":\"why\"}");
    post(&s->owner, "{\"verb\":\"ping\"}");
    for (uint64_t number = s->owner.request - 1; number <= s->owner.request; number++) {
        assert_true(client_receive(&s->owner, 5000));
        assert_int_equal(s->owner.in.h.request, number);
        assert_int_equal(s->owner.in.admin.detail.status, OCCL_OK);
    }
    for (uint32_t i = 0; i < count; i++)
        client_close(&many[i]);
    stage_close(s);
}

static void administration_connections_are_limited(void **state) {
    struct stage *s = stage_open();
    static struct client many[70];
    uint32_t admitted = 1; /* s->owner */
    (void)state;
    for (uint32_t i = 0; i < 70; i++) {
        attach_admin(&many[i], s, s->paths[1]);
        admitted += many[i].in.h.type == OCCL_MSG_WELCOME;
        if (many[i].in.h.type != OCCL_MSG_WELCOME)
            assert_int_equal(client_status(&many[i]), OCCL_E_QUOTA);
    }
    assert_int_equal(admitted, 64);
    for (uint32_t i = 0; i < 70; i++)
        client_close(&many[i]);
    /* Those that are gone make room. */
    (void)fixture_pump(&s->f, 50, NULL, NULL);
    attach_admin(&many[0], s, s->paths[1]);
    assert_int_equal(many[0].in.h.type, OCCL_MSG_WELCOME);
    client_close(&many[0]);
    stage_close(s);
}

/* Whoever asks all the time earns a sixteenth of the time; somebody else's question goes first. */
static void a_flood_costs_its_own_credit(void **state) {
    struct stage *s = stage_open();
    struct client flood;
    (void)state;
    attach_admin(&flood, s, s->paths[0]);
    uint64_t start = now_ms(), spent = 0;
    uint32_t answers = 0;
    post(&flood, "{\"verb\":\"why\"}");
    while (now_ms() - start < 2000 || (answers == 0 && now_ms() - start < 2000 * SLOWNESS)) {
        uint64_t before = cpu_ns();
        (void)occl_daemon_step(s->f.daemon, 1 * MS);
        spent += cpu_ns() - before;
        flood.fixture = NULL;
        if (client_receive(&flood, 0)) {
            answers++;
            post(&flood, "{\"verb\":\"why\"}");
        }
        flood.fixture = &s->f;
    }
    print_message("%u answers in 2 s for %.0f ms of the loop\n", answers, (double)spent / 1e6);
    assert_true(answers > 0);
    /* The burst of 250 ms, a sixteenth of the rest, an eighth for the search for stalls. */
    if (SLOWNESS == 1)
        assert_true(spent < 900 * MS);
    uint64_t asked = now_ms();
    json_t *why = ask(&s->owner, "{\"verb\":\"why\"}");
    expect_culprit(why);
    json_decref(why);
    assert_true(now_ms() - asked < 1000 * SLOWNESS);
    client_close(&flood);
    stage_close(s);
}

static uint64_t resident_bytes(int fd) {
    struct stat st = {0};
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Whoever keeps the descriptors of all answers keeps no memory of the daemon's. */
static void answers_are_taken_back(void **state) {
    struct stage *s = stage_open();
    int kept[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        json_decref(ask(&s->owner, "{\"verb\":\"config\"}"));
        kept[i] = dup(s->owner.fds[0]);
        assert_true(resident_bytes(kept[i]) > 0);
        assert_true(i == 0 || resident_bytes(kept[i - 1]) == 0);
    }
    client_close(&s->owner);
    (void)fixture_pump(&s->f, 20, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(resident_bytes(kept[i]), 0);
        (void)close(kept[i]);
    }
    stage_close(s);
}

/* ---- members that come and go during the look ---- */

static void a_restless_job_is_left_out(void **state) {
    struct stage *s = stage_open();
    struct client restless;
    bool answered = false;
    uint32_t rounds = 0;
    (void)state;
    post(&s->operator, "{\"verb\":\"why\"}");
    while (!answered && rounds++ < 5000) {
        attach(&restless, s, 0, "crowd");
        munmap(restless.page, restless.welcome.page_bytes);
        restless.page = NULL;
        client_close(&restless);
        s->operator.fixture = NULL;
        answered = client_receive(&s->operator, 0);
        s->operator.fixture = & s->f;
    }
    assert_true(answered);
    char *text =
        mmap(NULL, s->operator.in.admin.text_bytes, PROT_READ, MAP_SHARED, s->operator.fds[0], 0);
    assert_ptr_not_equal(text, MAP_FAILED);
    json_t *why = json_loadb(text, s->operator.in.admin.text_bytes, 0, NULL);
    munmap(text, s->operator.in.admin.text_bytes);
    expect_culprit(why);
    assert_int_equal(entries_of(json_object_get(why, "waits"), "crowd"), 0);
    assert_int_equal(entries_of(json_object_get(why, "culprits"), "crowd"), 0);
    const json_t *cut = json_array_get(json_object_get(why, "cut"), 0);
    assert_string_equal(text_of(cut, "job"), "crowd");
    assert_string_equal(text_of(cut, "what"), "jobs");
    json_decref(why);
    stage_close(s);
}

static void askers_may_vanish(void **state) {
    struct stage *s = stage_open();
    (void)state;
    for (int rounds = 0; rounds < 60; rounds++) {
        struct client c;
        attach_admin(&c, s, s->f.socket);
        post(&c, rounds % 2 ? "{\"verb\":\"why\"}" : "{\"verb\":\"comms\"}");
        for (int i = 0; i < rounds; i++)
            (void)occl_daemon_step(s->f.daemon, 0);
        client_close(&c);
    }
    /* What they asked is given up, so that it is soon somebody else's turn. */
    json_t *why = ask(&s->operator, "{\"verb\":\"why\"}");
    expect_culprit(why);
    json_decref(why);
    stage_close(s);
}

/* ---- many processes ---- */

#define MANY 4096

/* One waits in a job of thousands. */
static void a_rank_is_found_among_4096(void **state) {
    struct fixture f;
    static struct client c[MANY];
    static struct client_comm comms[MANY];
    struct rlimit files = {0, 0};
    struct client admin;
    struct occl_msg_hello hello;
    static const struct occl_op_key key = {OCCL_PEERS_ALL, 1, 0};
    (void)state;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    if (files.rlim_max < 4 * MANY + MANY / 2 || setrlimit(RLIMIT_NOFILE, &files) != 0) {
        print_message("SKIP a_rank_is_found_among_4096: %lu open files are allowed\n",
                      (unsigned long)files.rlim_max);
        skip();
    }
    fixture_prepare(&f);
    f.config.quota_sessions = f.config.quota_communicators = MANY;
    f.config.registered_max_bytes = f.config.quota_registered_bytes = 1ull << 40;
    f.config.memory_limit_bytes = 1ull << 41;
    fixture_start(&f);
    for (uint32_t i = 0; i < MANY; i++) {
        client_connect(&c[i], &f, NULL);
        client_hello_fill(&hello, "job", "");
        hello.sq_entries = OCCL_RING_ENTRIES_MIN;
        client_hello_raw(&c[i], &hello);
        assert_int_equal(c[i].in.h.type, OCCL_MSG_WELCOME);
        c[i].welcome = c[i].in.welcome;
        c[i].page =
            mmap(NULL, c[i].welcome.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c[i].fds[0], 0);
        assert_ptr_not_equal(c[i].page, MAP_FAILED);
        for (int fd = 0; fd < 2; fd++) {
            (void)close(c[i].fds[fd]);
            c[i].fds[fd] = -1;
        }
    }
    for (uint32_t i = 0; i < MANY; i += 4)
        clients_make_comm(&c[i], 4, i, &comms[i]);
    for (uint32_t i = 0; i < 3; i++)
        (void)client_arrive(&c[i], &comms[i], key, OCCL_OP_BARRIER, true, 700 * MS);
    client_connect(&admin, &f, NULL);
    client_hello_fill(&hello, "", "");
    hello.role = OCCL_ROLE_ADMIN;
    client_hello_raw(&admin, &hello);
    uint64_t start = now_ms();
    json_t *why = ask(&admin, "{\"verb\":\"why\"}");
    uint64_t took = now_ms() - start;
    print_message("why took %llu ms\n", (unsigned long long)took);
    assert_true(took < 1000 * SLOWNESS);
    assert_int_equal(json_array_size(json_object_get(why, "culprits")), 1);
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(why, "culprits"), 0), "rank")),
                     3);
    assert_int_equal(json_integer_value(json_object_get(why, "cut_total")), 0);
    json_decref(why);
    json_t *jobs = ask(&admin, "{\"verb\":\"jobs\"}");
    const json_t *job = json_array_get(json_object_get(jobs, "jobs"), 0);
    assert_int_equal(json_array_size(json_object_get(job, "processes")), MANY);
    json_decref(jobs);
    for (uint32_t i = 0; i < MANY; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    client_close(&admin);
    (void)fixture_pump(&f, 50, NULL, NULL);
    fixture_stop(&f);
}

/* ---- records that are used again while they are read ---- */

struct reuse {
    struct occl_records records;
    uint64_t ticks[2]; /* of ops with even and odd rounds */
    uint32_t slot;
    int stop;
};

/* Ops of one tag come back to their record every OCCL_SINGLES instances. */
static struct occl_op_key key_of_round(uint32_t round) {
    return (struct occl_op_key){OCCL_PEERS_ALL, 1, (round & 0xffff) * OCCL_SINGLES};
}

/* The life of a record as honest members lead it, at full speed: claim, lines, leave. The last
 * member never comes, so every op is undecided. */
static void *reuse_record(void *arg) {
    struct reuse *r = arg;
    struct occl_record *rec = occl_record_at(&r->records, r->slot);
    struct occl_claim *claim = occl_claim_of(&r->records, r->slot);
    struct occl_signature sig = {.kind = OCCL_OP_ALL_REDUCE, .dtype = 7, .count = 1};
    for (uint32_t i = 0; !__atomic_load_n(&r->stop, __ATOMIC_RELAXED); i++) {
        struct occl_op_key key = key_of_round(i);
        uint64_t print = occl_place_of(key).print;
        occl_publish64(&claim->word, OCCL_WORD_CLAIMED | print);
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct occl_line *line = occl_line_at(rec, rank);
            occl_line_fill(line, key, &sig);
            occl_note64(&line->submit_ticks, r->ticks[i & 1]);
            occl_note64(&line->wait_since_ticks, r->ticks[i & 1]);
            occl_publish64(&line->flag, occl_flag_make(print, OCCL_FLAG_READY));
        }
        occl_publish64(&claim->word, 0);
    }
    return NULL;
}

static void no_op_is_made_of_two(void **state) {
    struct fixture f;
    struct client c[4];
    struct client_comm comms[4];
    struct reuse r = {.slot = occl_place_of(key_of_round(0)).slot};
    pthread_t thread;
    uint64_t seen = 0, torn = 0;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 4; i++)
        client_attach(&c[i], &f, "job", "");
    clients_make_comm(c, 4, 1, comms);
    struct occl_comm *comm = f.daemon->comms;
    r.records = comms[0].records;
    assert_int_equal(occl_place_of(key_of_round(1)).slot, r.slot);
    r.ticks[0] = occl_ticks_of_ns(&f.daemon->scale, 1000 * MS);
    r.ticks[1] = occl_ticks_of_ns(&f.daemon->scale, 2000 * MS);
    assert_int_equal(pthread_create(&thread, NULL, reuse_record, &r), 0);
    for (uint64_t start = now_ms(); now_ms() - start < 1000;) {
        struct occl_op_view op;
        struct occl_held_view helds[OCCL_LOCAL_RANKS_MAX];
        uint64_t word = occl_observe64(&occl_claim_of(&comm->records, r.slot)->word);
        if (!(word & OCCL_WORD_CLAIMED) ||
            !occl_opview_record(comm, r.slot, word & OCCL_WORD_PRINT_MASK,
                                occl_loop_now_ns(f.daemon->loop), &op, helds))
            continue;
        bool second = op.key.instance / OCCL_SINGLES & 1;
        uint64_t since_ns = occl_ticks_to_ns(&f.daemon->scale, r.ticks[second]);
        seen++;
        torn += op.since_ns != since_ns || op.waiting_since_ns != since_ns;
    }
    __atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
    (void)pthread_join(thread, NULL);
    print_message("%llu looks, %llu of two ops\n", (unsigned long long)seen,
                  (unsigned long long)torn);
    assert_true(seen > 0);
    assert_int_equal(torn, 0);
    for (int i = 0; i < 4; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    fixture_stop(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowded_page_hides_nobody),
        cmocka_unit_test(an_owner_sees_nothing_of_others),
        cmocka_unit_test(the_loop_is_never_held),
        cmocka_unit_test(jobs_of_one_tenant_leave_room),
        cmocka_unit_test(who_asks_too_much_is_told),
        cmocka_unit_test(administration_connections_are_limited),
        cmocka_unit_test(a_flood_costs_its_own_credit),
        cmocka_unit_test(answers_are_taken_back),
        cmocka_unit_test(a_restless_job_is_left_out),
        cmocka_unit_test(askers_may_vanish),
        cmocka_unit_test(a_rank_is_found_among_4096),
        cmocka_unit_test(no_op_is_made_of_two),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
