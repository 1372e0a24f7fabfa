# SPDX-License-Identifier: Apache-2.0
"""Turns a page's source into what scdoc reads: the facts come from the header and from --help.

A source is scdoc without its first line, with directives, each on a line of its own:

    @synopsis             prototypes of the functions that the NAME section lists
    @functions            what the header says of each of them
    @comment WORDS        the comment of the header, or paragraph of one, that begins so
    @type enum NAME       a declaration of the header; also struct NAME
    @macro NAME           a macro of the header
    @usage COMMAND        usage lines; COMMAND may be two words, here and below
    @summary COMMAND      what stands above the options
    @options COMMAND      its options with their texts
    @after COMMAND        what stands below the options
    @commands COMMAND     each subcommand with usage, options of its own and what stands below them
    @keys                 keys of the daemon's configuration
"""

import re

RESULT = re.compile(r"\bOCCL_(?:ERROR_)?(\w+) = -?\d+")


def names(source):
    """The words of the NAME section, and its text."""
    match = re.search(r"^# NAME\n+(.*?) - (.*?)\n", source, re.M)
    if not match:
        raise ValueError("no `# NAME` section with `name, ... - text`")
    return [name.strip() for name in match[1].split(",")], match[2]


def escape(text):
    text = re.sub(r"([\\*])", r"\\\1", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return re.sub(r"^([#|\[\]\-`.])", r"\\\1", text)


def literal(text):
    return "```\n%s\n```" % text.strip("\n").replace("\\", "\\\\")


class Writer:
    """Facts of one build: `headers` by path as programs name them, `helps` by command."""

    def __init__(self, headers, helps, keys):
        self.headers, self.helps, self.keys = headers, helps, keys
        self.results = {}
        for header in headers.values():
            for code in header.types.values():
                for match in RESULT.finditer(code):
                    self.results[match[1]] = match[0].split(" ")[0]
        self.functions = {name for header in headers.values() for name in header.functions}

    def page(self, source):
        """The whole page without the line that scdoc wants first."""
        listed, _ = names(source)
        lines = []
        for line in source.split("\n"):
            match = re.match(r"@(\w+)(?: (.*))?$", line)
            lines.append(getattr(self, "_" + match[1])(match[2], listed) if match else line)
        return "\n".join(lines)

    def prose(self, text, own=()):
        """A paragraph of the header as one of the page: names of ours become bold."""
        shorts = "|".join(sorted(self.results, key=len, reverse=True))

        def name(match):
            word, call = match[1], match[2] or ""
            if word not in self.functions:
                return match[0]
            return "*%s*%s" % (word, call if word in own else "(3)")

        text = re.sub(r"\b(?:OCCL_ERROR_|OCCL_)?(%s)\b(?! =)" % shorts,
                      lambda match: "*%s*" % self.results[match[1]], escape(text))
        return re.sub(r"(?<!\*)\b(occl_\w+)\b(\(\))?", name, text)

    def _owner(self, name):
        for path, header in self.headers.items():
            if name in header.functions:
                return path, header
        raise KeyError("no header declares %s" % name)

    def _synopsis(self, _, listed):
        functions = [name for name in listed if name in self.functions]
        path, _ = self._owner(functions[0])
        include = ["#include <%s>" % path, ""] if "/" not in path else []
        return literal("\n".join(include + [self._owner(name)[1].functions[name]
                                            for name in functions]))

    def _functions(self, _, listed):
        parts = []
        for header in self.headers.values():
            for group, comment in header.documents:
                own = [name for name in group if name in listed]
                if own:
                    parts.append("## " + ", ".join(name + "()" for name in own))
                    parts += [self.prose(paragraph, listed) for paragraph in comment]
        return "\n\n".join(parts)

    def _comment(self, start, listed):
        for header in self.headers.values():
            try:
                return "\n\n".join(self.prose(paragraph, listed)
                                   for paragraph in header.comment_starting(start))
            except KeyError:
                continue
        raise KeyError("no comment begins with '%s'" % start)

    def _type(self, name, _):
        return literal(next(header.types[name] for header in self.headers.values()
                            if name in header.types))

    def _macro(self, name, _):
        return literal(next(header.macros[name] for header in self.headers.values()
                            if name in header.macros))

    def _usage(self, command, _):
        return "++\n".join("*%s*%s" % (command, escape(usage[len(command):]))
                           for usage in self.helps[command].usage)

    def _summary(self, command, listed):
        return "\n\n".join(self.prose(text, listed) for text in self.helps[command].summary)

    def _options(self, command, _):
        return option_list(self.helps[command].options)

    def _after(self, command, _):
        return literal(self.helps[command].after)

    def _keys(self, _, __):
        return "\n\n".join("*%s*\n\t%s (%s; %s)." % (key, escape(text), escape(accepts),
                                                  escape(default))
                           for key, text, accepts, default in self.keys)

    def _commands(self, command, listed):
        common = {option.names[-1] for option in self.helps[command].options}
        parts = []
        for name, summary in self.helps[command].commands.items():
            words = "%s %s" % (command, name)
            text = self.helps[words]
            own = [option for option in text.options if option.names[-1] not in common]
            shared = ["*%s*" % option.names[-1] for option in text.options
                      if option.names[-1] in common]
            parts += ["## " + name, self._usage(words, listed), escape(summary) + end_of(summary)]
            if text.summary != [summary]:
                parts.append(self._summary(words, listed))
            if own:
                parts.append(option_list(own))
            parts.append("Takes %s." % ", ".join(shared))
            after = without_exit_table(text.after, self.helps[command].after)
            if after:
                parts.append(literal(after))
        return "\n\n".join(parts)


def end_of(text):
    return "" if text.endswith(("?", ".", "!")) else "."


def without_exit_table(after, common):
    """The table of exit statuses that all subcommands repeat stands in a section of its own."""
    at = common.find("Exit status:")
    return after.replace(common[at:], "").strip("\n") if at >= 0 else after


def option_list(options):
    parts = []
    for option in options:
        forms = ", ".join("*%s*" % name for name in option.names)
        if option.arg:
            forms += "%s_%s_" % (option.between, escape(option.arg))
        parts.append("%s\n\t%s%s" % (forms, escape(option.text), end_of(option.text)))
    return "\n\n".join(parts)
