/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options before the subcommand, finds it in the table, lets it parse its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_lib/occl.h"
#include "tools/occlctl/occlctl.h"

#define TIMEOUT_MS_DEFAULT 5000
#define TIMEOUT_S_MAX 86400.0

enum {
    KEY_SOCKET = 's',
    KEY_JSON = 'j',
    KEY_JOB = 256,
    KEY_COMM,
    KEY_RANK,
    KEY_NO_HEADERS,
    KEY_TIMEOUT,
    KEY_WATCH = 'w',
    KEY_VERBOSE = 'v'
};

static const struct argp_option connection_options[] = {
    {"socket", KEY_SOCKET, "PATH", 0,
     "Socket of the daemon (else $OCCL_SOCKET, the system's, this user's private daemon)", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Longest wait for the daemon (default 5)", 0},
    {"verbose", KEY_VERBOSE, NULL, 0, "Say more", 0},
    {0},
};

static const struct argp_option query_options[] = {
    {"json", KEY_JSON, NULL, 0, "Print JSON, and nothing else, on standard output", 0},
    {"job", KEY_JOB, "NAME", 0, "Only this job", 0},
    {"comm", KEY_COMM, "NAME", 0, "Only this communicator (name or number)", 0},
    {"rank", KEY_RANK, "N", 0, "Only this rank", 0},
    {"watch", KEY_WATCH, "SECONDS", 0, "Ask again every so many seconds until interrupted", 0},
    {"no-headers", KEY_NO_HEADERS, NULL, 0, "Leave out the heading of tables", 0},
    {0},
};

static double parse_seconds(struct argp_state *state, const char *text, const char *what) {
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds > 0) || seconds > TIMEOUT_S_MAX)
        argp_error(state, "--%s wants seconds above 0 and at most 86400, found '%s'", what, text);
    return seconds;
}

static error_t parse_connection(int key, char *arg, struct argp_state *state) {
    struct occl_ctl_options *options = state->input;
    switch (key) {
    case KEY_SOCKET:
        options->socket = arg;
        return 0;
    case KEY_TIMEOUT: {
        double ms = parse_seconds(state, arg, "timeout") * 1000;
        options->timeout_ms = ms < 1 ? 1 : (int)ms;
        return 0;
    }
    case KEY_VERBOSE:
        options->verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_query(int key, char *arg, struct argp_state *state) {
    struct occl_ctl_options *options = state->input;
    char *end;
    switch (key) {
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_JOB:
        options->job = arg;
        return 0;
    case KEY_COMM:
        options->comm = arg;
        return 0;
    case KEY_RANK: {
        long rank = strtol(arg, &end, 10);
        if (end == arg || *end != '\0' || rank < 0 || rank > 65535)
            argp_error(state, "--rank wants a number from 0 to 65535, found '%s'", arg);
        options->rank = (int)rank;
        return 0;
    }
    case KEY_WATCH:
        options->watch_s = parse_seconds(state, arg, "watch");
        return 0;
    case KEY_NO_HEADERS:
        options->no_headers = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp connection_argp = {.options = connection_options,
                                            .parser = parse_connection};
static const struct argp query_argp = {.options = query_options, .parser = parse_query};

const struct argp *occl_ctl_connection_argp(void) {
    return &connection_argp;
}

/* ---- one subcommand ---- */

struct sub_parse {
    struct occl_ctl_options *options;
    const struct occl_ctl_command *command;
    char **args;
    int count;
};

static error_t parse_sub(int key, char *arg, struct argp_state *state) {
    struct sub_parse *parse = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = parse->options;
        state->child_inputs[1] = parse->options;
        return 0;
    case ARGP_KEY_ARG:
        if (parse->count >= parse->command->args_max)
            argp_error(state, "unexpected argument '%s'", arg);
        parse->args[parse->count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (parse->count < parse->command->args_min)
            argp_error(state, "missing argument, expected: %s", parse->command->args_doc);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run_command(struct occl_ctl_options *options, const struct occl_ctl_command *command,
                       int argc, char **argv) {
    char name[64];
    (void)snprintf(name, sizeof name, "occlctl %s", command->name); /* names are short */
    argv[0] = name;
    if (command->run_own)
        return command->run_own(options, argc, argv);
    char **args = calloc((size_t)argc + 1, sizeof *args);
    if (!args)
        return occl_ctl_fail(options, OCCL_E_NO_MEMORY, "out of memory");
    struct sub_parse parse = {.options = options, .command = command, .args = args};
    const struct argp_child children[] = {
        {&connection_argp, 0, NULL, 0}, {&query_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {.parser = parse_sub,
                              .args_doc = command->args_doc,
                              .doc = command->summary,
                              .children = children};
    int code = OCCL_CTL_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &parse) == 0)
        code = command->run(options, parse.count, args);
    free(args);
    return code;
}

/* ---- top ---- */

struct top_parse {
    struct occl_ctl_options *options;
    int command_at; /* index of the subcommand, 0: none */
};

static error_t parse_top(int key, char *arg, struct argp_state *state) {
    struct top_parse *parse = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = parse->options;
        state->child_inputs[1] = parse->options;
        return 0;
    case 'V':
        (void)printf("occlctl %d.%d.%d\n", OCCL_VERSION_MAJOR, OCCL_VERSION_MINOR,
                     OCCL_VERSION_PATCH); /* stdout is checked at exit */
        exit(OCCL_CTL_FINE);
    case ARGP_KEY_ARG:
        (void)arg;
        /* The rest belongs to the subcommand. */
        parse->command_at = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which subcommand? `occlctl --help` lists them");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option top_options[] = {
    {"version", 'V', NULL, 0, "Print the version of occlctl", -1},
    {0},
};

/* The list of subcommands for --help, made from the table. */
static char *list_commands(int key, const char *text, void *input) {
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    char *list = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&list, &bytes);
    if (!out)
        return NULL;
    (void)fprintf(out, "Subcommands (each has --help):\n"); /* to memory: checked by fclose */
    for (const struct occl_ctl_command *c = occl_ctl_commands(); c->name; c++)
        (void)fprintf(out, "  %-9s %s\n", c->name, c->summary); /* as above */
    (void)fprintf(out, "\nExit status: 0 fine, 1 problem found, 2 usage, 3 daemon not reachable, "
                       "4 not permitted.\n"); /* as above */
    if (fclose(out) != 0) {
        free(list);
        return NULL;
    }
    return list;
}

static int finish(int code) {
    /* A full disk or a closed pipe behind stdout must not look like success. */
    if (fflush(stdout) != 0 && code == OCCL_CTL_FINE) {
        perror("occlctl: standard output");
        return OCCL_CTL_PROBLEM;
    }
    return code;
}

int main(int argc, char **argv) {
    const char *no_color = getenv("NO_COLOR"); /* lint: banned_calls: a convention of terminals */
    struct occl_ctl_options options = {
        .rank = -1,
        .timeout_ms = TIMEOUT_MS_DEFAULT,
        .color = isatty(STDOUT_FILENO) && !(no_color && no_color[0]),
        .clock = occl_clock_system(OCCL_TICKS_NS),
    };
    argp_err_exit_status = OCCL_CTL_USAGE;
    struct top_parse parse = {.options = &options};
    const struct argp_child children[] = {
        {&connection_argp, 0, NULL, 0}, {&query_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {
        .options = top_options,
        .parser = parse_top,
        .args_doc = "SUBCOMMAND [ARGUMENT...]",
        .doc = "Inspects and steers the occl daemon of this node, and launches ranks.\v ",
        .children = children,
        .help_filter = list_commands,
    };
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &parse) != 0)
        return OCCL_CTL_USAGE;
    const char *name = argv[parse.command_at];
    const struct occl_ctl_command *command = occl_ctl_command_find(name);
    if (!command) {
        (void)fprintf(stderr, "occlctl: no subcommand '%s'; `occlctl --help` lists them\n",
                      name); /* nowhere else to report */
        return OCCL_CTL_USAGE;
    }
    return finish(run_command(&options, command, argc - parse.command_at, argv + parse.command_at));
}
