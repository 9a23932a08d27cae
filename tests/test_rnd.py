"""Random network distillation: the unit of the intrinsic reward, its stream, the networks, and learning."""

import pytest
import torch
import torch.nn as nn
from conftest import command, curves, load_checkpoint, run

import ppo_rnd_envpool as rnd


def columns(*rows):
    return torch.tensor(rows).t().contiguous()


# ---- the unit of the intrinsic reward --------------------------------------------------------------------------------
def test_discounted_sums_by_hand():
    """gamma 1/2. Game 0 dies at t=1 and resets in row 2, game 1 plays on: the sums run over time, through the death."""
    rewards = columns([1.0, 2.0, 100.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    valid = columns([True, True, False, True], [True] * 4)
    sums, running = rnd.discounted_sums(rewards, valid, torch.tensor([2.0, 0.0]), 0.5)
    assert sums[:, 0].tolist() == [2.0, 3.0, 3.0, 5.5]  # 1 + 2/2, 2 + 2/2, no time in the reset row, 4 + 3/2
    assert sums[:, 1].tolist() == [1.0, 2.5, 4.25, 6.125]
    assert running.tolist() == [5.5, 6.125]


def test_discounted_sums_in_two_rollouts_as_in_one():
    generator = torch.Generator().manual_seed(0)
    rewards, valid = torch.rand(20, 3, generator=generator), torch.rand(20, 3, generator=generator) < 0.8
    whole, last = rnd.discounted_sums(rewards, valid, torch.zeros(3), 0.99)
    first, between = rnd.discounted_sums(rewards[:7], valid[:7], torch.zeros(3), 0.99)
    second, end = rnd.discounted_sums(rewards[7:], valid[7:], between, 0.99)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, last)


# ---- one iteration of the script, looked into ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What `main` gives to gae and to discounted_sums in a run of one iteration."""
    folder, calls = tmp_path_factory.mktemp("recorded"), {"gae": [], "discounted_sums": []}
    patch = pytest.MonkeyPatch()

    def record(name, function):
        def recorder(*args):
            result = function(*args)
            copies = [x.clone() if torch.is_tensor(x) else x for x in args]
            calls[name].append((copies, result))
            return result

        patch.setattr(rnd, name, recorder)

    record("gae", rnd.gae)
    record("discounted_sums", rnd.discounted_sums)
    words = ("--num-steps", 64, "--total-timesteps", 256, "--ext-coef", 3)
    args = rnd.parse_args(command("ppo_rnd_envpool.py", folder, *words)[2:])
    with pytest.raises(SystemExit) as end:
        rnd.main(args)
    patch.undo()
    assert end.value.code == 0
    return calls, load_checkpoint(folder / "run")


def test_the_intrinsic_stream_goes_on_through_the_ends(recorded):
    calls, checkpoint = recorded
    (extrinsic, _), (intrinsic, (advantages, returns)) = calls["gae"]
    (raw, valid, *_), (sums, _) = calls["discounted_sums"][0]
    rewards, values, terminations, truncations, next_values, valid_too, gamma, _ = intrinsic
    ends = extrinsic[2] | extrinsic[3]
    assert ends.any() and not terminations.any() and not truncations.any() and gamma == 0.99
    assert torch.equal(valid, valid_too) and torch.equal(valid[1:], ~ends[:-1])
    resets = (~valid).nonzero()
    assert len(resets) > 2
    for t, n in resets.tolist():
        if 0 < t < len(values) - 1:  # the step that died goes on with the first observation of the next life
            assert next_values[t - 1, n] == values[t + 1, n]
    plain = valid[1:].nonzero()
    assert torch.equal(next_values[:-1][valid[1:]], values[1:][valid[1:]]) and len(plain) > 200
    # by the definition: sums of discounted errors over the valid rows that follow, as if the reset rows were not there
    for n in range(values.shape[1]):
        rows = [t for t in range(len(values)) if valid[t, n]]
        advantage = 0.0
        for i in reversed(range(len(rows))):
            t = rows[i]
            after = values[rows[i + 1], n] if i + 1 < len(rows) else next_values[-1, n]
            advantage = (rewards[t, n] + 0.99 * after - values[t, n]) + 0.99 * 0.95 * advantage
            assert advantages[t, n].item() == pytest.approx(advantage.item(), abs=1e-4)
    assert (advantages[~valid] == 0).all()
    # the unit: the deviation of all sums, over time and games
    counted = sums[valid].double()
    assert checkpoint["sum_moments"][2] == pytest.approx(len(counted), rel=1e-6)
    assert float(checkpoint["sum_moments"][1]) == pytest.approx(counted.var(unbiased=False).item(), rel=1e-3)
    torch.testing.assert_close(rewards, raw / checkpoint["sum_moments"][1].sqrt().float(), rtol=1e-4, atol=1e-5)


def test_the_checkpoint_has_all_that_rnd_needs(recorded):
    _, checkpoint = recorded
    mean, var, count = checkpoint["frame_moments"]
    assert mean.shape == var.shape == (84, 84) and 0 < mean.mean() < 255 and (var > 0).all()
    assert count > 256 + 200  # the random steps, and the valid rows of the rollout
    assert {name.split(".")[0] for name in checkpoint["rnd"]} == {"predictor", "target"}
    torch.manual_seed(1)  # the target is what the seed made it, after the agent; the predictor has moved
    rnd.Agent(4)
    fresh = rnd.RNDModel().state_dict()
    same = {name: torch.equal(tensor, checkpoint["rnd"][name]) for name, tensor in fresh.items()}
    assert all(same[name] == name.startswith("target") for name in same)


# ---- networks --------------------------------------------------------------------------------------------------------
def test_the_networks_are_cleanrls():
    torch.manual_seed(0)
    agent, model = rnd.Agent(18), rnd.RNDModel()

    def trunk(channels, activation, *rest):
        return nn.Sequential(
            nn.Conv2d(channels, 32, 8, stride=4),
            activation(),
            nn.Conv2d(32, 64, 4, stride=2),
            activation(),
            nn.Conv2d(64, 64, 3, stride=1),
            activation(),
            nn.Flatten(),
            *rest,
        )

    def load(network, module, prefix):
        network.load_state_dict(getattr(module, prefix).state_dict())
        return network

    network = load(trunk(4, nn.ReLU, nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 448), nn.ReLU()), agent, "network")
    obs = torch.randint(0, 256, (5, 84, 84, 4), dtype=torch.uint8)
    with torch.no_grad():
        hidden = network(obs.permute(0, 3, 1, 2).float().contiguous() / 255)
        critic = hidden + agent.extra_layer(hidden)
        logits, ext_value, int_value, hiddens = agent(obs)
        torch.testing.assert_close(logits, agent.actor(hidden), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ext_value, agent.critic_ext(critic)[:, 0], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(int_value, agent.critic_int(critic)[:, 0], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(hiddens[0][-1], hidden, rtol=1e-4, atol=1e-5)
        assert [layer.shape[1] for layer in hiddens[0]] == [32, 64, 64, 256, 448, 448, 448]
        assert [len(layers) for layers in rnd.Agent(18, shared_encoder=False)(obs)[3]] == [6, 6]
        predictor = load(
            trunk(
                1, nn.LeakyReLU, nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)
            ),
            model,
            "predictor",
        )
        target = load(trunk(1, nn.LeakyReLU, nn.Linear(3136, 512)), model, "target")
        mean, var = torch.full((84, 84), 100.0), torch.full((84, 84), 400.0)
        x = ((obs[:, None, :, :, 0].float() - 100) / 20).clamp(-5, 5)
        assert (x.abs() == 5).any(), "nothing is clipped: the test proves less"
        errors = (predictor(x) - target(x)) ** 2
        torch.testing.assert_close(model(obs[..., 0], (mean, var, 1)), errors, rtol=1e-3, atol=1e-4)


def test_what_is_seen_often_pays_less():
    """The predictor learns one frame: its error there falls, far more than on a frame that it has not met."""
    torch.manual_seed(0)
    model = rnd.RNDModel()
    seen, other = torch.randint(0, 256, (2, 1, 84, 84), dtype=torch.uint8)
    moments = (torch.full((84, 84), 127.0), torch.full((84, 84), 74.0**2), 1)
    optimizer = torch.optim.Adam(model.predictor.parameters(), lr=1e-4)
    before = [model(x, moments).mean().item() for x in (seen, other)]
    for _ in range(150):
        optimizer.zero_grad()
        model(seen, moments).mean().backward()
        optimizer.step()
    after = [model(x, moments).mean().item() for x in (seen, other)]
    assert after[0] < 0.2 * before[0] and after[1] > 2 * after[0]
    assert all(parameter.grad is None for parameter in model.target.parameters())


# ---- a run -----------------------------------------------------------------------------------------------------------
def test_intrinsic_reward_and_predictor_loss_fall(tmp_path):
    """Montezuma's first room is seen again and again: what is new becomes known. The rooms are counted from the RAM."""
    words = "--env-id MontezumaRevenge-v5 --num-envs 8 --num-steps 64 --total-timesteps 5120 --update-epochs 2 "
    run("ppo_rnd_envpool.py", tmp_path, *words.split(), "--no-diagnostics", "--num-logs", 10)
    scalars = curves(tmp_path / "run")
    for tag, share in (("charts/intrinsic_reward", 0.4), ("losses/fwd_loss", 0.75)):  # seed 1 falls to 0.2 and 0.47
        values = [value for _, value in scalars[tag]]
        assert len(values) == 10 and values[-1] < share * values[0], (tag, values)
    assert all(value >= 1 for _, value in scalars["charts/rooms"])
    assert load_checkpoint(tmp_path / "run")["rooms"][0][0] == 1  # where Panama Joe starts


def test_rnd_options(tmp_path):
    def last(name, *words):
        (tmp_path / name).mkdir()
        run("ppo_rnd_envpool.py", tmp_path / name, "--no-diagnostics", "--total-timesteps", 128, *words)
        return load_checkpoint(tmp_path / name / "run")

    plain = last("plain")
    for name, *words in (
        ("int", "--int-coef", 0),
        ("gamma", "--int-gamma", 0.5),
        ("share", "--update-proportion", 1),
        ("sticky", "--repeat-action-probability", 0),
    ):
        other = last(name, *words)
        assert not torch.equal(other["agent"]["network.0.weight"], plain["agent"]["network.0.weight"]), name
        assert other["frame_moments"][2] == plain["frame_moments"][2] or name == "sticky"
    longer = last("longer", "--num-iterations-obs-norm-init", 2)
    assert longer["frame_moments"][2] == pytest.approx(plain["frame_moments"][2] + 128, abs=20)
    none = last("none", "--update-proportion", 0)
    torch.manual_seed(1)
    rnd.Agent(4)
    fresh = rnd.RNDModel().state_dict()
    for name, tensor in fresh.items():  # what is learned is of the order of the learning rate, 2.5e-4; LAPACK adds 2e-6
        assert torch.allclose(tensor, none["rnd"][name], rtol=0, atol=2e-5), f"the predictor learned: {name}"
