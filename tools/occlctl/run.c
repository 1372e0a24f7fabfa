/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl run`: options, the order of events, and the exit status. */
#include "tools/occlctl/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm_ipc/limits.h"
#include "shm_ipc/unique_id.h"
#include "shm_ipc/wire.h"

enum {
    KEY_RANKS = 'n',
    KEY_ON_DEATH = 512,
    KEY_LABEL = 'l',
    KEY_TAG = 't',
    KEY_OCCLD = 513,
    KEY_JOB = 514,
    KEY_BIND = 515
};

static const struct argp_option run_options[] = {
    {"ranks", KEY_RANKS, "N", 0, "Number of ranks", 0},
    {"on-death", KEY_ON_DEATH, "abort|continue", 0,
     "When a rank fails: end the others (SIGTERM after 5 s, SIGKILL after 10 s), or let them go on",
     0},
    {"bind", KEY_BIND, "none|core", 0,
     "core: rank R may use only the R-th core of those the launcher may use, by turns when there "
     "are more ranks (default: none; a rank with many threads wants none)",
     0},
    {"label", KEY_LABEL, NULL, 0, "Begin each line of output with its rank", 0},
    {"tag", KEY_TAG, "TAG", 0, "Tenant tag of the job", 0},
    {"job", KEY_JOB, "NAME", 0, "Name of the job (default: the program's name and a number)", 0},
    {"occld", KEY_OCCLD, "PATH", 0,
     "Daemon to start when none runs (default: beside occlctl, then PATH)", 0},
    {0},
};

/* The rules of the daemon, which would tell only once every rank runs and asks. */
static int check_name(const char *what, bool tag, const char *name, struct occl_detail *detail) {
    if (!name[0] || strlen(name) >= OCCL_NAME_BYTES)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "%s: expected 1 to %d bytes, found %zu",
                               what, OCCL_NAME_BYTES - 1, strlen(name));
    if (tag && strpbrk(name, "@:/"))
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "%s '%s': '@', ':' and '/' are not allowed in it", what, name);
    return occl_name_check(name, (uint32_t)strlen(name) + 1, what, detail);
}

static void check_names(struct argp_state *state, const struct occl_run_options *options) {
    struct occl_detail detail = {.status = OCCL_OK};
    /* Ranks inherit it; an empty one is none. */
    const char *inherited = getenv("OCCL_TENANT_TAG"); /* lint: banned_calls: documented input */
    int status = OCCL_OK;
    if (options->job)
        status = check_name("--job", false, options->job, &detail);
    if (status == OCCL_OK && options->tag)
        status = check_name("--tag", true, options->tag, &detail);
    else if (status == OCCL_OK && inherited && inherited[0])
        status = check_name("OCCL_TENANT_TAG", true, inherited, &detail);
    if (status != OCCL_OK)
        argp_error(state, "%s", detail.text);
}

/* Options before the word `run` have been parsed already, as if they were for a query. */
static void check_common(struct argp_state *state, const struct occl_ctl_options *ctl) {
    if (ctl->json || ctl->watch_s > 0 || ctl->no_headers || ctl->comm || ctl->tenant ||
        ctl->rank >= 0)
        argp_error(state, "--json, --watch, --no-headers and filters mean nothing here: the output "
                          "is the ranks'");
}

static error_t parse_run(int key, char *arg, struct argp_state *state) {
    struct occl_run_options *options = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->ctl;
        return 0;
    case KEY_RANKS: {
        long ranks = strtol(arg, &end, 10);
        if (end == arg || *end != '\0' || ranks < 1 || ranks > OCCL_RUN_RANKS_MAX)
            argp_error(state,
                       "-n: expected a number from 1 to %d (limit: the ranks of a communicator "
                       "on one node), found '%s'",
                       OCCL_RUN_RANKS_MAX, arg);
        options->ranks = (int)ranks;
        return 0;
    }
    case KEY_ON_DEATH:
        options->keep_going = strcmp(arg, "continue") == 0;
        if (!options->keep_going && strcmp(arg, "abort") != 0)
            argp_error(state, "--on-death wants abort or continue, found '%s'", arg);
        return 0;
    case KEY_BIND:
        options->bind_core = strcmp(arg, "core") == 0;
        if (!options->bind_core && strcmp(arg, "none") != 0)
            argp_error(state, "--bind wants none or core, found '%s'", arg);
        return 0;
    case KEY_LABEL:
        options->label = true;
        return 0;
    case KEY_TAG:
        options->tag = arg;
        return 0;
    case KEY_JOB:
        options->job = arg;
        return 0;
    case KEY_OCCLD:
        options->occld = arg;
        return 0;
    case ARGP_KEY_ARG:
        return ARGP_ERR_UNKNOWN; /* the first word that is no option ends our part */
    case ARGP_KEY_ARGS:
        options->argv = state->argv + state->next;
        return 0;
    case ARGP_KEY_END:
        check_common(state, &options->ctl);
        check_names(state, options);
        if (options->ranks == 0)
            argp_error(state, "how many ranks? (-n N)");
        if (!options->argv)
            argp_error(state, "which program?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A name for the job that no other run of this machine has now: the program's name, cleaned to what
 * names may hold, and our process number. */
static void default_job(const char *program, char *out_name, size_t bytes) {
    const char *slash = strrchr(program, '/');
    const char *word = slash ? slash + 1 : program;
    char clean[OCCL_NAME_BYTES / 2];
    size_t length = 0;
    for (; word[length] && length + 1 < sizeof clean; length++) {
        char c = word[length];
        bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        clean[length] = fits ? c : '_';
    }
    clean[length] = '\0';
    (void)snprintf(out_name, bytes, "%s-%ld", length ? clean : "job", (long)getpid()); /* fits */
}

static void make_unique_id(struct occl_run *run) {
    struct occl_unique_id_wire id;
    _Static_assert(sizeof id.bytes == OCCL_RUN_ID_BYTES, "room for the text");
    occl_unique_id_make(&run->options->ctl.clock, &id);
    for (size_t i = 0; i < sizeof id.bytes; i++)
        (void)snprintf(run->unique_id + 2 * i, 3, "%02x", id.bytes[i]); /* two digits each */
}

static int launch(const struct occl_run_options *options) {
    struct occl_detail detail = {.status = OCCL_OK};
    char job[OCCL_NAME_BYTES];
    default_job(options->argv[0], job, sizeof job);
    struct occl_run run = {.options = options, .job = options->job ? options->job : job};
    struct occl_run_daemon daemon;
    int signal_fd = -1;
    make_unique_id(&run);
    int status = occl_run_signals_open(&signal_fd, &detail);
    if (status == OCCL_OK)
        status = occl_run_bind_open(&run, &detail);
    if (status == OCCL_OK)
        status = occl_run_daemon_open(options, &daemon, &detail);
    if (status != OCCL_OK) {
        (void)fprintf(stderr, "occlctl run: %s\n", detail.text); /* nowhere else to report */
        occl_run_bind_close(&run);
        return OCCL_CTL_LAUNCHER;
    }
    run.socket = daemon.socket;
    run.admin = &daemon.admin;
    status = occl_run_ranks_start(&run, &detail);
    if (status == OCCL_OK)
        status = occl_run_watch(&run, signal_fd, &detail);
    occl_run_daemon_close(options, &daemon);
    int code = status == OCCL_OK ? run.exit_code : OCCL_CTL_LAUNCHER;
    if (status == OCCL_OK && run.output_error) {
        (void)fprintf(stderr, "occlctl run: output of the ranks could not be written: %s\n",
                      strerror(run.output_error)); /* nowhere else to report */
        /* A rank that failed is the more important news. */
        if (code == 0)
            code = OCCL_CTL_LAUNCHER;
    }
    if (status != OCCL_OK)
        (void)fprintf(stderr, "occlctl run: %s\n", detail.text); /* nowhere else to report */
    occl_run_bind_close(&run);
    free(run.ranks);
    free(run.pipes);
    (void)close(signal_fd); /* the process ends */
    return code;
}

int occl_ctl_run(const struct occl_ctl_options *ctl, int argc, char **argv) {
    struct occl_run_options options = {.ctl = *ctl, .job = ctl->job};
    const struct argp_child children[] = {{occl_ctl_connection_argp(), 0, NULL, 0}, {0}};
    const struct argp argp = {
        .options = run_options,
        .parser = parse_run,
        .args_doc = "PROGRAM [ARGUMENT...]",
        .doc = "Launches the ranks of a program, which find each other with occl_init_env. Starts "
               "a private daemon if none runs; it ends with its last job.\v"
               "Exit status: 0 when all ranks ended with 0; else that of the first rank that did "
               "not, or 128 plus the number of the signal that ended it; 125 when the launcher "
               "itself failed: its command line, no daemon, a program that cannot be started, "
               "labelled output that could not be written.",
        .children = children,
    };
    /* The codes of the program own the numbers below 125, so a wrong command line is ours too. */
    argp_err_exit_status = OCCL_CTL_LAUNCHER;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options) != 0)
        return OCCL_CTL_LAUNCHER;
    return launch(&options);
}
