"""PQN: its mathematics, its two LayerNorms, and what its loop does with real games."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn as nn
from conftest import Recorder, train_here

import pqn_atari_envpool as pqn
from support import progress


@pytest.mark.parametrize("steps,envs", [(1, 3), (9, 2), (128, 8)])
def test_q_lambda_is_the_forward_mixture(steps, envs):
    """The recursion against the definition: sum of (1 - lambda) lambda^(n-1) times the n-step targets up to an end."""
    generator = torch.Generator().manual_seed(steps)
    rewards, next_values = torch.randn(2, steps, envs, generator=generator)
    ended = torch.rand(steps, envs, generator=generator) < 0.2
    truncations = ended & (torch.rand(steps, envs, generator=generator) < 0.5)
    terminations = ended & ~truncations
    returns = pqn.q_lambda_returns(rewards, terminations, truncations, next_values, 0.97, 0.65)
    for n in range(envs):
        for t in range(steps):
            total, weight, discounted = 0.0, 1.0, 0.0
            for k in range(t, steps):
                discounted += 0.97 ** (k - t) * rewards[k, n].item()
                bootstrap = 0.0 if terminations[k, n] else 0.97 ** (k - t + 1) * next_values[k, n].item()
                if ended[k, n] or k == steps - 1:
                    total += weight * (discounted + bootstrap)
                    break
                total += weight * 0.35 * (discounted + bootstrap)
                weight *= 0.65
            assert returns[t, n].item() == pytest.approx(total, abs=1e-5)


def test_linear_schedule():
    values = [pqn.linear_schedule(1.0, 0.01, 1000, t) for t in (0, 500, 1000, 5000)]
    assert values == pytest.approx([1.0, 0.505, 0.01, 0.01])


def test_each_step_has_its_own_epsilon():
    drawn = pqn.exploratory_actions(np.float32([0.0, 1.0]), (2, 50), 4, torch.Generator().manual_seed(0))
    assert (drawn[0] == -1).all() and set(drawn[1].tolist()) == {0, 1, 2, 3}


def test_td_loss_and_its_mask():
    q_values = torch.tensor([[1.0, 5.0], [2.0, 3.0], [9.0, 9.0]], requires_grad=True)
    valid = torch.tensor([True, True, False])
    returns = torch.tensor([4.0, 4.0, 1e6])
    mb = pqn.Batch(None, None, torch.tensor([1, 0, 0]), returns, valid)
    loss, losses = pqn.td_loss(lambda obs: (q_values, None), pqn.Args(td_coef=2.0), mb, valid.sum())
    loss.backward()
    assert loss.item() == pytest.approx(2 * (1 + 4) / 2)
    assert {name: x.item() for name, x in losses.items()} == pytest.approx({"td_loss": 2.5, "q_values": 3.5})
    assert q_values.grad.tolist() == [[0.0, 2.0], [-4.0, 0.0], [0.0, 0.0]]


def test_the_network_is_cleanrls():
    """The same weights under CleanRL's names give CleanRL's values."""
    torch.manual_seed(0)
    ours = pqn.QNetwork(4)
    theirs = nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4),
        nn.LayerNorm([32, 20, 20]),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.LayerNorm([64, 9, 9]),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.LayerNorm([64, 7, 7]),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.LayerNorm(512),
        nn.ReLU(),
        nn.Linear(512, 4),
    )
    theirs.load_state_dict({name[len("network.") :]: tensor for name, tensor in ours.state_dict().items()})
    obs = torch.randint(0, 256, (8, 84, 84, 4), dtype=torch.uint8)
    with torch.no_grad():
        q_values, hiddens = ours(obs)
        expected = theirs(obs.permute(0, 3, 1, 2).float().contiguous() / 255)
        torch.testing.assert_close(q_values, expected, rtol=1e-4, atol=1e-4)
        half = pqn.QNetwork(4, bf16=True)
        half.load_state_dict(ours.state_dict())
        assert (half(obs)[0] - q_values).norm() < 0.05 * q_values.norm()
    assert [h.shape[1] for h in hiddens[0]] == [32, 64, 64, 512] and all((h >= 0).all() for h in hiddens[0])


@pytest.mark.parametrize("layer_norm,eps", [("chw", 1e-5), ("channels", 1e-6)])
def test_every_norm_has_the_epsilon_of_its_library(layer_norm, eps):
    """PyTorch's 1e-5, as in CleanRL, or flax's 1e-6, as in the paper's own code: after the dense layer too."""
    norms = [layer for layer in pqn.QNetwork(4, layer_norm).network if isinstance(layer, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [eps] * 4


def test_channel_norm_is_of_each_pixel():
    norm = pqn.ChannelNorm(3, eps=0.0)
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    y = norm(x)
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 5, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(1, unbiased=False), torch.ones(2, 5, 5), atol=1e-4, rtol=0)


# ---- the loop on real games ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def iterations(tmp_path_factory):
    """Two iterations of `main`. For each: what the games got and gave, what the targets and the loss were made from,
    and the Q values (T, N, A) before and after each step, of the network that acted."""
    words = "--num-envs 8 --num-steps 48 --total-timesteps 768 --num-minibatches 1 --update-epochs 1 --no-diagnostics"
    epsilon = "--start-e 0.25 --end-e 0.25 --num-threads 1 --run-name run --runs-dir"
    args = pqn.parse_args([*words.split(), *epsilon.split(), str(tmp_path_factory.mktemp("runs"))])
    make_envs, network, q_lambda_returns, td_loss = pqn.make_envs, pqn.QNetwork, pqn.q_lambda_returns, pqn.td_loss
    made, found, envs = {}, [], Recorder(make_envs)

    def keep(name, thing):
        made[name] = thing
        return thing

    def keep_targets(rewards, terminations, truncations, next_values, *rest):
        played = envs.played()
        first = torch.tensor(np.concatenate([pool.obs for pool in envs.pools]))
        all_obs = torch.cat([first[None], played.obs])[-args.num_steps - 1 :]  # what each step began with, and the last
        with torch.no_grad():
            q_values = torch.stack([made["agent"](frames)[0] for frames in all_obs.permute(0, 1, 3, 4, 2)])
        rows = slice(-args.num_steps, None)
        given = [x[rows] for x in (played.rewards, played.terminated, played.truncated)]
        games = SimpleNamespace(actions=played.actions[rows], others=given)
        others = [x.clone() for x in (rewards, terminations, truncations)]
        targets = SimpleNamespace(next_values=next_values, others=others)
        found.append(
            SimpleNamespace(pieces=[], games=games, targets=targets, q_before=q_values[:-1], q_after=q_values[1:])
        )
        return q_lambda_returns(rewards, terminations, truncations, next_values, *rest)

    def keep_loss(agent, args, mb, count):
        found[-1].pieces.append((mb.actions, mb.valid, int(count)))
        return td_loss(agent, args, mb, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pqn, "make_envs", envs)
        patch.setattr(pqn, "QNetwork", lambda *words: keep("agent", network(*words)))
        patch.setattr(pqn, "q_lambda_returns", keep_targets)
        patch.setattr(pqn, "td_loss", keep_loss)
        patch.setattr(torch, "randperm", lambda n, **_: torch.arange(n))  # the minibatch is the batch, in order
        train_here(pqn, args)
    assert len(found) == 2
    for x in found:  # the pieces of the one minibatch, in their order
        actions, valid, counts = zip(*x.pieces)
        assert len(set(counts)) == 1 < len(counts)
        x.loss = SimpleNamespace(
            actions=torch.cat(actions).view(48, 8), valid=torch.cat(valid).view(48, 8), count=counts[0]
        )
    return found


def test_actions_are_greedy_or_random(iterations):
    """With epsilon 1/4 and 4 actions, 3/16 of the actions are not the greedy one, and random ones are uniform."""
    actions = torch.cat([x.games.actions for x in iterations])
    greedy = torch.cat([x.q_before.argmax(-1) for x in iterations])
    assert (actions != greedy).float().mean().item() == pytest.approx(3 / 16, abs=0.05)
    offset = (actions - greedy)[actions != greedy] % 4
    assert all((offset == k).float().mean().item() == pytest.approx(1 / 3, abs=0.12) for k in (1, 2, 3))
    for x in iterations:
        assert torch.equal(x.loss.actions, x.games.actions.long())  # those that were played are those that are trained


def test_targets_are_made_from_what_the_games_gave(iterations):
    """next_values[t] is max_a Q of what step t returned; a row is valid unless the step before it ended a life."""
    ended = torch.zeros(1, 8, dtype=torch.bool)
    for x in iterations:
        torch.testing.assert_close(x.targets.next_values, x.q_after.amax(-1), rtol=1e-4, atol=1e-5)
        assert all(map(torch.equal, x.targets.others, x.games.others))
        _, terminations, truncations = x.games.others
        done = torch.cat([ended, terminations | truncations])
        assert torch.equal(x.loss.valid, ~done[:-1]) and x.loss.count == (~done[:-1]).sum() < 48 * 8
        ended = done[-1:]


def test_evaluation_episodes_have_the_final_epsilon(monkeypatch, tmp_path):
    """With end_e 1/2 and 9 actions, 4/9 of the actions are not the greedy one. A game counts until it ends."""
    torch.manual_seed(0)
    args = pqn.parse_args(["--env-id", "Asterix-v5", "--end-e", "0.5", "--runs-dir", str(tmp_path)])
    agent, envs = pqn.QNetwork(9), Recorder(pqn.make_envs)
    monkeypatch.setattr(pqn, "make_envs", envs)
    bar = progress.progress_bar(4, "game", "")
    returns = pqn.play_episodes(agent, args, torch.device("cpu"), [3, 4, 5, 6], range(4), bar)
    first, played = torch.tensor(envs.pools[0].obs), envs.played()
    frames, actions = torch.cat([first[None], played.obs])[:100], played.actions[:100]  # all games run so long
    with torch.no_grad():
        greedy = [agent(obs)[0].argmax(-1) for obs in frames.permute(0, 1, 3, 4, 2)]
    first_over = played.over.int().argmax(0)
    assert returns == [played.raw[: last + 1, i].sum().item() for i, last in enumerate(first_over.tolist())]
    assert played.raw[first_over.min() + 1 :, first_over.argmin()].sum() > 0 and first_over.min() >= 100
    assert (actions != torch.stack(greedy)).float().mean().item() == pytest.approx(4 / 9, abs=0.1)
