"""The tables that a program writes into a page: each between a line `<!-- PROGRAM: NAME -->` and `<!-- end -->`."""

import re

from support.arguments import fail


def filled(page, text, program, tables):
    """The text of a page with its tables, {name: lines}. Ends the program with one line if the page lacks a place."""
    for name, lines in tables.items():
        place = re.compile(rf"(<!-- {re.escape(program)}: {name} -->\n).*?(<!-- end -->\n)", re.S)
        if len(place.findall(text)) != 1:
            fail(f"{page}: expected one line <!-- {program}: {name} --> and <!-- end --> after it")
        rows = "\n".join(lines)
        text = place.sub(lambda found, rows=rows: f"{found[1]}\n{rows}\n\n{found[2]}", text)
    return text
