# SPDX-License-Identifier: Apache-2.0
"""The one list of warnings, and the rules that apply it. Each BUILD file uses these rules.

Example:

    # SPDX-License-Identifier: Apache-2.0
    load("//tools:warnings.bzl", "occl_cc_binary", "occl_cc_library", "occl_cc_test")

    # Visibility is private unless named; name the ends of the arrows in CONTRIBUTING, nothing wider.
    occl_cc_library(
        name = "ring",
        srcs = ["ring.c"],
        hdrs = ["ring.h"],
        visibility = ["//client_lib:__subpackages__", "//daemon:__subpackages__"],
        deps = [":atomics"],
    )

    # cmocka is linked by the rule. Headers are included by path from the repository root:
    # #include "shm_ipc/ring.h"
    occl_cc_test(
        name = "ring_test",
        srcs = ["ring_test.c"],
        tags = ["tsan"],
        deps = [":ring"],
    )

    occl_cc_binary(
        name = "occl-example",
        srcs = ["main.c"],
        deps = [":ring"],
    )

A target's sources are either all C or all C++; the warnings that only C has are left out for C++.
Further flags go into `copts` (they come last); OCCL_CONVERSION_COPTS for code that computes with
numbers from outside, OCCL_DUAL_COPTS for the sources that compile the dual C/C++/CUDA headers.

A fuzz target with its corpus is an occl_cc_fuzz_test. Tags of tests: `tsan` (also runs under the thread sanitizer), `full` and `soak` (only with these
options of tools/test), `exclusive` and `local` (alone, outside the sandbox), `no-asan` (with the
reason in a comment).
"""

# What gcc and clang both understand, for C and C++.
OCCL_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wundef",
    "-Wcast-qual",
    "-Wvla",
    "-Wimplicit-fallthrough",
    "-Wformat=2",
    # What a library exports is marked in its source; all else stays private to the binary.
    "-fvisibility=hidden",
]

# Additions for C. _GNU_SOURCE is defined empty, so that a source which defines it too still agrees.
OCCL_CONLY_COPTS = [
    "-Wmissing-prototypes",
    "-Wstrict-prototypes",
    "-D_GNU_SOURCE=",
]

OCCL_CONVERSION_COPTS = ["-Wconversion"]

OCCL_DUAL_COPTS = ["-Wc++-compat"]

_CXX_ENDINGS = (".cc", ".cpp", ".cxx")

def _copts(name, srcs, copts):
    if type(srcs) != "list":
        fail("%s: srcs must be a plain list, so that its language can be told" % name)
    cxx = [src for src in srcs if src.endswith(_CXX_ENDINGS)]
    plain = [src for src in srcs if src.endswith(".c")]
    if cxx and plain:
        fail("%s: C and C++ sources need targets of their own" % name)
    return OCCL_COPTS + ([] if cxx else OCCL_CONLY_COPTS) + copts

def occl_cc_library(name, srcs = [], copts = [], **kwargs):
    """cc_library with the warnings of the project, always linked statically into its users."""
    native.cc_library(
        name = name,
        srcs = srcs,
        copts = _copts(name, srcs, copts),
        linkstatic = True,
        **kwargs
    )

def occl_cc_binary(name, srcs = [], copts = [], **kwargs):
    """cc_binary (also of a shared library) with the warnings of the project."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = _copts(name, srcs, copts),
        **kwargs
    )

def occl_cc_test(name, srcs = [], copts = [], linkopts = [], size = "small", tags = [], **kwargs):
    """cc_test on cmocka with the warnings of the project.

    A test that needs hardware or a kernel ability which is missing prints `SKIP name: reason` and
    calls skip(); tools/test counts the cases by cmocka's own lines.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = _copts(name, srcs, copts),
        linkopts = linkopts + ["-lcmocka"],
        linkstatic = True,
        size = size,
        tags = tags,
        **kwargs
    )

def occl_cc_fuzz_test(name, srcs, corpus, deps = [], copts = [], tags = [], **kwargs):
    """A fuzz target: a source with LLVMFuzzerTestOneInput and a corpus of at least one file.

    In every configuration but `fuzz` it is a test that replays the corpus and fixed mutations of
    it. To fuzz: `bazel build --config=fuzz //PACKAGE:NAME`, then
    `out/bazel-bin/PACKAGE/NAME -max_total_time=600 NEW_FOLDER PACKAGE/corpus` (the first folder
    receives new inputs). A crash file becomes a corpus file.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        args = ["$(location %s)" % file for file in corpus],
        copts = _copts(name, srcs, copts) + ["-Wno-missing-prototypes"],
        data = corpus,
        linkopts = select({
            "//tools:fuzzing": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        linkstatic = True,
        size = "small",
        tags = tags + ["fuzz"],
        deps = deps + select({
            "//tools:fuzzing": [],
            "//conditions:default": ["//tools:fuzz_replay"],
        }),
        **kwargs
    )
