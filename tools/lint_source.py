# SPDX-License-Identifier: Apache-2.0
"""Rules of tools/lint about C sources: doors, fences, arrows, functions.

They read code with comments and strings blanked, line by line; that clang-format decides the shape
makes such simple reading reliable. Each rule is a generator of (path, line number or 0, message).
"""

import re

FUNCTION_LINES_MAX = 70

PRODUCT = ("client_lib/", "shm_ipc/", "fabric/", "gpu/", "daemon/", "tools/")
PURE = ("daemon/algo/", "daemon/sched/", "daemon/plan/")

# The clock-and-randomness door, the environment, and threads.
BANNED = re.compile(
    r"(?<![\w.>])(clock_gettime|clock_nanosleep|gettimeofday|time|s?rand|rand_r|[dlm]rand48|random"
    r"|srandom|getrandom|getentropy|(?:secure_)?getenv|sleep|usleep|nanosleep|pthread_create"
    r"|thrd_create)\s*\(")

# What pure logic must not do: files, sockets, threads, logs, processes.
IMPURE = re.compile(
    r"(?<![\w.>])(f?open|openat|read|write|fread|fwrite|close|ioctl|mmap|syscall|socket|sendmsg"
    r"|recvmsg|poll|printf|fprintf|puts|perror|fork|pthread_\w+|occl_log_?\w*|OCCL_LOG_?\w*)\s*\(")

FENCES = re.compile(
    r"\b(__atomic_thread_fence|__atomic_signal_fence|atomic_thread_fence|atomic_signal_fence"
    r"|__sync_\w+|_mm_[lsm]fence|__builtin_ia32_[lsm]fence|_Atomic|stdatomic\.h)\b")
FENCE_HOME = "shm_ipc/atomics.h"

# Who may include whom; the longest prefix of the including file decides. A value ending in "/" is
# a folder, any other value the beginning of a path.
GPU_SHARED = ("gpu/",)
# Of gpu, these belong to its backends and to the daemon core.
GPU_BACKENDS = re.compile(r"gpu/(?:.*/)?(?:ops|device|backend|host_backend|emu|cuda)\w*\.h$")
ARROWS = (
    ("shm_ipc/", ("shm_ipc/",)),
    ("fabric/", ("fabric/", "shm_ipc/")),
    ("gpu/", ("gpu/", "shm_ipc/")),
    ("client_lib/", ("client_lib/", "shm_ipc/") + GPU_SHARED),
    ("daemon/algo/", PURE + ("shm_ipc/",) + GPU_SHARED),
    ("daemon/sched/", PURE + ("shm_ipc/",) + GPU_SHARED),
    ("daemon/plan/", PURE + ("shm_ipc/",) + GPU_SHARED),
    ("daemon/", ("daemon/", "fabric/", "gpu/", "shm_ipc/")),
)
FOLDERS = ("client_lib/", "shm_ipc/", "fabric/", "gpu/", "daemon/", "tools/", "tests/")


def blank(text):
    """Blanks comments, strings and characters, keeping every line where it is."""
    def spaces(match):
        word = match.group(0)
        if word.startswith(("/*", "//")):
            return re.sub(r"[^\n]", " ", word)
        return word[0] + re.sub(r"[^\n]", " ", word[1:-1]) + word[-1]

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', spaces, text,
                  flags=re.S)


def functions(file):
    """Yields (first line, line of the brace, last line) of each function body, counted from 1."""
    header = None
    index = 0
    code = file.code
    while index < len(code):
        line = code[index]
        if header is None and re.match(r"[A-Za-z_]", line) and not line.startswith("typedef"):
            header = index
        if header is not None:
            text = " ".join(code[header:index + 1])
            if line.rstrip().endswith("{"):
                if "(" in text and "=" not in text and not re.match(r"(extern|namespace)\s", text):
                    last = index
                    while last + 1 < len(code) and not code[last].startswith("}"):
                        last += 1
                    yield header + 1, index + 1, last + 1
                    index = last
                header = None
            elif ";" in line or line.startswith(("#", "}")) or not line.strip():
                header = None
        index += 1


def function_length(context):
    for file in context.c_files():
        for first, brace, last in functions(file):
            count = last - brace - 1
            if count > FUNCTION_LINES_MAX:
                yield (file.path, first, "%d lines, at most %d (or a comment `lint: "
                       "function_length: reason`)" % (count, FUNCTION_LINES_MAX))


def backward_goto(context):
    for file in context.c_files():
        for _, brace, last in functions(file):
            seen = set()
            for number in range(brace + 1, last):
                line = file.code[number - 1]
                label = re.match(r"\s*(\w+):\s*$", line)
                if label and label.group(1) != "default":
                    seen.add(label.group(1))
                jump = re.search(r"\bgoto\s+(\w+)", line)
                if jump and jump.group(1) in seen:
                    yield file.path, number, "goto %s jumps backwards" % jump.group(1)


def _calls(context, rule, pattern, folders, why):
    for file in context.c_files(*folders):
        for number, line in enumerate(file.code, 1):
            if line.startswith("#"):
                continue
            for match in pattern.finditer(line):
                # A declaration or a member of an ops table is a name, not a call.
                if re.search(r"\(\s*\*\s*$", line[:match.start()]):
                    continue
                if not context.allow.permits(rule, file.path, match.group(1)):
                    yield file.path, number, "%s: %s" % (match.group(1), why)


def banned_calls(context):
    yield from _calls(context, "banned_calls", BANNED, PRODUCT, "only behind one of the four doors")


def pure_logic(context):
    yield from _calls(context, "pure_logic", IMPURE, PURE, "pure logic takes data and returns data")


def raw_fences(context):
    for file in context.c_files(*PRODUCT):
        if file.path == FENCE_HOME:
            continue
        for number, line in enumerate(file.code, 1):
            match = FENCES.search(line)
            if match and not context.allow.permits("raw_fences", file.path, match.group(1)):
                yield file.path, number, "%s: use the named barriers of %s" % (
                    match.group(1), FENCE_HOME)


def _includes(file):
    for number, line in enumerate(file.lines, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            yield number, match.group(1)


def include_paths(context):
    """Quoted includes are ours, by path from the root, so that an arrow can be read off the line."""
    for file in context.c_files():
        for number, name in _includes(file):
            if not name.startswith(FOLDERS) and not context.allow.permits("include_paths",
                                                                          file.path, name):
                yield file.path, number, '"%s" is not a path from the root' % name


def arrows(context):
    for file in context.c_files():
        rows = [row for row in ARROWS if file.path.startswith(row[0])]
        if not rows:
            continue
        _, allowed = max(rows, key=lambda row: len(row[0]))
        for number, name in _includes(file):
            if not name.startswith(FOLDERS):
                continue
            bad = not name.startswith(allowed)
            if not bad and file.path.startswith(PURE + ("client_lib/",)):
                bad = bool(GPU_BACKENDS.match(name))
            if bad and not context.allow.permits("arrows", file.path, name):
                yield file.path, number, "no arrow leads from here to %s" % name


RULES = {
    "function_length": function_length,
    "backward_goto": backward_goto,
    "banned_calls": banned_calls,
    "pure_logic": pure_logic,
    "raw_fences": raw_fences,
    "include_paths": include_paths,
    "arrows": arrows,
}
