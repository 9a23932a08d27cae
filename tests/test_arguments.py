"""support/arguments.py and support/usage.py: whole numbers in every form and place, and what --help says, and when."""

import ast
import dataclasses
import importlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT, environment, refusal
from launching import options
from launching.jobs import Job, parse_flags
from typing_extensions import get_type_hints

import ppo_envpool as ppo
from support import arguments, catalog, usage

COMMANDS = ("advise", "evaluate", "figures", "judge", "umap_coverage")
CLASSES = {name: importlib.import_module(name).Args for name in (*catalog.SCRIPTS, *COMMANDS)}
CLASSES["launch"] = options.Options
NEEDED = {"evaluate": ["x"], "figures": ["x"], "judge": ["x"], "umap_coverage": ["--runs", "x"]}
NEEDED["advise"] = ["--env-id", "x", "--steps", "1e6"]


def whole_fields(args_class):
    """{name: (a value in the form 1e6, that value)} of the fields that are whole numbers."""
    found = {}
    for name, hint in get_type_hints(args_class, include_extras=True).items():
        if re.search(r"\bint\b", str(hint)):
            limits = list(arguments._limits(hint))
            power = next(k for k in range(1, 9) if not any(limit.objection(2 * 10**k) for limit in limits))
            found[name] = (f"2e{power}", 2 * 10**power)
    return found


# ---- whole numbers ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CLASSES)
def test_whole_numbers_in_the_form_of_a_float(name, capsys):
    """In every argument of every script and command that is a whole number, and in no other."""
    args_class, needed = CLASSES[name], NEEDED.get(name, [])
    fields = whole_fields(args_class)
    words = [word for field, (text, _) in fields.items() for word in (f"--{field.replace('_', '-')}", text)]
    args = arguments.parse(args_class, [*needed, *words], "")
    for field, (_, value) in fields.items():
        given = getattr(args, field)
        assert given in (value, (value,)) and {type(x) for x in (given if given == (value,) else [given])} == {int}
    for field in list(fields)[:2]:
        for text in ("1.5e0", "1e-1"):
            flag = f"--{field.replace('_', '-')}"
            says = refusal(capsys, arguments.parse, args_class, [*needed, f"{flag}={text}"], "")
            assert says == f"error: {flag} {text}: expected a whole number\n"
    assert name not in catalog.SCRIPTS or {"num_envs", "total_timesteps", "minibatch_size"} <= fields.keys()


def test_which_texts_are_whole_numbers():
    whole = {"1e6": 10**6, "2.5e3": 2500, "1E6": 10**6, "1e+6": 10**6, "10.0e1": 100, "0e0": 0, "1.e2": 100}
    assert {text: arguments.whole_number(text) for text in whole} == whole
    for text in ("1.5e0", "1e-1", "10e-1", "6", "1.0", "1e", "e6", "-1e6", "1e6x", "1e1000", "\uff11e6", "1 e6", ""):
        assert arguments.whole_number(text) is None, text


def test_whole_numbers_in_the_commands_of_a_launch():
    """The launcher, and a sweep's base, read them as the script does."""
    words = "--total-timesteps 1e4 --num-envs=1.6e1 --learning-rate 1e0 --run-name 1e3"
    assert parse_flags(words.split()) == {
        "total_timesteps": 10_000,
        "num_envs": 16,
        "learning_rate": 1,
        "run_name": "1e3",
    }
    assert Job(f"python ppo_envpool.py {words}").steps == 10_000
    args = ppo.parse_args(
        "--hidden-sizes 1e1 2e1 --total-timesteps 1e4 --learning-rate 1e0 --num-minibatches=4e0".split()
    )
    assert (args.hidden_sizes, args.total_timesteps, args.num_minibatches) == ([10, 20], 10_000, 4)
    assert type(args.learning_rate) is float and ppo.parse_args(["--run-name", "1e3"]).run_name == "1e3"


# ---- --help ----------------------------------------------------------------------------------------------------------
def helped(capsys, parse, *words):
    """What --help prints, 120 columns wide."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setenv("COLUMNS", "120")  # the terminal of whoever runs the tests may be narrower
        parse([*words, "--help"])
    out, err = capsys.readouterr()
    assert end.value.code == 0 and err == ""
    return out


@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_is_in_the_help(name, capsys):
    """With its comment, its default and the kind of its value; those of a training script in three groups."""
    args_class = CLASSES[name]
    shown = helped(capsys, lambda argv: arguments.parse(args_class, argv, "What it does.\nMore."))
    flat = " ".join(shown.split())
    assert "What it does." in flat and "More" not in flat and max(map(len, shown.splitlines())) <= 120
    hints = get_type_hints(args_class, include_extras=True)
    for field in usage.fields(ROOT / sys.modules[args_class.__module__].__file__, args_class.__name__):
        assert len(field.text) > 10 and " ".join(field.text.split()) in flat, field
        assert flat.count(f" {field.flag} ") == 1 + field.positional, field
        leaf = next((kind for kind in ("bool", "int", "float", "Literal") if kind in str(hints[field.name])), "")
        kinds = {"bool": "[no-]", "int": "INT", "float": "FLOAT", "Literal": "{"}
        assert field.positional or kinds.get(leaf, "") in field.flag or "metavar" in str(hints[field.name]), field
    assert {field.name for field in dataclasses.fields(args_class)} == {
        field.name for field in usage.fields(ROOT / sys.modules[args_class.__module__].__file__, args_class.__name__)
    }
    groups = re.findall(r"^(\w+):$", shown, re.M)
    assert groups == (["run", "algorithm", "speed"] if name in catalog.SCRIPTS else groups)
    if name in catalog.SCRIPTS:
        run, algorithm, speed = re.split(r"\n\w+:\n", shown)[1:]
        assert run.lstrip().startswith("--env-id") and "--num-envs" in algorithm and "--num-threads" in speed
        assert len(shown.splitlines()) <= 85


def test_the_names_of_the_groups_are_those_of_arguments():
    fields = {field.name for name in catalog.SCRIPTS for field in dataclasses.fields(CLASSES[name])}
    named = [name for names in usage.GROUPS.values() for name in names]
    assert set(named) <= fields and len(named) == len(set(named))


def test_the_help_shows_the_defaults_of_the_task(capsys):
    plain, pendulum = (helped(capsys, ppo.parse_args, *words) for words in ((), ("--env-id", "Pendulum-v1")))
    assert "--update-epochs INT     passes over each batch (default: 4)" in plain
    assert "--update-epochs INT     passes over each batch (default: 10)" in pendulum
    assert "in half-widths of their bounds; 0.5 on your own tasks (default: 1.0)" in " ".join(plain.split())


@pytest.mark.parametrize(
    "path", [*(f"{name}.py" for name in catalog.SCRIPTS), "scripts/evaluate.py", "scripts/figures.py"]
)
def test_help_comes_before_torch_and_is_the_same(path, capsys, tmp_path):
    """The program itself, where torch and NumPy cannot be imported, says what its own parser says."""
    for name in ("torch", "numpy", "matplotlib"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    words = [sys.executable, str(ROOT / path), "--help"]
    env = environment(PYTHONPATH=str(tmp_path), COLUMNS="120")
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    module = importlib.import_module(ROOT.joinpath(path).stem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [path])
        assert done.stdout == helped(capsys, module.parse_args)


def test_help_without_a_reader_is_no_error(tmp_path):
    words = f"{sys.executable} {ROOT}/ppo_envpool.py --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=environment())
    assert done.stdout == "0\n" and done.stderr == ""


def test_every_command_answers_before_it_imports_more():
    """Each script's first import, and each command's, is what answers."""
    for name in catalog.SCRIPTS:
        first = next(node for node in ast.parse((ROOT / f"{name}.py").read_text()).body if hasattr(node, "names"))
        assert [alias.name for alias in first.names] == ["support.early_help"]
    assert "import support.early_help" in (ROOT / "scripts/launching/root.py").read_text()
    for path in (ROOT / "scripts").glob("*.py"):
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert imports[0].module == "launching.root", path
