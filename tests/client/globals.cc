/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ program whose global and thread-local objects hold communicators, memory and requests, and
 * whose destructors use the library after main. Its argument says how it leaves; whatever it is,
 * the program ends with status 7. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_lib/occl.h"

namespace {

void check(occl_result result, const char *what) {
    if (result == OCCL_SUCCESS)
        return;
    fprintf(stderr, "%s gave %d: %s\n", what, (int)result, occl_last_error());
    _exit(1);
}

/* A group of one rank with an op of its own; `careful` ones are taken down by their destructor,
 * others are left as they are, with an op that nobody waits for. */
class Group {
  public:
    explicit Group(bool careful) : careful_(careful) {}
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    void join() {
        occl_unique_id id;
        check(occl_get_unique_id(&id), "unique id");
        check(occl_comm_create(&id, 0, 1, nullptr, &comm_), "create");
        void *memory;
        check(occl_mem_alloc(4096, &memory), "alloc");
        memory_ = static_cast<float *>(memory);
        joined_ = true;
        work();
        /* The send has no receive: it is open when the destructor comes. */
        check(occl_send(memory_, 8, OCCL_FLOAT32, 0, comm_, nullptr, &open_), "send");
    }

    void work() {
        memory_[0] = 3;
        check(occl_all_reduce(memory_, memory_, 1, OCCL_FLOAT32, OCCL_SUM, comm_, nullptr, nullptr),
              "all-reduce");
        if (memory_[0] != 3)
            _exit(2);
    }

    /* Whoever leaves ends it, with an error here. */
    void work_until_error() {
        while (occl_all_reduce(memory_, memory_, 1, OCCL_FLOAT32, OCCL_MAX, comm_, nullptr,
                               nullptr) == OCCL_SUCCESS)
            continue;
        for (;;)
            (void)pause();
    }

    /* After main, after exit, at the end of a thread: nothing is owed but a return. */
    ~Group() {
        if (!joined_)
            return;
        float x = 1;
        (void)occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, comm_, nullptr, nullptr);
        if (!careful_)
            return;
        (void)occl_comm_destroy(comm_);
        (void)occl_wait(open_);
        (void)occl_mem_free(memory_);
        (void)occl_finalize();
    }

  private:
    bool careful_;
    bool joined_ = false;
    occl_comm comm_ = {};
    float *memory_ = nullptr;
    occl_request open_ = {};
};

Group first(false); /* its destructor runs after the second one has finalized */
Group second(true);
thread_local Group of_thread(false);

int inside; /* threads that work */

void *forever(void *) {
    of_thread.join();
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    of_thread.work_until_error();
    return nullptr;
}

void *once(void *) {
    of_thread.join();
    return nullptr;
}

void *leave(void *) {
    usleep(50000);
    exit(7);
}

pthread_t start(void *(*body)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, body, nullptr) != 0)
        _exit(3);
    return thread;
}

} // namespace

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    check(occl_init(nullptr), "init");
    first.join();
    if (strcmp(how, "careless") != 0)
        second.join();
    pthread_join(start(once), nullptr);
    if (strcmp(how, "busy") == 0 || strcmp(how, "thread") == 0) {
        (void)start(forever);
        (void)start(forever);
        while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) < 2)
            usleep(1000);
    }
    if (strcmp(how, "thread") == 0) {
        (void)start(leave);
        first.work_until_error();
    }
    usleep(20000);
    return 7;
}
