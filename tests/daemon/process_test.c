/* SPDX-License-Identifier: Apache-2.0 */
/* The occld binary as a process: idle CPU, signals, flags, forbidden io_uring, shrinking CPU sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

struct daemon_process {
    struct fixture f; /* folder and socket; no daemon inside */
    pid_t pid;
    int output; /* read end of its stderr and stdout */
    char text[65536];
};

/* Path of the binary, given by the build. */
static const char *binary(void) {
    const char *path = getenv("OCCLD");
    return path ? path : "daemon/occld";
}

struct start {
    const char *const *args;    /* after --socket; NULL-terminated */
    void (*prepare)(void *arg); /* in the child, before exec */
    void *arg;
};

static void launch(struct daemon_process *d, const struct start *start) {
    int ends[2];
    /* execv takes writable strings. */
    static char words[24][OCCL_CONFIG_TEXT_BYTES];
    char *argv[25] = {NULL};
    const char *fixed[] = {binary(), "--socket", d->f.socket};
    int count = 0;
    for (; count < 3; count++)
        (void)snprintf(words[count], sizeof words[count], "%s", fixed[count]);
    for (int i = 0; start && start->args && start->args[i] && count < 24; i++, count++)
        (void)snprintf(words[count], sizeof words[count], "%s", start->args[i]);
    for (int i = 0; i < count; i++)
        argv[i] = words[i];
    assert_int_equal(pipe(ends), 0);
    d->pid = fork();
    if (d->pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        if (start && start->prepare)
            start->prepare(start->arg);
        execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    d->output = ends[0];
}

static void wait_listening(const struct daemon_process *d) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", d->f.socket);
    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        int rc = connect(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (rc == 0)
            return;
        usleep(5000);
    }
    fail_msg("%s does not listen", binary());
}

static void start(struct daemon_process *d, const struct start *how) {
    memset(d, 0, sizeof *d);
    fixture_prepare(&d->f);
    launch(d, how);
    wait_listening(d);
}

/* Everything it has written; it must have ended. */
static int finish(struct daemon_process *d) {
    int status;
    size_t used = 0;
    ssize_t got;
    while ((got = read(d->output, d->text + used, sizeof d->text - 1 - used)) > 0)
        used += (size_t)got;
    d->text[used] = '\0';
    close(d->output);
    assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
    return status;
}

static void stop(struct daemon_process *d) {
    kill(d->pid, SIGTERM);
    int status = finish(d);
    if (status != 0)
        fail_msg("occld ended with %#x: %s", status, d->text);
    if (strstr(d->text, " error ") || strstr(d->text, " warn "))
        fail_msg("unexpected line: %s", d->text);
    if (rmdir(d->f.folder) != 0)
        fail_msg("occld left something in %s", d->f.folder);
}

static uint64_t cpu_ticks(pid_t pid) {
    char path[64];
    char text[1024];
    unsigned long user = 0;
    unsigned long system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    assert_true(got > 0);
    text[got] = '\0';
    /* Fields 14 and 15 of proc(5); the one behind the name in brackets is the third. */
    char *at = strrchr(text, ')') + 2;
    for (int field = 3; field < 14; field++)
        at = strchr(at, ' ') + 1;
    user = strtoul(at, &at, 10);
    system = strtoul(at, NULL, 10);
    return user + system;
}

static void idle_seconds_cost_nothing(void **state) {
    struct daemon_process d;
    (void)state;
    start(&d, NULL);
    usleep(300000);
    uint64_t before = cpu_ticks(d.pid);
    usleep(10000000);
    assert_true(cpu_ticks(d.pid) - before <= 1);
    stop(&d);
}

/* K02, the part of the daemon: idle communicators cost next to nothing. */
static void K02_idle_communicators_cost_little(void **state) {
    struct daemon_process d;
    struct client c[2];
    static struct client_comm comms[16][2];
    (void)state;
    start(&d, NULL);
    for (int i = 0; i < 2; i++)
        client_attach(&c[i], &d.f, "job", "");
    for (int i = 0; i < 16; i++)
        clients_make_comm(c, 2, (uint64_t)i + 1, comms[i]);
    uint64_t before = cpu_ticks(d.pid);
    usleep(5000000);
    uint64_t used = cpu_ticks(d.pid) - before;
    /* Two percent of a core are ten ticks of these five seconds. */
    assert_true(used <= (SANITIZED ? 60 : 10));
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 2; k++)
            client_comm_unmap(&comms[i][k]);
    for (int i = 0; i < 2; i++)
        client_close(&c[i]);
    stop(&d);
}

static void sighup_reloads(void **state) {
    struct daemon_process d;
    struct client c;
    char config[128];
    int status;
    (void)state;
    memset(&d, 0, sizeof d);
    fixture_prepare(&d.f);
    (void)snprintf(config, sizeof config, "%s/c.conf", d.f.folder);
    int fd = open(config, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(fd, "job_weight = 5\n", 15), 15);
    const char *const args[] = {"--config", config, NULL};
    struct start how = {.args = args};
    launch(&d, &how);
    wait_listening(&d);
    assert_int_equal(pwrite(fd, "job_weight = 6\n", 15, 0), 15);
    kill(d.pid, SIGHUP);
    usleep(200000);
    client_attach(&c, &d.f, "job", "");
    json_t *answer = client_admin(&c, "{\"verb\":\"jobs\"}", &status);
    const json_t *job = json_array_get(json_object_get(answer, "jobs"), 0);
    assert_int_equal(json_integer_value(json_object_get(job, "weight")), 6);
    json_decref(answer);
    /* A broken file is reported and changes nothing. */
    assert_int_equal(pwrite(fd, "job_wEight = 7\n", 15, 0), 15);
    kill(d.pid, SIGHUP);
    usleep(200000);
    client_close(&c);
    close(fd);
    (void)unlink(config);
    kill(d.pid, SIGTERM);
    assert_int_equal(finish(&d), 0);
    assert_non_null(strstr(d.text, "1 values changed"));
    assert_non_null(strstr(d.text, "c.conf:1: unknown key 'job_wEight'"));
    assert_int_equal(rmdir(d.f.folder), 0);
}

static int run_to_end(struct daemon_process *d, const char *const *args) {
    struct start how = {.args = args};
    memset(d, 0, sizeof *d);
    fixture_prepare(&d->f);
    launch(d, &how);
    int status = finish(d);
    assert_int_equal(rmdir(d->f.folder), 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void flags_are_checked(void **state) {
    struct daemon_process d;
    (void)state;
    const char *const check[] = {"--check-config", "--lanes", "2", NULL};
    assert_int_equal(run_to_end(&d, check), 0);
    assert_non_null(strstr(d.text, "lanes = 2    # flag"));
    assert_non_null(strstr(d.text, "log_level = info    # built-in"));
    const char *const lanes[] = {"--lanes", "many", NULL};
    assert_int_equal(run_to_end(&d, lanes), 1);
    assert_non_null(strstr(d.text, "flag: lanes: expected a whole number"));
    const char *const set[] = {"--set", "quota_ops", NULL};
    assert_int_not_equal(run_to_end(&d, set), 0);
    const char *const keys[] = {"--keys", NULL};
    assert_int_equal(run_to_end(&d, keys), 0);
    assert_non_null(strstr(d.text, "stall_interval"));
    const char *const file[] = {"--config", "/nonexistent/c", NULL};
    assert_int_equal(run_to_end(&d, file), 1);
    assert_non_null(strstr(d.text, "/nonexistent/c"));
}

static void deny_uring(void *arg) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    (void)arg;
    if (!filter ||
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup), 0) != 0 ||
        seccomp_load(filter) != 0)
        _exit(77);
}

/* H07: one info line, the same service, and status says which engine runs. */
static void H07_serves_without_io_uring(void **state) {
    struct daemon_process d;
    struct client c;
    int status;
    (void)state;
    struct start how = {.prepare = deny_uring};
    start(&d, &how);
    client_attach(&c, &d.f, "job", "");
    json_t *answer = client_admin(&c, "{\"verb\":\"status\"}", &status);
    assert_string_equal(json_string_value(json_object_get(answer, "loop")), "epoll");
    assert_string_equal(json_string_value(json_object_get(answer, "loop_refused")), "ENOSYS");
    json_decref(answer);
    client_close(&c);
    stop(&d);
    const char *line = strstr(d.text, "io_uring is not available here (ENOSYS)");
    assert_non_null(line);
    assert_null(strstr(line + 1, "io_uring is not available"));
}

static void last_cpu_only(void *arg) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(*(int *)arg, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        _exit(77);
}

static uint32_t threads_outside(pid_t pid, int cpu) {
    char path[64];
    uint32_t outside = 0;
    const struct dirent *entry;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        cpu_set_t set;
        if (entry->d_name[0] == '.')
            continue;
        CPU_ZERO(&set);
        assert_int_equal(
            sched_getaffinity((pid_t)strtol(entry->d_name, NULL, 10), sizeof set, &set), 0);
        outside += !CPU_ISSET(cpu, &set) || CPU_COUNT(&set) != 1;
    }
    closedir(folder);
    return outside;
}

/* K05: a set of one core that is not CPU 0. */
static void K05_threads_stay_inside_the_cpu_set(void **state) {
    struct daemon_process d;
    struct client c;
    int status;
    cpu_set_t mine;
    int cpu = -1;
    (void)state;
    CPU_ZERO(&mine);
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (int i = 1; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mine))
            cpu = i;
    if (cpu < 0) {
        print_message("SKIP K05_threads_stay_inside_the_cpu_set: only CPU 0 is allowed here\n");
        skip();
    }
    struct start how = {.prepare = last_cpu_only, .arg = &cpu};
    start(&d, &how);
    client_attach(&c, &d.f, "job", "");
    assert_int_equal(threads_outside(d.pid, cpu), 0);
    json_t *answer = client_admin(&c, "{\"verb\":\"status\"}", &status);
    assert_int_equal(json_integer_value(json_object_get(answer, "lanes")), 1);
    json_decref(answer);
    client_close(&c);
    stop(&d);
}

/* M02, M03: a single node listens on no network address. */
static void M03_no_network_listener(void **state) {
    struct daemon_process d;
    char path[96];
    char line[512];
    (void)state;
    start(&d, NULL);
    struct stat st;
    assert_int_equal(stat(d.f.socket, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    /* Sockets of the process, by inode, must not be in any table of the internet. */
    static const char *const tables[] = {"tcp", "tcp6", "udp", "udp6"};
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)d.pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char link[256] = "";
        char name[400];
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (readlink(name, link, sizeof link - 1) < 0 || strncmp(link, "socket:[", 8) != 0)
            continue;
        link[strlen(link) - 1] = '\0';
        for (int i = 0; i < 4; i++) {
            char table[64];
            (void)snprintf(table, sizeof table, "/proc/%d/net/%s", (int)d.pid, tables[i]);
            FILE *in = fopen(table, "r");
            while (in && fgets(line, sizeof line, in))
                if (strstr(line, link + 8))
                    fail_msg("an internet socket: %s", line);
            if (in)
                assert_int_equal(fclose(in), 0);
        }
    }
    closedir(folder);
    stop(&d);
}

/* A daemon that was killed leaves a socket; the next one replaces it. */
static void killed_daemon_is_followed_by_another(void **state) {
    struct daemon_process d;
    struct client c;
    (void)state;
    start(&d, NULL);
    client_attach(&c, &d.f, "job", "");
    kill(d.pid, SIGKILL);
    assert_true(client_sees_end(&c, 2000));
    client_close(&c);
    (void)finish(&d);
    assert_int_equal(access(d.f.socket, F_OK), 0);
    launch(&d, NULL);
    wait_listening(&d);
    client_attach(&c, &d.f, "job", "");
    client_close(&c);
    stop(&d);
    assert_non_null(strstr(d.text, "of a dead daemon removed"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_seconds_cost_nothing),
        cmocka_unit_test(K02_idle_communicators_cost_little),
        cmocka_unit_test(sighup_reloads),
        cmocka_unit_test(flags_are_checked),
        cmocka_unit_test(H07_serves_without_io_uring),
        cmocka_unit_test(K05_threads_stay_inside_the_cpu_set),
        cmocka_unit_test(M03_no_network_listener),
        cmocka_unit_test(killed_daemon_is_followed_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
