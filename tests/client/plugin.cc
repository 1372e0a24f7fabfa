/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ program that knows the library only by dlopen: it loads it, works with it in threads, and
 * closes it again and again, at times while threads are inside and without having finalized.
 * Arguments: the library, how many rounds. Ends with status 7. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client_lib/occl.h"

namespace {

struct Library {
    void *handle;
    decltype(&occl_init) init;
    decltype(&occl_finalize) finalize;
    decltype(&occl_get_unique_id) get_unique_id;
    decltype(&occl_comm_create) comm_create;
    decltype(&occl_comm_abort) comm_abort;
    decltype(&occl_all_reduce) all_reduce;
    decltype(&occl_wait) wait;
    decltype(&occl_recv) recv;
    decltype(&occl_completion_fd) completion_fd;
};

template <typename Function> void find(void *handle, const char *name, Function *out) {
    *out = reinterpret_cast<Function>(dlsym(handle, name));
    if (!*out) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
}

Library load(const char *path) {
    Library l = {};
    l.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l.handle) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    find(l.handle, "occl_init", &l.init);
    find(l.handle, "occl_finalize", &l.finalize);
    find(l.handle, "occl_get_unique_id", &l.get_unique_id);
    find(l.handle, "occl_comm_create", &l.comm_create);
    find(l.handle, "occl_comm_abort", &l.comm_abort);
    find(l.handle, "occl_all_reduce", &l.all_reduce);
    find(l.handle, "occl_wait", &l.wait);
    find(l.handle, "occl_recv", &l.recv);
    find(l.handle, "occl_completion_fd", &l.completion_fd);
    return l;
}

void check(occl_result result, int line) {
    if (result == OCCL_SUCCESS)
        return;
    fprintf(stderr, "line %d: %d\n", line, (int)result);
    _exit(2);
}
#define CHECK(call) check((call), __LINE__)

struct Job {
    Library *library;
    occl_comm comm;
    int called;
};

void count(occl_result result, void *arg) {
    if (result == OCCL_SUCCESS)
        __atomic_add_fetch(static_cast<int *>(arg), 1, __ATOMIC_SEQ_CST);
}

void *work(void *arg) {
    Job *job = static_cast<Job *>(arg);
    for (int i = 0; i < 200; i++) {
        float x = 2;
        occl_op_attr attr = OCCL_OP_ATTR_INIT;
        occl_request request;
        attr.callback = count;
        attr.callback_arg = &job->called;
        CHECK(job->library->all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, job->comm, &attr,
                                       &request));
        CHECK(job->library->wait(request));
    }
    return nullptr;
}

/* Is inside until the communicator is aborted. */
void *block(void *arg) {
    Job *job = static_cast<Job *>(arg);
    float x;
    (void)job->library->recv(&x, 1, OCCL_FLOAT32, 0, job->comm, nullptr, nullptr);
    return nullptr;
}

void round_of(const char *path, int number) {
    Library l = load(path);
    occl_unique_id id;
    int fd;
    Job jobs[3];
    pthread_t threads[3];
    CHECK(l.init(nullptr));
    for (int i = 0; i < 3; i++) {
        jobs[i] = Job{&l, {}, 0};
        CHECK(l.get_unique_id(&id));
        CHECK(l.comm_create(&id, 0, 1, nullptr, &jobs[i].comm));
    }
    if (number % 3 == 1)
        CHECK(l.completion_fd(&fd));
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], nullptr, i < 2 ? work : block, &jobs[i]) != 0)
            _exit(3);
    if (number % 2) /* while they are inside */
        (void)dlclose(l.handle);
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], nullptr);
    CHECK(l.comm_abort(jobs[2].comm));
    (void)pthread_join(threads[2], nullptr);
    if (number % 4 != 3) { /* else the next round attaches once more */
        CHECK(l.finalize());
        for (int i = 0; i < 2; i++)
            if (jobs[i].called != 200)
                _exit(4);
    }
    if (number % 2 == 0)
        (void)dlclose(l.handle);
}

} // namespace

int main(int argc, char **argv) {
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = 0; argc > 1 && i < rounds; i++)
        round_of(argv[1], i);
    return 7;
}
