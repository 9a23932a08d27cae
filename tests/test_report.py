"""scripts/report.py: one file with everything in it, whose claims, figures and runs are those of the sweep."""

import json
import re
from html.parser import HTMLParser

import pytest
from planted_runs import write_run  # puts scripts/ on the path

# isort: split
import figures
import report


class Page(HTMLParser):
    """Collects the tags, the tables' rows as words, and what the page would fetch."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.fetched, self.rows, self.open = [], [], [], []
        self.words, self.terms, self.captions = "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        named = dict(attributes)
        self.fetched += [named[name] for name in ("src", "srcset", "data", "poster", "action") if named.get(name)]
        if tag in ("link", "image", "use", "a"):
            self.fetched += [named[name] for name in ("href", "xlink:href") if named.get(name)]
        if tag == "tr":
            self.rows.append([])
        if tag == "figcaption":
            self.captions.append("")
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if self.open and self.open[-1] == "dt":
            self.terms.append(data)
        if "figcaption" in self.open:
            self.captions[-1] += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """fixed_budget with eleven seeds; one run has diverged, and one has a name that is HTML."""
    root = tmp_path_factory.mktemp("report") / "runs"
    for seed in range(1, 12):
        for N, T, score in ((8, 16, 1.0), (16, 8, 1.5)):
            failed = (N, seed) == (16, 11)
            path = write_run(root / f"{N}<b>{seed}", score, seed=seed, num_envs=N, num_steps=T, done=not failed)
            manifest = json.loads((path / "manifest.json").read_text())
            manifest.update(
                command=f"/opt/x/bin/python3 ppo_atari_envpool.py --seed {seed} --num-envs {N}",
                git={"commit": "0123456789abcdef", "dirty": seed == 1},
                versions={"python": "3.11.2", "torch": "2.9.0", "attrs": "1"},
                device="cpu x86_64",
            )
            (path / "manifest.json").write_text(json.dumps(manifest))
            if failed:
                (path / "failed.json").write_text('{"tensor": "losses/value_loss", "global_step": 640}')
    return root


def write(runs, out, *words):
    args = ["fixed_budget", "--runs", str(runs), "--out", str(out), "--reps", "200", "--base", "8x16", *words]
    figures.main(figures.parse_args(args) if "--latex" in words else report.parse_args(args))


def test_the_page_holds_everything_and_asks_for_nothing(runs, tmp_path):
    write(runs, tmp_path)
    text = (tmp_path / "fixed_budget.html").read_text()
    page = Page(text)
    assert not page.open
    ids = set(re.findall(r'id=["\']?([^"\' >]+)', text))
    assert page.fetched and all(link[0] == "#" and link[1:] in ids for link in page.fetched)
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|importScripts", text)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    assert "ppo_atari_envpool.py on Breakout; 1,024 environment steps a run; seeds 1 to 11; 22 runs" in page.words
    assert page.words.count("interquartile mean") == 1 and {"N", "T", "IQM", "P1", "feature rank"} <= set(page.terms)
    assert len(page.captions) == page.tags.count("figure") >= 3 and all(". (fixed_budget" in x for x in page.captions)
    assert page.tags.count("svg") >= 3 and len(re.findall(r"<text", text)) > 20  # figures with text as text
    claims, scores, *runs_found = (i for i, row in enumerate(page.rows) if row[0] in ("claim", "configuration", "task"))
    assert claims < scores < runs_found[0]
    assert text.index("<svg") < text.index("id=claims") < text.index("id=scores")  # the picture, then the claims
    first, second = page.rows[claims + 1][:3], page.rows[claims + 2][:2]
    assert first == ["16×8 beats 8×16", "✓ supported", "✓ supported"]
    assert second == ["16×8 beats 8×16, without the diverged runs", "✓ supported"]


def test_the_table_of_runs(runs, tmp_path):
    write(runs, tmp_path, "--no-images")
    page = Page((tmp_path / "fixed_budget.html").read_text())
    header = next(row for row in page.rows if row[0] == "task")
    rows = {(row[1], row[3]): dict(zip(header, row)) for row in page.rows if row[0] == "Breakout"}
    assert len(rows) == 22
    done, failed = rows["8", "2"], rows["16", "11"]
    assert (done["state"], done["step"], done["SPS"], done["failure"]) == ("done", "1,024", "100", "")
    assert done["return"] == "30.5"  # Breakout's human score
    assert done["command"] == "8<b>2python ppo_atari_envpool.py --seed 2 --num-envs 8"
    assert failed["state"] == "diverged" and failed["failure"] == "losses/value_loss is not finite at step 640"
    origin = page.rows[[row[0] for row in page.rows].index("runs") + 1 :]
    assert ["20", "0123456789abcdef", "python 3.11.2, torch 2.9.0", "cpu x86_64"] in origin
    assert ["2", "0123456789abcdef and changes", "python 3.11.2, torch 2.9.0", "cpu x86_64"] in origin


def test_the_tables_for_latex(runs, tmp_path):
    write(runs, tmp_path, "--latex")
    text = (tmp_path / "fixed_budget.tex").read_text()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"* 16$\times$8 beats 8$\times$16 & " in text and r"95 \% CI" in text
    assert text.isascii()
    for part in re.findall(r"\\toprule(.*?)\\bottomrule", text, re.S):  # equally many cells in each row
        assert len({line.count(" & ") for line in part.split("\n") if "&" in line}) == 1
