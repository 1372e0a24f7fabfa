# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the repositories that Bazel's built-in tools refer to.

Bazel 4 loads rules_cc, rules_java, rules_proto and remote_coverage_tools from the network as soon
as a C target is analysed. All that is used of them are names of native rules, so one repository
rule writes files that forward these names. Nothing is fetched, and nothing depends on where a
distribution installs Bazel's rule packages.
"""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
    "fdo_prefetch_hints",
    "fdo_profile",
    "objc_import",
    "objc_library",
]

_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_lite_proto_library",
    "java_package_configuration",
    "java_plugin",
    "java_proto_library",
    "java_runtime",
    "java_test",
    "java_toolchain",
]

_PROTO_RULES = [
    "proto_lang_toolchain",
    "proto_library",
]

# The coverage tools are only named as dependencies of test rules; coverage itself is measured with
# --config=gcov, so empty groups are enough.
_COVERAGE_BUILD = """
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
"""

def _forward(names):
    return "".join(["%s = native.%s\n" % (name, name) for name in names])

def _stand_in_impl(repository_ctx):
    folder = repository_ctx.attr.folder
    repository_ctx.file("BUILD", repository_ctx.attr.build)
    if folder:
        repository_ctx.file(folder + "/BUILD", "")
        repository_ctx.file(folder + "/defs.bzl", _forward(repository_ctx.attr.rules))

_stand_in = repository_rule(
    implementation = _stand_in_impl,
    attrs = {
        "build": attr.string(doc = "Text of the top BUILD file."),
        "folder": attr.string(doc = "Folder whose defs.bzl forwards the rules."),
        "rules": attr.string_list(doc = "Names of native rules to forward."),
    },
    doc = "An external repository that only forwards names of native rules.",
)

def occl_stand_ins():
    """Declares the four stand-in repositories; called once, from WORKSPACE."""
    _stand_in(name = "rules_cc", folder = "cc", rules = _CC_RULES)
    _stand_in(name = "rules_java", folder = "java", rules = _JAVA_RULES)
    _stand_in(name = "rules_proto", folder = "proto", rules = _PROTO_RULES)
    _stand_in(name = "remote_coverage_tools", build = _COVERAGE_BUILD)
