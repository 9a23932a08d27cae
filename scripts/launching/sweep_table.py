"""Writes the table of sweeps in docs/reproducing.md from the headers in sweeps/.

python scripts/launching/sweep_table.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reproducing.md"
TABLE = re.compile(r"(?<=scripts/launching/sweep_table.py -->\n).*?(?=<!-- end -->)", re.S)


def header(path):
    """{"": the first paragraph, "Claim": ..., "Cost": ..., ...} of the comment at the top of a sweep."""
    found, part = {"": ""}, ""
    for line in path.read_text().splitlines()[1:]:
        if not line.startswith("#"):
            return {name: text.strip() for name, text in found.items()}
        field = re.match(r"# ([A-Z][a-z]+): +(?=\S)", line)
        if field and found[""]:
            part = field[1]
            found[part] = ""
        found[part] += " " + line[field.end() if field and part else 1 :].strip()
    raise ValueError(f"{path} has no end of its header")


def table():
    """The sweeps in the order of sweeps/all.sh, as lines of Markdown."""
    order = re.search(r"for sweep in ([\w\s\\]+);", (ROOT / "sweeps" / "all.sh").read_text())[1]
    rows = ["| figure and question | sweep | claim | cost |", "|---|---|---|---|"]
    for name in order.replace("\\", "").split():
        parts = header(ROOT / "sweeps" / f"{name}.sh")
        cost = re.match(r".*?hours.*?\.(?= |$)", parts["Cost"])[0]  # the header has the rest
        rows.append(f"| {parts['']} | [`{name}`](../sweeps/{name}.sh) | {parts['Claim']} | {cost} |")
    return "\n".join(rows) + "\n"


def write(page=PAGE):
    """Puts the table in its place in the page."""
    text = page.read_text()
    page.write_text(TABLE.sub(lambda _: table(), text))


if __name__ == "__main__":
    write()
