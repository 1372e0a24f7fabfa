#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Man pages and completions are complete and well formed.

    man_test.py GENERATE OCCLD OCCLCTL OCCL-PERF OCCL-SIM EXPORTS HEADER...
"""

import os
import re
import subprocess
import sys
import tempfile

GENERATE = os.path.abspath(sys.argv[1])
COMMANDS = dict(zip(("occld", "occlctl", "occl-perf", "occl-sim"),
                    (os.path.abspath(path) for path in sys.argv[2:6])))
PAGE_OF = {"occld": "man8/occld.8", "occlctl": "man1/occlctl.1", "occl-perf": "man1/occl-perf.1",
           "occl-sim": "man1/occl-sim.1"}
EXPORTS, HEADERS = sys.argv[6], sys.argv[7:]


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False).stdout


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def subcommands():
    return re.findall(r"^  (\w+) ", output(COMMANDS["occlctl"], "--help").split("Subcommands")[1]
                      .split("\n\n")[0], re.M)


def invocations():
    for name in COMMANDS:
        yield name, ()
    for sub in subcommands():
        yield "occlctl", (sub,)


def options(name, words):
    """Options as --help lists them, found in another way than the generator finds them."""
    found = set()
    for line in output(COMMANDS[name], *words, "--help").splitlines():
        match = re.match(r" +(-[A-Za-z?])?(?:, | )?(--[a-z][a-z_-]*)?", line)
        found.update(option for option in match.groups() if option) if match else None
    return found


def text_of(out, page):
    """What a reader sees, in one line a paragraph."""
    return output("groff", "-man", "-Tascii", "-P-cbou", "-rLL=400n", os.path.join(out, page))


def each_exported_function_has_a_page(out):
    with open(EXPORTS, encoding="utf-8") as file:
        for name in file.read().split():
            page = os.path.join(out, "man3", name + ".3")
            if not os.path.exists(page):
                yield "no page for %s" % name
                continue
            if not re.search(r"\b%s\(" % name, text_of(out, page)):
                yield "the page of %s has no prototype of it" % name


def each_option_is_in_its_page(out):
    for name, words in invocations():
        text = text_of(out, PAGE_OF[name])
        for option in options(name, words):
            if not re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(option), text):
                yield "%s lacks %s of %s" % (PAGE_OF[name], option, " ".join((name,) + words))


def each_key_is_in_the_page_of_the_configuration(out):
    text = text_of(out, "man5/occld.conf.5")
    keys = re.findall(r"^  ([a-z_]+) ", output(COMMANDS["occld"], "--keys"), re.M)
    if len(keys) < 10:
        yield "occld --keys lists %d keys" % len(keys)
    for key in keys:
        if not re.search(r"^ +%s$" % key, text, re.M):
            yield "occld.conf.5 lacks " + key


def each_page_renders_without_a_warning(out):
    for folder in ("man1", "man3", "man5", "man7", "man8"):
        for name in sorted(os.listdir(os.path.join(out, folder))):
            said = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", folder + "/" + name],
                                  cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, check=False)
            if said.stdout or said.returncode:
                yield "%s: %s" % (name, said.stdout.strip())
            if re.search(r"^@\w", read(os.path.join(out, folder, name)), re.M):
                yield "%s: a directive was left" % name


def the_checks_find_what_is_missing(out):
    """Negative control, on damaged copies."""
    for check, page, pattern, replacement in (
            (each_option_is_in_its_page, "man1/occlctl.1", "--label", "label"),
            (each_key_is_in_the_page_of_the_configuration, "man5/occld.conf.5", r"^(.*)quota_ops\b",
             r"\1quota"),
            (each_page_renders_without_a_warning, "man7/occl.7", r"^\.SH NAME", ".SX NAME")):
        path = os.path.join(out, page)
        good = read(path)
        bad = re.sub(pattern, replacement, good, flags=re.M)
        if bad == good:
            yield "%s: nothing to damage" % page
            continue
        try:
            write(path, bad)
            if not list(check(out)):
                yield "%s was damaged, and %s found nothing" % (page, check.__name__)
        finally:
            write(path, good)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def complete(out, line, word):
    """What bash would offer behind the line for the word."""
    command = line.split()[0]
    words = line.split() + [word]
    script = ". %s; COMP_WORDS=(%s); COMP_CWORD=%d; %s; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
        os.path.join(out, "bash", command), " ".join("'%s'" % w for w in words), len(words) - 1,
        "occl_complete".join(["_", "_" + command.replace("-", "_")]))
    return set(output("bash", "--norc", "-c", script).split())


def bash_completes_what_can_stand_there(out):
    subs = set(subcommands())
    cases = (
        ("occlctl", "", subs),
        ("occlctl", "wh", {"why"}),
        ("occlctl --socket x", "wh", {"why"}),
        ("occlctl --socket = x", "wh", {"why"}),
        ("occlctl jobs", "--te", {"--tenant"}),
        ("occlctl config", "--te", set()),
        ("occlctl run --on-death", "", {"abort", "continue"}),
        ("occlctl run --on-death =", "c", {"continue"}),
        ("occlctl run -n 2 prog", "--on", set()),
        ("occlctl set", "", {"job", "tenant", "daemon"}),
        ("occl-perf -n 5", "all", {"all_reduce"}),
        ("occl-perf -o", "m", {"min", "max", "minloc", "maxloc"}),
        ("occl-sim", "", {"cluster", "sessions"}),
        ("occld", "--check", {"--check-config"}),
    )
    for line, word, expected in cases:
        found = complete(out, line, word)
        if not expected <= found or (len(expected) < len(found) and line != "occl-perf -n 5"):
            yield "%s [%s]: expected %s, found %s" % (line, word, sorted(expected), sorted(found))


def each_option_is_completed_by_each_shell(out):
    for name, words in invocations():
        texts = {"bash": read(os.path.join(out, "bash", name)),
                 "zsh": read(os.path.join(out, "zsh", "_" + name)),
                 "fish": read(os.path.join(out, "fish", name + ".fish"))}
        for option in options(name, words):
            for shell, text in texts.items():
                form = option
                if shell == "fish":
                    form = "-l " + option[2:] if option.startswith("--") else "-s '%s'" % option[1:]
                if form.replace("?", "\\?" if shell == "zsh" else "?") not in text:
                    yield "%s of %s lacks %s" % (shell, name, option)


def each_shell_parses_its_completion(out):
    for shell, form in (("bash", "bash/%s"), ("zsh", "zsh/_%s"), ("fish", "fish/%s.fish")):
        for name in COMMANDS:
            said = output(shell, "-n", os.path.join(out, form % name))
            if said:
                yield "%s: %s" % (shell, said.strip())


CASES = (
    each_exported_function_has_a_page,
    each_option_is_in_its_page,
    each_key_is_in_the_page_of_the_configuration,
    each_page_renders_without_a_warning,
    the_checks_find_what_is_missing,
    bash_completes_what_can_stand_there,
    each_option_is_completed_by_each_shell,
    each_shell_parses_its_completion,
)


def main():
    good = True
    with tempfile.TemporaryDirectory() as out:
        command = [GENERATE]
        for name, path in COMMANDS.items():
            command += ["--" + name, path]
        for header in HEADERS:
            command += ["--header", header]
        made = subprocess.run(command + [out], check=False).returncode == 0
        print("PASS pages_are_made" if made else "FAIL pages_are_made")
        for case in CASES if made else ():
            findings = list(case(out))
            for finding in findings:
                print("  " + finding)
            print(("FAIL " if findings else "PASS ") + case.__name__)
            good = good and not findings
    return 0 if made and good else 1


if __name__ == "__main__":
    sys.exit(main())
