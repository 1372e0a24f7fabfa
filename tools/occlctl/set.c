/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl set KIND NAME KEY VALUE`: the words of people become those of the daemon. */
#include <string.h>

#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

/* "high" as its number; any other text as it is, the daemon judges it. */
static const char *class_number(const char *word) {
    static const char *const numbers[] = {"0", "1", "2", "3"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word, occl_table_class_name(i)) == 0)
            return numbers[i];
    return word;
}

int occl_ctl_set(const struct occl_ctl_options *options, int argc, char **argv) {
    const char *kind = argv[0];
    /* There is one daemon, so its name may be left out. */
    bool daemon = strcmp(kind, "daemon") == 0;
    if (argc == 3 && !daemon)
        return occl_ctl_fail(options, OCCL_E_USAGE,
                             "set wants KIND NAME KEY VALUE, such as: set job NAME weight 3");
    if (!daemon && strcmp(kind, "job") != 0 && strcmp(kind, "tenant") != 0)
        return occl_ctl_fail(options, OCCL_E_USAGE, "set changes a job, a tenant or the daemon");
    const char *name = argc == 3 ? "occld" : argv[1];
    char key[64];
    (void)snprintf(key, sizeof key, "%s", argv[argc - 2]); /* a cut key is unknown to the daemon */
    for (char *c = key; *c; c++)
        if (*c == '-')
            *c = '_';
    const char *value = strcmp(key, "class") == 0 ? class_number(argv[argc - 1]) : argv[argc - 1];
    struct occl_ctl_connection connection;
    int code;
    if (!occl_ctl_connect(options, &connection, &code))
        return code;
    json_t *reply = occl_ctl_ask(options, &connection.admin,
                                 json_pack("{s:s, s:s, s:s, s:s, s:s}", "verb", "set", "kind", kind,
                                           "name", name, "key", key, "value", value),
                                 &code);
    occl_admin_close(&connection.admin);
    if (!reply)
        return code;
    if (options->json) {
        occl_ctl_print_json(reply);
        return OCCL_CTL_FINE;
    }
    const json_t *changed = json_object_get(reply, "changed");
    char from[64], to[64];
    const struct occl_table_column columns[] = {{"", "from", OCCL_TABLE_TEXT},
                                                {"", "to", OCCL_TABLE_TEXT}};
    occl_table_cell(changed, &columns[0], from, sizeof from);
    occl_table_cell(changed, &columns[1], to, sizeof to);
    (void)printf("%s %s: %s %s -> %s\n", kind, name, key, from, to); /* checked at exit */
    json_decref(reply);
    return OCCL_CTL_FINE;
}
