"""The scripts are single files that share their text: what must be the same in each, and what may differ and why."""

import ast
import re

import pytest
from conftest import ROOT, SMALL

SCRIPTS = {name: (ROOT / name).read_text() for name in [*SMALL, "ppo_isaacgym.py"]}
BANNERS = [
    "Args",
    "environments",
    "networks",
    "targets and loss",
    "diagnostics",
    "run directory",
    "setup",
    "rollout",
    "targets",
    "update",
    "diagnostics",
    "log",
    "close",
]
DIFFERS = {  # top-level names that stand in several scripts with different text
    "LOSSES": "each algorithm has its own losses",
    "Args": "each algorithm has its own arguments; those that two scripts share are compared one by one below",
    "RANGES": "follows Args",
    "diagnose": "PPO compares the policy before and after; a value method has no probabilities",
    "Agent": "each has the encoder and the heads of its paper",
    "OBS_SHAPE": "Atari's or Procgen's frames",
    "check_env_id": "other games",
    "make_envs": "other games",
    "parse_args": "ppo_isaacgym.py has defaults by task; the torchrun scripts split what they are given",
    "masked_mean": "a share of the mean where torchrun may run several processes",
    "normalize_advantages": "over the rows of all processes, likewise",
    "ppo_loss": "Gaussian in ppo_isaacgym.py",
    "main": "each algorithm has its own loop; its shared passages are compared below",
}
SHARED = {  # passages of main that are the same wherever they stand: how their first and their last line begin
    "signals and run": ("    stop_signals = []", "        episodes=0, games=[]"),
    "compiled and graphed": ("    compiled = ", "    graphed, forward"),
    "update": ("        def update(", "            return stats, grad_norm"),
    "resume and environments": ("        totals=torch.zeros(", "    num_actions = "),
    "resume to the loop": ('    coverage = {"frame"', '            optimizer.param_groups[0]["lr"] = '),
    "games": ("            next_obs, rewards[step], terminations", "        run.global_step += batch_size"),
    "what the host knows": ("        if not args.mask_resets:", "            metrics.to_device(x, device) for"),
    "minibatches": ("        for _epoch in range(", "                run.gradient_steps += 1"),
    "not finite": ("        finite = ", "            valid_inds = b_valid"),
    "probe gradients": ("            # clipping multiplied", '            scalars.update({f"probe/'),
    "log": ('            coverage["step"]', '            scalars["charts/gradient_steps"]'),
    "log and checkpoint": ("            scalars.update(zip([f", "        if args.capture_video:"),
    "close": ("        if args.capture_video:", "        os._exit(1)"),
}
# torchrun adds a line or two to these: the same text in the scripts that know it, and another in those that do not
TORCHRUN = ("ppo_atari_envpool.py", "ppo_isaacgym.py")
BY_GROUP = (
    "signals and run",
    "resume and environments",
    "resume to the loop",
    "games",
    "update",
    "minibatches",
    "not finite",
    "probe gradients",
)
EXCEPT = {  # (passage, script): why it is not the same there
    ("games", "ppo_procgen.py"): "Procgen has no lives, and no raw reward beside the one it pays",
    ("what the host knows", "ppo_procgen.py"): "its rewards are normalised first",
    ("log", "ppo_procgen.py"): "it logs the return on unseen levels as well",
    ("resume to the loop", "ppo_rnd_envpool.py"): "it loads the RND networks, and plays the random steps first",
    ("update", "ppo_rnd_envpool.py"): "it clips the predictor's gradient with the agent's",
    ("update", "ppo_isaacgym.py"): "its launches are few: neither compiled nor graphed",
    ("compiled and graphed", "ppo_isaacgym.py"): "likewise",
    ("log", "ppo_rnd_envpool.py"): "it logs the intrinsic reward and the rooms as well",
    ("resume and environments", "ppo_isaacgym.py"): "the simulator has its own reset and torch's generator",
    ("resume to the loop", "ppo_isaacgym.py"): "coverage.npz has observations, not frames",
    ("games", "ppo_isaacgym.py"): "its episodes are tensors, looked at once an iteration",
    ("what the host knows", "ppo_isaacgym.py"): "its rollout never leaves the device",
    ("minibatches", "ppo_isaacgym.py"): "it may adapt the learning rate to the KL",
}
PHYSICS = {"capture_video", "num_threads", "num_envs", "num_steps", "shared_encoder"}  # other words there


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
    """{name: (type, comment)} of the fields of Args; tyro shows the comments in --help."""
    body = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Args").body
    lines = text.splitlines()
    return {
        field.target.id: (ast.unparse(field.annotation), lines[field.end_lineno - 1].partition("  # ")[2])
        for field in body
    }


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
    groups = [[x for x in SCRIPTS if (name, x) not in EXCEPT]]
    if name in BY_GROUP:
        groups = [[x for x in groups[0] if x in TORCHRUN], [x for x in groups[0] if x not in TORCHRUN]]
    for group in groups:
        passages = {x: passage(SCRIPTS[x], *SHARED[name]) for x in group}
        first = next(iter(passages.values()))
        assert len(first) > 1
        for script, lines in passages.items():
            assert lines == first, script


def test_arguments_agree():
    """One name, one type and one text, but for four that name the optimiser, the heads or the games."""
    own = {"learning_rate", "bf16", "env_id", "total_timesteps"}
    texts = {}
    for script, text in SCRIPTS.items():
        for name, field in arguments(text).items():
            if script != "ppo_isaacgym.py" or name not in PHYSICS:
                texts.setdefault(name, set()).add(field)
    assert not {name for name, fields in texts.items() if len(fields) > 1} - own


@pytest.mark.parametrize("script", SCRIPTS)
def test_form(script):
    text = SCRIPTS[script]
    assert len(text.splitlines()) <= 700
    banners = re.findall(r"^ *# ---- ([\w ]+?) -+$", text, re.M)
    assert banners == BANNERS
    assert {len(line) for line in text.splitlines() if re.match(r" *# ---- ", line)} == {120}
    for name, (_, comment) in arguments(text).items():
        assert len(comment) > 10, f"--{name} is not documented"
        assert re.search(rf"\bargs\.{name}\b", text) or name == "exp_name", f"--{name} is read nowhere"
    departures = re.findall(r"^(\d+)\. ", ast.get_docstring(ast.parse(text)), re.M)
    assert departures == [str(i + 1) for i in range(len(departures))] and departures
