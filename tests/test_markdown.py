"""The texts: links lead somewhere, commands exist, and the table of sweeps has their headers."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from launching import sweep_table

ROOT = Path(__file__).resolve().parent.parent
FILES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
PAGES = {name: (ROOT / name).read_text() for name in FILES}
LAUNCHER = "scripts/launching/options.py"  # the options of scripts/launch.py, and so of every sweep
ASSIGNMENT = re.compile(r"([A-Z_]+)=")


# ---- the table of sweeps ---------------------------------------------------------------------------------------------
def test_the_table_of_sweeps_is_that_of_their_headers(tmp_path):
    text = (ROOT / "docs" / "reproducing.md").read_text()
    page = tmp_path / "page.md"
    page.write_text(sweep_table.TABLE.sub("", text))
    assert page.read_text() != text
    sweep_table.write(page)
    assert page.read_text() == text, "run `python scripts/launching/sweep_table.py`"


# ---- links -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", PAGES[name], flags=re.S)):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{name} links to {target}"


# ---- commands --------------------------------------------------------------------------------------------------------
def commands(text):
    """The words of each `python ...` and `bash ...` in code, with the variables that stand before it."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines() + re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        words = shlex.split(line.split(" #")[0]) if re.search(r"(^|\s)(python|bash|torchrun) ", line) else []
        for place, word in enumerate(words):
            if word in ("python", "bash", "torchrun"):
                yield [w for w in words[:place] if ASSIGNMENT.match(w)], words[place:]
                break


def arguments_of(path):
    """The fields of a program's Args, with those of classes that it inherits; report.py has those of figures.py."""
    names = set()
    if path.name == "report.py":
        return arguments_of(path.with_name("figures.py"))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and node.name in ("Args", "Options"):
            names |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
            for base in node.bases:
                names |= arguments_of(path.with_name(f"{base.value.id}.py"))
    return names


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *(name for name in PAGES if "docs/" in name)])
def test_commands_exist(name):
    for variables, (program, *words) in commands(PAGES[name]):
        file = next((word for word in words if word.endswith((".py", ".sh"))), None)
        if file is None or "NAME" in file:  # python -m, or a place for the reader's own name
            continue
        assert (ROOT / file).exists(), f"{name}: {program} {file}"
        known = arguments_of(ROOT / (LAUNCHER if program == "bash" or "launch.py" in file else file))
        flags = {word.partition("=")[0] for word in words[words.index(file) :] if re.match(r"--[a-z]", word)}
        names = {flag: flag[2:].replace("-", "_") for flag in flags}
        assert not [flag for flag, name in names.items() if not {name, name.removeprefix("no_")} & known], file
        if program == "bash":
            text = (ROOT / file).read_text() + (ROOT / "sweeps" / "lib.sh").read_text()
            for variable in variables:
                assert re.search(rf"\b{ASSIGNMENT.match(variable)[1]}\b", text), f"{file} does not read {variable}"
