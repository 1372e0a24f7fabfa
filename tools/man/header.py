# SPDX-License-Identifier: Apache-2.0
"""Reads a C header of the house style: prototypes, types and the comments above them."""

import re

TOKEN = re.compile(r"/\*(?P<comment>.*?)\*/|(?P<blank>\n[ \t]*\n)|(?P<macro>^#(?:[^\n]*\\\n)*[^\n]*$)"
                   r"|(?P<code>[^\s#/](?:/(?!\*)|/\*.*?\*/|[^;{}/]|\{(?:/\*.*?\*/|[^{}])*\})*?;)",
                   re.S | re.M)
NAME = re.compile(r"\b(\w+)\(")


class Header:
    """functions: name -> prototype; documents: list of (names, comment), in the order of the file;
    comments: those above no function; types: "enum occl_type" -> declaration; macros: by name."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.functions, self.documents, self.comments = {}, [], []
        self.types, self.macros = {}, {}
        # Between the braces of extern "C"; what surrounds them is for the compiler.
        text = re.sub(r'#ifdef __cplusplus.*?#endif\n', "\n\n", text, flags=re.S)
        comment = None
        open_document = False
        for token in TOKEN.finditer(text):
            if token["comment"] is not None:
                comment = words(token["comment"])
                self.comments.append(comment)
                open_document = False
            elif token["blank"]:
                comment = None
                open_document = False
            elif token["macro"]:
                match = re.match(r"#define (\w+)", token["macro"])
                if match:
                    self.macros[match[1]] = token["macro"]
            elif token["code"]:
                self._take(token["code"], comment, open_document)
                open_document = open_document or comment is not None
                comment = None

    def _take(self, code, comment, open_document):
        match = re.match(r"((?:struct|enum) \w+) \{", code)
        if match:
            self.types[match[1]] = code
            return
        name = NAME.search(code)
        if not name:
            return
        self.functions[name[1]] = code
        if comment is None and open_document:
            self.documents[-1][0].append(name[1])
        elif comment is not None:
            self.documents.append(([name[1]], comment))

    def comment_starting(self, start):
        """The text of the comment, or of the paragraph in one, that begins so."""
        for comment in self.comments:
            for paragraph in comment:
                if paragraph.startswith(start):
                    return comment if paragraph is comment[0] else [paragraph]
        raise KeyError("no comment begins with '%s'" % start)


def words(comment):
    """Paragraphs of a comment, each one line."""
    first, *rest = comment.strip().split("\n")
    lines = [first] + [re.sub(r"^\s*\*? ?", "", line) for line in rest]
    return [" ".join(part.split()) for part in "\n".join(lines).split("\n\n") if part.strip()]
