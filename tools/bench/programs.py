# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of the benchmark, and says why when one cannot be built."""

import hashlib
import os
import shutil
import subprocess

_HARNESS = ("control", "harness", "line", "options", "pattern")
_CFLAGS = ["-O2", "-std=gnu11", "-D_GNU_SOURCE=", "-Wall", "-Wextra"]
_BUILD_LIMIT_S = 300


class Missing(Exception):
    """A program or peer is not to be had; the text says why."""


class Builder:
    """Programs by name; an up-to-date one is not built again."""

    def __init__(self, root):
        self.root = root
        self.source_dir = os.path.join(root, "tools", "bench")
        self.out_dir = _writable_dir(root)
        self.programs = {}

    def build(self, peer):
        """Builds what a peer needs; raises Missing."""
        getattr(self, "_" + peer)()

    def _openmpi(self):
        self._mpi("openmpi")

    def _mpich(self):
        self._mpi("mpich")
        preload = [self._source("yield_preload.c")]
        self._make("yield_preload.so", ["cc"] + _CFLAGS + ["-shared", "-fPIC"], preload, ["-ldl"])

    def _mpi(self, name):
        for tool in ("mpicc." + name, "mpirun." + name):
            if shutil.which(tool) is None:
                raise Missing("%s is not installed (%s not found)" % (name, tool))
        sources = [self._source("mpi_bench.c")] + self._harness_sources()
        self._make("mpi_bench." + name, ["mpicc." + name] + _CFLAGS, sources, ["-lm"])

    def _gloo(self):
        objects = []
        for source in self._harness_sources():
            name = os.path.basename(source)[:-2] + ".o"
            self._make(name, ["cc"] + _CFLAGS + ["-c"], [source], [])
            objects.append(self.programs[name])
        flags = ["g++", "-O2", "-std=gnu++17"]
        sources = [self._source("gloo_bench.cc")]
        self._make("gloo_bench", flags, sources + objects, ["-lgloo", "-lpthread"])

    def _floor(self):
        # The best that this very machine can do, so for its own instruction set.
        flags = ["cc"] + _CFLAGS + ["-O3", "-march=native"]
        names = ("floor_bench.c", "floor_kernels.c", "floor_meet.c")
        sources = [self._source(name) for name in names]
        self._make("floor_bench", flags, sources + self._harness_sources(), ["-lm", "-lpthread"])

    def _occl(self):
        out = os.path.join(self.root, "out")
        for name in ("occld", "occlctl"):
            path = os.path.join(out, "bin", name)
            if not os.access(path, os.X_OK):
                raise Missing("out/bin/%s is missing; run tools/build" % name)
            self.programs[name] = path
        lib = os.path.join(out, "lib")
        flags = ["cc"] + _CFLAGS + ["-I", os.path.join(out, "include")]
        sources = [self._source("occl_bench.c")] + self._harness_sources()
        libraries = ["-L", lib, "-loccl", "-lm", "-Wl,-rpath," + lib]
        self._make("occl_bench", flags, sources, libraries)

    def _jobs(self):
        # Users who cannot reach the checkout run copies that lie beside each other, hence $ORIGIN.
        out = os.path.join(self.root, "out")
        for name in ("bin/occld", "bin/occlctl", "lib/liboccl.so.0"):
            path = os.path.join(out, name)
            if not os.access(path, os.R_OK):
                raise Missing("out/%s is missing; run tools/build" % name)
            self.programs[os.path.basename(name)] = path
        formulas = os.path.join(self.root, "tools", "perf", "formulas.c")
        libraries = ["-L", os.path.join(out, "lib"), "-loccl", "-lm", "-Wl,-rpath,$ORIGIN"]
        sources = [self._source("jobs_bench.c"), formulas]
        self._make("jobs_bench", ["cc"] + _CFLAGS, sources, libraries)

    def _source(self, name):
        return os.path.join(self.source_dir, name)

    def _harness_sources(self):
        return [self._source(name + ".c") for name in _HARNESS]

    def _make(self, name, compiler, sources, libraries):
        """Runs the compiler unless command and sources are those of the last time."""
        target = os.path.join(self.out_dir, name)
        command = compiler + ["-I", self.root, "-o", target] + sources + libraries
        mark = self._mark(command, sources)
        mark_path = target + ".mark"
        self.programs[name] = target
        if os.path.exists(target) and _read(mark_path) == mark:
            return
        error = _error_of(command)
        if error is not None:
            raise Missing("cannot build %s: %s" % (name, error))
        with open(mark_path, "w", encoding="ascii") as file:
            file.write(mark)

    def _mark(self, command, sources):
        digest = hashlib.sha256(" ".join(command).encode())
        headers = [n for n in os.listdir(self.source_dir) if n.endswith(".h")]
        headers = [self._source(name) for name in sorted(headers)]
        headers.append(os.path.join(self.root, "out", "include", "occl.h"))
        for path in sources + headers:
            if os.path.exists(path):
                with open(path, "rb") as file:
                    digest.update(file.read())
        return digest.hexdigest()


def _error_of(command):
    """Runs a compiler; None, or its first complaint."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BUILD_LIMIT_S,
            check=False,
        )
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    complaints = [line for line in done.stdout.splitlines() if "error" in line]
    return (complaints or ["%s failed" % command[0]])[0]


def _read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return None


def _writable_dir(root):
    """out/bench of the checkout, or the user's cache if the checkout cannot be written to."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for path in (os.path.join(root, "out", "bench"), os.path.join(cache, "occl", "bench")):
        try:
            os.makedirs(path, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    raise Missing("no folder to build in: neither out/bench nor the cache can be written")
