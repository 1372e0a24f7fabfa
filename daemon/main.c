/* SPDX-License-Identifier: Apache-2.0 */
/* occld: parses, wires and runs. */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/occld.h"
#include "daemon/scribe.h"

#ifndef OCCL_DAEMON_ORDERED
#define OCCL_DAEMON_ORDERED 0
#endif

#define FLAGS_MAX 64

enum flag_keys {
    FLAG_CONFIG = 256,
    FLAG_CHECK_CONFIG,
    FLAG_FOREGROUND,
    FLAG_PRIVATE,
    FLAG_SET,
    FLAG_SOCKET,
    FLAG_LOG_LEVEL,
    FLAG_LANES,
    FLAG_METRICS_FILE,
    FLAG_KEYS,
};

struct flags {
    const char *config_file;
    bool check_only, private_mode, list_keys;
    struct {
        const char *name;
        const char *value;
    } set[FLAGS_MAX];
    uint32_t set_count;
};

static const struct argp_option options[] = {
    {"socket", FLAG_SOCKET, "PATH", 0, "Listen here (default /run/occl/occld.sock)", 0},
    {"config", FLAG_CONFIG, "FILE", 0, "Read this file instead of the installed ones", 0},
    {"check-config", FLAG_CHECK_CONFIG, NULL, 0, "Check the configuration and exit", 0},
    {"lanes", FLAG_LANES, "N", 0, "Executor threads", 0},
    {"log-level", FLAG_LOG_LEVEL, "LEVEL", 0, "none, error, warn, info or debug", 0},
    {"metrics-file", FLAG_METRICS_FILE, "FILE", 0, "Write Prometheus text here", 0},
    {"private", FLAG_PRIVATE, NULL, 0, "End with the last job", 0},
    {"foreground", FLAG_FOREGROUND, NULL, 0, "Stay in the foreground (always so)", 0},
    {"set", FLAG_SET, "KEY=VALUE", 0, "Any key of the configuration", 0},
    {"keys", FLAG_KEYS, NULL, 0, "List the keys of the configuration and exit", 0},
    {0},
};

static void add_setting(struct argp_state *state, const char *name, const char *value) {
    struct flags *flags = state->input;
    if (flags->set_count == FLAGS_MAX)
        argp_error(state, "more than %d settings", FLAGS_MAX);
    flags->set[flags->set_count].name = name;
    flags->set[flags->set_count].value = value;
    flags->set_count++;
}

static error_t parse_flag(int key, char *arg, struct argp_state *state) {
    struct flags *flags = state->input;
    char *equals;
    switch (key) {
    case FLAG_CONFIG:
        flags->config_file = arg;
        return 0;
    case FLAG_CHECK_CONFIG:
        flags->check_only = true;
        return 0;
    case FLAG_PRIVATE:
        flags->private_mode = true;
        return 0;
    case FLAG_FOREGROUND:
        return 0;
    case FLAG_KEYS:
        flags->list_keys = true;
        return 0;
    case FLAG_SOCKET:
        add_setting(state, "socket", arg);
        return 0;
    case FLAG_LOG_LEVEL:
        add_setting(state, "log_level", arg);
        return 0;
    case FLAG_LANES:
        add_setting(state, "lanes", arg);
        return 0;
    case FLAG_METRICS_FILE:
        add_setting(state, "metrics_file", arg);
        return 0;
    case FLAG_SET:
        equals = strchr(arg, '=');
        if (!equals) {
            argp_error(state, "--set: expected KEY=VALUE, found '%s'", arg);
            return EINVAL;
        }
        *equals = '\0';
        add_setting(state, arg, equals + 1);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Runs at every end, also where argp ends the process: what --keys, --check-config, --help or
 * --version could not print is a failure. */
static void check_output(int code, void *unused) {
    (void)unused;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    (void)fprintf(stderr, "occld: standard output: %s\n", strerror(errno));
    if (code == EXIT_SUCCESS)
        _exit(EXIT_FAILURE);
}

static void print_version(FILE *stream, struct argp_state *state) {
    (void)state;
    (void)fprintf(stream, "occld %s (ABI %u to %u)\n", OCCL_DAEMON_VERSION, OCCL_ABI_VERSION_MIN,
                  OCCL_ABI_VERSION);
}

static int load_config(const struct flags *flags, struct occl_config_sources *sources,
                       struct occl_config *config, struct occl_config_origins *origins,
                       struct occl_detail *detail) {
    occl_config_defaults(config, origins);
    sources->only_file = flags->config_file;
    int status = occl_config_load(sources, config, origins, detail);
    for (uint32_t i = 0; i < flags->set_count && status == OCCL_OK; i++)
        status = occl_config_assign(flags->set[i].name, flags->set[i].value, "flag", config,
                                    origins, detail);
    if (status == OCCL_OK)
        status = occl_config_settle(occl_placement_memory_bytes(), config, detail);
    return status;
}

static enum occl_log_format log_format(const struct occl_config *config) {
    if (strcmp(config->log_format, "json") == 0)
        return OCCL_LOG_FORMAT_JSON;
    if (strcmp(config->log_format, "journal") == 0)
        return OCCL_LOG_FORMAT_JOURNAL;
    if (strcmp(config->log_format, "auto") == 0 && sd_booted() > 0 && !isatty(STDERR_FILENO) &&
        getppid() == 1)
        return OCCL_LOG_FORMAT_JOURNAL;
    return OCCL_LOG_FORMAT_TEXT;
}

static void check_config(const struct occl_config *config,
                         const struct occl_config_origins *origins) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        char value[OCCL_CONFIG_TEXT_BYTES];
        occl_config_print(&keys[i], config, value, sizeof value);
        (void)printf("%s = %s    # %s\n", keys[i].name, value, origins->text[i]);
    }
}

/* Each client costs three descriptors, each region and communicator one. */
static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- log ---- */

/* Some 500 lines. */
#define LOG_ROOM_BYTES (64u << 10)
#define LAST_LINES_NS 1000000000u

struct log_output {
    struct occl_log log;
    struct occl_scribe *scribe;
};

/* The scribe's. Standard error may be a full pipe, or a descriptor that does not block. */
static void write_lines(void *self, const char *text, size_t bytes, uint64_t lost) {
    struct log_output *output = self;
    struct pollfd writable = {STDERR_FILENO, POLLOUT, 0};
    while (bytes > 0) {
        ssize_t done = write(STDERR_FILENO, text, bytes);
        if (done > 0) {
            text += done;
            bytes -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            (void)poll(&writable, 1, -1);
        } else if (done == 0 || errno != EINTR) {
            break; /* a log that cannot be written has nowhere to say so */
        }
    }
    if (lost)
        OCCL_LOG_WARN(&output->log, "log", "lines that found no room while none was taken: %llu",
                      (unsigned long long)lost);
}

/* Called by whoever logs, lanes included. */
static void hand_line(void *self, enum occl_log_level level, const char *line, size_t bytes) {
    struct log_output *output = self;
    char text[OCCL_LOG_LINE_BYTES + 1];
    (void)level;
    if (bytes > OCCL_LOG_LINE_BYTES)
        bytes = OCCL_LOG_LINE_BYTES;
    memcpy(text, line, bytes);
    text[bytes++] = '\n';
    (void)occl_scribe_hand(output->scribe, text, bytes);
}

static struct log_output *open_log(const struct occl_config *config,
                                   const struct occl_clock *clock) {
    struct log_output *output = calloc(1, sizeof *output);
    if (!output || occl_scribe_create("occld-log", LOG_ROOM_BYTES, write_lines, output,
                                      &output->scribe) != OCCL_OK) {
        free(output);
        return NULL;
    }
    struct occl_log_config log_config = {
        .level = OCCL_LOG_LEVEL_INFO,
        .format = log_format(config),
        .fd = STDERR_FILENO,
        .clock = clock,
        .write = hand_line,
        .self = output,
    };
    (void)occl_log_level_parse(config->log_level, &log_config.level);
    occl_log_init(&output->log, &log_config);
    return output;
}

/* Lines that nobody takes do not keep the daemon from ending. */
static void close_log(struct log_output *output) {
    occl_log_flush(&output->log);
    if (occl_scribe_destroy(output->scribe, LAST_LINES_NS))
        free(output);
}

static int run(const struct flags *flags, const struct occl_config_sources *sources,
               const struct occl_config *config, const struct occl_config_origins *origins) {
    struct occl_clock clock = occl_clock_system(occl_ticks_source_probe());
    struct log_output *output = open_log(config, &clock);
    struct occl_daemon *daemon;
    struct occl_detail detail;
    if (!output) {
        (void)fprintf(stderr, "occld: no memory to start\n");
        return EXIT_FAILURE;
    }
    struct occl_log *log = &output->log;
    raise_descriptor_limit();
    struct occl_daemon_options daemon_options = {
        .config = config,
        .origins = origins,
        .sources = sources,
        .clock = &clock,
        .log = log,
        .ordered = OCCL_DAEMON_ORDERED,
        .private_mode = flags->private_mode,
        .take_signals = true,
        .supervised = true,
    };
    int status = occl_daemon_create(&daemon_options, &daemon, &detail);
    if (status != OCCL_OK) {
        close_log(output); /* the warnings before it come first */
        (void)fprintf(stderr, "occld: %s%s%s\n", detail.text, detail.system_error ? ": " : "",
                      detail.system_error ? strerror(detail.system_error) : "");
        return EXIT_FAILURE;
    }
    bool good = occl_daemon_run(daemon);
    occl_daemon_destroy(daemon);
    OCCL_LOG_INFO(log, "daemon", "ended");
    close_log(output);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv, char **envp) {
    static const char doc[] =
        "The occl node daemon: performs the collective communication of all "
        "jobs of this node.\vStays in the foreground; SIGTERM drains, a second "
        "one aborts, SIGHUP reloads the configuration. Every key of the "
        "configuration (--keys) may also be given as OCCL_<KEY> in the "
        "environment.\n\n"
        "Exit status:\n"
        "  0   ended as it was asked to: by SIGTERM or SIGINT, with --private by the\n"
        "      end of the last job; or has printed what it was asked for\n"
        "  1   could not start (the configuration, a socket in use, no memory), its\n"
        "      control loop failed, or standard output could not be written\n"
        "  64  wrong command line\n";
    const struct argp argp = {options, parse_flag, NULL, doc, NULL, NULL, NULL};
    struct flags flags = {0};
    struct occl_config_sources sources = occl_config_standard_sources(envp);
    struct occl_config *config = malloc(sizeof *config);
    struct occl_config_origins *origins = calloc(1, sizeof *origins);
    struct occl_detail detail;
    int code = EXIT_FAILURE;
    argp_program_version_hook = print_version;
    argp_err_exit_status = EX_USAGE; /* argp's own choice, promised by the help */
    (void)on_exit(check_output, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!config || !origins || argp_parse(&argp, argc, argv, 0, NULL, &flags) != 0) {
        (void)fprintf(stderr, "occld: no memory to start\n");
    } else if (flags.list_keys) {
        occl_config_help(stdout);
        code = EXIT_SUCCESS;
    } else if (load_config(&flags, &sources, config, origins, &detail) != OCCL_OK) {
        (void)fprintf(stderr, "occld: %s%s%s\n", detail.text, detail.system_error ? ": " : "",
                      detail.system_error ? strerror(detail.system_error) : "");
    } else if (flags.check_only) {
        check_config(config, origins);
        code = EXIT_SUCCESS;
    } else {
        code = run(&flags, &sources, config, origins);
    }
    free(config);
    free(origins);
    return code;
}
