/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a job: sealed, shared inside it, charged, gone with its owner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm_ipc/region.h"
#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

static uint32_t region_alloc(struct client *c, uint64_t bytes, uint32_t flags) {
    struct occl_msg_region_alloc msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 0);
    msg.bytes = bytes;
    msg.flags = flags;
    client_call(c, &msg, sizeof msg);
    return c->in.h.type == OCCL_MSG_REGION ? c->in.region.region : 0;
}

static int region_simple(struct client *c, uint32_t type, uint32_t region) {
    struct occl_msg_region_map msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, type, 0);
    msg.region = region;
    client_call(c, &msg, sizeof msg);
    return client_status(c);
}

static void regions_are_sealed_and_shared_in_the_job(void **state) {
    struct fixture f;
    struct client c[2];
    struct client alien;
    struct occl_detail detail;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    client_attach(&alien, &f, "other", "");
    uint32_t number = region_alloc(&c[0], 5000, 0);
    assert_int_not_equal(number, 0);
    assert_int_equal(c[0].in.region.bytes, 8192);
    assert_int_equal(occl_memfd_verify(c[0].fds[0], 8192, false, &detail), OCCL_OK);
    char *mine = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, c[0].fds[0], 0);
    assert_ptr_not_equal(mine, MAP_FAILED);
    struct stat st;
    assert_int_equal(fstat(c[0].fds[0], &st), 0);
    assert_int_equal(st.st_blocks, 0); /* nobody populated it but its owner may */
    memcpy(mine, "hello", 6);
    assert_int_equal(region_simple(&c[1], OCCL_MSG_REGION_MAP, number), OCCL_OK);
    char *theirs = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, c[1].fds[0], 0);
    assert_string_equal(theirs, "hello");
    assert_int_equal(region_simple(&alien, OCCL_MSG_REGION_MAP, number), OCCL_E_NOT_FOUND);
    /* The owner frees it: the one that mapped it is told, the number is never used again. */
    assert_int_equal(region_simple(&c[0], OCCL_MSG_REGION_FREE, number), OCCL_OK);
    assert_true(client_event(&c[1], OCCL_EVENT_REGION_GONE, 500));
    assert_int_equal(c[1].in.event.number, number);
    assert_int_equal(region_simple(&c[0], OCCL_MSG_REGION_FREE, number), OCCL_E_NOT_FOUND);
    assert_int_equal(region_alloc(&c[0], 4096, 0), number + 1);
    assert_int_equal(fake_engine_counts().regions, 1);
    munmap(mine, 8192);
    munmap(theirs, 8192);
    clients_close(c, 2);
    client_close(&alien);
    fixture_stop(&f);
}

static void region_of_a_dead_owner_goes(void **state) {
    struct fixture f;
    struct client c[2];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    uint32_t number = region_alloc(&c[0], 4096, 0);
    assert_int_equal(region_simple(&c[1], OCCL_MSG_REGION_MAP, number), OCCL_OK);
    client_close(&c[0]);
    assert_true(client_event(&c[1], OCCL_EVENT_REGION_GONE, 500));
    assert_int_equal(c[1].in.event.number, number);
    assert_int_equal(fake_engine_counts().regions, 0);
    client_close(&c[1]);
    fixture_stop(&f);
}

static void region_quotas_and_sizes(void **state) {
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    f.config.quota_regions = 2;
    f.config.registered_max_bytes = 16 << 20;
    f.config.quota_registered_bytes = 4 << 20;
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    uint64_t level = f.daemon->charge.used_bytes;
    assert_int_equal(region_alloc(&c, 0, 0), 0);
    assert_int_equal(client_status(&c), OCCL_E_INVALID);
    assert_int_equal(region_alloc(&c, UINT64_MAX - 5, 0), 0);
    assert_int_equal(client_status(&c), OCCL_E_INVALID);
    assert_int_equal(region_alloc(&c, 4096, 6), 0);
    assert_int_equal(client_status(&c), OCCL_E_INVALID);
    assert_int_equal(region_alloc(&c, 5 << 20, 0), 0);
    assert_int_equal(client_status(&c), OCCL_E_QUOTA);
    assert_non_null(strstr(c.in.reply.detail.text, "quota_registered"));
    assert_int_equal(f.daemon->charge.used_bytes, level);
    uint32_t first = region_alloc(&c, 1 << 20, 0);
    uint32_t second = region_alloc(&c, 1 << 20, 0);
    assert_true(first > 0 && second > first);
    assert_int_equal(region_alloc(&c, 1 << 20, 0), 0);
    assert_non_null(strstr(c.in.reply.detail.text, "quota_regions"));
    assert_int_equal(region_simple(&c, OCCL_MSG_REGION_FREE, first), OCCL_OK);
    assert_int_equal(region_simple(&c, OCCL_MSG_REGION_FREE, second), OCCL_OK);
    assert_int_equal(f.daemon->charge.used_bytes, level);
    /* Huge pages if there are any, else ordinary ones: it works either way. */
    assert_true(region_alloc(&c, 4096, OCCL_REGION_HUGE) > second);
    client_close(&c);
    (void)fixture_pump(&f, 10, NULL, NULL);
    assert_int_equal(f.daemon->charge.used_bytes, 0);
    fixture_stop(&f);
}

/* The pages of a freed region go back at once, whatever its peers keep mapped. */
static void freed_region_keeps_no_memory(void **state) {
    struct fixture f;
    struct client c;
    struct stat st;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    uint32_t number = region_alloc(&c, 1 << 20, 0);
    int fd = dup(c.fds[0]);
    char *mine = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(mine, 7, 1 << 20);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks, (1 << 20) / 512);
    assert_int_equal(region_simple(&c, OCCL_MSG_REGION_FREE, number), OCCL_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    munmap(mine, 1 << 20);
    close(fd);
    client_close(&c);
    fixture_stop(&f);
}

/* One that asks for a descriptor again and again and does not read holds few of the daemon's. */
static void descriptors_do_not_pile_up(void **state) {
    enum { WAITING_MOST = 64, OTHERS = 8 };
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    f.config.send_queue_bytes = WAITING_MOST * 1024;
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    uint32_t number = region_alloc(&c, 4096, 0), before = open_descriptors(), most = 0;
    for (int i = 0; i < 8000 && f.daemon->counters.slow_total == 0; i++) {
        struct occl_msg_region_map msg;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_REGION_MAP, ++c.request);
        msg.region = number;
        client_send(&c, &msg, sizeof msg, -1);
        (void)occl_daemon_step(f.daemon, 0);
        uint32_t now = open_descriptors();
        most = now > most ? now : most;
    }
    assert_int_equal(f.daemon->counters.slow_total, 1);
    assert_true(most > before + WAITING_MOST / 2); /* they did wait */
    assert_true(most <= before + WAITING_MOST + OTHERS);
    (void)fixture_pump(&f, 10, NULL, NULL);
    assert_true(open_descriptors() <= before);
    client_close(&c);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_sealed_and_shared_in_the_job),
        cmocka_unit_test(region_of_a_dead_owner_goes),
        cmocka_unit_test(region_quotas_and_sizes),
        cmocka_unit_test(freed_region_keeps_no_memory),
        cmocka_unit_test(descriptors_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
