# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, zsh and fish, from the same --help that the pages are made of."""

import re

FILES = ("PATH", "FILE")


class Command:
    """What can stand where: options and first operands of a command and its subcommands."""

    def __init__(self, name, helps):
        self.name = name
        self.top = helps[name]
        self.subs = {sub: helps["%s %s" % (name, sub)] for sub in self.top.commands}

    def all(self):
        yield "", self.top
        yield from self.subs.items()


def words_of(help_text):
    return " ".join(name for option in help_text.options for name in option.names)


def taking(command):
    """Names of all options with an argument; one has it in every subcommand."""
    return sorted({name for _, help_text in command.all() for option in help_text.options
                   if option.arg for name in option.names})


def runs_programs(help_text):
    return any("PROGRAM" in usage for usage in help_text.usage)


# ---- bash ----

BASH = """\
# Completion of %(name)s, made from its --help.
_%(id)s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} sub='' operands=0 i
    # --option=value comes as three words.
    if [ "$cur" = = ]; then
        cur=''
    elif [ "$prev" = = ] && [ "$COMP_CWORD" -gt 1 ]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        %(taking)s)
            [ "${COMP_WORDS[i + 1]}" = = ] && ((i++))
            ((i++))
            ;;
        -* | =) ;;
        *)
            if %(has_subs)s && [ -z "$sub" ]; then
                sub=${COMP_WORDS[i]}
            else
                ((operands++))
            fi
            ;;
        esac
    done
    COMPREPLY=()
    case $sub:$operands:$cur in
%(programs)s    esac
    case $sub:$prev in
%(arguments)s    esac
    case $sub:$operands:$cur in
%(words)s    esac
}
complete -F _%(id)s %(name)s
"""


def bash(command):
    arguments, words, programs = [], [], []
    for sub, help_text in command.all():
        for option in help_text.options:
            if not option.arg:
                continue
            names = " | ".join("%s:%s" % (sub, name) for name in option.names)
            reply = "COMPREPLY=()"
            if option.choices:
                reply = "mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")" \
                    % " ".join(option.choices)
            elif option.arg in FILES:
                reply = "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
            arguments.append("    %s)\n        %s\n        return\n        ;;\n" % (names, reply))
        words.append("    %s:*:-*) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\") ;;\n"
                     % (sub, words_of(help_text)))
        if runs_programs(help_text):
            # Behind the program everything is the program's.
            programs.append("    %s:[1-9]*)\n        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
                            "\n        return\n        ;;\n" % sub)
            words.append("    %s:0:*) mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\") ;;\n" % sub)
        first = list(help_text.commands) or help_text.operands
        if first:
            words.append("    %s:0:*) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\") ;;\n"
                         % (sub, " ".join(first)))
    return BASH % {"name": command.name, "id": identifier(command.name),
                   "taking": " | ".join(taking(command)) or "--",
                   "has_subs": "true" if command.subs else "false",
                   "programs": "".join(programs), "arguments": "".join(arguments),
                   "words": "".join(words)}


def identifier(name):
    return "occl_complete_" + name.replace("-", "_")


# ---- zsh ----

def zsh_quote(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_options(help_text):
    specs = []
    for option in help_text.options:
        action = ""
        if option.arg:
            values = "(%s)" % " ".join(option.choices) if option.choices else \
                "_files" if option.arg in FILES else " "
            action = ":%s:%s" % (zsh_quote(option.arg), values)
        for name in option.names:
            form = name
            if option.arg and option.between == "=":
                form += "=" if name.startswith("--") else "+"
            specs.append("'%s[%s]%s'" % (form.replace("?", "\\?"), zsh_quote(option.text), action))
    return specs


def zsh_operands(help_text):
    if runs_programs(help_text):
        return ["'1:program:_command_names -e'", "'*::argument:_normal'"]
    if help_text.operands:
        return ["'1:word:(%s)'" % " ".join(help_text.operands), "'*: : '"]
    return []


def zsh(command):
    lines = ["#compdef %s" % command.name, "# Completion of %s, made from its --help." % command.name]
    if not command.subs:
        specs = zsh_options(command.top) + zsh_operands(command.top)
        return "\n".join(lines + ["_arguments -s \\\n    " + " \\\n    ".join(specs)]) + "\n"
    lines += ["local context state line", "local -A opt_args", "_arguments -s -C \\"]
    lines += ["    %s \\" % spec for spec in zsh_options(command.top)]
    lines += ["    '1:subcommand:->subcommand' \\", "    '*::argument:->argument' && return",
              "case $state in", "subcommand)", "    local -a subcommands=("]
    lines += ["        '%s:%s'" % (sub, zsh_quote(text)) for sub, text in command.top.commands.items()]
    lines += ["    )", "    _describe subcommand subcommands", "    ;;", "argument)",
              "    case $words[1] in"]
    for sub, help_text in command.subs.items():
        specs = zsh_options(help_text) + zsh_operands(help_text)
        lines += ["    %s)" % sub, "        _arguments -s \\",
                  "            " + " \\\n            ".join(specs), "        ;;"]
    return "\n".join(lines + ["    esac", "    ;;", "esac"]) + "\n"


# ---- fish ----

def fish_quote(text):
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")


def fish(command):
    lines = ["# Completion of %s, made from its --help." % command.name]
    none = "not __fish_seen_subcommand_from " + " ".join(command.subs)
    for sub, help_text in command.all():
        condition = none if command.subs and not sub else \
            "__fish_seen_subcommand_from " + sub if sub else ""
        head = "complete -c %s" % command.name
        if condition:
            head += " -n '%s'" % condition
        for option in help_text.options:
            line = head
            for name in option.names:
                line += " -l %s" % name[2:] if name.startswith("--") else " -s %s" % fish_quote(name[1:])
            if option.arg:
                line += " -rF" if option.arg in FILES else " -x"
                line += " -a %s" % fish_quote(" ".join(option.choices)) if option.choices else ""
            lines.append(line + " -d %s" % fish_quote(option.text))
        for name, text in help_text.commands.items():
            lines.append("%s -f -a %s -d %s" % (head, name, fish_quote(text)))
        if not help_text.commands and help_text.operands:
            lines.append("%s -f -a %s" % (head, fish_quote(" ".join(help_text.operands))))
        elif runs_programs(help_text):
            lines.append("%s -a '(__fish_complete_command)'" % head)
    return "\n".join(lines) + "\n"


# Folder below the output and name of the file that the shell looks for.
SHELLS = {"bash": (bash, "%s"), "zsh": (zsh, "_%s"), "fish": (fish, "%s.fish")}
