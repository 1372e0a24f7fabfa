/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl set KIND NAME KEY VALUE`. The daemon judges the value and says what became of it. */
#include <string.h>

#include "daemon/config.h"
#include "daemon/settings.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

/* One key of the help: what it means, what it accepts. Lines stay below the width at which argp
 * breaks them. To memory: checked by its owner. */
static void print_key(FILE *out, const char *key, const char *range, const char *help) {
    (void)fprintf(out, "  %s\n    %s\n    %s\n", key, help, range);
}

void occl_ctl_set_help(FILE *out) {
    char range[OCCL_CONFIG_RANGE_BYTES];
    uint32_t count;
    const struct occl_setting *settings = occl_settings(&count);
    const char *kind = "";
    for (uint32_t i = 0; i < count; i++) {
        const struct occl_setting *s = &settings[i];
        bool job = strcmp(s->kind, "job") == 0;
        if (strcmp(kind, s->kind) != 0)
            (void)fprintf(out, "%s", /* as above, here and below */
                          job ? "Keys of a job (NAME as `occlctl jobs` lists it; TENANT/NAME where "
                                "two\ntenants have the same):\n"
                              : "\nKeys of a tenant (NAME as `occlctl usage` lists it):\n");
        kind = s->kind;
        occl_config_range_text(s->type, s->min, s->max, NULL, range, sizeof range);
        print_key(out, s->name, range, s->help);
        (void)fprintf(out, "    e.g. occlctl set %s %s %s %s\n", kind, job ? "train" : "1000",
                      s->name, s->example);
    }
    const struct occl_config_key *keys = occl_config_keys(&count);
    (void)fputs("\nKeys of the daemon (`occlctl config` shows all; set until it ends):\n", out);
    for (uint32_t i = 0; i < count; i++) {
        if (!keys[i].reloadable)
            continue;
        occl_config_range_text(keys[i].type, keys[i].min, keys[i].max, keys[i].choices, range,
                               sizeof range);
        print_key(out, keys[i].name, range, keys[i].help);
        (void)fprintf(out, "    e.g. occlctl set daemon %s %s\n", keys[i].name,
                      occl_config_example(&keys[i]));
    }
    (void)fputs("\nOnly root, the daemon's own user and members of its operator_group may set\n"
                "anything, and only over the daemon's first socket.\n\n",
                out);
}

/* Everything that can be wrong without asking the daemon; NULL: nothing. */
static const char *check_words(int argc, char **argv) {
    bool daemon = strcmp(argv[0], "daemon") == 0;
    if (!daemon && strcmp(argv[0], "job") != 0 && strcmp(argv[0], "tenant") != 0)
        return "set changes a job, a tenant or the daemon";
    if (argc == 3 && !daemon)
        return "set wants KIND NAME KEY VALUE, such as: set job NAME weight 3";
    if (argc == 4 && daemon && strcmp(argv[1], "occld") != 0)
        return "set daemon wants KEY VALUE, such as: set daemon log_level debug";
    return NULL;
}

int occl_ctl_set(const struct occl_ctl_options *options, int argc, char **argv) {
    const char *kind = argv[0];
    const char *wrong = check_words(argc, argv);
    if (wrong) {
        (void)fprintf(stderr, "occlctl: %s; `occlctl set --help` lists the keys\n",
                      wrong); /* nowhere else to report */
        return OCCL_CTL_USAGE;
    }
    /* There is one daemon, so its name may be left out. */
    const char *name = argc == 3 ? "occld" : argv[1];
    char key[64];
    (void)snprintf(key, sizeof key, "%s", argv[argc - 2]); /* a cut key is unknown to the daemon */
    for (char *c = key; *c; c++)
        if (*c == '-')
            *c = '_';
    struct occl_ctl_connection connection;
    int code;
    if (!occl_ctl_connect(options, &connection, &code))
        return code;
    json_t *reply = occl_ctl_ask(options, &connection.admin,
                                 json_pack("{s:s, s:s, s:s, s:s, s:s}", "verb", "set", "kind", kind,
                                           "name", name, "key", key, "value", argv[argc - 1]),
                                 &code);
    occl_admin_close(&connection.admin);
    if (!reply)
        return code;
    if (options->json)
        return occl_ctl_print_json(reply, OCCL_CTL_FINE);
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
