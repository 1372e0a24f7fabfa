# SPDX-License-Identifier: Apache-2.0
"""The peers, and for each the settings that can be its best at some point.

A setting is tried at every point it applies to; which one is best is measured, not assumed. The
lists hold what won somewhere on machines with two cores, plus its neighbours.
"""

import os
from collections import namedtuple

PEERS = ("openmpi", "mpich", "gloo")
# What is measured in each round, in the order of the first one.
PROGRAMS = ("floor",) + PEERS + ("occl",)

KIB = 1 << 10
MIB = 1 << 20

# applies(point) -> bool; command(programs, arguments) -> argv; environment: additions.
Setting = namedtuple("Setting", "peer name applies command environment")

OCCL_ZERO_COPY = "zero-copy"
OCCL_PRIVATE = "private"


def _always(_point):
    return True


def _tuned(point):
    return point.bytes >= 64 * KIB


def _has_release_gather(point):
    return point.op in ("all_reduce", "broadcast", "reduce")


# Numbers of Open MPI's algorithms: two sets that differ in all operations, beside its own choice.
_TUNED_OPS = (
    "allreduce", "bcast", "reduce_scatter_block", "allgather", "alltoall", "reduce", "gather",
    "scatter",
)  # fmt: skip
# Ring or butterfly, else linear; Rabenseifner, recursive, pairwise or binomial.
_RING_LINEAR = ("4", "1", "4", "4", "1", "1", "1", "1")
_RABENSEIFNER_BINOMIAL = ("6", "6", "3", "3", "2", "7", "2", "2")


def _openmpi(ranks, cores):
    launcher = ["mpirun.openmpi", "--oversubscribe", "-np", str(ranks)]
    if os.geteuid() == 0:
        launcher.insert(1, "--allow-run-as-root")
    bound = ["--bind-to", "core"]
    if ranks > cores:
        launcher += ["--mca", "mpi_yield_when_idle", "1"]
        bound = ["--bind-to", "core:overload-allowed"]
    free = ["--bind-to", "none"] if ranks > cores else bound
    cma = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    no_cma = cma + ["--mca", "btl_vader_single_copy_mechanism", "none"]
    ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any"]
    ucx += ["--mca", "opal_common_ucx_devices", "any", "-x", "UCX_TLS=posix,cma,self"]

    def algorithms(numbers):
        found = cma + ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        for op, number in zip(_TUNED_OPS, numbers):
            found += ["--mca", "coll_tuned_%s_algorithm" % op, number]
        return found

    choices = [
        ("cma", _always, free + cma),
        ("no-cma", lambda point: point.bytes <= MIB, free + no_cma),
        ("ucx", _always, free + ucx),
        ("cma-ring-linear", _tuned, free + algorithms(_RING_LINEAR)),
        ("cma-rabenseifner-binomial", _tuned, free + algorithms(_RABENSEIFNER_BINOMIAL)),
    ]
    if ranks > cores:
        choices += [
            ("cma-bound", _always, bound + cma),
            ("no-cma-bound", lambda point: point.bytes < 64 * KIB, bound + no_cma),
            ("ucx-bound", lambda point: point.bytes <= MIB, bound + ucx),
        ]
    return [
        Setting("openmpi", name, applies, _launched(launcher + options, "mpi_bench.openmpi"), {})
        for name, applies, options in choices
    ]


def _launched(launcher, program, after=()):
    def command(programs, arguments):
        return launcher + [programs[program]] + list(after) + arguments

    return command


def _mpich(ranks, cores):
    launcher = ["mpirun.mpich", "-np", str(ranks)]
    gather = {"MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0"}
    for op in ("ALLREDUCE", "BCAST", "REDUCE", "BARRIER"):
        gather["MPIR_CVAR_%s_POSIX_INTRA_ALGORITHM" % op] = "release_gather"

    def setting(name, applies, options, environment, preload):
        def command(programs, arguments):
            argv = launcher + options
            if preload:
                argv += ["-genv", "LD_PRELOAD", programs["yield_preload.so"]]
            for key, value in environment.items():
                argv += ["-genv", key, value]
            # Beyond the cores the launcher cannot bind, so the program binds its ranks itself.
            pin = ["--pin", "1"] if name.endswith("-bound") else []
            return argv + [programs["mpi_bench.mpich"]] + pin + arguments

        return Setting("mpich", name, applies, command, {})

    if ranks <= cores:
        bound = ["-bind-to", "core"]
        return [
            setting("default", _always, bound, {}, False),
            setting("release-gather", _has_release_gather, bound, gather, False),
        ]
    return [
        setting("yield", _always, [], {}, True),
        setting("yield-bound", _always, [], {}, True),
        setting("yield-release-gather", _has_release_gather, [], gather, True),
        setting("yield-release-gather-bound", _has_release_gather, [], gather, True),
    ]


def _gloo(ranks, _cores):
    def setting(algorithm, applies):
        after = ("--ranks", str(ranks), "--backend", algorithm)
        return Setting("gloo", algorithm, applies, _launched([], "gloo_bench", after), {})

    def only_all_reduce(point):
        return point.op == "all_reduce"

    return [
        setting("ring", lambda point: point.op != "reduce_scatter"),
        setting("bcube", only_all_reduce),
        setting("hd", only_all_reduce),
    ]


def _occl(ranks, private):
    """Bound, as the others are in one of their settings for each number of ranks."""

    def setting(name):
        def command(programs, arguments):
            run = [programs["occlctl"], "run", "-n", str(ranks), "--bind=core"]
            return run + [programs["occl_bench"], "--backend", name] + arguments

        return Setting("occl", name, _always, command, {})

    return [setting(OCCL_ZERO_COPY)] + ([setting(OCCL_PRIVATE)] if private else [])


def _floor(ranks, cores):
    def setting(name, backend, applies, pin):
        after = ["--ranks", str(ranks), "--backend", backend, "--pin", "1" if pin else "0"]
        return Setting("floor", name, applies, _launched([], "floor_bench", after), {})

    def meets(point):
        return point.bytes <= 4 * KIB

    found = [setting("move", "move", lambda point: point.bytes >= 64 * KIB, False)]
    waits = ("yield", "sleep") if ranks > cores else ("spin", "yield")
    for backend in waits:
        found.append(setting(backend + "-bound", backend, meets, True))
        found.append(setting(backend + "-free", backend, meets, False))
    return found


def settings_of(peer, ranks, cores, private=False):
    """All settings of a peer (or of the floor, or of occl) for one rank count."""
    if peer == "occl":
        return _occl(ranks, private)
    makers = {"openmpi": _openmpi, "mpich": _mpich, "gloo": _gloo, "floor": _floor}
    return makers[peer](ranks, cores)
