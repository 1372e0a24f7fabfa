/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for people, and tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/occlctl/human.h"
#include "tools/occlctl/table.h"

static void sizes_have_three_digits_at_most(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},           {1, "1 B"},           {1023, "1023 B"},
                {1024, "1.0 KiB"},    {1536, "1.5 KiB"},    {1048524, "1023.9 KiB"},
                {1048575, "1.0 MiB"}, {9437184, "9.0 MiB"}, {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[OCCL_HUMAN_BYTES];
        assert_string_equal(occl_human_size(rows[i].bytes, text, sizeof text), rows[i].text);
    }
}

static void durations_change_their_unit(void **state) {
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } rows[] = {{0, "0 ns"},
                {999, "999 ns"},
                {1000, "1.00 us"},
                {12345, "12.3 us"},
                {123456, "123 us"},
                {999499, "999 us"},
                {999500, "1.00 ms"},
                {4500000, "4.50 ms"},
                {999499999, "999 ms"},
                {999500000, "1.00 s"},
                {59999999999, "60.0 s"},
                {60000000000, "1 min 00 s"},
                {3599000000000, "59 min 59 s"},
                {3600000000000, "1 h 00 min"},
                {90061000000000, "1 d 01 h"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[OCCL_HUMAN_BYTES];
        assert_string_equal(occl_human_duration(rows[i].ns, text, sizeof text), rows[i].text);
    }
}

static char *print(const char *rows_text, int headings) {
    static const struct occl_table_column columns[] = {
        {"NAME", "name", OCCL_TABLE_TEXT},    {"SIZE", "size", OCCL_TABLE_SIZE},
        {"CLASS", "class", OCCL_TABLE_CLASS}, {"INNER", "a.b", OCCL_TABLE_TEXT},
        {"LIST", "list", OCCL_TABLE_LENGTH},  {"OK", "ok", OCCL_TABLE_TEXT}};
    char *text = NULL;
    size_t bytes = 0;
    json_t *rows = json_loads(rows_text, 0, NULL);
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(rows);
    assert_int_equal(occl_table_print(out, columns, 6, rows, headings), 0);
    assert_int_equal(fclose(out), 0);
    json_decref(rows);
    return text;
}

static void columns_are_as_wide_as_their_widest_cell(void **state) {
    (void)state;
    char *text =
        print("[{\"name\": \"a\", \"size\": 2048, \"class\": 1, \"a\": {\"b\": \"x\"}, \"list\": "
              "[1, 2], \"ok\": true}, {\"name\": \"longer\", \"size\": 5, \"class\": 3}]",
              1);
    assert_string_equal(text, "NAME       SIZE  CLASS   INNER  LIST  OK\n"
                              "a       2.0 KiB  normal  x      2     yes\n"
                              "longer      5 B  urgent  -      -     -\n");
    free(text);
    text = print("[]", 1);
    assert_string_equal(text, "NAME  SIZE  CLASS  INNER  LIST  OK\n");
    free(text);
    text = print("[]", 0);
    assert_string_equal(text, "");
    free(text);
}

static void control_characters_do_not_reach_a_terminal(void **state) {
    (void)state;
    char *text = print("[{\"name\": \"a\\u001b[2J\\nb\\u007f\"}]", 0);
    assert_string_equal(text, "a?[2J?b?  -  -  -  -  -\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_three_digits_at_most),
        cmocka_unit_test(durations_change_their_unit),
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
    };
    return cmocka_run_group_tests_name("occlctl_text", tests, NULL, NULL);
}
