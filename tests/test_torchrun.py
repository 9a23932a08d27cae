"""The scripts in several processes: two update as one, and a run has one directory and one voice."""

import contextlib
import importlib
import json
import subprocess
import sys

import pytest
import torch
from conftest import (
    FIRST,
    ROOT,
    SISTER,
    SMALL,
    Forked,
    command,
    curves,
    environment,
    load_checkpoint,
    raw_steps,
    start,
    two_ranks,
    wait_for,
)

from support import devices, rundir

LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


UPDATE = """
import copy
import importlib
import sys
from functools import partial
import torch
import torch.distributed as dist
sys.path.insert(0, {root!r})
from support import devices
ppo = importlib.import_module({name!r})
torch.set_num_threads(1)
rank, num_ranks = devices.RANK, devices.NUM_RANKS
if num_ranks > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
args = ppo.Args(num_threads=1, **{options})
agent, workers = ppo.make_agent(args, *{sizes}), devices.Workers(args, torch.device("cpu"))
before = copy.deepcopy(agent.state_dict())
optimizer = torch.optim.Adam(agent.parameters(), lr={learning_rate}, eps=1e-5)
for minibatch in torch.load({path!r}):
    mb = ppo.Batch(*(x[rank::num_ranks] for x in minibatch))
    losses = ppo.update(partial(ppo.ppo_loss, None), agent, optimizer, args, workers, mb)
assert any((x - before[name]).abs().max() > 1e-4 for name, x in agent.state_dict().items())
torch.save((agent.state_dict(), losses), {path!r} + f".{{num_ranks}}.{{rank}}")
if num_ranks > 1:
    dist.destroy_process_group()
"""


def minibatch_of(name, generator):
    """24 random rows, in the order of the Batch of a script; 12 of the first process count, and 2 of the second."""
    logprobs, values, returns, advantages = torch.randn(4, 24, generator=generator)
    valid = (torch.arange(24) % 2 == 0) | (torch.arange(24) < 5)
    if name == "ppo_isaacgym":
        obs, actions = torch.randn(24, 3, generator=generator), torch.randn(24, 2, generator=generator)
        first = (obs, *torch.zeros(2, 24, 2), actions, logprobs - 3.0)
    else:
        obs = torch.randint(0, 256, (24, 84, 84, 4), generator=generator, dtype=torch.uint8)
        actions = torch.randint(0, 4, (24,), generator=generator)
        first = (obs, torch.zeros(24, 4), actions, 0.1 * logprobs - 1.4)
    return (*first, values, returns, advantages, valid)


@pytest.mark.parametrize(
    "name,sizes,learning_rate,options",
    [
        ("ppo_ewma_atari_envpool", (), 2.5e-4, {}),
        ("ppo_isaacgym", ((3, 0, 2),), 0.01, {"hidden_sizes": (16, 16), "ent_coef": 0.01}),
    ],
)
def test_two_processes_update_as_one(name, sizes, learning_rate, options, tmp_path):
    """The same rows, whole or split over two processes, uneven numbers of which are valid: the same network."""
    generator, path = torch.Generator().manual_seed(0), str(tmp_path / "data.pt")
    torch.save([minibatch_of(name, generator) for _ in range(4)], path)
    program, words = tmp_path / "update.py", {"sizes": sizes, "learning_rate": learning_rate, "options": options}
    program.write_text(UPDATE.format(root=str(ROOT), path=path, name=name, **words))
    processes = [Forked([sys.executable, str(program)], tmp_path, environment(**rank)) for rank in ({}, *two_ranks())]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    alone, first, second = (torch.load(f"{path}.{end}") for end in ("1.0", "2.0", "2.1"))
    torch.testing.assert_close(first, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second, first, rtol=0, atol=0)


class Begun(Exception):
    """A rollout has begun."""


def begin(name, rank, num_ranks, folder):
    """The seeds of the games and the noise of the actions that one of the processes begins its first rollout with, and
    the actions before it, (steps, games)."""
    module, seeds, noises = importlib.import_module(name), [], []
    start_run, make_envs = rundir.Run.__init__, module.make_envs

    def begin_as_one(run, *inputs, **others):
        """The other processes would be told by the first."""
        start_run(run, *inputs, **others)
        patch.setattr(devices, "RANK", rank)
        patch.setattr(devices, "NUM_RANKS", num_ranks)

    def record_envs(args, *inputs):
        seeds.extend(inputs[1:2] if name == "ppo_isaacgym" else inputs[0])
        return make_envs(args, *inputs)

    def record_step(agent, obs, noise):  # of one of its steps, of some environments
        noises.append(noise)
        return policy(agent, obs, noise)

    def end(*_):
        raise Begun

    words = "--env-id Ant --num-envs 4 --num-steps 8" if name == "ppo_isaacgym" else SMALL[f"{name}.py"]
    words += f" --total-timesteps 128 --num-threads 1 --run-name {rank}of{num_ranks} --runs-dir {folder}"
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Begun):
        patch.setattr(rundir.Run, "__init__", begin_as_one)
        patch.setattr(rundir.Run, "add_episodes", end)
        patch.setattr(module, "make_envs", record_envs)
        policy = module.policy
        patch.setattr(module, "policy", record_step)
        patch.setattr(sys, "argv", [f"{name}.py"])
        module.main(module.parse_args(words.split()))
    steps = 8 if name == "ppo_isaacgym" else 32  # piece by piece; after the last step a call for the value alone
    pieces = [torch.stack(noises[i : i + steps]) for i in range(0, len(noises), steps + 1)]
    return seeds, torch.cat(pieces, 1)


@pytest.mark.parametrize("name", [SISTER[:-3], "ppo_isaacgym"])
def test_two_processes_play_the_games_of_one(name, isaacgym, tmp_path):
    """Each half of them, with its half of the noise: no game is played twice."""
    seeds, noise = begin(name, 0, 1, tmp_path)
    halves = [begin(name, rank, 2, tmp_path) for rank in (0, 1)]
    (first_seeds, second_seeds), (first_noise, second_noise) = zip(*halves)
    if name == "ppo_isaacgym":  # one simulator per process
        assert len({*first_seeds, *second_seeds}) == 2
    else:
        assert first_seeds + second_seeds == seeds and len(set(seeds)) == 4
    assert torch.equal(torch.cat([first_noise, second_noise], 1), noise) and noise.shape[1] == 4
    assert not torch.equal(first_noise, second_noise)


def launch(script, folder, *words):
    """The script under torchrun."""
    python, *rest = command(script, folder, *words)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [python, *LAUNCHER, *rest], stdout=pipe, stderr=pipe, text=True, cwd=folder, env=environment()
    )


def run_ranks(script, folder, *words):
    """Both exit codes, and all that both processes print, of two processes with the environment that torchrun gives."""
    ranks = [start(script, folder, *words, **rank) for rank in two_ranks()]
    outs, errs = zip(*(rank.communicate(timeout=300) for rank in ranks))
    return [rank.returncode for rank in ranks], "".join(outs), "".join(errs)


def test_a_run_of_two_processes(tmp_path):
    """Every point once, one directory, the games of both processes. It begins under torchrun, and stops when that is
    killed; what resumes it gets no more than torchrun's environment."""
    run_dir, words = tmp_path / "run", ("--checkpoint-minutes", 0)
    process = launch(SISTER, tmp_path, *words)
    wait_for(lambda: (run_dir / "checkpoint.pt").exists() and len(raw_steps(run_dir)) >= 2, process)
    process.kill()
    out, err = process.communicate(timeout=120)
    assert process.returncode != 0 and not (run_dir / "done.json").exists(), out + err
    step = load_checkpoint(run_dir)["run"]["global_step"]
    assert 0 < step < 1024
    codes, out, err = run_ranks(SISTER, tmp_path, *words)
    assert codes == [0, 0], out + err
    assert out.count(f"resumes at step {step:,}") == 1 and out.count("is finished") == 1
    assert raw_steps(run_dir) == [*range(128, 1025, 128)]
    assert json.loads((run_dir / "done.json").read_text())["global_step"] == 1024
    scalars = curves(run_dir)
    rows = dict(scalars["diagnostics/feature_rank/rows"])
    assert all(50 < value <= 64 for value in rows.values())  # the first process's half
    assert [value for _, value in scalars["charts/gradient_steps"]] == [4 * i for i in range(1, 9)]
    assert {"outer/grad_noise_scale/noise", "outer/ddr", "outer/plateau"} <= scalars.keys()
    assert list(tmp_path.iterdir()) == [run_dir]


def test_a_script_of_one_process_says_so(tmp_path):
    codes, _, err = run_ranks(FIRST, tmp_path)
    assert codes == [2, 2] and not list(tmp_path.iterdir())
    assert err.count("error: torchrun: expected ppo_ewma_atari_envpool.py or ppo_isaacgym.py") == 2


def test_what_does_not_split(tmp_path):
    codes, out, err = run_ranks(SISTER, tmp_path, "--num-envs", 3, "--num-minibatches", 1, "--num-steps", 32)
    assert codes == [2, 2] and not list(tmp_path.iterdir())
    assert "--num-envs 3 or the minibatch size 96 is not divisible by the 2 processes of torchrun" in err


def test_a_finished_run_says_so_in_every_process(tmp_path):
    """The processes above the first learn from it that there is nothing to do."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    module = importlib.import_module(SISTER[:-3])
    arguments = vars(module.parse_args(command(SISTER, tmp_path)[2:]))
    (run_dir / "manifest.json").write_text(json.dumps({"arguments": arguments}))
    (run_dir / "done.json").write_text("{}")
    codes, out, err = run_ranks(SISTER, tmp_path)
    assert codes == [0, 0] and out.count("is finished") == 1, out + err
