"""The mathematics of the PPO scripts: advantages, losses, networks, and one whole update against CleanRL's.

Every function is tried in every script that has it; test_envpool.py has the targets of ppo_envpool.py.
"""

import copy
import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn as nn
from conftest import Recorder, curves, train_here
from tensors import nature
from torch.distributions import Categorical, Independent, Normal

import ppo_atari_envpool as ppo
import ppo_envpool
import ppo_isaacgym as isaac
import ppo_procgen as procgen
import ppo_rnd_envpool as rnd
from support import progress, reading

MODULES = pytest.mark.parametrize("module", [ppo, procgen, rnd, isaac])
DISCRETE = pytest.mark.parametrize("module", [ppo, procgen, rnd, ppo_envpool])


def batch_of(module, **columns):
    """A Batch of the script with these columns; the others are None."""
    return module.Batch._make(columns.get(name) for name in module.Batch._fields)


# ---- gae: test_outside.py has numbers that others publish ------------------------------------------------------------
@MODULES
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("steps,envs", [(1, 3), (7, 2), (128, 8)])
def test_gae_is_the_forward_sum(module, steps, envs, within):
    """Random ends, time limits and autoreset steps against the definition, sum_k (gamma lambda)^k delta_k.

    within: the environments reset within the step, so the row after an end is the first of the next episode, and valid.
    """
    generator = torch.Generator().manual_seed(steps)
    rewards, values = torch.randn(2, steps, envs, generator=generator)
    last = torch.randn(1, envs, generator=generator)
    ended = torch.rand(steps, envs, generator=generator) < 0.2
    truncations = ended & (torch.rand(steps, envs, generator=generator) < 0.5)
    terminations = ended & ~truncations
    valid = torch.cat([torch.ones(1, envs, dtype=torch.bool), ~ended[:-1] | within])
    ended, terminations, truncations = ended & valid, terminations & valid, truncations & valid
    next_values = torch.cat([values[1:], last])
    advantages, _ = module.gae(rewards, values, terminations, truncations, next_values, valid, 0.97, 0.9)
    for n in range(envs):
        for t in range(steps):
            total, weight = 0.0, 1.0
            for k in range(t, steps):
                if not valid[k, n]:
                    break
                target = rewards[k, n] + (0.0 if terminations[k, n] else 0.97 * next_values[k, n])
                total += weight * (target - values[k, n]).item()
                weight *= 0.97 * 0.9
                if ended[k, n]:
                    break
            assert advantages[t, n].item() == pytest.approx(total, abs=1e-5)


# ---- ppo_loss: test_sync.py holds that of ppo_isaacgym.py to the same text -------------------------------------------
def minibatch(module, size=6, num_actions=4, seed=0):
    """Logits, new values and a Batch of random rows; the policy that acted had the same logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(size, num_actions, generator=generator)
    actions = torch.randint(num_actions, (size,), generator=generator)
    newvalue, values, advantages, returns = torch.randn(4, size, generator=generator)
    logprobs = Categorical(logits=logits).log_prob(actions)
    columns = {"values": values, "advantages": advantages, "returns": returns}
    valid = torch.ones(size, dtype=torch.bool)
    return logits, newvalue, batch_of(module, actions=actions, logprobs=logprobs, valid=valid, **columns)


def loss_of(module, logits, newvalue, mb, clip_coef, ent_coef, vf_coef, clip_vloss=True):
    """The script's ppo_loss of a network with these logits and values on a minibatch. RND's other losses are 0."""
    args = SimpleNamespace(clip_coef=clip_coef, ent_coef=ent_coef, vf_coef=vf_coef, clip_vloss=clip_vloss)
    count, nothing = mb.valid.sum(), torch.zeros_like(newvalue)
    if module is rnd:
        mb = mb._replace(int_returns=nothing, frames_valid=mb.valid)
        networks = (lambda obs: (logits, newvalue, nothing, None), lambda frames, moments: nothing[:, None])
        loss, losses = rnd.ppo_loss(*networks, args, mb, count, count, None, None)
        assert losses.pop("int_value_loss") == losses.pop("fwd_loss") == 0
        return loss, losses
    network = lambda obs: (logits, newvalue, None)  # noqa: E731
    if module is ppo_envpool:  # of two agents, (S, B, ...), of which the other has one valid row
        network = lambda obs: (torch.stack([logits] * 2), torch.stack([newvalue] * 2), None)  # noqa: E731
        network.distribution = ppo_envpool.categorical
        mb = ppo_envpool.Batch(*(x if x is None else torch.stack([x] * 2) for x in mb))
        mb.valid[1, 1:] = False
        loss, losses = ppo_envpool.ppo_loss(None, network, args, ppo_envpool.weighted(mb, norm_adv=False))
        return loss[0, 0], {name: x[0, 0] for name, x in losses.items()}
    if module is isaac:  # whose actions are continuous: its loss gets the log-probabilities of discrete ones
        network.actor_logstd = torch.zeros(1, logits.shape[-1])
        mb = mb._replace(means=torch.zeros_like(logits), logstds=torch.zeros_like(logits))
        with mock.patch.object(isaac, "gaussian", lambda means, _, actions: ppo.categorical(means, actions)):
            return isaac.ppo_loss(None, network, args, mb, count)
    return module.ppo_loss(network, args, mb, count)


@DISCRETE
@pytest.mark.parametrize(
    "ratio,advantage,clipped",
    [(1.5, 1, True), (0.5, -1, True), (0.5, 1, False), (1.5, -1, False), (1.05, 1, False), (0.95, -1, False)],
)
def test_both_clip_sides(module, ratio, advantage, clipped):
    """Only a step that has gone too far in the direction of its advantage is clipped, and then it has no gradient."""
    logits = torch.tensor([[0.3, -0.2, 0.1]], requires_grad=True)
    logprob = torch.log_softmax(logits, -1)[:, 1].detach() - math.log(ratio)
    one = torch.ones(1)
    columns = {"actions": torch.tensor([1]), "values": one, "returns": one, "advantages": advantage * one}
    mb = batch_of(module, logprobs=logprob, valid=one.bool(), **columns)
    loss, losses = loss_of(module, logits, one, mb, 0.1, 0.0, 0.0)
    loss.backward()
    assert loss.item() == pytest.approx(-advantage * (min(max(ratio, 0.9), 1.1) if clipped else ratio), rel=1e-5)
    assert (logits.grad.abs().max().item() == 0) == clipped
    assert losses["clipfrac"].item() == (1.0 if abs(ratio - 1) > 0.1 else 0.0)
    assert losses["old_approx_kl"].item() == pytest.approx(-math.log(ratio), abs=1e-6)
    assert losses["approx_kl"].item() == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)


@DISCRETE
def test_clipped_value_loss(module):
    """Old value 1, clip 0.1. A new value of 2 counts as 1.1; the worse of the two errors is the loss."""
    one = torch.ones(2)
    columns = {"values": one, "returns": torch.tensor([2.0, 0.0]), "advantages": 0 * one, "valid": one.bool()}
    mb = batch_of(module, actions=torch.zeros(2, dtype=torch.int64), logprobs=-math.log(2) * one, **columns)
    _, losses = loss_of(module, torch.zeros(2, 2), 2 * one, mb, 0.1, 0.0, 1.0, clip_vloss=True)
    assert losses["value_loss"].item() == pytest.approx(0.5 * ((1.1 - 2.0) ** 2 + (2.0 - 0.0) ** 2) / 2)


@DISCRETE
def test_masked_rows_change_nothing(module):
    logits, newvalue, mb = minibatch(module, size=8)
    valid = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0], dtype=torch.bool)
    mb = mb._replace(obs=newvalue, logprobs=mb.logprobs + 0.2 * torch.arange(8) - 0.7, valid=valid)
    kept = module.Batch(*(x if x is None else x[valid] for x in mb))
    for x in (newvalue, mb.values, mb.advantages, mb.returns):
        x[~valid] = 1e6
    grads, losses = [], []
    for rows, some in ((mb, logits), (kept, logits[valid])):
        some = some.clone().requires_grad_()
        advantages = module.normalize_advantages(rows.advantages, rows.valid)
        loss, parts = loss_of(module, some, rows.obs, rows._replace(advantages=advantages), 0.1, 0.01, 0.5)
        loss.backward()
        grads.append(some.grad[rows.valid])
        losses.append(torch.stack([loss.detach(), *parts.values()]))
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(grads[0], grads[1])


@MODULES
def test_normalize_advantages(module):
    x = torch.tensor([1.0, 5.0, 3.0, 100.0])
    valid = torch.tensor([True, True, True, False])
    # the unbiased standard deviation of 1, 5, 3 is 2; the biased one is 1.63
    torch.testing.assert_close(module.normalize_advantages(x, valid), torch.tensor([-1.0, 1.0, 0.0, 0.0]))
    alone = torch.tensor([False, False, False, True])
    assert module.normalize_advantages(x, alone).tolist() == [0, 0, 0, 0]  # no spread to divide by, and no NaN
    assert module.normalize_advantages(x, torch.zeros(4, dtype=torch.bool)).tolist() == [0, 0, 0, 0]


# ---- network and update against CleanRL's ----------------------------------------------------------------------------
class ReferenceAgent(nn.Module):
    """CleanRL's agent in its plainest form: NCHW, x / 255, torch.distributions."""

    def __init__(self, state_dict):
        super().__init__()
        self.network = nature(4, nn.ReLU, nn.Linear(3136, 512), nn.ReLU())
        self.actor = nn.Linear(512, state_dict["actor.bias"].numel())
        self.critic = nn.Linear(512, 1)
        self.load_state_dict(state_dict)  # strict: the names and shapes of ours are CleanRL's

    def forward(self, obs):
        hidden = self.network(obs.permute(0, 3, 1, 2).float().contiguous() / 255.0)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


class ReferenceOfTwo(nn.Module):
    """CleanRL's two networks of 64-64 Tanh units, with the weights of an Agent of ppo_envpool.py."""

    def __init__(self, weights):
        super().__init__()
        self.networks = nn.ModuleList()
        for i, head in enumerate(("actor", "critic")):
            layers = []
            for name in ("network.0", "network.1"):
                layers += [self.linear(weights[f"{name}.weight"][0, i], weights[f"{name}.bias"][0, i]), nn.Tanh()]
            layers.append(self.linear(weights[f"{head}.weight"][0, 0], weights[f"{head}.bias"][0, 0]))
            self.networks.append(nn.Sequential(*layers))
        if "actor_logstd" in weights:
            self.actor_logstd = nn.Parameter(weights["actor_logstd"][0].clone())

    @staticmethod
    def linear(weight, bias):
        layer = nn.Linear(*weight.shape)
        layer.weight.data.copy_(weight.t())
        layer.bias.data.copy_(bias[0])
        return layer

    def forward(self, obs):
        return self.networks[0](obs), self.networks[1](obs)[:, 0]


REFERENCES = {ppo: ReferenceAgent, ppo_envpool: ReferenceOfTwo}  # of the others see test_the_network_is_cleanrls


def policy_of(agent, outputs):
    """PyTorch's distribution of the actions of a network with these outputs."""
    if hasattr(agent, "actor_logstd"):
        return Independent(Normal(outputs, agent.actor_logstd.exp().expand_as(outputs)), 1)
    return Categorical(logits=outputs)


def reference_loss(agent, rnd_model, moments, mb, args):
    """CleanRL's loss, written anew from its definition, of valid rows; and the share of ratios outside of the clip."""
    outputs, newvalue, int_value, *_ = (*agent(mb.obs), None)
    policy = policy_of(agent, outputs)
    ratio = (policy.log_prob(mb.actions) - mb.logprobs).exp()
    adv = mb.advantages
    if args.norm_adv:
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy_loss = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
    value_loss = (newvalue - mb.returns) ** 2
    if args.clip_vloss:
        clipped = mb.values + (newvalue - mb.values).clamp(-args.clip_coef, args.clip_coef)
        value_loss = torch.max(value_loss, (clipped - mb.returns) ** 2)
    loss = policy_loss - args.ent_coef * policy.entropy().mean() + args.vf_coef * value_loss.mean() / 2
    if rnd_model is not None:  # the predictor learns from every row: --update-proportion 1
        loss = loss + args.vf_coef * ((int_value - mb.int_returns) ** 2).mean() / 2
        loss = loss + rnd_model(mb.frames, moments).mean()
    return loss, ((ratio - 1).abs() > args.clip_coef).float().mean().item()


# a large rate and a narrow clip: ratios have to leave it within eight steps
ITERATION = "--num-envs 4 --num-steps 32 --total-timesteps 128 --num-minibatches 4 --update-epochs 2 --seed 3 "
ITERATION += "--learning-rate 1e-3 --clip-coef 0.02 --ent-coef 0.02 --max-grad-norm 0.3 --no-diagnostics "
ITERATION += "--num-threads 1 --run-name r"
RND = "--env-id Breakout-v5 --num-iterations-obs-norm-init 1 --update-proportion 1 "
LANDER = "--env-id LunarLanderContinuous-v3 "  # its actions lie within -1 and 1: departure 10 changes nothing
CASES = [
    (ppo, "--no-mask-resets --num-steps 64 --total-timesteps 256"),
    (ppo, "--no-norm-adv --no-clip-vloss --vf-coef 0.8"),
    (procgen, "--clip-coef 0.002"),
    (procgen, "--clip-coef 0.002 --no-norm-adv --no-clip-vloss --vf-coef 0.8"),
    (rnd, RND),
    (rnd, RND + "--no-norm-adv --vf-coef 0.8 --clip-coef 0.0005"),
    (ppo_envpool, "--no-mask-resets --num-steps 64 --total-timesteps 256 --clip-coef 0.005"),
    (ppo_envpool, LANDER + "--clip-coef 0.005"),
    (ppo_envpool, LANDER + "--no-norm-adv --no-clip-vloss --vf-coef 0.8 --clip-coef 0.005"),
    (isaac, "--env-id Ant --clip-vloss"),
    (isaac, "--env-id Ant --no-norm-adv --vf-coef 0.8"),
]


@pytest.mark.parametrize("module,words", CASES)
def test_one_iteration_of_the_script_is_cleanrls(module, words, isaacgym, tmp_path, monkeypatch):
    """The script itself runs one iteration; its batch and permutations go through CleanRL's update, with its Adam."""
    args = module.parse_args([*ITERATION.split(), "--runs-dir", str(tmp_path), *words.split()])
    batches, moments, permutations, targets, networks = [], [], [], [], {}
    randperm, gae, cut, gradient = torch.randperm, module.gae, module.Batch.rows, module.gradient

    def record_gae(*inputs):
        targets.append([torch.as_tensor(x).clone() for x in inputs[:6]])
        return gae(*inputs)

    def record_minibatch(batch, *inputs):
        batches.append(batch)
        moments.append(None)
        return cut(batch, *inputs)

    def record_frame_moments(*inputs):  # RND's, which normalise the frames
        moments.insert(0, inputs[-1])
        return gradient(*inputs)

    def record_randperm(*inputs, **kwargs):
        drawn = randperm(*inputs, **kwargs)
        permutations.append(drawn)
        return drawn

    def kept(name):
        make = getattr(module, name)

        def call(*inputs):
            network = make(*inputs)
            networks[name] = copy.deepcopy(network)
            return network

        return call

    monkeypatch.setattr(module, "gae", record_gae)
    monkeypatch.setattr(module.Batch, "rows", record_minibatch)
    if module is rnd:
        monkeypatch.setattr(module, "gradient", record_frame_moments)
    monkeypatch.setattr(torch, "randperm", record_randperm)
    for name in ("make_agent", "RNDModel"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, kept(name))
    train_here(module, args)
    permutations = permutations[:2]  # not what is drawn for the log
    batch, initial = batches[0], networks["make_agent"]
    if module is ppo_envpool:  # of its only agent
        batch = ppo_envpool.Batch(*(x[0] for x in batch[:-1]))
    reference, rnd_model = initial, networks.get("RNDModel")
    if module in REFERENCES:
        reference = REFERENCES[module](initial.state_dict())
    with torch.no_grad():
        outputs, values, *_ = reference(batch.obs)
        logprobs = policy_of(reference, outputs).log_prob(batch.actions)
    torch.testing.assert_close(values, batch.values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logprobs, batch.logprobs, rtol=1e-4, atol=1e-5)
    if not args.mask_resets:  # every end is a death, and every row is trained on
        _, _, terminations, truncations, _, valid = targets[0]
        assert terminations.any() and not truncations.any() and valid.all() and batch.valid.all()
    before = {part: copy.deepcopy(x.state_dict()) for part, x in (("agent", reference), ("rnd_model", rnd_model)) if x}
    parameters = list(reference.parameters()) + (list(rnd_model.predictor.parameters()) if rnd_model else [])
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5)
    norms, outside = [], []
    for permutation in permutations:
        for inds in permutation.chunk(4):
            mb = module.Batch(*(x if x is None else x[inds][batch.valid[inds]] for x in batch))
            loss, fraction = reference_loss(reference, rnd_model, moments[0], mb, args)
            optimizer.zero_grad()
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(parameters, args.max_grad_norm).item())
            outside.append(fraction)
            optimizer.step()
    assert max(norms) > args.max_grad_norm and max(outside) > 0.1, "nothing is clipped: the test proves less"
    checkpoint = reading.load_checkpoint(tmp_path / "r/checkpoint.pt", "cpu")
    if module is ppo_envpool:
        checkpoint["agent"] = ReferenceOfTwo(checkpoint["agent"]).state_dict()
    for part, network in (("agent", reference), ("rnd_model", rnd_model)):
        for name, expected in network.state_dict().items() if network is not None else ():
            moved = (expected - before[part][name]).norm()
            assert moved > 0 or name.startswith("target"), f"{name}: two networks that do not learn would agree too"
            # Adam amplifies the rounding of gradients near zero, differently on each CPU
            assert (checkpoint[part][name] - expected).norm() <= 0.01 * moved, name


def test_bf16_and_float32_agree():
    torch.manual_seed(0)
    agent = ppo.Agent(6, shared_encoder=False)
    half = ppo.Agent(6, shared_encoder=False, bf16=True)
    half.load_state_dict(agent.state_dict())
    obs = torch.randint(0, 256, (32, 84, 84, 4), dtype=torch.uint8)
    with torch.no_grad():
        logits, values, hiddens = agent(obs)
        half_logits, half_values, half_hiddens = half(obs)
    # heads, and what is computed from them
    assert half_logits.dtype == half_values.dtype == half_hiddens[0][-1].dtype == torch.float32
    assert half_hiddens[0][0].dtype == torch.bfloat16  # the encoder
    assert (half_values - values).norm() < 0.03 * values.norm()
    assert (half_hiddens[0][-1] - hiddens[0][-1]).norm() < 0.03 * hiddens[0][-1].norm()
    assert [h.shape[1] for h in hiddens[0]] == [32, 64, 64, 512]


def test_separate_encoders_share_nothing():
    torch.manual_seed(0)
    agent = ppo.Agent(4, shared_encoder=False)
    obs = torch.randint(0, 256, (8, 84, 84, 4), dtype=torch.uint8)
    logits, values, hiddens = agent(obs)
    assert len(hiddens) == 2 and not torch.equal(hiddens[0][-1], hiddens[1][-1])
    values.sum().backward()
    assert all(p.grad is None for p in agent.network.parameters())
    assert all(p.grad is not None for p in agent.critic_network.parameters())


# ---- what the rollout hands to the targets ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "module,num_actions,words",
    [
        (ppo, 18, "--env-id Berzerk-v5 --num-steps 128 --total-timesteps 2048"),
        # in FruitBot rewards are frequent: games under way at the end of a rollout have earned some
        (procgen, 15, "--env-id fruitbot --num-steps 48 --total-timesteps 768 --num-minibatches 1"),
    ],
)
def test_rollout(module, num_actions, words, tmp_path, monkeypatch):
    """The real loop with a policy that is known: actions follow it, and each row of the batch is what the games did."""
    words += f" --num-envs 8 --learning-rate 0 --update-epochs 1 --no-diagnostics --num-threads 1 --runs-dir {tmp_path}"
    args = module.parse_args([*words.split(), "--run-name", "r"])
    agent_class, gae, recorder, seen = module.Agent, module.gae, Recorder(module.make_envs), []

    class KnownPolicy(agent_class):
        """The first action with probability 1/2, the others with equal probability."""

        def __init__(self, num_actions, *options):
            super().__init__(num_actions, *options)
            others = num_actions - 1
            with torch.no_grad():
                self.actor.weight.zero_()
                self.actor.bias.copy_(torch.log(torch.tensor([0.5] + [0.5 / others] * others)))

    def record_gae(*inputs):
        seen.append([x.clone() for x in inputs[:6]])
        return gae(*inputs)

    for name, double in (("Agent", KnownPolicy), ("make_envs", recorder), ("gae", record_gae)):
        monkeypatch.setattr(module, name, double)
    train_here(module, args)
    assert len(seen) == 2
    rewards, values, terminations, truncations, next_values, valid = (torch.cat(parts) for parts in zip(*seen))
    assert len(recorder.pools) == 2  # pieces of four games
    games = recorder.played()
    assert torch.equal(terminations, games.terminated) and torch.equal(truncations, games.truncated)
    done = games.terminated | games.truncated
    assert valid[0].all() and torch.equal(valid[1:], ~done[:-1]) and done.any()
    # V of what each step led to: the next row's value within a rollout, and a value of its own at the end of each
    checkpoint = reading.load_checkpoint(tmp_path / "r/checkpoint.pt", "cpu")
    agent = agent_class(num_actions)
    agent.load_state_dict(checkpoint["agent"])
    next_obs = games.obs.permute(0, 1, 3, 4, 2) if module is ppo else games.obs
    with torch.no_grad():
        expected = torch.stack([agent(frames)[1] for frames in next_obs])
    torch.testing.assert_close(next_values, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values[1:], expected[:-1], rtol=1e-4, atol=1e-5)
    # 0.5 +- 0.011, and 0.018 of Procgen; with the sign of the Gumbel noise flipped it would be 0.8
    assert (games.actions == 0).float().mean().item() == pytest.approx(0.5, abs=0.08)
    assert len(games.actions.unique()) == num_actions
    if module is procgen:  # one normaliser for the whole run: its sums and moments pass from one rollout to the next
        paid = games.rewards.numpy(), done.numpy(), valid.numpy()
        expected, _, moments = procgen.normalize_rewards(*paid, np.zeros(8), (0.0, 1.0, 1e-4), args.gamma)
        np.testing.assert_allclose(rewards, expected, rtol=1e-6)
        assert games.rewards.any() and checkpoint["log"]["reward_moments"] == pytest.approx(moments)
        return
    assert torch.equal(rewards, games.rewards)
    # what the curves say of the games
    scalars = {tag: [value for _, value in points] for tag, points in curves(tmp_path / "r").items()}
    assert games.raw.max() > games.rewards.max(), "no raw reward differs from its clipped one"
    for i in range(2):
        rows = slice(128 * i, 128 * (i + 1))
        reward = games.raw[rows].sum() / valid[rows].sum()
        assert scalars["charts/reward"][i] == pytest.approx(reward.item(), rel=1e-5)
        finished = (games.over | games.truncated)[: 128 * (i + 1)].sum(0)
        assert scalars["charts/min_episodes"][i] == finished.min() and scalars["charts/episodes"][i] == finished.sum()
    returns, running = [], torch.zeros(8)
    for t in range(len(games.raw)):
        running += games.raw[t]
        over = games.over[t] | games.truncated[t]
        returns += running[over].tolist()
        running[over] = 0.0
    assert returns and scalars["charts/episodic_return"][-1] == pytest.approx(sum(returns) / len(returns))


@pytest.mark.parametrize("module", [ppo, rnd])
def test_evaluation_episodes_are_played_by_the_policy(module, tmp_path, monkeypatch):
    """One of 9 actions has the probability 1/2. With the sign of the Gumbel noise flipped it would be played more.

    Who does nothing in Asterix earns points too: the game that ends first goes on to earn them, which must not count.
    """
    args = module.parse_args(["--env-id", "Asterix-v5", "--runs-dir", str(tmp_path)])
    agent, recorder = module.Agent(9), Recorder(module.make_envs)
    actor = agent.actor if module is ppo else agent.actor[-1]
    with torch.no_grad():
        actor.weight.zero_()
        actor.bias.copy_(torch.log(torch.tensor([0.5] + [1 / 16] * 8)))
    monkeypatch.setattr(module, "make_envs", recorder)
    bar = progress.progress_bar(4, "game", "")
    returns = module.play_episodes(agent, args, torch.device("cpu"), [3, 4, 5, 6], range(4), bar)
    games = recorder.played()
    first_over = games.over.int().argmax(0)  # the step that ends each game; after it the action is 0
    shares = [(games.actions[: last + 1, i] == 0).float().mean().item() for i, last in enumerate(first_over.tolist())]
    assert shares == pytest.approx([0.5] * 4, abs=0.1)
    assert returns == [games.raw[: last + 1, i].sum().item() for i, last in enumerate(first_over.tolist())]
    assert games.raw[first_over.min() + 1 :, first_over.argmin()].sum() > 0
