"""The rule of what is shared: an algorithm is written out in its script, the same text where it is the same job.

Everything else is in support/, once. CONTRIBUTING.md explains the rule.
"""

import ast
import re
import subprocess
import sys

import graphlib
import pytest
from conftest import FIRST, ROOT, SMALL

SCRIPTS = {name: (ROOT / name).read_text() for name in [*SMALL, "ppo_isaacgym.py"]}
AXIS = "ppo_envpool.py"
BANNERS = (
    "Args, environments, network, advantages and loss, the six diagnostics, evaluation, "
    "setup, rollout, advantages, update, log, close"
).split(", ")
TARGETS = {"advantages": "targets", "advantages and loss": "targets and loss"}  # what a value method has
OUTER = ["ppo_ewma_atari_envpool.py", "ppo_isaacgym.py", AXIS]  # the scripts of P3's experiments
LINES = {
    "ppo_atari_envpool.py": 480,
    "ppo_ewma_atari_envpool.py": 565,
    "pqn_atari_envpool.py": 475,
    "ppo_procgen.py": 560,
    "ppo_rnd_envpool.py": 655,
    AXIS: 698,
    "ppo_isaacgym.py": 582,
}  # at most; what grows beyond it has something in it that is no algorithm
NEIGHBOURS = {
    (FIRST, "ppo_ewma_atari_envpool.py"): 138,
    (FIRST, "pqn_atari_envpool.py"): 317,
    (FIRST, "ppo_procgen.py"): 260,
    (FIRST, "ppo_rnd_envpool.py"): 400,
    ("ppo_ewma_atari_envpool.py", "ppo_isaacgym.py"): 410,
}  # the lines in which two scripts differ, at most: two files differ by what the algorithms differ
OWN = {  # top-level names that each script fills in its own way
    "Args": "each algorithm has its own arguments; shared ones are compared one by one below",
    "parse_args": "two scripts have defaults by task or by kind of action",
    "OBS_SHAPE": "Atari's or Procgen's frames",
    "make_envs": "other environments",
    "Rollout": "what the algorithm keeps of a step",
    "Agent": "each has the encoder and the heads of its paper",
    "make_agent": "other networks",
    "policy": "sampled, epsilon-greedy, Gaussian; a value, two values, values of actions",
    "Batch": "what its loss needs of a row",
    "ppo_loss": "other networks and policies; its shared passages are compared below",
    "diagnose": "a value method has no probabilities; a Gaussian policy has a deviation",
    "play_episodes": "as the policy acts: sampled, epsilon-greedy, Gaussian; Procgen has no lives",
    "main": "each algorithm has its own loop; its shared passages are compared below",
}
EWMA, ISAAC = "ppo_ewma_atari_envpool.py", "ppo_isaacgym.py"
RANKS = "of all processes of torchrun"
EXCEPT = {  # (name, script): why the text is another there than in the other scripts that have the name
    ("gradient", "pqn_atari_envpool.py"): "it has no advantages to normalise",
    ("gradient", "ppo_rnd_envpool.py"): "the predictor learns too, from frames of its own",
    ("update", "ppo_rnd_envpool.py"): "the same",
    ("gradient", EWMA): RANKS,
    ("normalize_advantages", EWMA): RANKS,
    ("gae", AXIS): "in NumPy, where its rollout is",
    ("gradient", AXIS): "each agent's gradient is a row; one thread computes",
    ("update", AXIS): "each agent's gradient is clipped alone",
    ("ewma_surrogate", AXIS): "each agent has its own clip range",
    ("gradient_noise", AXIS): "one thread computes, for all agents",
    ("policy_gradient", AXIS): "the same",
    ("normalize_rewards", AXIS): "the axis of agents, whose moments are arrays",
    ("gradient", ISAAC): RANKS,
    ("normalize_advantages", ISAAC): RANKS,
    ("update", ISAAC): "the learning rate may follow the KL (--desired-kl)",
}
LOSS = {  # passages of ppo_loss, the same in all PPO scripts: how their first and their last line begin
    "policy loss": ("    logratio = ", "    outside = "),
    "value loss and means": ("    v_loss = (newvalue", "        means = "),
}
PASSAGES = {  # passages of main, the same wherever they are
    "setup": ("    device = devices.set_up(args)", "    rng = "),
    "annealing": ("        if args.anneal_lr:", "            devices.set_learning_rate("),
    "rows": ("        dones = rollout", "        run.add_episodes("),
    "masks": ("        terminations, truncations = rollout", "        )"),
    "minibatches": ("        for _epoch in range(", "                stats.gradient_steps += 1"),
    "points": ("        if run.at_log_point(", '            scalars["charts/gradient_steps"]'),
    "last gradient": ("            rows = batch.valid", "                last = metrics.unclipped("),
    "diagnostics": ("                for place, inds", "                    scalars.update("),
    "log": ("            run.log(", "        run.end_iteration()"),
    "start": ('if __name__ == "__main__":', "        main("),
}
ELSEWHERE = {  # modules of support/ that have a word for a loss or a gradient, and why
    "layers": "several agents with the bits that each has alone; the docstring of their script names its parts",
    "diagnostics": "what scripts call that have not been rewritten",
    "tags": "the names of curves",
}
PASSAGE_EXCEPT = {  # (passage, script): why it is not the same there
    ("rows", "ppo_procgen.py"): "its rewards are the raw ones, and it has no lives",
    ("masks", "ppo_procgen.py"): "it normalises the rewards",
    ("minibatches", "ppo_rnd_envpool.py"): "a minibatch has frames that the predictor learns",
    ("minibatches", EWMA): RANKS,
    ("minibatches", ISAAC): RANKS,
    ("setup", ISAAC): "its simulators draw from PyTorch's generator, and know the sizes of the network",
    ("rows", ISAAC): "its answers are tensors, and say which rows are valid",
    ("masks", ISAAC): "the same",
    ("diagnostics", ISAAC): "its units may saturate far from 0",
    ("log", ISAAC): "it may normalise observations",
}
PHYSICS = {"capture_video", "num_threads", "shared_encoder"}  # other words there


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
    maths = {"__future__", "math", "torch", "typing"}
    assert imports(ROOT / "metrics.py") == maths
    assert imports(ROOT / "support/diagnostics.py") == maths - {"math"} | {"metrics"}


def test_the_algorithm_stands_in_its_script():
    """But for what layers.py computes for several agents; that is named where the reader of the script begins."""
    words = {"loss", "losses", "gradient", "gradients", "backward", "autograd"}
    has = {name: {word for x in identifiers(path) for word in x.lower().split("_")} for name, path in FILES.items()}
    assert {name for name, found in has.items() if found & words} == ELSEWHERE.keys()
    tree = ast.parse(SCRIPTS[AXIS])
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    taken = {node.attr for node in nodes if node.value.id == "layers"}
    assert "Adam" in taken and taken <= set(re.findall(r"\w+", ast.get_docstring(tree)))
    assert [script for script in SCRIPTS if "layers" in parts(ROOT / script)] == [AXIS]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_touches_no_file(script):
    assert not identifiers(ROOT / script) & {"open", "Path", "signal", "json", "subprocess", "Event", "tqdm", "wandb"}


def parts(path):
    """The parts of this repository that a file imports, wherever in it: metrics, rundir, envs.tasks, analysis, …"""
    own = {"metrics", "support", "scripts", "results", "tests", *(name[:-3] for name in SCRIPTS)} | {
        path.stem for path in (ROOT / "scripts").iterdir()
    }
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]  # a module, or a name in one
            names = [name if name.removeprefix("support.") in MODULES else node.module for name in inside]
        found.update(name.removeprefix("support.") for name in names if name.split(".")[0] in own)
    return {name if name in MODULES else name.split(".")[0] for name in found}


FILES = {  # of support/ by the name of the module, such as rundir or envs.tasks
    ".".join(path.relative_to(ROOT / "support").with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "support").rglob("*.py")
    if path != ROOT / "support/__init__.py"
}
MODULES = FILES.keys()
SUPPORT = {name: parts(path) for name, path in FILES.items()}


def below(module):
    """All modules of support/ that one needs, itself included."""
    return {module}.union(*(below(part) for part in SUPPORT[module] & MODULES))


def test_imports_point_one_way():
    """scripts/ and the six scripts -> support/ -> metrics.py, without a circle."""
    assert (ROOT / "support/__init__.py").read_text() == "" and parts(ROOT / "metrics.py") == set()
    for module, needs in SUPPORT.items():
        assert needs <= MODULES | {"metrics"}, module
    graphlib.TopologicalSorter(SUPPORT).prepare()  # raises CycleError
    for script in SCRIPTS:
        assert parts(ROOT / script) <= MODULES | {"metrics"}, script


def test_nothing_outside_a_study_imports_it():
    """What two studies need is in scripts/analysis or in support/. The tests load a study by conftest.study."""
    studies = {}  # folder: the names of its modules
    for path in ROOT.glob("results/*/*.py"):
        studies.setdefault(path.parent, set()).add(path.stem)
    names = set().union(*studies.values())
    files = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    for path in map(ROOT.joinpath, files.split()):
        imported = re.findall(r"^ *(?:import|from(?= .* import )) (results\.\w+|\w+)", path.read_text(), re.M)
        own = {*studies.get(path.parent, ()), f"results.{path.parent.name}"}  # the latter where judge.py loads a study
        assert not {name for name in imported if name in names or name.startswith("results")} - own, path
    assert {"gradient_measures", "public"} <= names  # it has found them


def test_one_place_knows_the_path():
    """launching/root.py; a program in results/ has the one line that finds it."""
    finds = 'sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))\nfrom launching.root import ROOT'
    for path in ROOT.glob("results/*/*.py"):
        assert path.read_text().count("sys.path") == path.read_text().count(finds), path
    assert [path.name for path in ROOT.glob("scripts/**/*.py") if "sys.path" in path.read_text()] == ["root.py"]


def test_reading_imports_no_simulator():
    """Nor a module whose name it has read; test_reading.py tries it."""
    assert not {name for name in below("reading") if name.startswith("envs.")} | below("reading") & {
        "simulators",
        "rundir",
    }
    for module in below("reading"):
        assert not identifiers(FILES[module]) & {"import_module", "__import__", "exec", "eval"}, module
    code = (
        "import sys; from support import reading; print({'torch', 'tensorboard', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "set()", done.stderr


# ---- what is written out in each script ------------------------------------------------------------------------------
def test_same_name_same_text():
    """A name has one text wherever it stands, but for EXCEPT; what stands in OWN or EXCEPT without need fails too."""
    texts = {}
    for script in SCRIPTS:
        for name, source in definitions(SCRIPTS[script]).items():
            texts.setdefault(name, {})[script] = source
    shared = {name: sources for name, sources in texts.items() if len(sources) > 1}
    for name, sources in shared.items():
        common = {source for script, source in sources.items() if (name, script) not in EXCEPT}
        assert name in OWN or len(common) == 1, name
        assert len({sources[script] for script in sources if EXCEPT.get((name, script)) == RANKS}) < 2, name
        assert len(common) > 1 or name not in OWN, name
        for script in sources:
            assert (name, script) not in EXCEPT or sources[script] not in common, (name, script)
    assert OWN.keys() <= shared.keys() and {name for name, _ in EXCEPT} <= shared.keys() - OWN.keys()


@pytest.mark.parametrize("name", [*LOSS, *PASSAGES])
def test_shared_passages(name):
    scripts = [x for x in SCRIPTS if (x != AXIS if name in PASSAGES else x.startswith("ppo_"))]  # main has no axis
    lines = {**LOSS, **PASSAGES}[name]
    passages = {x: passage(SCRIPTS[x], *lines) for x in scripts if (name, x) not in PASSAGE_EXCEPT}
    first = next(iter(passages.values()))
    for script, lines in passages.items():
        assert lines == first, script


@pytest.mark.parametrize("first,second", NEIGHBOURS)
def test_two_files_differ_by_what_the_algorithms_differ(first, second):
    diff = subprocess.run(["git", "diff", "--no-index", "-U0", first, second], capture_output=True, text=True, cwd=ROOT)
    lines = len(re.findall(r"^[-+](?![-+]{2} )", diff.stdout, re.M))
    print(f"{first} and {second} differ in {lines} lines, {NEIGHBOURS[first, second]} at most")
    assert 0 < lines <= NEIGHBOURS[first, second]


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
    assert len(text.splitlines()) <= LINES[script]
    banners = re.findall(r"^ *# ---- ([\w ]+?) -+$", text, re.M)
    expected = [TARGETS.get(x, x) if script == "pqn_atari_envpool.py" else x for x in BANNERS]
    if script in OUTER:
        expected.insert(expected.index("the six diagnostics"), "the outer loop")
    assert banners == expected
    assert {len(line) for line in text.splitlines() if re.match(r" *# ---- ", line)} == {120}
    for name, (_, comment) in arguments(text).items():
        assert len(comment) > 10, f"--{name} is not documented"
        texts = [text, *(path.read_text() for path in FILES.values())]
        assert re.search(rf"\bargs\.{name}\b", "".join(texts)), f"--{name} is read nowhere"
    departures = re.findall(r"^(\d+)\. ", ast.get_docstring(ast.parse(text)), re.M)
    assert departures == [str(i + 1) for i in range(len(departures))] and departures
