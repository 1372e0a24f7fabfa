/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gloo in the benchmark, over its TCP transport on the loopback address: it has no other one for a
 * single machine. Starts its own ranks. --backend names the all-reduce algorithm: ring, bcube or hd
 * (halving and doubling, an older class that works in place; the copy of the input is timed too,
 * as every operation here is out of place).
 *
 * Gloo's option objects are kept from call to call, which is kinder than what its users do.
 */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/bench/control.h"
#include "tools/bench/harness.h"

namespace {

// Longer than any call of the benchmark takes on a busy machine.
constexpr std::chrono::seconds kTimeout(60);

struct Job {
    const struct occl_bench_options *options;
    std::string store_folder;
    std::string algorithm;
};

// One prepared operation; a rank keeps the latest and replaces it when the call changes.
class Call {
  public:
    virtual ~Call() = default;
    virtual void run(uint32_t tag) = 0;
};

void sum_floats(void *out, const void *left, const void *right, size_t count) {
    gloo::sum<float>(static_cast<float *>(out), static_cast<const float *>(left),
                     static_cast<const float *>(right), count);
}

class AllReduce : public Call {
  public:
    AllReduce(const std::shared_ptr<gloo::Context> &context, bool ring, float *send, float *recv,
              size_t count)
        : options_(context) {
        using Algorithm = gloo::AllreduceOptions::Algorithm;
        options_.setAlgorithm(ring ? Algorithm::RING : Algorithm::BCUBE);
        options_.setInput(send, count);
        options_.setOutput(recv, count);
        options_.setReduceFunction(sum_floats);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::allreduce(options_);
    }

  private:
    gloo::AllreduceOptions options_;
};

class HalvingDoubling : public Call {
  public:
    HalvingDoubling(const std::shared_ptr<gloo::Context> &context, float *send, float *recv,
                    size_t count)
        : algorithm_(std::make_unique<Algorithm>(context, std::vector<float *>{recv},
                                                 static_cast<int>(count))),
          send_(send), recv_(recv), bytes_(count * sizeof(float)) {}
    void run(uint32_t) override {
        std::memcpy(recv_, send_, bytes_);
        algorithm_->run();
    }

  private:
    using Algorithm = gloo::AllreduceHalvingDoubling<float>;
    // By pointer, because the destructor of Gloo's class may throw and ours must not.
    std::unique_ptr<Algorithm> algorithm_;
    float *send_;
    float *recv_;
    size_t bytes_;
};

class Broadcast : public Call {
  public:
    Broadcast(const std::shared_ptr<gloo::Context> &context, float *recv, size_t count)
        : options_(context) {
        options_.setOutput(recv, count);
        options_.setRoot(0);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::broadcast(options_);
    }

  private:
    gloo::BroadcastOptions options_;
};

class AllGather : public Call {
  public:
    AllGather(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
        : options_(context) {
        options_.setInput(send, count);
        options_.setOutput(recv, count * static_cast<size_t>(context->size));
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::allgather(options_);
    }

  private:
    gloo::AllgatherOptions options_;
};

class AllToAll : public Call {
  public:
    AllToAll(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
        : options_(context) {
        size_t all = count * static_cast<size_t>(context->size);
        options_.setInput(send, all);
        options_.setOutput(recv, all);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::alltoall(options_);
    }

  private:
    gloo::AlltoallOptions options_;
};

class Reduce : public Call {
  public:
    Reduce(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
        : options_(context) {
        options_.setInput(send, count);
        options_.setOutput(recv, count);
        options_.setRoot(0);
        options_.setReduceFunction(sum_floats);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::reduce(options_);
    }

  private:
    gloo::ReduceOptions options_;
};

class Gather : public Call {
  public:
    Gather(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
        : options_(context) {
        options_.setInput(send, count);
        if (context->rank == 0) {
            options_.setOutput(recv, count * static_cast<size_t>(context->size));
        }
        options_.setRoot(0);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::gather(options_);
    }

  private:
    gloo::GatherOptions options_;
};

class Scatter : public Call {
  public:
    Scatter(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
        : options_(context) {
        if (context->rank == 0) {
            std::vector<float *> blocks;
            for (int r = 0; r < context->size; r++) {
                blocks.push_back(send + count * static_cast<size_t>(r));
            }
            options_.setInputs(blocks, count);
        }
        options_.setOutput(recv, count);
        options_.setRoot(0);
    }
    void run(uint32_t tag) override {
        options_.setTag(tag);
        gloo::scatter(options_);
    }

  private:
    gloo::ScatterOptions options_;
};

class Rank {
  public:
    Rank(std::shared_ptr<gloo::Context> context, std::string algorithm)
        : context_(std::move(context)), algorithm_(std::move(algorithm)) {}

    bool supports(enum occl_bench_op op) const {
        // Its reduce-scatter is an older class with another layout of the data.
        return op != OCCL_BENCH_REDUCE_SCATTER &&
               (algorithm_ == "ring" || op == OCCL_BENCH_ALL_REDUCE);
    }

    void run(enum occl_bench_op op, float *send, float *recv, size_t count) {
        if (call_ == nullptr || op != op_ || count != count_) {
            call_ = prepare(op, send, recv, count);
            op_ = op;
            count_ = count;
        }
        // Some bits of a tag are Gloo's own.
        call_->run(next_tag_++ & 0xffffff);
    }

  private:
    std::unique_ptr<Call> prepare(enum occl_bench_op op, float *send, float *recv, size_t count) {
        switch (op) {
        case OCCL_BENCH_ALL_REDUCE:
            if (algorithm_ == "hd") {
                return std::make_unique<HalvingDoubling>(context_, send, recv, count);
            }
            return std::make_unique<AllReduce>(context_, algorithm_ == "ring", send, recv, count);
        case OCCL_BENCH_BROADCAST:
            return std::make_unique<Broadcast>(context_, recv, count);
        case OCCL_BENCH_ALL_GATHER:
            return std::make_unique<AllGather>(context_, send, recv, count);
        case OCCL_BENCH_ALL_TO_ALL:
            return std::make_unique<AllToAll>(context_, send, recv, count);
        case OCCL_BENCH_REDUCE:
            return std::make_unique<Reduce>(context_, send, recv, count);
        case OCCL_BENCH_GATHER:
            return std::make_unique<Gather>(context_, send, recv, count);
        case OCCL_BENCH_SCATTER:
            return std::make_unique<Scatter>(context_, send, recv, count);
        default:
            throw std::logic_error("operation not supported");
        }
    }

    std::shared_ptr<gloo::Context> context_;
    std::string algorithm_;
    std::unique_ptr<Call> call_;
    enum occl_bench_op op_ = OCCL_BENCH_OPS;
    size_t count_ = 0;
    uint32_t next_tag_ = 1;
};

bool supports(void *self, enum occl_bench_op op) {
    return static_cast<Rank *>(self)->supports(op);
}

int run(void *self, enum occl_bench_op op, float *send, float *recv, size_t count) {
    try {
        static_cast<Rank *>(self)->run(op, send, recv, count);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo: %s\n", error.what());
        return 1;
    }
}

int measure(const Job &job, uint32_t rank) {
    const std::string version = std::to_string(GLOO_VERSION_MAJOR) + "." +
                                std::to_string(GLOO_VERSION_MINOR) + "." +
                                std::to_string(GLOO_VERSION_PATCH);
    gloo::rendezvous::FileStore store(job.store_folder);
    gloo::transport::tcp::attr loopback("127.0.0.1");
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(loopback);
    auto context = std::make_shared<gloo::rendezvous::Context>(
        static_cast<int>(rank), static_cast<int>(job.options->ranks));
    context->setTimeout(kTimeout);
    context->connectFullMesh(store, device);
    Rank self(context, job.algorithm);
    struct occl_bench_backend backend = {};
    backend.peer = "gloo";
    backend.version = version.c_str();
    backend.rank = rank;
    backend.ranks = job.options->ranks;
    backend.self = &self;
    backend.supports = supports;
    backend.run = run;
    return occl_bench_measure(&backend, job.options);
}

int rank_main(void *argument, uint32_t rank) {
    try {
        return measure(*static_cast<const Job *>(argument), rank);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo rank %u: %s\n", rank, error.what());
        return 1;
    }
}

} // namespace

int main(int argc, char **argv) {
    struct occl_bench_options options;
    int status = occl_bench_parse(argc, argv, &options);
    if (status != 0) {
        return status;
    }
    Job job;
    job.options = &options;
    job.algorithm = options.backend == nullptr ? "ring" : options.backend;
    if (job.algorithm != "ring" && job.algorithm != "bcube" && job.algorithm != "hd") {
        std::fprintf(stderr, "%s: --backend is one of ring, bcube, hd\n", argv[0]);
        return 2;
    }
    if (options.ranks < 2) {
        std::fprintf(stderr, "%s: --ranks of at least 2 is needed\n", argv[0]);
        return 2;
    }
    // Beside the control file, which is unique to this run.
    job.store_folder = std::string(options.control_path) + ".store";
    std::error_code error;
    std::filesystem::create_directory(job.store_folder, error);
    if (error) {
        std::fprintf(stderr, "%s: %s\n", job.store_folder.c_str(), error.message().c_str());
        return 1;
    }
    status = occl_bench_fork_ranks(options.ranks, OCCL_BENCH_EXIT_WRONG, rank_main, &job);
    std::filesystem::remove_all(job.store_folder, error);
    return status;
}
