/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of occlctl share: exit codes, options, the table of subcommands, and how a result
 * or an error reaches the user. One process, one thread, one subcommand. */
#ifndef TOOLS_OCCLCTL_OCCLCTL_H
#define TOOLS_OCCLCTL_OCCLCTL_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client_lib/locate.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/status.h"
#include "tools/admin/admin.h"

/* Version of the JSON that occlctl prints. It grows when a key changes its meaning or goes away,
 * not when one is added. */
#define OCCL_CTL_SCHEMA 1

enum occl_ctl_exit {
    OCCL_CTL_FINE = 0,
    OCCL_CTL_PROBLEM = 1,   /* it worked and found something wrong, the verb failed, or standard
                               output could not be written */
    OCCL_CTL_USAGE = 2,     /* the command line is wrong */
    OCCL_CTL_NO_DAEMON = 3, /* not reachable: absent, silent, lost, of another version */
    OCCL_CTL_FORBIDDEN = 4, /* not permitted */
    OCCL_CTL_LAUNCHER = 125 /* `run` itself failed, not a rank */
};

struct occl_ctl_options {
    const char *socket; /* NULL: the rule of client_lib/locate.h */
    const char *job;    /* filters; NULL or -1: all */
    const char *comm;
    const char *tenant;
    int rank;
    bool json;
    bool no_headers;
    bool verbose;
    bool color;     /* stdout is a terminal and NO_COLOR is not set */
    double watch_s; /* 0: once */
    int timeout_ms; /* for connecting and for each answer */
    struct occl_clock clock;
};

/* Which of the common options mean something to a subcommand; the others are refused. */
enum occl_ctl_takes {
    OCCL_CTL_FILTERS = 1,   /* --job, --comm, --rank, --tenant */
    OCCL_CTL_WATCHES = 2,   /* --watch, and it repeats by itself, over one connection */
    OCCL_CTL_REPEATABLE = 4 /* --watch, and the caller of run repeats it */
};

struct occl_ctl_command {
    const char *name;
    const char *args_doc; /* after the options in the usage line; "" for none */
    const char *summary;  /* one line, for the list of subcommands */
    int args_min;
    int args_max;
    /* Arguments without options; returns the exit code. NULL: parses its own line (run_own). */
    int (*run)(const struct occl_ctl_options *options, int argc, char **argv);
    int (*run_own)(const struct occl_ctl_options *options, int argc, char **argv);
    uint32_t takes;               /* enum occl_ctl_takes */
    void (*more_help)(FILE *out); /* below the options of --help; NULL: nothing */
};

/* The one table (commands.c), ended by a NULL name; NULL when there is no such subcommand. */
const struct occl_ctl_command *occl_ctl_commands(void);
const struct occl_ctl_command *occl_ctl_command_find(const char *name);

/* The last part of every --help: what each exit status means. */
void occl_ctl_exit_help(FILE *out);

/* --socket, --timeout, --verbose, for use as a child parser; input is struct occl_ctl_options. */
const struct argp *occl_ctl_connection_argp(void);

/* ---- talking to the daemon (connection.c) ---- */

struct occl_ctl_connection {
    struct occl_admin admin;
    char socket[OCCL_SOCKET_PATH_BYTES];
};

/* Finds the daemon and connects. On failure the error has been reported and *out_exit is set. */
bool occl_ctl_connect(const struct occl_ctl_options *options,
                      struct occl_ctl_connection *out_connection, int *out_exit);
/* {"verb": verb} plus the filters of the options that are set. The caller owns it. */
json_t *occl_ctl_request(const struct occl_ctl_options *options, const char *verb);
/* Sends request (its reference is taken) and returns the answer, which the caller owns, or NULL
 * after reporting the error and setting *out_exit. */
json_t *occl_ctl_ask(const struct occl_ctl_options *options, struct occl_admin *admin,
                     json_t *request, int *out_exit);

/* ---- results ---- */

/* Prints one line "occlctl: text; hint" on stderr, and with --json an object with schema, status
 * and error on stdout. Returns the exit code that belongs to the status. hint NULL: none. */
int occl_ctl_fail_hint(const struct occl_ctl_options *options, int status, const char *text,
                       const char *hint);
/* The same with occl_ctl_hint(status). */
int occl_ctl_fail(const struct occl_ctl_options *options, int status, const char *text);
/* What to do about a failure to reach the daemon; NULL: nothing is known to help. Static. */
const char *occl_ctl_hint(int status);
int occl_ctl_exit_code(int status);
/* Prints the object as one JSON document with "schema" in it. Takes the reference. Returns code, or
 * OCCL_CTL_PROBLEM where code is fine and memory was too short for the object (then NULL) or its
 * text; whether stdout took it is seen at exit. */
int occl_ctl_print_json(json_t *object, int code);
/* False: standard output has failed, so there is no sense in printing more. */
bool occl_ctl_output_works(void);

/* Prints one answer as text and judges it; out is NULL when only the exit code is wanted. */
typedef int occl_ctl_show_function(FILE *out, const struct occl_ctl_options *options,
                                   const json_t *reply);

/* Asks, and with watch_s asks again until interrupted, clearing a terminal before each answer. With
 * --json the answer is printed as it is and show only judges it. Returns the last exit code. */
int occl_ctl_query(const struct occl_ctl_options *options, const char *verb,
                   occl_ctl_show_function *show);

/* ---- subcommands ---- */
int occl_ctl_status(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_jobs(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_comms(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_ops(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_why(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_usage(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_config(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_set(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_ping(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_version(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_clean(const struct occl_ctl_options *options, int argc, char **argv);
int occl_ctl_doctor(const struct occl_ctl_options *options, int argc, char **argv);
void occl_ctl_set_help(FILE *out);
int occl_ctl_run(const struct occl_ctl_options *options, int argc, char **argv);

#endif
