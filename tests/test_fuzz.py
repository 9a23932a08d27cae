"""Random command lines for every program: each is accepted, or refused with one `error:` line and exit code 2.

The lines mix flags with valid, nearly valid and absurd values. The seed is fixed: the same lines every time. By hand:

    FUZZ_LINES=20000 FUZZ_SEED=2 python -m pytest -s tests/test_fuzz.py
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import random
import re
import shutil
import traceback
import typing

import pytest
import typing_extensions
from conftest import ROOT, study

from support import arguments

LINES, SEED = int(os.environ.get("FUZZ_LINES", 600)), os.environ.get("FUZZ_SEED", "1")
PROGRAMS = {  # share of the lines, words that most lines begin with
    "ppo_atari_envpool": (26, ()),
    "ppo_ewma_atari_envpool": (26, ()),
    "pqn_atari_envpool": (52, ()),
    "ppo_procgen": (52, ()),
    "ppo_rnd_envpool": (52, ()),
    "ppo_isaacgym": (52, ("--env-id", "Mjlab-Cartpole-Balance")),
    "ppo_envpool": (52, ()),
    "launch": (86, ()),
    "evaluate": (45, ("run",)),
    "figures": (30, ("fixed_budget", "--runs", ".")),
    "umap_coverage": (30, ("--runs", ".")),
    "gradient_correlation": (29, ()),
    "benchmark": (15, ("--scripts", "ppo_atari_envpool.py")),
    "advise": (30, ("--env-id", "CartPole-v1", "--steps", "2e6")),
}
# parse_args of these makes the directory of --out, if it accepts the line
MAKE_OUT = {"figures", "umap_coverage"}
PLAUSIBLE = "0 1 2 8 0.5 -1 1e-3 8.0 1e3 100000 none None true False 0,1 1,2 128x8 4K 32G 2-0 gpu status hours".split()
ABSURD = [
    *("", " ", "-", "--", "=", "'", '"', "\\", "*", "%s", "%", "{}", "{env_id}", "[]", "{'a':", "(1,", ";"),
    *("$(id)", "`id`", "nan", "-nan", "inf", "-inf", "1e999", "-1e999", "1e-999", "0x10", "1_000", "+4", " 8"),
    *("8 ", "٣", "½", "1.", ".5", "-0", "-0.0", "99999999999999999999", "9" * 400, "9" * 5000, "2147483647"),
    *("2147483648", "9223372036854775807", ".", "..", "../elsewhere", "/proc/elsewhere", "~", "a/../b", "x" * 300),
    *("x" * 5000, "no/such/file.gif", "a.mp4", "a b", "a\nb", "a\r\nb", "a\tb", "\x1b[31m", "\u2028", "\udcff"),
    *("💥", "İ", "error: no", "usage:", "--seed", "-x", "1x1", "0x8", "8x", "x8", "1,,2", ",", "1:2:3:4", "1.5G"),
    *("32Gi", "-5G", "=1", "a=b=c", "Breakout-v4", "pong-V5"),
]

FOUND = [  # command lines that once ended in a traceback
    ("figures", ["fixed_budget", "--runs", "x" * 5000]),
    ("figures", ["fixed_budget", "--runs", ".", "--base", "9" * 5000 + "x1"]),
    ("figures", ["fixed_budget", "--runs", ".", "--base", "²x1"]),
    ("umap_coverage", ["--runs", "x" * 5000]),
]


def module_of(name):
    """The program of this name in the root, in scripts/ or in a study's folder."""
    of_study = [*ROOT.glob(f"results/*/{name}.py")]
    return study(of_study[0].parent.name, name) if of_study else importlib.import_module(name)


# ---- command lines ---------------------------------------------------------------------------------------------------
def flags_of(module):
    """The flags that --help lists."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        module.parse_args(["--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text.getvalue())) - {"--help"})


def limits_of(hint):
    """The values at the ends of a type's Range and just outside it, and the values of a Literal."""
    if isinstance(hint, arguments.Range):
        low, high = hint
        return [low, high, low - 1, high + 1, high * 2]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [value for part in typing_extensions.get_args(hint) for value in limits_of(part)]


def values_of(module):
    """{flag: values}: the default of each argument, and the limits of its type. Empty: the flag takes no value."""
    if not hasattr(module, "Args"):
        return {}
    values = {}
    for name, hint in typing_extensions.get_type_hints(module.Args, include_extras=True).items():
        flag = name.replace("_", "-")
        if hint is bool:
            values[f"--{flag}"] = values[f"--no-{flag}"] = []
        else:
            values[f"--{flag}"] = [str(getattr(module.Args, name, "")), *map(str, limits_of(hint))]
    return values


def misspelled(rng, flag):
    """The flag with a letter too many or too few, in another style, cut off, or negated."""
    i = rng.randrange(2, len(flag))
    return rng.choice(
        [flag[:i] + flag[i + 1 :], flag[:i] + "x" + flag[i:], flag.replace("-", "_").replace("__", "--", 1)]
        + [flag[:i], flag.upper(), flag[1:], "--no-" + flag[2:], "---" + flag[2:]]
    )


def words_of_flag(rng, flags, values):
    """One flag, with a value if it takes one; sometimes not as it should be."""
    flag = rng.choice(flags)
    valid = values.get(flag, PLAUSIBLE)
    pool = rng.choice([valid, valid, PLAUSIBLE, ABSURD]) if valid else []
    if rng.random() < 0.05:
        flag, pool = misspelled(rng, flag), ABSURD
    if not pool:
        return [flag] if rng.random() < 0.9 else [flag, rng.choice(PLAUSIBLE)]
    value = rng.choice(pool)
    return rng.choices([[flag, value], [f"{flag}={value}"], [flag], [value], [flag, value, value]], (20, 5, 2, 1, 1))[0]


def command_line(rng, flags, values, beginning):
    words = list(beginning) if rng.random() < 0.9 else []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        words += words_of_flag(rng, flags, values)
    if rng.random() < 0.1:
        rng.shuffle(words)
    return [word for word in words if word not in ("-h", "--help")]


# ---- what a program says to them -------------------------------------------------------------------------------------
def outcome(module, words):
    """accepted, refused, or what is wrong with the program's answer."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            module.parse_args(list(words))
    except SystemExit as end:
        lines = err.getvalue().splitlines()
        one_line = len(lines) == 1 and re.match("error: .{10}", lines[0]) and not out.getvalue()
        return "refused" if end.code == 2 and one_line else f"exit {end.code}: {out.getvalue()}{err.getvalue()}"
    except Exception:
        return traceback.format_exc(limit=-3)
    text = re.sub(r"\A--scaling .*\n\Z", "", out.getvalue() + err.getvalue())  # says what it derives
    return f"accepted, but prints {text}" if text else "accepted"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_command_line_is_accepted_or_refused_in_one_line(name, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("SPS", raising=False)
    # tyro looks for names near an unknown flag, and parses the program's source anew for each of its arguments
    monkeypatch.setattr(inspect, "getsource", functools.cache(inspect.getsource))
    module = module_of(name)
    flags, values, (share, beginning) = flags_of(module), values_of(module), PROGRAMS[name]
    rng, counts, problems = random.Random(f"{SEED} {name}"), {"accepted": 0, "refused": 0}, []
    for _ in range(LINES * share // 600):
        words = command_line(rng, flags, values, beginning)
        answer = outcome(module, words)
        left = [path for path in tmp_path.rglob("*") if path != here]
        if left and not (answer == "accepted" and name in MAKE_OUT):
            answer = f"{answer}, leaves {left} behind"
        for path in here.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if answer in counts:
            counts[answer] += 1
        else:
            problems.append(f"{words!r:.500}\n{answer:.3000}")
    print(f"{name}: {counts['accepted']} accepted, {counts['refused']} refused, {len(problems)} neither")
    assert not problems, f"{len(problems)} of {LINES * share // 600} command lines\n\n" + "\n\n".join(problems[:20])
    assert min(counts.values()) > 0, "the lines are all good or all bad"


@pytest.mark.parametrize("name,words", FOUND)
def test_what_the_random_lines_have_found(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert outcome(module_of(name), words) == "refused"
