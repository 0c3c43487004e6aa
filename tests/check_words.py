#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the phrases of translated English in comments, messages and documentation.

    check_words.py [--count] FILE...

Each pattern has what natural English says instead; CONTRIBUTING.md (Words) has the rules. In C only comments and
strings are read, in scripts and CMake files comments, in Markdown everything but blocks of code.
--count prints how many there are in each folder.
"""
import collections
import os
import re
import sys

PATTERNS = (
    (r"\bso many\b", "N, or 'this number of'"),
    (r"\bas many\b(?! times)(?=[^.;]*\bas there\b)", "'up to the number of', 'all'"),
    (r"\b(?:can|could|may|to|not|must) be had\b", "available"),
    (r"\b(?:nobody|somebody|someone|whoever)\b", "the caller, anyone, no user"),
    (r"\bgo(?:es)? on\b(?! to\b)", "continues"),
    (r"\b(?:is|are|was|were) none\b", "does not exist, is not one"),
    (r"(?<!there )(?<!there's )\b(?:is|are) no (?!longer|more|less|better|worse|faster|slower|different|later|earlier"
     r"|larger|smaller|help|use|\")", "is not a"),
    (r"\bthat there (?:is|are)\b(?! an?\b| no\b| at\b| not\b|n't| enough\b| more\b)", "existing, all"),
    (r"\bin the place of\b", "instead of, replaces"),
    (r"\bcomes? to (?:its|their|an|the) end\b|\bwhat \w[\w ]{0,40} comes? to\b", "ends; the result of"),
    (r"\bof (?:its|their|his) own\b", "separate, its own X"),
    (r"\bone by one\b", "one at a time"),
    (r"\b(?:behind|told|hands? on|handed on|pass(?:es|ed)? by|lets? go|hand(?:s|ed)? over)\b", "a plainer word"),
    (r"\banswers? (?:for|of)\b", "a plainer word"),
    (r"\bbeside\b", "next to, besides, with"),
    (r"\b(?:it|function|op|call|that|which|file|dataset|model|source|iterator|layer|reader) gives\b",
     "returns, emits, yields, writes"),
    (r"\b(?:is|are|was|were|not) wanted\b", "requested, needed"),
    (r"\bto be (?:seen|found|given) by\b", "visible to, found by"),
    (r"\banew\b|\bonce more\b", "again, from the beginning"),
    (r"\bin vain\b", "without success"),
    (r"\b(?:hence|thereby)\b", "so, therefore, which"),
    (r"\bnothing but\b", "only"),
    (r"(?<!as it )(?<!`)\bstands?\b(?! (?:in )?for\b)", "is, is placed, occurs"),
    (r"\blies? (?:after|beyond|below|above|together|one after|in another|in memory)\b", "is, follows"),
    (r"\bat hand\b", "current"),
    (r"\bthe ones? before (?:it|them)\b", "the previous one"),
    (r"\bthe begin of\b", "the beginning of"),
    (r"\bfrom then on\b.{0,40}\bfrom then on\b", "afterwards"),
)
RULES = [(re.compile(pattern, re.I), instead) for pattern, instead in PATTERNS]
C_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
HASH_TEXT = re.compile(r"(?<![$\\\w{'\"])#[^\n]*|\"\"\".*?\"\"\"", re.S)
FENCE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$", re.S | re.M)


def texts_of(path, source):
    """(offset, text) of what people read in a file."""
    if path.endswith((".c", ".h", ".cu", ".def", ".proto", ".h.in", ".cpp")):
        return [(m.start(), m[0]) for m in C_TEXT.finditer(source)]
    if path.endswith(".md"):
        return [(0, FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source))]
    return [(m.start(), m[0]) for m in HASH_TEXT.finditer(source)]


def main():
    paths, found = sys.argv[1:], 0
    count = paths[:1] == ["--count"] and bool(paths.pop(0))
    folders = collections.Counter()
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            source = file.read()
        for offset, text in texts_of(path, source):
            # A phrase may be broken across lines of a comment.
            plain = re.sub(r"\n\s*(?:\*|#)? ?|\"\n\s*\"", lambda m: " " * len(m[0]), text)
            plain = re.sub(r" {2,}", lambda m: " " + "\0" * (len(m[0]) - 1), plain)
            squeezed, places = [], []
            for i, c in enumerate(plain):
                if c != "\0":
                    squeezed.append(c)
                    places.append(i)
            for rule, instead in RULES:
                for match in rule.finditer("".join(squeezed)):
                    found += 1
                    line = source.count("\n", 0, offset + places[match.start()]) + 1
                    folders[os.path.dirname(path)] += 1
                    if not count:
                        print(f"{path}:{line}: '{match[0]}': {instead}")
    for folder, n in sorted(folders.items()) if count else []:
        print(f"{n:6} {folder}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
