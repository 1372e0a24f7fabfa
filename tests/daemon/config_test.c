/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: units, ranges, precedence, errors with file and line, reload. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/settings.h"

struct place {
    char folder[64];
    char vendor[128], file[128], drop_ins[128], a[160], b[160], ignored[160];
};

static void write_file(const char *path, const char *text) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void place_make(struct place *p) {
    const char *base = getenv("TEST_TMPDIR");
    (void)snprintf(p->folder, sizeof p->folder, "%s/occl-XXXXXX",
                   base && strlen(base) < 40 ? base : "/tmp");
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->vendor, sizeof p->vendor, "%s/vendor.conf", p->folder);
    (void)snprintf(p->file, sizeof p->file, "%s/occld.conf", p->folder);
    (void)snprintf(p->drop_ins, sizeof p->drop_ins, "%s/conf.d", p->folder);
    (void)snprintf(p->a, sizeof p->a, "%s/10-a.conf", p->drop_ins);
    (void)snprintf(p->b, sizeof p->b, "%s/20-b.conf", p->drop_ins);
    (void)snprintf(p->ignored, sizeof p->ignored, "%s/30-c.conf.bak", p->drop_ins);
    assert_int_equal(mkdir(p->drop_ins, 0755), 0);
}

static void place_remove(const struct place *p) {
    (void)unlink(p->vendor);
    (void)unlink(p->file);
    (void)unlink(p->a);
    (void)unlink(p->b);
    (void)unlink(p->ignored);
    assert_int_equal(rmdir(p->drop_ins), 0);
    assert_int_equal(rmdir(p->folder), 0);
}

static struct occl_config_sources sources_of(const struct place *p, char *const *environment) {
    return (struct occl_config_sources){p->vendor, p->file, p->drop_ins, NULL, environment};
}

static uint32_t index_of(const char *name) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    fail_msg("no key %s", name);
    return 0;
}

static void every_built_in_value_passes_its_own_check(void **state) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    struct occl_config config;
    struct occl_config_origins origins;
    struct occl_detail detail;
    (void)state;
    occl_config_defaults(&config, &origins);
    for (uint32_t i = 0; i < count; i++) {
        char text[OCCL_CONFIG_TEXT_BYTES];
        if (occl_config_assign(keys[i].name, keys[i].standard, "test", &config, &origins,
                               &detail) != OCCL_OK)
            fail_msg("%s", detail.text);
        /* What is printed can be read again and gives the same. */
        occl_config_print(&keys[i], &config, text, sizeof text);
        struct occl_config again = config;
        assert_int_equal(occl_config_assign(keys[i].name, text, "test", &again, NULL, &detail),
                         OCCL_OK);
        assert_memory_equal(&again, &config, sizeof config);
        assert_true(strlen(keys[i].help) > 0);
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(keys[i].name, keys[k].name);
    }
    assert_int_equal(occl_config_settle(8ull << 30, &config, &detail), OCCL_OK);
    assert_int_equal(config.memory_limit_bytes, 8ull << 30);
    assert_int_equal(config.registered_max_bytes, 6ull << 30);
    assert_int_equal(config.quota_registered_bytes, 3ull << 30);
}

static void units_are_read(void **state) {
    static const struct {
        const char *text;
        bool size, good;
        uint64_t value;
    } cases[] = {
        {"250ms", false, true, 250000000},
        {"1 s", false, true, 1000000000},
        {"2min", false, true, 120000000000},
        {"7", false, true, 7},
        {"7us", false, true, 7000},
        {"", false, false, 0},
        {"-1s", false, false, 0},
        {"1S", false, false, 0},
        {"1sx", false, false, 0},
        {"99999999999999999999", false, false, 0},
        {"999999999999h", false, false, 0},
        {"64MiB", true, true, 64ull << 20},
        {"1TiB", true, true, 1ull << 40},
        {"4096", true, true, 4096},
        {"1MB", true, false, 0},
        {"0x10", true, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = 1;
        int status = cases[i].size ? occl_config_parse_size(cases[i].text, &value)
                                   : occl_config_parse_time(cases[i].text, &value);
        assert_int_equal(status, cases[i].good ? OCCL_OK : OCCL_E_INVALID);
        assert_int_equal(value, cases[i].good ? cases[i].value : 1);
    }
}

static void values_are_printed_for_people(void **state) {
    static const struct {
        enum occl_config_type type;
        uint64_t value;
        const char *text;
    } cases[] = {
        {OCCL_CONFIG_TIME, 0, "0"},
        {OCCL_CONFIG_TIME, 1, "1ns"},
        {OCCL_CONFIG_TIME, 10000000000, "10s"},
        {OCCL_CONFIG_TIME, 1500000000, "1500ms"},
        {OCCL_CONFIG_TIME, 600000000000, "10min"},
        {OCCL_CONFIG_TIME, UINT64_MAX, "18446744073709551615ns"},
        {OCCL_CONFIG_SIZE, 0, "0"},
        {OCCL_CONFIG_SIZE, 4095, "4095B"},
        {OCCL_CONFIG_SIZE, 4096, "4KiB"},
        {OCCL_CONFIG_SIZE, 3ull << 40, "3TiB"},
        {OCCL_CONFIG_CLASS, 0, "bulk"},
        {OCCL_CONFIG_CLASS, 3, "urgent"},
        {OCCL_CONFIG_CLASS, 4, "4"},
        {OCCL_CONFIG_OCTAL, 0666, "0666"},
        {OCCL_CONFIG_NUMBER, 42, "42"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        uint64_t again = 7;
        occl_config_value_text(cases[i].type, cases[i].value, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(occl_config_parse_value(cases[i].type, text, &again), OCCL_OK);
        assert_int_equal(again, cases[i].value);
    }
    uint64_t value = 7;
    static const char *const bad[] = {"", "High", "high ", "-1", "1x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(occl_config_parse_value(OCCL_CONFIG_CLASS, bad[i], &value),
                         OCCL_E_INVALID);
    assert_int_equal(value, 7);
}

/* What help shows as an example is taken. */
static void every_example_is_accepted(void **state) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    struct occl_config config;
    struct occl_detail detail;
    (void)state;
    occl_config_defaults(&config, NULL);
    for (uint32_t i = 0; i < count; i++)
        if (occl_config_assign(keys[i].name, occl_config_example(&keys[i]), "test", &config, NULL,
                               &detail) != OCCL_OK)
            fail_msg("%s", detail.text);
    const struct occl_setting *settings = occl_settings(&count);
    assert_true(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value;
        assert_int_equal(occl_config_parse_value(settings[i].type, settings[i].example, &value),
                         OCCL_OK);
        assert_in_range(value, settings[i].min, settings[i].max);
        assert_ptr_equal(occl_setting_find(settings[i].kind, settings[i].name), &settings[i]);
    }
    assert_null(occl_setting_find("job", "quota_ops"));
}

static void stronger_sources_win(void **state) {
    static char lanes[] = "OCCL_LANES=7";
    static char foreign[] = "OCCL_RANK=3";
    static char *const environment[] = {foreign, lanes, NULL};
    struct place p;
    struct occl_config config;
    struct occl_config_origins origins;
    struct occl_detail detail;
    (void)state;
    place_make(&p);
    write_file(p.vendor, "job_weight = 1\nlog_level=debug\ntenant_weight = 1\nlanes = 1\n");
    write_file(p.file, "# comment\n[occld]\njob_weight = 2\ntenant_weight=2 ; why\nlanes = 2\n");
    write_file(p.a, "tenant_weight = 3\nlanes = 3\n");
    write_file(p.b, "lanes = 4\ntenant_weight = 4\n");
    write_file(p.ignored, "nonsense\n");
    occl_config_defaults(&config, &origins);
    struct occl_config_sources sources = sources_of(&p, environment);
    if (occl_config_load(&sources, &config, &origins, &detail) != OCCL_OK)
        fail_msg("%s", detail.text);
    assert_int_equal(occl_config_assign("metrics_file", "/x", "flag", &config, &origins, &detail),
                     OCCL_OK);
    assert_string_equal(config.log_level, "debug");
    assert_int_equal(config.job_weight, 2);
    assert_int_equal(config.tenant_weight, 4);
    assert_int_equal(config.lanes, 7);
    assert_int_equal(config.quota_ops, 65536);
    char expected[256];
    (void)snprintf(expected, sizeof expected, "%s:2", p.b);
    assert_string_equal(origins.text[index_of("tenant_weight")], expected);
    (void)snprintf(expected, sizeof expected, "%s:3", p.file);
    assert_string_equal(origins.text[index_of("job_weight")], expected);
    assert_string_equal(origins.text[index_of("lanes")], "environment OCCL_LANES");
    assert_string_equal(origins.text[index_of("metrics_file")], "flag");
    assert_string_equal(origins.text[index_of("quota_ops")], "built-in");
    place_remove(&p);
}

static void mistakes_name_file_and_line(void **state) {
    static const struct {
        const char *text;
        int line;
        const char *expected;
    } cases[] = {
        {"\nlanez = 1\n", 2, "unknown key 'lanez'"},
        {"lanes = many\n", 1, "expected a whole number, 0 to 64, found 'many'"},
        {"lanes = 65\n", 1, "expected a whole number, 0 to 64, found '65'"},
        {"\n\nstall_interval = 3 weeks\n", 3,
         "expected a time (ns, us, ms, s, min, h; plain: ns), 10ms to 24h"},
        {"registered_max = 3 GB\n", 1, "expected a size (B, KiB, MiB"},
        {"log_level = loud\n", 1, "expected one of none|error|warn|info|debug, found 'loud'"},
        {"log_level = info|debug\n", 1, "expected one of"},
        {"socket_mode = 0999\n", 1, "expected an octal number"},
        {"lanes = 1\nlanes\n", 2, "expected `key = value`"},
        {"[clients]\nlanes = 1\n", 2, "unknown section [clients]"},
        {"lanes = 1\nlanez = 1\nlanes = 2\n", 2, "unknown key"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct place p;
        struct occl_config config;
        struct occl_config_origins origins;
        struct occl_detail detail = {0};
        char where[256];
        place_make(&p);
        write_file(p.file, cases[i].text);
        occl_config_defaults(&config, &origins);
        struct occl_config_sources sources = sources_of(&p, NULL);
        if (occl_config_load(&sources, &config, &origins, &detail) != OCCL_E_INVALID)
            fail_msg("case %zu was accepted", i);
        (void)snprintf(where, sizeof where, "%s:%d:", p.file, cases[i].line);
        if (!strstr(detail.text, where) || !strstr(detail.text, cases[i].expected))
            fail_msg("case %zu: %s", i, detail.text);
        place_remove(&p);
    }
}

static void wrong_environment_is_an_error(void **state) {
    static char bad[] = "OCCL_QUOTA_OPS=none";
    static char *const environment[] = {bad, NULL};
    struct occl_config_sources sources = {NULL, NULL, NULL, NULL, environment};
    struct occl_config config;
    struct occl_detail detail;
    (void)state;
    occl_config_defaults(&config, NULL);
    assert_int_equal(occl_config_load(&sources, &config, NULL, &detail), OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "environment OCCL_QUOTA_OPS"));
}

static void named_file_must_exist(void **state) {
    struct occl_config_sources sources = {NULL, NULL, NULL, "/nonexistent/occld.conf", NULL};
    struct occl_config config;
    struct occl_detail detail;
    (void)state;
    occl_config_defaults(&config, NULL);
    assert_int_equal(occl_config_load(&sources, &config, NULL, &detail), OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "/nonexistent/occld.conf"));
    sources.only_file = NULL;
    sources.main_file = "/nonexistent/occld.conf";
    sources.drop_in_folder = "/nonexistent/conf.d";
    assert_int_equal(occl_config_load(&sources, &config, NULL, &detail), OCCL_OK);
}

static void quotas_must_fit_into_memory(void **state) {
    struct occl_config config;
    struct occl_detail detail;
    (void)state;
    occl_config_defaults(&config, NULL);
    config.registered_max_bytes = 2ull << 30;
    assert_int_equal(occl_config_settle(1ull << 30, &config, &detail), OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "registered_max"));
    occl_config_defaults(&config, NULL);
    config.quota_registered_bytes = 1ull << 30;
    assert_int_equal(occl_config_settle(1ull << 30, &config, &detail), OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "quota_registered"));
    occl_config_defaults(&config, NULL);
    config.patience_min_ns = config.patience_max_ns + 1;
    assert_int_equal(occl_config_settle(1ull << 30, &config, &detail), OCCL_E_INVALID);
    occl_config_defaults(&config, NULL);
    config.sq_entries = 100;
    assert_int_equal(occl_config_settle(1ull << 30, &config, &detail), OCCL_E_INVALID);
}

static void reload_takes_what_can_change(void **state) {
    struct occl_config now;
    struct occl_config fresh;
    struct occl_config_origins now_origins;
    struct occl_config_origins fresh_origins;
    struct occl_detail detail;
    uint32_t changed;
    uint32_t fixed;
    (void)state;
    occl_config_defaults(&now, &now_origins);
    occl_config_defaults(&fresh, &fresh_origins);
    assert_int_equal(occl_config_assign("job_weight", "9", "set", &now, &now_origins, &detail),
                     OCCL_OK);
    assert_int_equal(
        occl_config_assign("log_level", "warn", "f:1", &fresh, &fresh_origins, &detail), OCCL_OK);
    assert_int_equal(occl_config_assign("lanes", "3", "f:2", &fresh, &fresh_origins, &detail),
                     OCCL_OK);
    occl_config_reload(&fresh, &fresh_origins, &now, &now_origins, &changed, &fixed);
    assert_int_equal(changed, 1);
    assert_int_equal(fixed, 1);
    assert_string_equal(now.log_level, "warn");
    assert_string_equal(now_origins.text[index_of("log_level")], "f:1");
    assert_int_equal(now.lanes, 0);
    /* What an operator set by hand stays. */
    assert_int_equal(now.job_weight, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_built_in_value_passes_its_own_check),
        cmocka_unit_test(units_are_read),
        cmocka_unit_test(values_are_printed_for_people),
        cmocka_unit_test(every_example_is_accepted),
        cmocka_unit_test(stronger_sources_win),
        cmocka_unit_test(mistakes_name_file_and_line),
        cmocka_unit_test(wrong_environment_is_an_error),
        cmocka_unit_test(named_file_must_exist),
        cmocka_unit_test(quotas_must_fit_into_memory),
        cmocka_unit_test(reload_takes_what_can_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
