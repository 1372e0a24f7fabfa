/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for ranks and signals. One loop over a signal descriptor and, with --label, the ranks'
 * pipes.
 *
 * When a rank fails the daemon tells its peers within milliseconds; the launcher only ends those
 * that do not end by themselves: SIGTERM after 5 s, SIGKILL after 10 s. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/occlctl/run.h"

/* A rank may leave children that hold its pipe: their last words get so long. */
#define DRAIN_NS 200000000ull

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
/* Between two tries to tell the daemon of a rank that nobody waits for yet. */
#define TELL_AGAIN_MS 100
#define FORWARDED (sizeof forwarded / sizeof forwarded[0])

/* Steps on the way to no ranks at all; each has a time at which it is due. */
struct ending {
    uint64_t term_at_ns; /* 0: not planned or done */
    uint64_t kill_at_ns;
    uint64_t drained_at_ns;
    int signals; /* that we were sent */
};

static void signal_set(sigset_t *out_set) {
    (void)sigemptyset(out_set);        /* cannot fail */
    (void)sigaddset(out_set, SIGCHLD); /* a valid number */
    for (size_t i = 0; i < FORWARDED; i++)
        (void)sigaddset(out_set, forwarded[i]); /* a valid number */
}

int occl_run_signals_open(int *out_fd, struct occl_detail *detail) {
    sigset_t set;
    signal_set(&set);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return occl_detail_set(detail, OCCL_E_INTERNAL, errno, "cannot block signals");
    /* With --label a reader of ours may go away (`occlctl run --label ... | head`): ranks go on. */
    (void)signal(SIGPIPE, SIG_IGN); /* a valid number */
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no signal descriptor: %s",
                               strerror(errno));
    *out_fd = fd;
    return OCCL_OK;
}

void occl_run_signals_default(void) {
    sigset_t set;
    signal_set(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL); /* a valid set */
    (void)signal(SIGPIPE, SIG_DFL);             /* a valid number */
}

static void report_failure(const struct occl_run *run, int rank) {
    int status = run->ranks[rank].status;
    char how[64];
    if (WIFSIGNALED(status))
        (void)snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status))); /* cut is fine */
    else
        (void)snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status)); /* fits */
    const char *then = "";
    if (run->alive > 0)
        then = run->options->keep_going ? "; the others go on"
                                        : "; the others get SIGTERM in 5 s, SIGKILL in 10 s";
    (void)fprintf(stderr, "occlctl run: rank %d (pid %ld) %s%s\n", rank, (long)run->ranks[rank].pid,
                  how, then); /* nowhere else to report */
}

static void rank_ended(struct occl_run *run, struct ending *ending, int rank, int status) {
    run->ranks[rank].alive = false;
    run->ranks[rank].status = status;
    run->alive--;
    uint64_t now_ns = occl_clock_now_ns(&run->options->ctl.clock);
    if (run->alive == 0)
        ending->drained_at_ns = now_ns + DRAIN_NS;
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || run->failed)
        return;
    run->failed = true;
    run->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ending->signals == 0)
        report_failure(run, rank);
    if (!run->options->keep_going && ending->kill_at_ns == 0) {
        ending->term_at_ns = now_ns + OCCL_RUN_TERM_AFTER_NS;
        ending->kill_at_ns = now_ns + OCCL_RUN_KILL_AFTER_NS;
    }
}

static void reap_if(struct occl_run *run, struct ending *ending, bool killed_only) {
    for (int rank = 0; rank < run->options->ranks; rank++) {
        siginfo_t info = {.si_pid = 0};
        pid_t pid = run->ranks[rank].pid;
        int status;
        if (!run->ranks[rank].alive)
            continue;
        /* By number: the launcher's other child, a private daemon, is not ours to reap here. */
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            continue;
        if (killed_only && info.si_code == CLD_EXITED)
            continue;
        if (waitpid(pid, &status, WNOHANG) == pid)
            rank_ended(run, ending, rank, status);
    }
}

/* Several ranks may end between two looks, and the kernel does not tell in which order. A killed
 * one is the cause more likely than one that exited, which may have heard of the other's death. */
static void reap(struct occl_run *run, struct ending *ending) {
    reap_if(run, ending, true);
    reap_if(run, ending, false);
}

static void take_signals(struct occl_run *run, struct ending *ending, int signal_fd) {
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        /* The terminal sends its signals to the ranks too: they are in our process group. */
        if (info.ssi_code != SI_KERNEL)
            occl_run_signal(run, number);
        if (number == SIGUSR1 || number == SIGUSR2)
            continue;
        ending->signals++;
        if (ending->signals > 1)
            ending->kill_at_ns = 1; /* who asks twice means it */
        else if (ending->kill_at_ns == 0)
            ending->kill_at_ns =
                occl_clock_now_ns(&run->options->ctl.clock) + OCCL_RUN_KILL_AFTER_NS;
    }
    reap(run, ending);
}

/* Does what is due and returns milliseconds until the next step, -1 for none. */
static int advance_ending(const struct occl_run *run, struct ending *ending) {
    uint64_t now_ns = occl_clock_now_ns(&run->options->ctl.clock);
    if (ending->term_at_ns && now_ns >= ending->term_at_ns) {
        ending->term_at_ns = 0;
        occl_run_signal(run, SIGTERM);
        occl_run_signal(run, SIGCONT); /* a stopped process would not take it */
    }
    if (ending->kill_at_ns && now_ns >= ending->kill_at_ns) {
        occl_run_signal(run, SIGKILL);
        ending->kill_at_ns = now_ns + OCCL_RUN_KILL_AFTER_NS;
    }
    uint64_t next_ns = UINT64_MAX;
    const uint64_t dues[] = {ending->term_at_ns, ending->kill_at_ns, ending->drained_at_ns};
    for (size_t i = 0; i < sizeof dues / sizeof dues[0]; i++)
        if (dues[i] && dues[i] < next_ns)
            next_ns = dues[i];
    if (next_ns == UINT64_MAX)
        return -1;
    uint64_t left_ms = next_ns > now_ns ? (next_ns - now_ns) / 1000000 + 1 : 0;
    return left_ms > 60000 ? 60000 : (int)left_ms;
}

/* Fills the list for poll: the signals, then each pipe that is open; returns how many. */
static nfds_t list_descriptors(const struct occl_run *run, int signal_fd, struct pollfd *out_list,
                               struct occl_run_pipe **out_pipes) {
    nfds_t count = 0;
    out_list[count] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    out_pipes[count++] = NULL;
    int pipes = run->pipes ? 2 * run->options->ranks : 0;
    for (int i = 0; i < pipes; i++) {
        if (run->pipes[i].fd < 0)
            continue;
        out_list[count] = (struct pollfd){.fd = run->pipes[i].fd, .events = POLLIN};
        out_pipes[count++] = &run->pipes[i];
    }
    return count;
}

static void close_pipes(struct occl_run *run) {
    int pipes = run->pipes ? 2 * run->options->ranks : 0;
    for (int i = 0; i < pipes; i++) {
        if (run->pipes[i].fd >= 0)
            (void)close(run->pipes[i].fd); /* who still holds it has had his time */
        free(run->pipes[i].line);
        if (!run->output_error)
            run->output_error = run->pipes[i].error;
    }
}

int occl_run_watch(struct occl_run *run, int signal_fd, struct occl_detail *detail) {
    size_t most = 1 + (run->pipes ? 2 * (size_t)run->options->ranks : 0);
    struct pollfd *list = calloc(most, sizeof *list);
    struct occl_run_pipe **pipes = calloc(most, sizeof *pipes);
    struct ending ending = {0};
    int status = OCCL_OK;
    if (!list || !pipes)
        status = occl_detail_set(detail, OCCL_E_NO_MEMORY, ENOMEM, "out of memory");
    /* A rank that ended before its SIGCHLD could be seen is found by this first look. */
    reap(run, &ending);
    while (status == OCCL_OK) {
        int wait_ms = advance_ending(run, &ending);
        if (occl_run_tell(run) && (wait_ms < 0 || wait_ms > TELL_AGAIN_MS))
            wait_ms = TELL_AGAIN_MS;
        nfds_t count = list_descriptors(run, signal_fd, list, pipes);
        if (run->alive == 0 &&
            (count == 1 || occl_clock_now_ns(&run->options->ctl.clock) >= ending.drained_at_ns))
            break;
        if (poll(list, count, wait_ms) < 0 && errno != EINTR)
            status = occl_detail_set(detail, OCCL_E_INTERNAL, errno, "poll: %s", strerror(errno));
        for (nfds_t i = 1; status == OCCL_OK && i < count; i++)
            if (list[i].revents)
                (void)occl_run_output_read(pipes[i]); /* it closes what has ended */
        take_signals(run, &ending, signal_fd);
    }
    if (status != OCCL_OK)
        occl_run_signal(run, SIGKILL);
    close_pipes(run);
    free(list);
    free(pipes);
    return status;
}
