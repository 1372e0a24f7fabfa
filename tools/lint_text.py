# SPDX-License-Identifier: Apache-2.0
"""Rules of tools/lint about files as text: length, licence line, words, READMEs, scripts, format.

Each rule is a generator of (path, line number or 0, message).
"""

import os
import re
import shutil
import subprocess

LINES_MAX = 800
LINES_WARN = 600
COLUMNS_MAX = 100
SOURCE_ENDINGS = (".c", ".h", ".cu", ".cuh", ".cc", ".py", ".bzl", ".sh", ".pml")
# The one public header documents each function like a man page.
LENGTH_EXEMPT = ("client_lib/occl.h",)

README_HEADINGS = ("purpose", "map of files", "invariants", "ownership and threads", "life cycles",
                   "failure reactions", "decisions")
MODULES = ("client_lib", "shm_ipc", "fabric", "gpu", "daemon")

# Split, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"
                        r"|[Nn]ot (yet )?imple" r"mented|[Pp]lace" r"holder\b")

# Folders that exist on any machine; a checkout right below one of them says nothing of its host.
SHARED_FOLDERS = ("/", "/tmp", "/var", "/var/tmp", "/usr", "/usr/src", "/opt", "/srv", "/mnt",
                  "/home", "/build", "/src")


def is_script(file):
    return bool(file.lines) and file.lines[0].startswith("#!")


def is_data(path):
    """Inputs of tests are bytes, not text of ours."""
    return "/corpus/" in path or "/testdata/" in path


def file_length(context):
    for file in context.files:
        if not (file.path.endswith(SOURCE_ENDINGS) or is_script(file)) or is_data(file.path):
            continue
        count = len(file.lines)
        if file.path in LENGTH_EXEMPT:
            continue
        if count > LINES_MAX:
            yield file.path, 0, "%d lines, at most %d: one idea a file" % (count, LINES_MAX)
        elif count > LINES_WARN:
            context.notes.append("%s has %d lines, the aim is %d" % (file.path, count, LINES_WARN))


def licence_line(context):
    tag = "SPDX-License-Identifier: Apache-2.0"
    for file in context.files:
        if is_data(file.path):
            continue
        first = file.lines[0] if file.lines else ""
        if file.is_c:
            if first != "/* %s */" % tag:
                yield file.path, 1, "the first line has to be `/* %s */`" % tag
        elif is_script(file):
            if tag not in "\n".join(file.lines[1:2]):
                yield file.path, 2, "the second line has to be `# %s`" % tag
        elif (file.path.endswith((".py", ".bzl", ".sh", ".pml", ".lds", ".S"))
              or os.path.basename(file.path) in ("BUILD", "WORKSPACE")):
            if tag not in first:
                yield file.path, 1, "the first line has to hold `%s`" % tag


def unfinished_words(context):
    for file in context.files:
        if is_data(file.path) or not file.is_text or file.path == "LICENSE":
            continue
        for number, line in enumerate(file.lines, 1):
            match = UNFINISHED.search(line)
            if match and not context.allow.permits("unfinished_words", file.path, match.group(0)):
                yield file.path, number, "'%s': finish it, or leave it out" % match.group(0)


def machine_paths(context):
    """The text must not show on which machine or in which folder it was written."""
    words = [r"/(?:root|home/[a-z][\w.-]*)/"]
    root = os.path.realpath(context.root)
    for path in (root, os.path.dirname(root)):
        if path not in SHARED_FOLDERS and path.count("/") >= 1:
            words.append(re.escape(path) + r"(?![\w-])")
    pattern = re.compile(r"(?<![\w.$})*~-])(?:%s)" % "|".join(words))
    for file in context.files:
        if is_data(file.path) or not file.is_text:
            continue
        for number, line in enumerate(file.lines, 1):
            match = pattern.search(line)
            if match and not context.allow.permits("machine_paths", file.path, match.group(0)):
                yield file.path, number, "a path of one machine: %s" % match.group(0)


def _headings(file):
    return [(number, match.group(1).strip().lower())
            for number, line in enumerate(file.lines, 1)
            if (match := re.match(r"##+ +(?:\d+\.? +)?(.+?)#*$", line))]


def readme_headings(context):
    for module in MODULES:
        sources = context.c_files(module + "/")
        if sources and module + "/README.md" not in context.by_path:
            yield module, 0, "a module needs a README.md with the seven headings"
    for file in context.files:
        if os.path.basename(file.path) != "README.md" or file.path == "README.md":
            continue
        if is_data(file.path) or file.path.startswith("tests/"):
            continue
        found = [name for _, name in _headings(file) if name in README_HEADINGS]
        if found != list(README_HEADINGS):
            lacking = [name for name in README_HEADINGS if name not in found]
            yield (file.path, 0, "headings missing: " + ", ".join(lacking) if lacking
                   else "the seven headings come once each, in the order of CONTRIBUTING")


def readme_map(context):
    """A map that names files which are gone is a bug; so is a source that no map names."""
    for file in context.files:
        folder, name = os.path.split(file.path)
        if name != "README.md" or not folder or folder.startswith("tests") or is_data(file.path):
            continue
        marks = _headings(file)
        start = next((number for number, text in marks if text == "map of files"), None)
        if start is None:
            continue
        stop = next((number for number, _ in marks if number > start), len(file.lines) + 1)
        section = "\n".join(file.lines[start:stop - 1])
        for named in re.findall(r"`([\w./-]+\.(?:c|h|cu|cc|py|pml))`", section):
            if not any(os.path.normpath(os.path.join(base, named)) in context.by_path
                       for base in (folder, "")):
                yield file.path, start, "the map names %s, which is not there" % named


def scripts_parse(context):
    for file in context.files:
        if is_data(file.path):
            continue
        first = file.lines[0] if file.lines else ""
        if (first.startswith("#!") and "python" in first) or file.path.endswith(".py"):
            try:
                compile(file.text, file.path, "exec")
            except SyntaxError as error:
                yield file.path, error.lineno or 0, str(error.msg)
        elif (first.startswith("#!") and "sh" in first) or file.path.endswith(".sh"):
            shell = subprocess.run(["bash", "-n", file.full], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, check=False)
            if shell.returncode:
                yield file.path, 0, shell.stderr.strip().splitlines()[0]
        if first.startswith("#!") and not os.access(file.full, os.X_OK):
            yield file.path, 1, "a script needs its run bit"


def line_width(context):
    """clang-format leaves comments and long strings as they are."""
    for file in context.c_files():
        if is_data(file.path):
            continue
        for number, line in enumerate(file.lines, 1):
            if (len(line) > COLUMNS_MAX
                    and not context.allow.permits("line_width", file.path, str(number))):
                yield file.path, number, "%d columns, at most %d" % (len(line), COLUMNS_MAX)


def formatting(context):
    names = [file.path for file in context.c_files() if not is_data(file.path)]
    tool = shutil.which("clang-format-14")
    if tool is None:
        yield "clang-format-14", 0, "not found: tools/install-deps --test"
        return
    if not names:
        return
    result = subprocess.run([tool, "--style=file", "--dry-run", "--ferror-limit=1"] + names,
                            cwd=context.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, check=False)
    for line in result.stderr.splitlines():
        match = re.match(r"([^:]+):(\d+):\d+: (?:warning|error): ", line)
        if match:
            yield match.group(1), int(match.group(2)), "clang-format-14 -i would change this"


RULES = {
    "file_length": file_length,
    "licence_line": licence_line,
    "unfinished_words": unfinished_words,
    "machine_paths": machine_paths,
    "readme_headings": readme_headings,
    "readme_map": readme_map,
    "scripts_parse": scripts_parse,
    "line_width": line_width,
    "formatting": formatting,
}
