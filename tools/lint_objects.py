# SPDX-License-Identifier: Apache-2.0
"""Rules of tools/lint about compiled code: exported symbols, needed libraries, writable globals.

Each rule is a generator of (path, line number or 0, message).
"""

import os
import re
import subprocess

GOLDEN = "client_lib/exports.golden"
SYMBOL_VERSION = "OCCL_0"
# What the project's own tools ask beyond the public header: no promise to anybody else.
PRIVATE_VERSION = "OCCL_PRIVATE"
PRIVATE_PREFIX = "occl_inspect_"
SONAME = "liboccl.so.0"
NEEDED_NEVER = ("libstdc++", "libcuda", "libcmocka")

# Relocated constants are read-only once the program runs.
WRITABLE = re.compile(r"\.(data|bss|tdata|tbss)(?!\.rel\.ro)|\*COM\*")


def _output(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=True).stdout


def exported_symbols(context):
    exported = {}
    for line in _output(["nm", "-D", "--defined-only", context.liboccl]).splitlines():
        fields = line.split()
        # Local ones are there for relocations only: nobody can link against them.
        if fields[1] == "A" or fields[1] in "bdrt":
            continue
        name, _, version = fields[2].partition("@")
        exported[name] = version.lstrip("@")
    golden = context.by_path.get(GOLDEN)
    if golden is None:
        yield GOLDEN, 0, "the list of exported symbols is missing"
        return
    listed = {line.split("@")[0].strip() for line in golden.lines
              if line.strip() and not line.startswith("#")}
    for name in sorted(set(exported) - listed):
        yield GOLDEN, 0, "%s is exported and not listed" % name
    for name in sorted(listed - set(exported)):
        yield GOLDEN, 0, "%s is listed and not exported" % name
    for name, version in sorted(exported.items()):
        expected = PRIVATE_VERSION if name.startswith(PRIVATE_PREFIX) else SYMBOL_VERSION
        if version != expected:
            yield GOLDEN, 0, "%s has version '%s', not %s" % (name, version, expected)


def library_header(context):
    """The name programs link to, and nothing needed that a C program would not have."""
    text = _output(["readelf", "-dW", context.liboccl])
    if "[%s]" % SONAME not in "".join(re.findall(r"\(SONAME\).*", text)):
        yield SONAME, 0, "the SONAME differs"
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        if needed.startswith(NEEDED_NEVER):
            yield SONAME, 0, "needs " + needed
    if "TEXTREL" in text:
        yield SONAME, 0, "has text relocations"


def writable_globals(context):
    """No mutable globals, not even static ones inside a function."""
    count = 0
    for folder, _, names in os.walk(os.path.join(context.objects, "")):
        relative = os.path.relpath(folder, context.objects)
        if "/_objs/" not in relative or relative.startswith(("external/", "tests/")):
            continue
        package = relative.split("/_objs/")[0]
        for name in sorted(names):
            source = re.sub(r"(\.pic)?\.o$", ".c", name)
            if source == name:
                continue
            path = package + "/" + source
            # Objects of sources that are gone stay in the folder until it is cleaned.
            if path not in context.by_path and path[:-1] + "cc" not in context.by_path:
                continue
            count += 1
            for symbol in sorted(_writable(os.path.join(folder, name))):
                if not context.allow.permits("writable_globals", path, symbol):
                    yield path, 0, "%s can be written" % symbol
    if count == 0:
        yield context.objects, 0, "no object of ours is here, nothing was checked"


def _writable(path):
    for line in _output(["objdump", "-t", path]).splitlines():
        match = re.match(r"[0-9a-f]+ .{7} (\S+)\t([0-9a-f]+)\s+(?:\.hidden |\.internal )?(\S+)$",
                         line)
        if not match or int(match.group(2), 16) == 0 or not WRITABLE.match(match.group(1)):
            continue
        if match.group(3).startswith("."):
            continue
        yield re.sub(r"\.\d+$", "", match.group(3))


OBJECT_RULES = {"writable_globals": writable_globals}
LIBRARY_RULES = {"exported_symbols": exported_symbols, "library_header": library_header}
