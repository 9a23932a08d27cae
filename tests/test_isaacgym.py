"""ppo_isaacgym.py: both simulators' resets, the Gaussian policy. test_isaacgym_runs.py has whole runs.

Isaac Gym cannot be installed from any index, so a stand-in with its interface and its late reset (tests/stand_in) takes
its place.
"""

import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, curves, load_checkpoint, train_here

import metrics
import ppo_isaacgym as ppo
from support import devices, progress, reading, recipe, signals, simulators

SCRIPT = "ppo_isaacgym.py"
needs_mjlab = pytest.mark.skipif(importlib.util.find_spec("mjlab") is None, reason="requirements-mjlab.txt")


def run_here(monkeypatch, tmp_path, words):
    """Runs the script in this process.

    Returns its agent, the arguments of `gae` (one list per iteration), and the observation that each step led to,
    before any reset.
    """
    calls, lasts, make_envs, gae = [], [], ppo.make_envs, ppo.gae

    def spy_make_envs(*args):
        envs = make_envs(*args)
        step = envs.env.step
        flatten = lambda obs: torch.cat([*obs.values()], 1)  # noqa: E731

        def spy_step(action):
            out = step(action)
            lasts.append(flatten(out[0]).clone())
            return out

        envs.env.step = spy_step
        return envs

    def spy_gae(*args):
        calls.append([x.clone() if torch.is_tensor(x) else x for x in args])
        return gae(*args)

    monkeypatch.setattr(ppo, "make_envs", spy_make_envs)
    monkeypatch.setattr(ppo, "gae", spy_gae)
    args = ppo.parse_args(f"{words} --no-diagnostics --runs-dir {tmp_path} --run-name run".split())
    train_here(ppo, args)
    weights = load_checkpoint(tmp_path / "run")["agent"]
    num_actions, num_obs = weights["actor_mean.4.weight"].shape[0], weights["actor_mean.0.weight"].shape[1]
    agent = ppo.Agent(num_obs, lasts[0].shape[1] - num_obs, num_actions, args)
    agent.load_state_dict(weights)
    return agent, calls, lasts


# ---- resets ----------------------------------------------------------------------------------------------------------
def test_late_resets_in_a_run(isaacgym, monkeypatch, tmp_path):
    """What the loop makes of late resets: rows, returns and bootstraps, all known in advance."""
    words = "--env-id Ant --num-envs 2 --num-steps 16 --total-timesteps 64 --learning-rate 0 --reward-scaler 0.5 "
    words += "--no-stagger-resets"
    agent, calls, lasts = run_here(monkeypatch, tmp_path, words)
    rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda = (
        torch.cat(xs) if torch.is_tensor(xs[0]) else xs[0] for xs in zip(*calls)
    )
    assert (gamma, gae_lambda) == (0.99, 0.95)
    steps = torch.arange(32)
    torch.testing.assert_close(valid, torch.stack([steps % 4 > 0, steps % 6 > 0], 1))
    torch.testing.assert_close(terminations, torch.stack([steps % 4 == 3, steps < 0], 1))
    torch.testing.assert_close(truncations, torch.stack([steps < 0, steps % 6 == 5], 1))
    torch.testing.assert_close(rewards, 0.5 * torch.stack([steps % 4 + 1.0, steps % 6 + 1.0], 1))
    with torch.no_grad():
        torch.testing.assert_close(next_values, torch.stack([agent(obs)[1] for obs in lasts]))
    scalars = curves(tmp_path / "run")
    episodes = [9.0] * 8 + [20.0] * 5  # 2 + 3 + 4, and 2 + 3 + 4 + 5 + 6: raw rewards, without those of autoreset steps
    assert scalars["charts/episodes"][-1][1] == len(episodes)
    assert scalars["charts/episodic_return"][-1][1] == pytest.approx(np.mean(episodes))
    assert scalars["charts/episodic_length"][-1][1] == pytest.approx((8 * 3 + 5 * 5) / 13)


def test_no_mask_resets_is_cleanrls(isaacgym, monkeypatch, tmp_path):
    """Without the mask every end is a death and every row is trained on."""
    words = "--env-id Ant --num-envs 2 --num-steps 16 --total-timesteps 64 --no-mask-resets --no-stagger-resets"
    _, calls, _ = run_here(monkeypatch, tmp_path, words)
    assert [call[2].sum().item() for call in calls] == [6, 7]
    assert not any(call[3].any() for call in calls) and all(call[5].all() for call in calls)


@needs_mjlab
def test_mjlab_bootstraps_from_the_true_last_observation(monkeypatch, tmp_path):
    """Episodes of 5 steps, cut by the time limit: no row is lost. The evaluation episodes are as short.

    The next value of each cut row is V of the observation that mjlab's own reset would have replaced.
    """
    import mjlab.tasks.registry

    load_env_cfg = mjlab.tasks.registry.load_env_cfg

    def short(task):
        cfg = load_env_cfg(task)
        cfg.episode_length_s = 0.25
        return cfg

    monkeypatch.setattr(mjlab.tasks.registry, "load_env_cfg", short)
    words = "--env-id Mjlab-Cartpole-Balance --num-envs 4 --num-steps 8 --total-timesteps 64 --learning-rate 0 "
    words += "--desired-kl None --no-stagger-resets --eval-episodes 2"
    agent, calls, lasts = run_here(monkeypatch, tmp_path, words)
    for iteration, (_, values, terminations, truncations, next_values, valid, *_) in enumerate(calls):
        steps = torch.arange(8 * iteration, 8 * iteration + 8)
        assert valid.all() and not terminations.any()
        torch.testing.assert_close(truncations, (steps % 5 == 4)[:, None].expand(8, 4))
        with torch.no_grad():
            expected = torch.stack([agent(lasts[step])[1] for step in steps])
        torch.testing.assert_close(next_values, expected)
        cut = truncations[:-1]
        assert (next_values[:-1][cut] - values[1:][cut]).abs().min() > 0  # the next row is of another episode
        torch.testing.assert_close(next_values[:-1][~cut], values[1:][~cut])
    scalars = curves(tmp_path / "run")
    assert {value for _, value in scalars["charts/episodic_length"]} == {5.0}
    assert scalars["charts/episodes"][-1][1] == 3 * 4
    final = json.loads((tmp_path / "run/done.json").read_text())
    assert final["final_episodes"] == 2 and len(lasts) == 16 + 5  # one whole episode in each of two new environments
    assert 0 < final["final_return_ci"][0] <= final["final_return"] < 0.25  # at most 0.05 a step


@needs_mjlab
def test_mjlab_environments_start_out_of_phase(monkeypatch):
    """An environment of age a meets the time limit after episode_length - a steps; then its episodes are whole.

    Evaluation episodes that end at different times count until they end.
    """
    envs = ppo.make_envs(SimpleNamespace(env_id="Mjlab-Cartpole-Balance"), 3, 1, torch.device("cpu"))
    assert envs.episode_length == 1000
    envs.reset(0)
    envs.set_ages(torch.tensor([0, 995, 999]))
    ends = []
    for _ in range(6):
        _, _, terminated, truncated, _, ended, _ = envs.step(torch.zeros(3, 1))
        assert not terminated.any()
        ends.append(ended.tolist())
    assert ends == [[2], [], [], [], [1], []]
    assert envs.env.episode_length_buf.tolist() == [6, 1, 5]

    num_obs, num_states, num_actions = envs.sizes
    agent, args = ppo.Agent(num_obs, num_states, num_actions, ppo.Args()), SimpleNamespace(env_id="", num_envs=1)
    args.total_timesteps, (reset, step), rewards = 0, (envs.reset, envs.step), []

    def recorded_reset(steps_done):
        result = reset(steps_done)
        envs.set_ages(torch.tensor([990, 995, 999]))
        return result

    def recorded_step(action):
        result = step(action)
        rewards.append(result[1].clone())
        return result

    envs.reset, envs.step = recorded_reset, recorded_step
    monkeypatch.setattr(ppo, "make_envs", lambda *_: envs)
    with torch.no_grad():
        returns = ppo.play_episodes(
            agent, args, torch.device("cpu"), [1, 2, 3], range(3), progress.progress_bar(3, "game", "")
        )
    rewards = torch.stack(rewards)
    assert len(rewards) == 10 and (rewards > 0).all()
    assert returns == pytest.approx([rewards[:n, i].sum().item() for i, n in enumerate((10, 5, 1))])


def test_staggered_run_counts_whole_episodes(isaacgym, monkeypatch, tmp_path):
    """Ages are spread from the start and again after a resume, differently; no cut episode is in the statistics. Each
    time the simulator is told how many steps its curricula have behind them."""
    ages, set_ages = [], simulators.IsaacGymEnvs.set_ages
    begun, reset = [], simulators.IsaacGymEnvs.reset

    def spy_reset(envs, steps_done):
        begun.append(steps_done)
        return reset(envs, steps_done)

    monkeypatch.setattr(simulators.IsaacGymEnvs, "reset", spy_reset)

    def spy_set_ages(envs, given):
        ages.append(given.tolist())
        set_ages(envs, given)

    monkeypatch.setattr(simulators.IsaacGymEnvs, "set_ages", spy_set_ages)
    words = "--env-id Ant --num-envs 64 --num-steps 8 --total-timesteps 1024 --checkpoint-minutes 0 --no-diagnostics "
    words = [*words.split(), "--runs-dir", str(tmp_path), "--run-name", "run"]
    train_here(ppo, ppo.parse_args(words))
    run_dir = tmp_path / "run"
    finished = load_checkpoint(run_dir)["run"]
    # after the late reset: an even environment dies at age 3 (at once if it is older), an odd one ends at age 5; then
    # each begins a whole episode one step later
    whole = 0
    for n, age in enumerate(ages[0]):
        life = 3 if n % 2 == 0 else 5
        whole += (15 - max(life - age, 1)) // (life + 1)
    assert finished["episodes"] == whole
    assert {tuple(game) for game in finished["games"]} == {(9.0, 3.0), (20.0, 5.0)}  # as without ages
    (run_dir / "done.json").unlink()
    (run_dir / "checkpoint.prev.pt").rename(run_dir / "checkpoint.pt")  # as if killed after the first iteration
    train_here(ppo, ppo.parse_args(words))
    assert {tuple(game) for game in load_checkpoint(run_dir)["run"]["games"]} == {(9.0, 3.0), (20.0, 5.0)}
    assert [set(some) for some in ages] == [set(range(5))] * 2 and ages[0] != ages[1]
    assert begun == [0, 8]


def test_each_process_staggers_its_own_environments(isaacgym, monkeypatch, tmp_path):
    """The ages of all environments are drawn once; a process takes those of its share, here the second half."""
    given = []

    def stop(envs, ages):
        given.extend(ages.tolist())
        raise InterruptedError

    monkeypatch.setattr(simulators.IsaacGymEnvs, "set_ages", stop)
    monkeypatch.setattr(signals.signal, "signal", lambda *_: None)
    monkeypatch.setattr(devices, "share", lambda number: range(number // 2, number))
    words = "--env-id Ant --num-envs 64 --num-steps 8 --total-timesteps 1024 --seed 3 --run-name run --runs-dir"
    with pytest.raises(InterruptedError):
        ppo.main(ppo.parse_args([*words.split(), str(tmp_path)]))
    rng = torch.Generator().manual_seed(2**32 - 1 - 3)
    assert given == torch.randint(5, (64,), generator=rng)[32:].tolist()


# ---- the policy ------------------------------------------------------------------------------------------------------
def agent_of(num_obs=3, num_states=2, num_actions=2, **args):
    return ppo.Agent(num_obs, num_states, num_actions, ppo.Args(**args))


def test_actions_are_drawn_from_the_policy(isaacgym, monkeypatch, tmp_path):
    """The environments get mean + std * noise, and the loss gets these actions.

    The network does not learn here, and its means and deviations are far from 0 and 1: an error of sign shows.
    """
    noises, played, given = [], [], []
    normal_, step, ppo_loss = torch.Tensor.normal_, simulators.IsaacGymEnvs.step, ppo.ppo_loss

    def spy_normal_(tensor, *args, **kwargs):
        normal_(tensor, *args, **kwargs)
        if tensor.dim() == 3:  # (T, N, A): not a weight
            noises.append(tensor.clone())
        return tensor

    def spy_step(envs, action):
        played.append(action.clone())
        return step(envs, action)

    def spy_ppo_loss(prox, agent, args, mb, count):
        given.append(mb.actions.clone())
        return ppo_loss(prox, agent, args, mb, count)

    class FarAgent(ppo.Agent):
        def __init__(self, *args):
            super().__init__(*args)
            with torch.no_grad():
                self.actor_mean[-1].bias += torch.tensor([-2.0, 1.0, 3.0])
                self.actor_logstd += torch.tensor([-1.0, 0.0, 0.5])

    monkeypatch.setattr(torch.Tensor, "normal_", spy_normal_)
    monkeypatch.setattr(simulators.IsaacGymEnvs, "step", spy_step)
    monkeypatch.setattr(ppo, "ppo_loss", spy_ppo_loss)
    monkeypatch.setattr(ppo, "Agent", FarAgent)
    words = "--env-id Ant --num-envs 2 --num-steps 16 --total-timesteps 64 --learning-rate 0 --num-minibatches 1"
    agent, calls, lasts = run_here(monkeypatch, tmp_path, words + " --update-epochs 1")
    obs = torch.cat([torch.zeros(1, 2, 4), torch.stack(lasts[:-1])])  # (32, 2, 4)
    with torch.no_grad():
        mean, std = agent(obs.flatten(0, 1))[0].view(32, 2, 3), agent.actor_logstd.exp()
    torch.testing.assert_close(torch.stack(played), mean + std * torch.cat(noises))
    given = torch.cat(given)
    for column in range(3):  # each minibatch is a shuffled batch
        torch.testing.assert_close(given[:, column].sort()[0], torch.stack(played)[..., column].flatten().sort()[0])


def test_actor_and_critic_see_their_own_columns():
    agent = agent_of()
    obs = torch.randn(5, 5, requires_grad=True)
    mean, value, hiddens = agent(obs)
    assert mean.shape == (5, 2) and value.shape == (5,) and [h[-1].shape for h in hiddens] == [(5, 256)] * 2
    (actor,) = torch.autograd.grad(mean.sum(), obs, retain_graph=True)
    (critic,) = torch.autograd.grad(value.sum(), obs)
    assert actor[:, :3].any(0).all() and not actor[:, 3:].any() and critic[:, 3:].any(0).all()
    assert not critic[:, :3].any()
    shared = ppo.Agent(3, 0, 2, ppo.Args(shared_encoder=True, hidden_sizes=(8, 4), activation="elu"))
    mean, value, hiddens = shared(torch.randn(5, 3))
    assert [h.shape[1] for h in hiddens[0]] == [8, 4] and len(hiddens) == 1 and shared.critic[0].in_features == 4
    names = {
        f"{net}.{layer}.{part}"
        for net in ("critic", "actor_mean")
        for layer in (0, 2, 4)
        for part in ("weight", "bias")
    }
    assert agent.state_dict().keys() == names | {"actor_logstd"}  # CleanRL's
    with torch.no_grad():
        torch.testing.assert_close(agent_of(bf16=True).actor_mean[0].weight.norm(), torch.tensor((2 * 3) ** 0.5))


def test_initial_weights():
    """CleanRL's, or PyTorch's: uniform within 1 / sqrt(inputs)."""
    cleanrls, pytorchs = (agent_of(hidden_sizes=(64, 64), orthogonal_init=choice) for choice in (True, False))
    weight = cleanrls.actor_mean[2].weight
    torch.testing.assert_close(weight @ weight.t(), 2 * torch.eye(64), rtol=0, atol=1e-4)
    assert cleanrls.actor_mean[-1].weight.norm(dim=1).tolist() == pytest.approx([0.01] * 2, rel=1e-4)
    assert [type(layer) for layer in cleanrls.critic] == [type(layer) for layer in pytorchs.critic]
    weight = pytorchs.actor_mean[-1].weight
    assert 0.1 < weight.abs().max() <= 1 / 8 and pytorchs.critic[0].bias.abs().max() > 0


def test_normalised_observations(isaacgym, monkeypatch, tmp_path):
    """The statistics are of every valid row so far, and of one row with mean 0 and variance 1.

    They are in the checkpoint. Within an iteration they stay as they are: the first minibatch's ratios are 1.
    """
    words = "--env-id Ant --num-envs 2 --num-steps 16 --total-timesteps 64 --norm-obs"
    agent, calls, lasts = run_here(monkeypatch, tmp_path, words + " --update-epochs 1 --num-minibatches 1")
    rows = torch.cat([torch.zeros(1, 2, 4), torch.stack(lasts[:-1])])[torch.cat([call[5] for call in calls])]
    assert agent.obs_sums[0].tolist() == [len(rows) + 1] * 4
    mean, square = agent.obs_sums[1:] / agent.obs_sums[0]
    torch.testing.assert_close(mean, rows.double().sum(0) / (len(rows) + 1))
    torch.testing.assert_close(square, (rows.double().square().sum(0) + 1) / (len(rows) + 1))
    assert [abs(value) < 1e-6 for _, value in curves(tmp_path / "run")["losses/approx_kl"]] == [True, True]
    plain = ppo.Agent(2, 2, 3, ppo.Args())
    plain.load_state_dict({name: x for name, x in agent.state_dict().items() if name != "obs_sums"})
    obs = torch.randn(6, 4)
    std = (square - mean.square()).sqrt()
    for x, y in zip(agent(obs)[:2], plain(((obs - mean) / (std + 0.01)).float())[:2]):
        torch.testing.assert_close(x, y)


def test_adapted_learning_rate():
    """rsl_rl's factors and bounds, and no change for a divergence that is only rounding."""
    cases = [(0.021, 2 / 3), (0.019, 1.0), (0.006, 1.0), (0.004, 1.5), (1e-8, 1.5), (1e-10, 1.0), (0.0, 1.0)]
    for kl, factor in cases:
        assert recipe.adapted_learning_rate(3e-4, kl, desired_kl=0.01) == pytest.approx(3e-4 * factor), kl
    assert recipe.adapted_learning_rate(8e-3, 0.001, desired_kl=0.01) == 1e-2
    assert recipe.adapted_learning_rate(1.2e-5, 1.0, desired_kl=0.01) == 1e-5


def test_learning_rate_follows_the_divergence(isaacgym, monkeypatch, tmp_path):
    """Two steps an iteration: the first finds no divergence. Each step is taken at the rate that its own divergence
    gives, and the last rate of an iteration is logged. The divergence is of the new policy from the one that acted."""
    policies, divergences, adapted, used = [], [], [], []
    gaussian_kls, adapt, adam_step = metrics.gaussian_kls, recipe.adapted_learning_rate, ppo.optim.Adam.step

    def spy_gaussian_kls(*args):
        policies.append([x.detach().clone() for x in args])
        return gaussian_kls(*args)

    def spy_adapt(learning_rate, kl, desired_kl):
        divergences.append(kl)
        adapted.append(adapt(learning_rate, kl, desired_kl))
        return adapted[-1]

    def spy_step(optimizer, *args):
        used.append(optimizer.param_groups[0]["lr"])
        return adam_step(optimizer, *args)

    monkeypatch.setattr(metrics, "gaussian_kls", spy_gaussian_kls)
    monkeypatch.setattr(recipe, "adapted_learning_rate", spy_adapt)
    monkeypatch.setattr(ppo.optim.Adam, "step", spy_step)
    words = "--env-id Cartpole --num-envs 16 --num-steps 8 --total-timesteps 2560 --num-minibatches 1 "
    words += "--update-epochs 2 --desired-kl 0.001 --learning-rate 0.0001 --no-mask-resets"
    run_here(monkeypatch, tmp_path, words)
    assert max(divergences[::2]) < recipe.KL_EPSILON < min(divergences[1::2])
    assert used == adapted and len(set(used)) > 2
    pairs = list(zip(policies[::2], policies[1::2]))  # the two pieces of each minibatch, which is a shuffled batch
    of_all_rows = [torch.cat([gaussian_kls(*piece) for piece in pair]).mean().item() for pair in pairs]
    assert divergences == pytest.approx(of_all_rows, rel=1e-4, abs=1e-10)
    old_means, old_logstds, means, logstds = (
        [torch.cat([one[i].flatten(), two[i].flatten()]).sort()[0] for one, two in pairs] for i in range(4)
    )
    assert all(map(torch.equal, old_means[1::2], means[::2]))
    assert all(map(torch.equal, map(torch.unique, old_logstds[1::2]), map(torch.unique, logstds[::2])))
    scalars = curves(tmp_path / "run")
    assert [value for _, value in scalars["charts/learning_rate"]] == pytest.approx(adapted[1::2])
    means = np.reshape(divergences, (-1, 2)).mean(1)
    assert [value for _, value in scalars["losses/kl"]] == pytest.approx(means, rel=1e-4)


def test_defaults_of_a_task(monkeypatch):
    monkeypatch.setattr(simulators, "mjlab_tasks", lambda: ["Mjlab-Cartpole-Balance", "Mjlab-Velocity-Flat-Unitree-G1"])
    args = ppo.parse_args("--env-id Mjlab-Velocity-Flat-Unitree-G1".split())
    assert (args.hidden_sizes, args.activation, args.norm_obs, args.num_steps) == ([512, 256, 128], "elu", True, 24)
    args = ppo.parse_args("--env_id=Mjlab-Cartpole-Balance --num-steps 16 --no-clip-vloss --hidden-sizes 8 8".split())
    assert (args.hidden_sizes, args.norm_obs, args.num_steps, args.desired_kl) == ([8, 8], False, 16, 0.01)
    assert not args.clip_vloss and args.num_minibatches == 4
    fields = {name for values in recipe.TASKS.values() for name in values}
    assert fields <= vars(ppo.Args()).keys()


@needs_mjlab
def test_defaults_are_mjlabs():
    """Every task that runs here has the numbers of its own configuration of rsl_rl, at 4096 environments."""
    from mjlab.tasks.registry import load_rl_cfg

    tasks = simulators.mjlab_tasks()
    assert len(tasks) == 7
    for task in tasks:
        cfg, args = load_rl_cfg(task), ppo.parse_args(["--env-id", task])
        algorithm, actor, critic = cfg.algorithm, cfg.actor, cfg.critic
        assert args.num_envs == 4096
        assert (args.num_steps, args.total_timesteps) == (
            cfg.num_steps_per_env,
            cfg.max_iterations * cfg.num_steps_per_env * 4096,
        )
        assert (args.update_epochs, args.num_minibatches) == (algorithm.num_learning_epochs, algorithm.num_mini_batches)
        assert (args.learning_rate, args.desired_kl) == (algorithm.learning_rate, algorithm.desired_kl)
        assert algorithm.schedule == "adaptive" and not args.anneal_lr
        assert (args.gamma, args.gae_lambda) == (algorithm.gamma, algorithm.lam)
        assert (args.clip_coef, args.clip_vloss) == (algorithm.clip_param, algorithm.use_clipped_value_loss)
        assert (args.ent_coef, 0.5 * args.vf_coef) == (algorithm.entropy_coef, algorithm.value_loss_coef)  # loss: 0.5 x
        assert args.max_grad_norm == algorithm.max_grad_norm
        assert args.hidden_sizes == [*actor.hidden_dims] == [*critic.hidden_dims]
        assert args.activation == actor.activation == critic.activation and not args.orthogonal_init
        assert args.norm_obs == actor.obs_normalization == critic.obs_normalization
        from_table = reading.default_arguments(str(ROOT / SCRIPT), task)
        assert {name: from_table[name] for name in recipe.TASKS["Mjlab-"]}.items() <= {
            **vars(args),
            "hidden_sizes": tuple(args.hidden_sizes),
        }.items()
