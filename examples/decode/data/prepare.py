#!/usr/bin/env python3
"""Writes holmes.txt to the standard output, from Project Gutenberg's file; see README.md in this folder."""

import re
import sys


def main():
    text = open(sys.argv[1], encoding="utf-8-sig", newline="").read().replace("\r\n", "\n")

    def begin(title):
        return text.index("\n" + title) + 1

    text = (text[begin("ADVENTURE I. "):begin("ADVENTURE V. ")]
            + text[begin("ADVENTURE VI. "):begin("XII. THE ADVENTURE OF THE COPPER")])
    text = text.translate(str.maketrans("àâèé", "aaee"))
    text = "".join(line.rstrip() + "\n" for line in text.split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    assert all(c == "\n" or " " <= c <= "~" for c in text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
