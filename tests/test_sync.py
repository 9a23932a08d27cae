"""The scripts are single files that share their text: what must be the same in each, and what may differ and why."""

import ast
import re

import pytest
from conftest import ROOT, SMALL

SCRIPTS = {name: (ROOT / name).read_text() for name in SMALL}
BANNERS = ["Args", "environments", "networks", "targets and loss", "diagnostics", "run directory", "setup", "rollout",
           "targets", "update", "diagnostics", "log", "close"]
DIFFERS = {  # top-level names that stand in several scripts with different text
    "LOSSES": "each algorithm has its own losses",
    "Args": "each algorithm has its own arguments; those that two scripts share are compared one by one below",
    "RANGES": "follows Args",
    "diagnose": "PPO compares the policy before and after; a value method has no probabilities",
    "main": "each algorithm has its own loop; its shared passages are compared below",
}
SHARED = {  # passages of main that are the same wherever they stand: how their first and their last line begin
    "environments and run": ("    device = torch.device(", "    num_actions = "),
    "resume to the loop": ("    rewards = np.zeros(shape", '            optimizer.param_groups[0]["lr"] = '),
    "games": ("            next_obs, rewards[step], terminations", "        run.global_step += batch_size"),
    "what the host knows": ("        if not args.mask_resets:", "            torch.from_numpy(x).to(device) for"),
    "minibatches": ("        for _epoch in range(", "                run.gradient_steps += 1"),
    "not finite": ("        finite = torch.stack(", "            valid_inds = b_valid"),
    "probe gradients": ("            # clipping multiplied", '            scalars.update({f"probe/'),
    "log": ('            coverage["step"]', '            scalars["charts/gradient_steps"]'),
    "log and checkpoint": ("            scalars.update(zip([f", "        if args.capture_video:"),
    "close": ('            print(f"{path}: a game', "        os._exit(1)"),
}


def definitions(text):
    """{name: source} of the top-level functions, classes and constants, decorators included."""
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first, name = min([node.lineno] + [d.lineno for d in node.decorator_list]), node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            first, name = node.lineno, node.targets[0].id
        else:
            continue
        found[name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def arguments(text):
    """{name: (type, docstring)} of the fields of Args."""
    body = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Args").body
    fields = zip(body[::2], body[1::2])
    return {field.target.id: (ast.unparse(field.annotation), ast.unparse(doc)) for field, doc in fields}


def passage(text, first, last):
    lines = text.splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith(first)]
    assert len(begins) == 1, f"{first!r} stands {len(begins)} times"
    for i in range(begins[0], len(lines)):
        if lines[i].startswith(last):
            return lines[begins[0] : i + 1]
    raise AssertionError(f"{last!r} does not follow {first!r}")


def test_same_name_same_text():
    texts = {}
    for text in SCRIPTS.values():
        for name, source in definitions(text).items():
            texts.setdefault(name, []).append(source)
    shared = {name: sources for name, sources in texts.items() if len(sources) > 1}
    differ = {name for name, sources in shared.items() if len(set(sources)) > 1}
    assert differ == DIFFERS.keys() & shared.keys(), f"{differ ^ (DIFFERS.keys() & shared.keys())}"
    assert not DIFFERS.keys() - shared.keys(), "a stale entry"


@pytest.mark.parametrize("name", SHARED)
def test_shared_passages(name):
    passages = {script: passage(text, *SHARED[name]) for script, text in SCRIPTS.items()}
    first = next(iter(passages.values()))
    assert len(first) > 1
    for script, lines in passages.items():
        assert lines == first, script


def test_arguments_agree():
    """One name, one type and one text. The optimiser and the heads have their names in three of them."""
    own = {"learning_rate", "bf16", "clip_coef"}
    texts = {}
    for text in SCRIPTS.values():
        for name, field in arguments(text).items():
            texts.setdefault(name, set()).add(field)
    assert not {name for name, fields in texts.items() if len(fields) > 1} - own


@pytest.mark.parametrize("script", SCRIPTS)
def test_form(script):
    text = SCRIPTS[script]
    assert len(text.splitlines()) <= 700
    banners = re.findall(r"^ *# ---- ([\w ]+?) -+$", text, re.M)
    assert banners == BANNERS
    assert {len(line) for line in text.splitlines() if re.match(r" *# ---- ", line)} == {120}
    for name in arguments(text):
        assert re.search(rf"\bargs\.{name}\b", text) or name == "exp_name", f"--{name} is read nowhere"
    departures = re.findall(r"^(\d+)\. ", ast.get_docstring(ast.parse(text)), re.M)
    assert departures == [str(i + 1) for i in range(len(departures))] and departures
