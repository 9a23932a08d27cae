"""support/catalog.py against EnvPool's registry, and the tables of scores."""

import subprocess

import pytest
from conftest import ROOT, SMALL

from support import catalog
from support.envs import tasks
from support.envs.envpool import families


def test_scripts():
    assert {f"{name}.py" for name in catalog.SCRIPTS} == {*SMALL, "ppo_isaacgym.py"}
    assert all((ROOT / f"{name}.py").exists() for name in catalog.SCRIPTS)
    assert {family.script for family in catalog.FAMILIES.values()} <= catalog.SCRIPTS.keys()
    assert catalog.script("some/where/ppo_procgen.py") is catalog.SCRIPTS["ppo_procgen"]
    assert catalog.script("mine.py").memory.process == catalog.script("mine.py").speed == 0


def test_the_script_that_plays_a_game():
    """Names alone say it, in Python and in the sweeps; EnvPool's registry says what is right."""
    registry = {name: catalog.FAMILIES.get(module) for name, module in families().items()}
    expected = {name: family.script for name, family in registry.items() if family}
    expected.update({"gymnasium:a:B-v5": "ppo_envpool", "Ant": "ppo_isaacgym", "Mjlab-X": "ppo_isaacgym"})
    expected.update({"bigfish": "ppo_procgen", "BreakoutNoFrameskip-v4": "ppo_atari_envpool"})
    assert {name: catalog.script_of(name) for name in expected} == expected
    words = '. sweeps/lib.sh; while read -r game; do script_of "$game"; done'
    names = "\n".join(expected) + "\n"
    done = subprocess.run(["bash", "-c", words, "sweeps/lib.sh"], input=names, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == [f"{script}.py" for script in expected.values()], done.stderr


def test_continuous_tasks():
    """The names that a launcher goes by, against the action space of every small task that EnvPool has."""
    played = [name for name, module in families().items() if module in tasks.TRAINED]
    rows = {name: tasks.rows_of(name) for name in played}
    assert catalog.CONTINUOUS == {name for name, (_, actions) in rows.items() if actions.continuous}
    assert catalog.IMAGES == {name for name, (observation, _) in rows.items() if observation.images}


@pytest.mark.parametrize(
    "env_id, name",
    [
        ("Breakout-v5", "Breakout"),
        ("ALE/Breakout-v5", "Breakout"),
        ("BreakoutNoFrameskip-v4", "Breakout"),
        ("BigfishEasy-v0", "bigfish"),
        ("bigfish", "bigfish"),
        ("Mjlab-Cartpole-Balance", "Cartpole-Balance"),
        ("CartPole-v1", "CartPole-v1"),
    ],
)
def test_names_of_tasks(env_id, name):
    assert catalog.task_name(env_id) == name


def test_tables_of_scores():
    """Breakout by hand, from the published table; each game can be trained on."""
    humans = catalog.human_table()
    assert len(humans) == 57 and humans["Breakout"] == (1.7, 30.5) and "bigfish" not in humans
    assert {f"{game}-v5" for game in humans} <= families().keys()
    low, high = catalog.small_table()["CartPole-v1"]
    assert 20 < low < 25 and high == 500 and catalog.small_table()["Catch"][1] == 1
    assert len(catalog.PROCGEN_SCORES) == 16
    assert {f"{game.capitalize()}Easy-v0" for game in catalog.PROCGEN_SCORES} <= families().keys()


def test_scales():
    assert catalog.scale("ppo_isaacgym") is None
    assert catalog.scale("ppo_procgen").returns["starpilot"] == (2.5, 64)
    assert catalog.scale("ppo_procgen", "hard").returns["starpilot"] == (1.5, 35)
    assert catalog.scale("ppo_procgen", "extreme") is None
    modes = [catalog.procgen_mode({"env_id": name}) for name in ("bigfish", "BigfishEasy-v0", "BigfishHard-v0")]
    assert modes == ["easy", "easy", "hard"]
    assert catalog.procgen_mode({"env_id": "bigfish", "distribution_mode": "hard"}) == "hard"
    assert catalog.scale("ppo_envpool").returns is catalog.small_table()
    for script in ("ppo_atari_envpool", "pqn_atari_envpool", "ppo_rnd_envpool"):
        assert catalog.scale(script).returns is catalog.human_table()
