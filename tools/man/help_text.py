# SPDX-License-Identifier: Apache-2.0
"""Reads what a command says with --help: the one table of its options, as its parser has it."""

import os
import re
import subprocess

# Each option on a line of its own, its text behind it or on the next line.
UNWRAPPED = "opt-doc-col=70,rmargin=1000"
# -x, --long=ARG   text | --long=ARG   text | -x ARG   text | --long ARG   text
OPTION = re.compile(r"\s+(?:(?P<short>-\S)(?P<short_arg> [^\s,]+)?)?(?:, )?"
                    r"(?:(?P<long>--[a-z][\w-]*)(?:(?P<between>[= ])(?P<arg>\S+))?)?(?:\s\s+(?P<text>.*))?$")
# Reduction: sum, prod or all
LISTED = re.compile(r"[A-Z]\w+: (?P<words>[a-z]\w*(?:, [a-z]\w*)* or [a-z]\w*)")
REPEATED = "Mandatory or optional arguments to long options"


class Option:
    """short and long with their dashes, or None; arg None: takes none; between: what stands
    before the argument."""

    def __init__(self, short, long, arg, text, between):
        self.short, self.long, self.arg, self.text = short, long, arg, text
        self.between = between

    @property
    def names(self):
        return [name for name in (self.short, self.long) if name]

    @property
    def choices(self):
        """The words it takes, when its argument, or the start of its text, is a list of them."""
        words = (self.arg or "").split("|")
        listed = LISTED.match(self.text or "")
        if len(words) < 2 and listed:
            words = re.split(r", | or ", listed["words"])
        return words if len(words) > 1 and all(re.fullmatch(r"[\w-]+", word) for word in words) \
            else []


class Help:
    """A command's (or subcommand's) help in parts."""

    def __init__(self, words, path):
        self.words = words  # occlctl run
        wide = ask(path, words[1:], UNWRAPPED).split("\n")
        narrow = ask(path, words[1:], "").split("\n")
        self.usage = usage(narrow, " ".join(words))
        self.options = options(wide)
        self.summary = summary(wide)
        self.after = after(narrow)
        self.commands = listed(narrow, "Subcommands")  # name -> summary
        self.operands = list(listed(narrow, "Operations")) or first_words(self.usage, len(words))


def ask(path, words, form):
    environment = dict(os.environ, ARGP_HELP_FMT=form, LC_ALL="C")
    return subprocess.run([path, *words, "--help"], env=environment, stdout=subprocess.PIPE,
                          text=True, check=True).stdout.rstrip("\n")


def is_option(line):
    match = OPTION.match(line)
    return match if match and (match["short"] or match["long"]) else None


def usage(lines, words):
    """Usage lines without the leading word; the command's own name in all of them."""
    result = []
    for line in lines:
        match = re.match(r"(?:[Uu]sage:|\s+or:|(?=\s+%s ))\s*(.*?)\s*$" % re.escape(words), line)
        if match:
            result.append(match[1])
        elif result and re.match(r"\s{8,}\S", line):
            result[-1] += " " + line.strip()
        elif result:
            break
    return result


def options(lines):
    result = []
    for line in lines:
        match = is_option(line)
        if match:
            result.append(Option(match["short"], match["long"],
                                 match["arg"] or (match["short_arg"] or "").strip() or None,
                                 match["text"] or "", match["between"] or " "))
        elif result and line.startswith(" ") and line.strip() and not result[-1].text.endswith("\n"):
            result[-1].text = (result[-1].text + " " + line.strip()).strip()
        elif result and line.strip() and not line.startswith(" ") and not result[-1].text:
            result[-1].text = line.strip()
        elif result and not line.strip():
            result[-1].text += "\n"  # closed: what follows belongs to nobody
    for option in result:
        option.text = option.text.strip()
    return result


def summary(lines):
    """The text between usage and options, one paragraph a string."""
    first = next(number for number, line in enumerate(lines) if is_option(line))
    text = "\n".join(line for line in lines[:first]
                     if not re.match(r"[Uu]sage:|\s+or:|\s{5,}\S", line))
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def after(lines):
    """The lines behind the options."""
    last = max(number for number, line in enumerate(lines) if is_option(line))
    rest = lines[last + 1:]
    while rest and rest[0].strip():
        rest = rest[1:]
    text = "\n".join(rest).strip("\n")
    paragraphs = [part for part in text.split("\n\n") if not part.startswith(REPEATED)]
    return "\n\n".join(paragraphs).strip("\n")


def listed(lines, heading):
    """name -> text of the list below the heading."""
    result = {}
    inside = False
    for line in lines:
        if line.startswith(heading):
            inside = True
        elif inside and (match := re.match(r"  (\w[\w-]*)\s+(\S.*)$", line)):
            result[match[1]] = match[2]
        elif inside:
            break
    return result


def first_words(usages, skip):
    """Words that stand literally at the place of the first operand."""
    operands = [[word for word in text.split()[skip:] if not word.startswith("[")]
                for text in usages]
    return [words[0] for words in operands if words and re.fullmatch(r"[a-z]+", words[0])]


def config_keys(path):
    """(key, what it means, what it accepts, default) of `occld --keys`."""
    lines = subprocess.run([path, "--keys"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout.splitlines()
    return [(lines[at].split(None, 1)[0], lines[at].split(None, 1)[1], lines[at + 1].strip(),
             lines[at + 2].strip()) for at in range(0, len(lines), 3)]
