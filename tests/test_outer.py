"""P3's outer loop: the recipe for more environments, PPO-EWMA, the switch of a run, and schedules of N x T."""

import gc
import importlib
import json
import math
import os
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
from conftest import curves, load_checkpoint, refusal, train_here
from test_envpool import SIZE, run_here
from test_targets import batch_of

import ppo_envpool
import ppo_ewma_atari_envpool as ewma
import ppo_isaacgym
from support import devices, layers, recipe, rundir


# ---- the recipe ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_envs", [2, 8, 32, 128, 1024])
@pytest.mark.parametrize("scaling", ["more-minibatches", "bigger-minibatches", "sqrt-lr", "hybrid:1/2", "hybrid:2"])
def test_the_recipe_keeps_its_invariants(scaling, num_envs):
    base_size, base_number, c = 8 * 128 // 8, 8, Fraction(num_envs, 8)
    size, number, rate = recipe.scaled(num_envs, 8, 128, base_number, 1e-3, scaling)
    assert size * number == num_envs * 128, "a row in no minibatch"
    b = {"more-minibatches": 1, "hybrid:1/2": Fraction(1, 2), "hybrid:2": 2}.get(scaling, c)
    assert size == base_size * b, "samples a minibatch"
    assert Fraction(number, num_envs) == Fraction(base_number, 8) / b, "gradient steps a transition"
    assert rate == pytest.approx(1e-3 * (float(b) ** 0.5 if scaling[:6] in ("sqrt-l", "hybrid") else 1))


def parsed(words, **expected):
    args = ppo_envpool.parse_args(words.split())
    assert {name: getattr(args, name) for name in expected} == expected
    return args


def test_the_recipe_in_a_command(capsys):
    parsed("--num-envs 32 --scale-from 8", minibatch_size=256, num_minibatches=16, learning_rate=2.2e-3)
    assert capsys.readouterr().out == (
        "--scaling more-minibatches from 8 to 32 environments: 16 minibatches of 256 rows, learning rate 0.0022\n"
    )
    parsed("--num-envs 2 --scaling more-minibatches", minibatch_size=256, num_minibatches=1, scale_from=8)
    parsed("--num-envs 2 --scaling sqrt-lr --learning-rate 4e-4", minibatch_size=64, learning_rate=2e-4)
    parsed("--num-envs 64 --scaling hybrid:4", minibatch_size=1024, num_minibatches=8, learning_rate=4.4e-3)
    hopper = "--env-id Hopper-v5 --num-envs 16 --scaling bigger-minibatches"  # 32 minibatches by default
    parsed(hopper, minibatch_size=64, num_minibatches=32, learning_rate=7.7e-5)
    parsed("--num-envs 32 --num-minibatches 8 --scale-from 16", minibatch_size=256, num_minibatches=16)
    parsed("--num-envs 32", minibatch_size=1024, num_minibatches=4, scale_from=None, scaling=None)


@pytest.mark.parametrize(
    "words,says",
    [
        ("--scaling linear", "--scaling linear: expected more-minibatches, bigger-minibatches, sqrt-lr, hybrid:B"),
        ("--scaling hybrid:0", "--scaling hybrid:0: expected"),
        ("--scaling hybrid:x", "--scaling hybrid:x: expected"),
        ("--num-envs 1 --scaling more-minibatches", "gives 0.5 minibatches of 256 rows: expected whole numbers"),
        ("--scale-from 8 --minibatch-size 256", "--scaling and --minibatch-size exclude each other"),
    ],
)
def test_what_the_recipe_refuses(words, says, capsys):
    assert says in refusal(capsys, ppo_envpool.parse_args, words.split())


# ---- PPO-EWMA --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("com", [0.0, 8.0, 5000.0])
def test_the_average_is_hiltons(com):
    """Their recursion, written anew: W <- decay W + 1, ewma <- ewma decay W_old / W_new + theta / W_new, W_0 = 1."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    layer.register_buffer("shared", torch.zeros(1))
    average = devices.averaged(layer, com)
    layer.weight.data.mul_(2.0)  # as a checkpoint without an average does
    devices.begin_average(average, layer)
    devices.begin_average(None, layer)
    assert torch.equal(average(torch.ones(3)), layer(torch.ones(3))), "it begins with the module as it is now"
    decay, weight, ewma = com / (com + 1), 1.0, layer.weight.detach().double()
    for _ in range(50):
        layer.weight.data.add_(torch.randn(2, 3))
        average.update_parameters(layer)
        weight, before = decay * weight + 1, weight
        ewma = ewma * (decay * before / weight) + layer.weight.detach().double() / weight
        torch.testing.assert_close(average.module.weight.double(), ewma, rtol=1e-5, atol=1e-5)
    assert torch.equal(average.module.weight, layer.weight) == (com == 0)
    layer.shared += 1
    assert average.module.shared.item() == 1
    again = devices.averaged(layer, com)  # as after a resume
    again.load_state_dict(average.state_dict())
    devices.begin_average(again, layer)
    assert average.n_averaged == again.n_averaged == 51 and not again.module.weight.requires_grad
    layer.weight.data.add_(1.0)
    for copy in (average, again):
        copy.update_parameters(layer)
    assert torch.equal(again.module.weight, average.module.weight)


def test_the_surrogate_is_hiltons():
    """ppo-ewma's code, written anew in log space: the same loss and gradient."""
    generator, clip_coef = torch.Generator().manual_seed(0), torch.tensor(0.2)
    logprobs, prox, new, advantages = torch.randn(4, 400, generator=generator)
    new[:3], logprobs[:3] = 3.0, -4.0  # ratios above 100
    ours, theirs = (new.clone().requires_grad_() for _ in range(2))
    loss = ppo_envpool.ewma_surrogate(ours - logprobs, prox - logprobs, advantages, clip_coef)
    adjusted = torch.max(logprobs, theirs.detach() - math.log(100))
    unclipped = -advantages * torch.exp(theirs - adjusted)
    clipped = torch.clamp(theirs - prox, math.log(0.8), math.log(1.2)) + prox
    expected = torch.max(unclipped, -advantages * torch.exp(clipped - adjusted))
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    (gradient,), (expected_gradient,) = (torch.autograd.grad(x.sum(), y) for x, y in ((loss, ours), (expected, theirs)))
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    assert loss.abs()[:3].max() <= 100.01 * advantages[:3].abs().max() and (gradient == 0).any()
    others = ewma.ewma_surrogate(new - logprobs, prox - logprobs, advantages, 0.2)
    torch.testing.assert_close(others, loss)  # there of one agent
    on_behaviour = ppo_envpool.ewma_surrogate(new - logprobs, torch.zeros(400), advantages, clip_coef)[3:]
    ratio = (new - logprobs).exp()[3:]
    ppo = torch.max(-advantages[3:] * ratio, -advantages[3:] * ratio.clamp(0.8, 1.2))
    keep = ratio < 100  # with the policy that acted as the proximal one it is PPO's
    torch.testing.assert_close(on_behaviour[keep], ppo[keep], rtol=1e-4, atol=1e-5)


class Network:
    """What the scripts ask of an agent, or of its average: known outputs, values and a deviation."""

    def __init__(self, outputs, values, logstd=None):
        self.outputs, self.values, self.actor_logstd, self.module = outputs, values, logstd, self

    def distribution(self, outputs, actions):
        if self.actor_logstd is None:
            return ppo_envpool.categorical(outputs, actions)
        return ppo_envpool.gaussian(outputs, self.actor_logstd, actions)

    def __call__(self, obs):
        return self.outputs, self.values, None


@pytest.mark.parametrize(
    "module,continuous", [(ewma, False), (ppo_isaacgym, True), (ppo_envpool, False), (ppo_envpool, True)]
)
def test_the_loss_with_a_proximal_policy(module, continuous):
    """The surrogate is of the script's own log-probabilities and, of the average, of its own deviation."""
    generator = torch.Generator().manual_seed(0)
    outputs, others = torch.randn(2, 6, 3, generator=generator)
    proximal_outputs = outputs.lerp(others, 0.4)
    actions = torch.randn(6, 3, generator=generator) if continuous else torch.arange(6) % 3
    logprobs, values, returns, advantages = torch.randn(4, 6, generator=generator) - 1
    logstds = (torch.zeros(1, 3), torch.full((1, 3), 0.05)) if continuous else (None, None)
    agent, prox = Network(outputs, values, logstds[0]), Network(proximal_outputs, values, logstds[1])
    new, proximal = (x.distribution(x.outputs, actions)[0] for x in (agent, prox))
    expected = ewma.ewma_surrogate(new - logprobs, proximal - logprobs, advantages, 0.2).mean().item()
    rows = {"logprobs": logprobs, "values": values, "returns": returns, "advantages": advantages, "actions": actions}
    rows |= {"valid": torch.ones(6, dtype=torch.bool), "weights": torch.full((6,), 1 / 6), "means": outputs}
    args, count = SimpleNamespace(clip_coef=0.2, ent_coef=0.0, vf_coef=0.5, clip_vloss=True), [torch.tensor(6)]
    if module is ppo_envpool:  # one agent, (S, B, ...)
        rows, count = {name: x[None] for name, x in rows.items()}, []
        agent.outputs, prox.outputs, args.clip_coef = outputs[None], proximal_outputs[None], torch.tensor([0.2])
    mb = batch_of(module, **rows, logstds=logstds[0])
    _, losses = module.ppo_loss(prox, agent, args, mb, *count)
    assert losses["policy_loss"].item() == pytest.approx(expected, rel=1e-5)
    _, without = module.ppo_loss(None, agent, args, mb, *count)
    assert without["policy_loss"].item() != pytest.approx(expected, rel=1e-5)
    outside = ((new - proximal).exp() - 1.0).abs() > 0.2  # where the ratio is clipped
    assert losses["clipfrac"].item() == pytest.approx(outside.float().mean().item()) != without["clipfrac"].item()


@pytest.mark.parametrize("module", [ewma, ppo_isaacgym, ppo_envpool])
def test_the_proximal_policy_is_the_average_after_each_step(module, isaacgym, tmp_path, monkeypatch):
    """Of the first parameters and of those that each step of the optimiser has left, by the definition."""
    names, found = [], []
    adam = layers.Adam if module is ppo_envpool else module.optim.Adam
    make_agent, step = module.make_agent, adam.step

    def keep_agent(*inputs):
        agent = make_agent(*inputs)
        names.append([name for name, _ in agent.named_parameters()])
        found.append([x.detach().clone() for x in agent.parameters()])
        return agent

    def keep_step(optimizer, *inputs):
        step(optimizer, *inputs)
        if module is ppo_envpool:  # one row of all parameters
            parts = optimizer.parameters.split([x.numel() for x in found[0]], 1)
            found.append([part.reshape(x.shape).clone() for x, part in zip(found[0], parts)])
        else:
            found.append([x.detach().clone() for x in optimizer.param_groups[0]["params"]])

    monkeypatch.setattr(module, "make_agent", keep_agent)
    monkeypatch.setattr(adam, "step", keep_step)
    words = "--num-envs 4 --num-steps 16 --total-timesteps 128 --num-minibatches 4 --update-epochs 1 --prox-com 3 "
    words += f"--no-diagnostics --num-threads 1 --learning-rate 1e-3 --no-anneal-lr --run-name r --runs-dir {tmp_path}"
    args = module.parse_args([*words.split(), *(["--env-id", "Ant"] if module is ppo_isaacgym else [])])
    train_here(module, args)
    assert len(found) == 1 + 8
    weights = [(3 / 4) ** (8 - k) for k in range(9)]
    prox = load_checkpoint(tmp_path / "r")["prox"]
    for name, parameters in zip(names[0], zip(*found)):
        average = sum(w * x.double() for w, x in zip(weights, parameters)) / sum(weights)
        distance = (prox[f"module.{name}"] - average).norm()
        assert distance <= 0.01 * (parameters[-1] - parameters[0]).norm(), name


# ---- the switch ------------------------------------------------------------------------------------------------------
RUN = "--update-epochs 1 --no-diagnostics --num-logs 1000 "


def test_a_run_from_another_runs_checkpoint(tmp_path):
    """The child begins at the parent's step and rate of its own, with its weights; the parent stays as it is."""
    run_here(tmp_path, RUN + "--total-timesteps 512 --run-name parent")
    before = {path.name: path.read_bytes() for path in (tmp_path / "parent").iterdir() if path.is_file()}
    child = (
        f"{RUN} --resume-from {tmp_path}/parent --run-name child --num-envs 2 --num-steps 50 --prox-com 8 --gamma 0.9"
    )
    child += " --total-timesteps 1000 --learning-rate 1e-3 --minibatch-size 25"
    run_here(tmp_path, child + " --checkpoint-minutes 0")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "parent").iterdir() if path.is_file()}
    manifest = json.loads((tmp_path / "child/manifest.json").read_text())
    assert manifest["parent"] == {"run": f"{tmp_path}/parent", "global_step": 512, "seed": 1}
    assert json.loads((tmp_path / "child/done.json").read_text())["global_step"] == 912  # 4 whole batches of 100
    scalars = curves(tmp_path / "child")
    steps = [612, 712, 812, 912]
    rates = [(step, pytest.approx(1e-3 * (1 - (step - 100) / 912))) for step in steps]
    assert scalars["charts/learning_rate"] == rates
    assert [value for _, value in scalars["charts/gradient_steps"]] == [8 + 4 * i for i in range(1, 5)]
    assert [step for step, _ in scalars["charts/episodes"]] == steps and scalars["charts/episodes"][0][1] < 15
    prox = load_checkpoint(tmp_path / "child")["prox"]
    assert prox["n_averaged"] == 17
    still = f"{RUN} --resume-from {tmp_path}/parent --run-name still --total-timesteps 768"
    run_here(tmp_path, still + " --learning-rate 0 --no-anneal-lr")  # nothing else sets the rate
    for name, tensor in load_checkpoint(tmp_path / "parent")["agent"].items():
        assert torch.equal(tensor, load_checkpoint(tmp_path / "still")["agent"][name])
    run_here(tmp_path, still.replace("still", "other") + " --learning-rate 0 --no-anneal-lr --seed 2")
    same, other = (load_checkpoint(tmp_path / name)["rng"] for name in ("still", "other"))
    assert not torch.equal(same, other), "a child with a seed of its own draws noise and shuffles of its own"
    # killed before its own first checkpoint, and after one; the parent may be gone
    os.rename(tmp_path / "parent", tmp_path / "away")
    for content, step in ((before["checkpoint.pt"], 512), ((tmp_path / "child/checkpoint.prev.pt").read_bytes(), 812)):
        (tmp_path / "child/checkpoint.pt").write_bytes(content)
        (tmp_path / "child/done.json").unlink()
        gc.collect()  # the lock of the run before
        run_here(tmp_path, child + " --checkpoint-minutes 0")
        scalars = curves(tmp_path / "child")
        assert scalars["charts/learning_rate"] == rates, step


@pytest.mark.parametrize(
    "words,says",
    [
        ("--resume-from {}/none", "expected the directory of a run of ppo_envpool.py"),
        ("--resume-from {}/parent --hidden-sizes 32", "has run with --hidden-sizes [64, 64], not [32]"),
        (
            "--resume-from {}/parent --env-id Acrobot-v1",
            "--env-id CartPole-v1, not Acrobot-v1: expected the same network",
        ),
        ("--resume-from {}/parent --total-timesteps 511", "leaves no iteration after the 256 steps of --resume-from"),
        ("--resume-from {}/empty", "has no checkpoint: expected"),
    ],
)
def test_what_cannot_be_gone_on_from(words, says, tmp_path_factory, tmp_path, capsys):
    folder = tmp_path_factory.getbasetemp() / "parents"
    if not folder.exists():
        run_here(folder, RUN + "--run-name parent")
        (folder / "empty").mkdir()
        (folder / "empty/manifest.json").write_bytes((folder / "parent/manifest.json").read_bytes())
    capsys.readouterr()
    args = ppo_envpool.parse_args(f"{SIZE} --runs-dir {tmp_path} --total-timesteps 512 {words.format(folder)}".split())
    assert says in refusal(capsys, rundir.Run, args, torch.device("cpu"))
    assert not list(tmp_path.iterdir())


# ---- gradient noise --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("script", ["ppo_envpool", "ppo_ewma_atari_envpool"])
def test_the_noise_is_that_of_the_loss_before_the_update(script, tmp_path, monkeypatch):
    """The gradient of a group is that of REINFORCE with the advantages of the whole batch, at the first network."""
    module, seen = importlib.import_module(script), []

    def record(gradient, *_):
        *_, batch = (x for x in gradient.args if isinstance(x, (list, tuple)))
        batch = [x.clone() for x in batch if x is not None]  # the next rollout overwrites some
        seen.append((batch, gradient(torch.arange(40)), gradient(torch.arange(64))))
        return [{}]

    def record_first(*inputs):
        if not seen:
            *others, batch, workers, _ = inputs
            record(partial(gradient, *others, [*batch], workers))
        return gradient(*inputs)

    if script == "ppo_envpool":
        monkeypatch.setattr(module.diagnostics, "gradient_noise_scales", record)
    else:
        policy_gradient = module.policy_gradient

        def gradient(*inputs):
            *others, batch, workers, rows = inputs
            return policy_gradient(*others, module.Batch(*batch), workers, rows)

        monkeypatch.setattr(module, "policy_gradient", record_first)
    words = f"--num-envs 4 --num-steps 16 --total-timesteps 128 --update-epochs 1 --num-threads 1 --runs-dir {tmp_path}"
    args = module.parse_args([*words.split(), "--run-name", "r"])
    train_here(module, args)
    ((batch, of_some, of_all),) = seen  # the second iteration comes too soon for another measurement
    if script == "ppo_envpool":
        obs, _, actions, logprobs, values, returns, advantages, valid = (x[0] for x in batch)
        agent, of_some, of_all = module.make_agent(args, [args.seed]), of_some[0], of_all[0]
    else:
        obs, _, actions, logprobs, values, returns, advantages, valid = batch
        torch.manual_seed(args.seed)
        agent = module.Agent(4, args.shared_encoder)
    assert abs(advantages[valid].mean()) < 1e-6 and advantages[valid].std().item() == pytest.approx(1, abs=1e-5)
    for rows, found in ((torch.arange(40), of_some), (torch.arange(64), of_all)):
        kept = rows[valid[rows]]
        logits = agent(obs[kept][None])[0][0] if script == "ppo_envpool" else agent(obs[kept])[0]
        policy = torch.distributions.Categorical(logits=logits)
        chosen = policy.log_prob(actions[kept])
        torch.testing.assert_close(chosen, logprobs[kept], rtol=1e-3, atol=1e-4)
        loss = -(advantages[kept] * chosen + args.ent_coef * policy.entropy()).mean()
        gradients = torch.autograd.grad(loss, list(agent.parameters()), allow_unused=True, materialize_grads=True)
        expected = torch.cat([x.flatten() for x in gradients])
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-4 * expected.abs().max().item())


# ---- schedules -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start", [0, 700])
@pytest.mark.parametrize("total", [1000, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("text", ["0:4x8", "0:4x8,0.5:16x8", "0:16x8,0.1:4x8,0.7:2x50", "noise:2-16x8"])
def test_a_schedule_accounts_for_every_step(text, total, start):
    """The batches, one after the other, are those of the schedule's text, and end where it says."""
    schedule = recipe.Schedule(text, total, start)
    step, batches, wanted = start, [], 0
    while step < schedule.last_step:
        num_envs, num_steps = schedule.n_by_t(step, wanted)
        if text.startswith("noise"):
            assert (num_envs, num_steps) in {(2, 8), (4, 8), (8, 8), (16, 8)}
            assert num_envs == 2 << wanted or step + 2 * num_envs * 8 > schedule.last_step, "smaller than wanted"
            wanted = min(3, wanted + 1)
        else:
            begun = [x for x in text.split(",") if Fraction(x.split(":")[0]) * total <= step]
            assert f"{num_envs}x{num_steps}" == begun[-1].split(":")[1]
        batches.append(num_envs * num_steps)
        step += batches[-1]
    assert step == schedule.last_step <= total
    assert total - step < (16 if text.startswith("noise") else batches[-1]), "another batch would have fitted"
    fewest = schedule.iterations(start)
    assert fewest <= len(batches) if text.startswith("noise") else fewest == len(batches)


def test_n_follows_the_noise():
    schedule = recipe.Schedule("noise:4-31x8", 10000)
    assert schedule.bounds == (4, 16)
    led = schedule.follow_noise((0, 0.0, 0.0), 32, 1.0, 63.9)
    assert led == (0, 1.0, 63.9), "less than twice the rows: wait for more"
    assert schedule.follow_noise(led, 32, 1.0, 64.2) == (1, 0.0, 0.0), "the mean counts, and begins anew"
    assert schedule.follow_noise((0, 1.0, 20.0), 32, 1.0, 70.0) == (0, 2.0, 90.0), "a single one does not count"
    assert schedule.follow_noise(led, 32, -1.0, 0.0) == (1, 0.0, 0.0), "noise hides the gradient"
    assert schedule.follow_noise((2, 0.0, 0.0), 128, 1.0, 1e6) == (2, 1.0, 1e6), "no more than 16"
    assert schedule.follow_noise((2, 0.0, 0.0), 128, 1.0, 64.0) == (1, 0.0, 0.0)
    assert schedule.follow_noise((0, 0.0, 0.0), 32, 1.0, 1.0) == (0, 1.0, 1.0), "no fewer than 4"


@pytest.mark.parametrize(
    "words,says",
    [
        ("--schedule 0.1:8x16", "expected noise:LOW-HIGHxT, or FRACTION:NxT,... with fractions that rise from 0"),
        ("--schedule 0:8x16,0.5:8", "expected noise:LOW-HIGHxT, or FRACTION:NxT"),
        ("--schedule 0:8x16,0.5:16x8,0.5:4x32", "with fractions that rise from 0"),
        ("--schedule 0:8x16,1:16x8", "stay below 1"),
        ("--schedule 0:8x0", "expected noise:LOW-HIGHxT"),
        ("--schedule noise:1-8x16", "with 2 <= LOW <= HIGH"),
        ("--schedule noise --no-diagnostics", "--schedule noise needs the diagnostics"),
        ("--schedule 0:8x16,0.5:8x17", "the minibatches of 32 rows do not divide the batch of 8x17"),
        (
            "--schedule 0:8x128,0.999:128x8 --total-timesteps 100000",
            "no batch of 128x8 begins in its phase of 100000 steps",
        ),
        ("--schedule 0:8x16 --num-envs 8", "--schedule and --num-envs exclude each other"),
        ("--schedule 0:8x16 --scaling sqrt-lr", "--schedule and --scaling exclude each other"),
        ("--schedule 0:8x128,0.5:9999999x999999 --total-timesteps 90000000000000", "does not fit in memory"),
    ],
)
def test_what_a_schedule_refuses(words, says, capsys):
    assert says in refusal(capsys, ppo_envpool.parse_args, words.split())


def test_a_run_led_by_noise(tmp_path):
    """It ends at its last step. With one log point N changes at the same steps as with a thousand."""
    led = {}
    for num_logs in (1, 1000):
        words = "--env-id CartPole-v1 --schedule noise:2-16x8 --total-timesteps 2000 --num-minibatches 1"
        words += f" --update-epochs 1 --num-logs {num_logs} --runs-dir {tmp_path} --run-name logs{num_logs}"
        train_here(ppo_envpool, ppo_envpool.parse_args(words.split()))
        led[num_logs] = load_checkpoint(tmp_path / f"logs{num_logs}")["log"]["led"]
    assert led[1] == led[1000] and led[1][0] > 0
    points = curves(tmp_path / "logs1000")["charts/num_envs"]
    numbers = [n for _, n in points]
    assert [step for step, _ in points] == [8 * int(sum(numbers[: i + 1])) for i in range(len(points))]
    assert points[-1][0] == 2000 and max(numbers) > 2 and set(numbers) <= {2, 4, 8, 16}


SCHEDULED = "--schedule 0:4x16,0.3:8x16,0.7:2x64 --total-timesteps 2200 --update-epochs 1 --num-logs 1000 "
SCHEDULED += "--runs-dir {} --learning-rate 2.5e-4"
EDGES = [704, 1600, 2112]  # 11 batches of 64 rows, 7 and 4 of 128


def test_a_scheduled_run(tmp_path, monkeypatch):
    """Batches, rates and gradient steps are exact. Resumed where a phase begins, the run is the same run."""
    saved, save = {}, rundir.Run._save

    def keep(run, now):
        save(run, now)
        saved[run.global_step] = (run.path / "checkpoint.pt").read_bytes()

    monkeypatch.setattr(rundir.Run, "_save", keep)

    def train():
        gc.collect()  # the lock of the run before
        args = ppo_envpool.parse_args(
            [*SCHEDULED.format(tmp_path).split(), "--run-name", "r", "--checkpoint-minutes=0"]
        )
        train_here(ppo_envpool, args)
        return {tag: points for tag, points in curves(tmp_path / "r").items() if tag != "charts/SPS"}

    whole = train()
    steps = [*range(64, 705, 64), *range(832, 1601, 128), *range(1728, 2113, 128)]
    assert [step for step, _ in whole["charts/num_envs"]] == steps and json.loads(
        (tmp_path / "r/done.json").read_text()
    )["global_step"] == 2112
    assert [n for _, n in whole["charts/num_envs"]] == [4] * 11 + [8] * 7 + [2] * 4
    assert [t for _, t in whole["charts/num_steps"]] == [16] * 18 + [64] * 4
    assert [count for _, count in whole["charts/gradient_steps"]] == [step // 16 for step in steps], "16 rows each"
    rates = [2.5e-4 * (1 - step / 2112) for step in [0, *steps[:-1]]]
    assert [rate for _, rate in whole["charts/learning_rate"]] == pytest.approx(rates)
    for edge in EDGES[:2]:
        (tmp_path / "r/done.json").unlink()
        (tmp_path / "r/checkpoint.pt").write_bytes(saved[edge])
        assert train() == whole, f"resumed at step {edge}"
