#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tools/lint finds its planted fault, at the line where it is, and nothing else."""

import os
import subprocess
import sys
import tempfile

TAG = "/* SPDX-License-Identifier: Apache-2.0 */\n"
HEADINGS = ("Purpose", "Map of files", "Invariants", "Ownership and threads", "Life cycles",
            "Failure reactions", "Decisions")
README = "".join("## %s\n" % name for name in HEADINGS)
BODY = "    (void)0;\n"

# rule -> (path, text, expected beginning of the finding or None when nothing may be found)
CASES = (
    ("file_length", "tools/a.c", TAG + "\n" * 800, "tools/a.c: 801 lines"),
    ("licence_line", "tools/a.c", "int a;\n", "tools/a.c:1:"),
    ("licence_line", "tools/a.lds", "/* x */\n", "tools/a.lds:1:"),
    ("unfinished_words", "tools/a.md", "\n" + "TO" + "DO: later\n", "tools/a.md:2:"),
    ("machine_paths", "tools/a.md", "see /home" + "/someone/x\n", "tools/a.md:1:"),
    ("machine_paths", "tools/a.md", "a client at /home is none\n", None),
    ("readme_headings", "shm_ipc/README.md", README.replace("## Life cycles\n", ""),
     "shm_ipc/README.md: headings missing: life cycles"),
    ("readme_map", "shm_ipc/README.md", README.replace("files\n", "files\n`gone.c`\n"),
     "shm_ipc/README.md:2: the map names gone.c"),
    ("line_width", "tools/a.c", TAG + "/*" + "x" * 99 + "\n", "tools/a.c:2: 101 columns"),
    ("function_length", "tools/a.c", TAG + "int f(void) {\n" + BODY * 71 + "}\n", "tools/a.c:2: 71"),
    ("function_length", "tools/a.c", TAG + "int f(void) {\n" + BODY * 70 + "}\n", None),
    ("function_length", "tools/a.c",
     TAG + "/* lint: function_length: one switch */\nint f(void) {\n" + BODY * 71 + "}\n", None),
    ("backward_goto", "tools/a.c", TAG + "int f(void) {\nup:\n    goto up;\n}\n", "tools/a.c:4:"),
    ("backward_goto", "tools/a.c", TAG + "int f(void) {\n    goto out;\nout:\n    return 0;\n}\n",
     None),
    ("banned_calls", "daemon/a.c", TAG + "int a = time(0);\n", "daemon/a.c:2: time"),
    ("banned_calls", "daemon/a.c", TAG + "/* time(0) */ int b = x->time(0) + uptime(0);\n", None),
    ("banned_calls", "tests/a.c", TAG + "int a = time(0);\n", None),
    ("pure_logic", "daemon/sched/a.c", TAG + "int a = printf(0);\n", "daemon/sched/a.c:2: printf"),
    ("raw_fences", "daemon/a.c", TAG + "x = __sync_lock_test_and_set(p, 1);\n", "daemon/a.c:2:"),
    ("raw_fences", "shm_ipc/atomics.h", TAG + "__atomic_thread_fence(0);\n", None),
    ("include_paths", "daemon/a.c", TAG + '#include "b.h"\n', "daemon/a.c:2:"),
    ("arrows", "shm_ipc/a.c", TAG + '#include "daemon/b.h"\n', "shm_ipc/a.c:2:"),
    ("arrows", "fabric/a.c", TAG + '#include "gpu/b.h"\n', "fabric/a.c:2:"),
    ("arrows", "gpu/a.c", TAG + '#include "fabric/b.h"\n', "gpu/a.c:2:"),
    ("arrows", "client_lib/a.c", TAG + '#include "daemon/b.h"\n', "client_lib/a.c:2:"),
    ("arrows", "daemon/sched/a.c", TAG + '#include "daemon/session/b.h"\n', "daemon/sched/a.c:2:"),
    ("arrows", "daemon/a.c", TAG + '#include "fabric/b.h"\n', None),
    ("allow_list", "tools/lint.allow", "banned_calls nowhere.c time a reason\n",
     "tools/lint.allow:1: nothing needs"),
    ("allow_list", "tools/lint.allow", "banned_calls nowhere.c\n", "tools/lint.allow:1: expected"),
)


def findings(rule, path, text):
    """What the rule says of a tree that has only this file (and READMEs where they must be)."""
    with tempfile.TemporaryDirectory() as root:
        module = path.split("/")[0]
        for name, content in ((module + "/README.md", README), (path, text)):
            full = os.path.join(root, name)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(content)
        # The allow list is judged after the rule that its entries belong to.
        chosen = "lint_(%s%s)$" % (rule, "|banned_calls" if rule == "allow_list" else "")
        done = subprocess.run([sys.executable, "tools/lint", "--root", root, "--filter", chosen],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        found = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
        verdict = "FAIL lint_" + rule if found else "PASS lint_" + rule
        if (done.returncode != 0) != bool(found) or verdict not in done.stdout:
            found.append("verdict and findings differ: " + done.stdout)
        return found


def main():
    good = True
    for number, (rule, path, text, expected) in enumerate(CASES, 1):
        found = findings(rule, path, text)
        right = not found if expected is None else len(found) == 1 and found[0].startswith(expected)
        name = "%s_%d" % (rule, number)
        print("PASS " + name if right else "FAIL %s: %r" % (name, found))
        good &= right
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
