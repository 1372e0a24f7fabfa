/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

#include "shm_ipc/status.h"

struct guard {
    sigjmp_buf back;
    const struct occl_guard_range *ranges;
    uint32_t range_count;
    volatile uint64_t address; /* written by the handler between setjmp and its return */
    struct guard *outer;
};

/* The handler's only way to this thread's guard. Written by this thread alone; initial-exec, so
 * that the access in the handler calls nothing. */
static _Thread_local struct guard *volatile active __attribute__((tls_model("initial-exec")));

static struct guard *guard_for(uint64_t address) {
    for (struct guard *g = active; g != NULL; g = g->outer) {
        for (uint32_t i = 0; i < g->range_count; i++) {
            uint64_t base = (uint64_t)(uintptr_t)g->ranges[i].base;
            if (address >= base && address - base < g->ranges[i].bytes)
                return g;
        }
    }
    return NULL;
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    /* Sent by a process (kill) instead of raised by an access: no address to look at. */
    struct guard *g = info->si_code > 0 ? guard_for((uint64_t)(uintptr_t)info->si_addr) : NULL;
    if (g != NULL) {
        g->address = (uint64_t)(uintptr_t)info->si_addr;
        active = g->outer;
        siglongjmp(g->back, 1);
    }
    /* Not ours: the access is repeated with the default action and ends the process. A signal that
     * was sent has nothing to repeat, so it is raised again. */
    struct sigaction standard = {.sa_handler = SIG_DFL};
    (void)sigemptyset(&standard.sa_mask);
    (void)sigaction(signal_number, &standard, NULL);
    if (info->si_code <= 0)
        (void)raise(signal_number);
}

int occl_guard_install(void) {
    struct sigaction action = {.sa_sigaction = on_fault};
    (void)sigemptyset(&action.sa_mask); /* cannot fail on a valid set */
    /* NODEFER: the jump out of the handler then has no signal mask to restore. */
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGBUS, &action, NULL) != 0 || sigaction(SIGSEGV, &action, NULL) != 0)
        return OCCL_E_INTERNAL;
    return OCCL_OK;
}

int occl_guard_run(const struct occl_guard_range *ranges, uint32_t range_count,
                   void (*fn)(void *arg), void *arg, uint64_t *out_address) {
    struct guard g;
    g.ranges = ranges;
    g.range_count = range_count;
    g.address = 0;
    g.outer = active;
    if (sigsetjmp(g.back, 0) != 0) {
        if (out_address != NULL)
            *out_address = g.address;
        return OCCL_E_FAULT;
    }
    active = &g;
    fn(arg);
    active = g.outer;
    return OCCL_OK;
}
