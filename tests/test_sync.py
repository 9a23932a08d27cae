"""The rule of what is shared: an algorithm is written out in its script, the same text where it is the same job.

Everything else is in support/, once. CONTRIBUTING.md explains the rule.
"""

import ast
import re
import subprocess
import sys

import graphlib
import pytest
from conftest import ROOT, SMALL

SCRIPTS = {name: (ROOT / name).read_text() for name in [*SMALL, "ppo_isaacgym.py"]}
BANNERS = (
    "Args, environments, networks, targets and loss, diagnostics, "
    "setup, rollout, targets, update, diagnostics, log, close"
).split(", ")
DIFFERS = {  # top-level names that several scripts define with different text
    "Args": "each algorithm has its own arguments; shared ones are compared one by one below",
    "parse_args": "two scripts have defaults by task or by kind of action",
    "OBS_SHAPE": "Atari's or Procgen's frames",
    "make_envs": "other games",
    "Agent": "each has the encoder and the heads of its paper",
    "gae": "ppo_envpool.py acts on the CPU: NumPy takes a third of the time for small steps, at the same bits",
    "ppo_loss": "Gaussian in ppo_isaacgym.py; ppo_envpool.py has both policies, and as few operations as it can",
    "normalize_advantages": "RND counts the rows that its predictor learns from too, in the same message",
    "ewma_surrogate": "a clipping coefficient for each agent in ppo_envpool.py",
    "normalize_rewards": "ppo_envpool.py normalises those of each agent, of all processes",
    "diagnose": "PPO compares the policy before and after; a value method has no probabilities",
    "play_games": "as the policy acts: sampled, epsilon-greedy, Gaussian; Procgen has no lives",
    "main": "each algorithm has its own loop; its shared passages are compared below",
}
PASSAGES = {  # of main, the same wherever they are: how their first and their last line begin
    "setup": ("    device = devices.set_up(args)", "    num_envs, mb_size = "),
    "one update": ("    def gradient(", '        return {**losses, "grad_norm": grad_norm}'),
    "annealing": ("        if args.anneal_lr:", '            optimizer.param_groups[0]["lr"] = '),
    "rollout": ("            at = (step, piece)", "            game_overs[at] = "),
    "games": ("        new_games, finished = [], ", "        run.add_games("),
    "masks": ("        if not args.mask_resets:", "        )"),
    "minibatches": ("        for _epoch in range(", "                state.gradient_steps += 1"),
    "rows of the diagnostics": ("        scalars = {}", "            probe_inds = "),
    "gradients of the diagnostics": ("            # clipping multiplied", '            scalars.update({f"probe/'),
    "charts": ("            scalars.update(run.charts())", '            scalars["charts/reward"]'),
    "log": ("            means = ", "        run.end_iteration()"),
    "start": ('if __name__ == "__main__":', "        main("),
}
OUTER = {  # passages of the scripts that P3's experiments use
    "noise of the outer loop": ("        noise_scales = {}", "            )"),
    "proximal policy": ("    prox = None if", "    run.restore("),
    "gradient of a group": ("    def group_gradient(", "        return total"),
    "the outer loop": ("            grad_norm = ", '            scalars.update({f"outer/'),
}
OUTER_SCRIPTS = ("ppo_atari_envpool.py", "ppo_envpool.py", "ppo_isaacgym.py")
EXCEPT = {  # (passage, script): why it is not the same there
    ("one update", "ppo_atari_envpool.py"): "it averages the proximal policy of PPO-EWMA after each step",
    ("one update", "ppo_rnd_envpool.py"): "it clips the predictor's gradient with the agent's",
    ("one update", "ppo_isaacgym.py"): "neither compiled nor graphed; it may adapt the learning rate",
    ("annealing", "ppo_isaacgym.py"): "no CUDA graphs",
    ("rollout", "pqn_atari_envpool.py"): "it keeps Q values in place of logits and values",
    ("rollout", "ppo_rnd_envpool.py"): "it has intrinsic values and looks at the rooms as well",
    ("rollout", "ppo_procgen.py"): "Procgen has no lives, and no raw reward beside the one it pays",
    ("rollout", "ppo_isaacgym.py"): "one simulator steps all environments",
    ("games", "ppo_procgen.py"): "Procgen has no lives, and no raw reward beside the one it pays",
    ("games", "ppo_isaacgym.py"): "its episodes are tensors, looked at once an iteration",
    ("masks", "ppo_procgen.py"): "its rewards are normalised first",
    ("masks", "ppo_isaacgym.py"): "its rollout never leaves the device",
    ("setup", "ppo_envpool.py"): "it asks for the number of minibatches, not for their size",
    ("one update", "ppo_envpool.py"): "one flat gradient of a whole minibatch: the networks are too small to share",
    ("rollout", "ppo_envpool.py"): "all games at once in NumPy: pieces of them would cost more than they save",
    ("games", "ppo_envpool.py"): "no lives, and no raw reward beside the one that is paid",
    ("masks", "ppo_envpool.py"): "its rewards are normalised first, and stay in NumPy until the advantages are known",
    ("minibatches", "ppo_envpool.py"): "they are cut from one shuffled copy, and their losses are one tensor",
    ("gradients of the diagnostics", "ppo_envpool.py"): "one flat gradient",
    ("log", "ppo_envpool.py"): "its losses are one tensor",
    ("noise of the outer loop", "ppo_envpool.py"): "it normalises several minibatches at once, here one",
    ("gradient of a group", "ppo_envpool.py"): "one flat gradient; rows have weights",
    ("annealing", "ppo_envpool.py"): "each agent has a rate of its own",
    ("rows of the diagnostics", "ppo_envpool.py"): "other rows for each agent",
    ("charts", "ppo_envpool.py"): "other charts for each agent",
    ("proximal policy", "ppo_envpool.py"): "a list of generators, one for each agent",
    ("the outer loop", "ppo_envpool.py"): "another point for each agent",
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


def identifiers(path):
    """Every name that a module uses: variables, attributes, arguments and keywords."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("id", "attr", "arg", "name"):
            found.update([getattr(node, field, None)])
    return found - {None}


def imports(path):
    """The top-level packages that a module imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


def passage(text, first, last):
    lines = text.splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith(first)]
    assert len(begins) == 1, f"{first!r} occurs {len(begins)} times"
    for i in range(begins[0] + 1, len(lines)):
        if lines[i].startswith(last):
            return lines[begins[0] : i + 1]
    raise AssertionError(f"{last!r} does not follow {first!r}")


# ---- what is shared --------------------------------------------------------------------------------------------------
def test_what_is_no_algorithm_knows_none():
    """rundir.py and devices.py are handed dicts and tensors; they have no word for what is in them."""
    for module in ("support/rundir.py", "support/devices.py"):
        words = {word for name in identifiers(ROOT / module) for word in name.lower().split("_")}
        assert not words & {"obs", "reward", "rewards", "loss", "losses", "gradient", "gradients"}, module
    assert imports(ROOT / "metrics.py") == {"__future__", "math", "torch", "typing"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_touches_no_file(script):
    assert not identifiers(ROOT / script) & {"open", "Path", "signal", "json", "subprocess", "Event", "tqdm", "wandb"}


def parts(path):
    """The parts of this repository that a file imports, wherever in it: metrics, rundir, analysis, ppo_procgen, …"""
    own = {"metrics", "support", "scripts", "results", "tests", *(name[:-3] for name in SCRIPTS)} | {
        path.stem for path in (ROOT / "scripts").iterdir()
    }
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            prefix = node.module or ""
            names = [f"support.{alias.name}" for alias in node.names] if prefix == "support" else [prefix]
        found.update(name.removeprefix("support.").split(".")[0] for name in names if name.split(".")[0] in own)
    return found


SUPPORT = {path.stem: parts(path) for path in (ROOT / "support").glob("*.py")}


def below(module):
    """All modules of support/ that one needs, itself included."""
    return {module}.union(*(below(part) for part in SUPPORT[module] & SUPPORT.keys()))


def test_imports_point_one_way():
    """scripts/ and the six scripts -> support/ -> metrics.py, without a circle."""
    assert (ROOT / "support/__init__.py").read_text() == "" and parts(ROOT / "metrics.py") == set()
    for module, needs in SUPPORT.items():
        assert needs <= SUPPORT.keys() | {"metrics"}, module
    graphlib.TopologicalSorter(SUPPORT).prepare()  # raises CycleError
    for script in SCRIPTS:
        assert parts(ROOT / script) <= SUPPORT.keys() | {"metrics"}, script


def test_reading_imports_no_simulator():
    """Nor a module whose name it has read; test_reading.py tries it."""
    assert not below("reading") & {"worlds", "simulators", "rundir"}
    for module in below("reading"):
        assert not identifiers(ROOT / f"support/{module}.py") & {"import_module", "__import__", "exec", "eval"}, module
    code = (
        "import sys; from support import reading; print({'torch', 'tensorboard', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "set()", done.stderr


# ---- what is written out in each script ------------------------------------------------------------------------------
def test_same_name_same_text():
    texts = {}
    for text in SCRIPTS.values():
        for name, source in definitions(text).items():
            texts.setdefault(name, []).append(source)
    shared = {name: sources for name, sources in texts.items() if len(sources) > 1}
    differ = {name for name, sources in shared.items() if len(set(sources)) > 1}
    assert differ == DIFFERS.keys(), f"{differ ^ DIFFERS.keys()}"


@pytest.mark.parametrize("name", [*PASSAGES, *OUTER])
def test_shared_passages(name):
    scripts = SCRIPTS if name in PASSAGES else OUTER_SCRIPTS
    passages = {x: passage(SCRIPTS[x], *{**PASSAGES, **OUTER}[name]) for x in scripts if (name, x) not in EXCEPT}
    first = next(iter(passages.values()))
    for script, lines in passages.items():
        assert lines == first, script


def test_arguments_agree():
    """One name, one type and one text, but for five that name the optimiser, the network or the games."""
    own = {"learning_rate", "bf16", "env_id", "total_timesteps", "shared_encoder"}
    texts = {}
    for script, text in SCRIPTS.items():
        for name, field in arguments(text).items():
            if script != "ppo_isaacgym.py" or name not in PHYSICS:
                texts.setdefault(name, set()).add(field)
    assert not {name for name, fields in texts.items() if len(fields) > 1} - own


@pytest.mark.parametrize("script", SCRIPTS)
def test_form(script):
    text = SCRIPTS[script]
    assert len(text.splitlines()) <= {"ppo_rnd_envpool.py": 650, "ppo_envpool.py": 740}.get(script, 600)
    banners = re.findall(r"^ *# ---- ([\w ]+?) -+$", text, re.M)
    if script == "ppo_envpool.py":  # a step of the optimiser is above main
        banners.remove("update")
    assert banners == BANNERS
    assert {len(line) for line in text.splitlines() if re.match(r" *# ---- ", line)} == {120}
    for name, (_, comment) in arguments(text).items():
        assert len(comment) > 10, f"--{name} is not documented"
        read_elsewhere = re.search(
            rf"\bargs\.{name}\b",
            "".join(
                (ROOT / f"support/{x}.py").read_text() for x in ("arguments", "rundir", "devices", "recipe", "pack")
            ),
        )
        assert re.search(rf"\bargs\.{name}\b", text) or read_elsewhere, f"--{name} is read nowhere"
    departures = re.findall(r"^(\d+)\. ", ast.get_docstring(ast.parse(text)), re.M)
    assert departures == [str(i + 1) for i in range(len(departures))] and departures
