/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options before the subcommand, finds it in the table, lets it parse its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
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
    KEY_TENANT,
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

static const struct argp_option output_options[] = {
    {"json", KEY_JSON, NULL, 0, "Print JSON, and nothing else, on standard output", 0},
    {"no-headers", KEY_NO_HEADERS, NULL, 0, "Leave out the heading of tables", 0},
    {0},
};

static const struct argp_option filter_options[] = {
    {"job", KEY_JOB, "NAME", 0, "Only this job", 0},
    {"comm", KEY_COMM, "NAME", 0, "Only this communicator (name or number)", 0},
    {"rank", KEY_RANK, "N", 0, "Only this rank", 0},
    {"tenant", KEY_TENANT, "UID[:TAG]", 0, "Only this tenant", 0},
    {0},
};

static const struct argp_option watch_options[] = {
    {"watch", KEY_WATCH, "SECONDS", 0, "Ask again every so many seconds until interrupted", 0},
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
    case KEY_TENANT:
        options->tenant = arg;
        return 0;
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
static const struct argp output_argp = {.options = output_options, .parser = parse_query};
static const struct argp filter_argp = {.options = filter_options, .parser = parse_query};
static const struct argp watch_argp = {.options = watch_options, .parser = parse_query};

/* Room for all of them and the end. */
#define CHILDREN 5

/* The common options that mean something to `takes`; returns how many parsers they are. */
static int list_children(uint32_t takes, struct argp_child *out_children) {
    int count = 0;
    memset(out_children, 0, CHILDREN * sizeof *out_children);
    out_children[count++].argp = &connection_argp;
    out_children[count++].argp = &output_argp;
    if (takes & OCCL_CTL_FILTERS)
        out_children[count++].argp = &filter_argp;
    if (takes & (OCCL_CTL_WATCHES | OCCL_CTL_REPEATABLE))
        out_children[count++].argp = &watch_argp;
    return count;
}

static void set_inputs(struct argp_state *state, struct occl_ctl_options *options, int children) {
    for (int i = 0; i < children; i++)
        state->child_inputs[i] = options;
}

const struct argp *occl_ctl_connection_argp(void) {
    return &connection_argp;
}

/* ---- one subcommand ---- */

struct sub_parse {
    struct occl_ctl_options *options;
    int children;
    const struct occl_ctl_command *command;
    char **args;
    int count;
};

/* Options before the subcommand were taken before it was known: one that would be passed over in
 * silence is a mistake worth telling. */
static void refuse_options(struct argp_state *state, const struct sub_parse *parse) {
    const struct occl_ctl_options *options = parse->options;
    bool filters = options->job || options->comm || options->tenant || options->rank >= 0;
    if (filters && !(parse->command->takes & OCCL_CTL_FILTERS))
        argp_error(state, "--job, --comm, --rank and --tenant mean nothing here");
    if (options->watch_s > 0 && !(parse->command->takes & (OCCL_CTL_WATCHES | OCCL_CTL_REPEATABLE)))
        argp_error(state, "--watch means nothing here");
}

/* What stands below the options of a subcommand's --help. */
static char *sub_help(int key, const char *text, void *input) {
    const struct sub_parse *parse = input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    char *more = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&more, &bytes);
    if (!out)
        return NULL;
    if (parse && parse->command->more_help)
        parse->command->more_help(out);
    occl_ctl_exit_help(out);
    if (fclose(out) != 0) {
        free(more);
        return NULL;
    }
    return more;
}

static error_t parse_sub(int key, char *arg, struct argp_state *state) {
    struct sub_parse *parse = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        set_inputs(state, parse->options, parse->children);
        return 0;
    case ARGP_KEY_ARG:
        if (parse->count >= parse->command->args_max)
            argp_error(state, "unexpected argument '%s'", arg);
        parse->args[parse->count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (parse->count < parse->command->args_min)
            argp_error(state, "missing argument; --help shows what is wanted");
        refuse_options(state, parse);
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
    struct argp_child children[CHILDREN];
    parse.children = list_children(command->takes, children);
    const struct argp argp = {.parser = parse_sub,
                              .args_doc = command->args_doc,
                              .doc = command->summary,
                              .children = children,
                              .help_filter = sub_help};
    int code = OCCL_CTL_USAGE;
    bool again = argp_parse(&argp, argc, argv, 0, NULL, &parse) == 0;
    while (again) {
        code = command->run(options, parse.count, args);
        again = (command->takes & OCCL_CTL_REPEATABLE) && options->watch_s > 0 &&
                code <= OCCL_CTL_PROBLEM && occl_ctl_output_works();
        if (again)
            occl_clock_sleep_ns(&options->clock, (uint64_t)(options->watch_s * 1e9));
    }
    free(args);
    return code;
}

/* ---- top ---- */

struct top_parse {
    struct occl_ctl_options *options;
    int children;
    int command_at; /* index of the subcommand, 0: none */
};

static error_t parse_top(int key, char *arg, struct argp_state *state) {
    struct top_parse *parse = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        set_inputs(state, parse->options, parse->children);
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
    (void)fputc('\n', out);                                     /* as above */
    occl_ctl_exit_help(out);
    if (fclose(out) != 0) {
        free(list);
        return NULL;
    }
    return list;
}

/* Runs at every end of the process, also where argp ends it (--help, --version): output that a full
 * disk or a closed pipe has swallowed must not look like success. */
static void close_output(int code, void *unused) {
    (void)unused;
    bool pending = __fpending(stdout) > 0;
    bool failed = ferror(stdout) != 0;
    int error = 0;
    /* Closed from the start and never written to is no failure. */
    if (fclose(stdout) != 0 && (pending || errno != EBADF)) {
        failed = true;
        error = errno;
    }
    if (!failed)
        return;
    (void)fprintf(stderr, "occlctl: standard output: %s\n",
                  error ? strerror(error) : "not all of it could be written"); /* nowhere else */
    /* argp knows whose numbers these are: `run` has set it to its own. */
    if (code == OCCL_CTL_FINE)
        _exit(argp_err_exit_status == OCCL_CTL_LAUNCHER ? OCCL_CTL_LAUNCHER : OCCL_CTL_PROBLEM);
}

/* A standard stream that is closed would be the number of the next descriptor, such as that of the
 * daemon's socket, and get what we print. Opened the wrong way, so that using it is an error still.
 */
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(OCCL_CTL_PROBLEM);
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
    hold_standard_streams();
    if (on_exit(close_output, NULL) != 0)
        return OCCL_CTL_PROBLEM;
    struct top_parse parse = {.options = &options};
    struct argp_child children[CHILDREN];
    parse.children = list_children(OCCL_CTL_FILTERS | OCCL_CTL_WATCHES, children);
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
    return run_command(&options, command, argc - parse.command_at, argv + parse.command_at);
}
