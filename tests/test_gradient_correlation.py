"""results/gradient_correlation: estimators against known answers, PPO's pieces, and a small run to its figures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import study, wait_for

import ppo_atari_envpool

gc = study("gradient_correlation", "gradient_correlation")
figures = study("gradient_correlation", "gradient_figures")
measures = study("gradient_correlation", "gradient_measures")
SCRIPT = gc.__file__
SMALL = (
    "--steps 2048 --gamma 0.9 --checkpoints 2 --fresh-every 2 --seeds 1 2 --groups 5 --update-epochs 1 --lambdas 0 0.95"
).split()


# ---- the split of the variance ---------------------------------------------------------------------------------------
def split(g):
    """variance_split of gradients g (batches, segments, T, P), every batch a group of its own."""
    R, N, T, P = g.shape
    batch = torch.arange(R).repeat_interleave(N)
    squares = g.square().sum((2, 3)).view(-1)
    return measures.variance_split(g.sum(2).view(-1, P), torch.full((R * N,), T), squares, batch, torch.arange(R))


def ar1(rho, R, N, T, P=6, seed=0):
    """Stationary AR(1) sequences of unit variance, around a mean that is not zero."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(R, N, T, P, generator=generator, dtype=torch.float64)
    g = noise.clone()
    for t in range(1, T):
        g[:, :, t] = rho * g[:, :, t - 1] + (1 - rho**2) ** 0.5 * noise[:, :, t]
    return g + torch.arange(P)


@pytest.mark.parametrize("rho", [0.8, -0.5])
def test_variance_terms_and_ess_of_ar1(rho):
    R, N, T, P = 1500, 3, 16, 6
    _, stats = split(ar1(rho, R, N, T))
    individual = P / (N * T)
    within = individual * sum(2 * (1 - k / T) * rho**k for k in range(1, T))  # the part from correlations of T steps
    assert stats["individual"] == pytest.approx(individual, rel=0.03)
    assert stats["within"] == pytest.approx(within, rel=0.08)
    assert stats["covariance"] == pytest.approx(within, rel=0.08)
    assert stats["ess"] == pytest.approx(individual / (individual + within), rel=0.05)


def test_independent_gradients_have_no_covariance_term():
    shares = []
    for seed in range(12):
        _, stats = split(ar1(0.0, 60, 4, 16, seed=seed))
        shares.append(stats["covariance"] / stats["individual"])
    assert abs(np.mean(shares)) < 0.05 and min(shares) < 0 < max(shares)


def test_terms_add_up_to_the_measured_variance_of_batch_means():
    g = ar1(0.7, 800, 2, 12)
    g += torch.randn(800, 1, 1, 6, generator=torch.Generator().manual_seed(5))  # shared by a batch's environments
    means, stats = split(g)
    measured = means.var(0).sum().item()  # over 800 replicates, unbiased: no term of the split is in it
    assert torch.allclose(means, g.mean((1, 2)))
    assert stats["variance"] == pytest.approx(measured, rel=1e-9)
    assert stats["individual"] + stats["covariance"] == pytest.approx(measured, rel=1e-9)
    assert stats["covariance"] > 1.5 * stats["within"]  # what environments share is no covariance within one


def test_batches_of_a_group_are_not_compared():
    g = ar1(0.0, 40, 2, 8)
    twice = torch.cat([g, g])  # each batch has an identical twin in its group
    N, T, P = g.shape[1:]
    batch, group = torch.arange(80).repeat_interleave(N), torch.arange(40).repeat(2)
    squares = twice.square().sum((2, 3)).view(-1)
    _, stats = measures.variance_split(twice.sum(2).view(-1, P), torch.full((80 * N,), T), squares, batch, group)
    assert stats["variance"] == pytest.approx(split(g)[1]["variance"], rel=1e-9)


def test_unbiased_inner_product_subtracts_the_noise():
    generator = torch.Generator().manual_seed(0)
    draws = [
        measures.unbiased_inner(x, x) for x in torch.randn(400, 10, 50, generator=generator)
    ]  # E = 0: |mean|^2 is not 0
    assert abs(np.mean(draws)) < 4 * np.std(draws) / 20 < 1
    a, b = torch.randn(2, 7, 3, generator=generator)
    pairs = [a[i] @ b[j] for i in range(7) for j in range(7) if i != j]
    assert measures.unbiased_inner(a, b) == pytest.approx(torch.stack(pairs).mean().item(), rel=1e-5)


# ---- gradients and pairs ---------------------------------------------------------------------------------------------
def test_per_sample_gradients_equal_a_loop_of_autograd():
    actor, _ = measures.init_agent(3)
    generator = torch.Generator().manual_seed(0)
    obs, actions = torch.randn(9, 3, generator=generator), torch.randn(9, generator=generator)
    scores = measures.score_gradients(actor, obs, actions)
    leaves = {name: p.clone().requires_grad_() for name, p in actor.items()}
    normal = torch.distributions.Normal(measures.mlp(leaves, obs), leaves["logstd"].exp())
    for i, log_prob in enumerate(normal.log_prob(actions)):
        grads = torch.autograd.grad(log_prob, list(leaves.values()), retain_graph=True)
        assert torch.allclose(scores[i], torch.cat([g.flatten() for g in grads]), rtol=1e-4, atol=1e-6)
    assert scores.shape == (9, 4482)


def test_stacked_networks_are_the_single_ones():
    agents = [measures.init_agent(seed)[0] for seed in (1, 2)]
    stacked = {name: torch.stack([agent[name] for agent in agents]) for name in agents[0]}
    obs, actions = torch.randn(2, 5, 3), torch.randn(2, 5)
    together = measures.log_prob(stacked, obs, actions)
    for i, agent in enumerate(agents):
        assert torch.allclose(together[i], measures.log_prob(agent, obs[i], actions[i]), atol=1e-5)


def test_pairs_cross_neither_an_episode_nor_an_autoreset_step():
    T, N = 12, 3
    cuts, valid = np.zeros((T, N), bool), np.ones((T, N), bool)
    cuts[4], valid[5] = True, False  # all end with step 4; row 5 resets
    position = np.cumsum(valid.ravel()).reshape(T, N) - 1
    for lag in (1, 3, 6):
        within, across = measures.pairs(valid, cuts, lag)
        rows = [
            (t, n)
            for t in range(T - lag)
            for n in range(N)
            if valid[t, n] and valid[t + lag, n] and not cuts[t : t + lag, n].any()
        ]
        assert sorted(map(tuple, within.T)) == sorted((position[t, n], position[t + lag, n]) for t, n in rows)
        assert sorted(map(tuple, across.T)) == sorted(
            (position[t, n], position[t + lag, m]) for t, n in rows for m in range(N) if m != n
        )
    assert measures.pairs(valid, cuts, 6)[0].size == 0  # 5 steps, then 6: no pair that far apart


def test_centered_gram_and_cosines():
    g = torch.randn(20, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    h = g - g.mean(0)
    assert torch.allclose(measures.gram_centered(g @ g.T), h @ h.T)
    rows = measures.histogram([-1.0, 0.01, 0.01, 1.0], {})
    assert [row["count"] for row in rows if row["count"]] == [1, 2, 1] and len(rows) == 50


def test_advantages_are_those_of_the_other_scripts():
    generator = torch.Generator().manual_seed(0)
    T, N = 30, 4
    rewards, values, next_values = torch.randn(3, T, N, generator=generator)
    truncations, valid = torch.zeros(T, N, dtype=torch.bool), torch.ones(T, N, dtype=torch.bool)
    truncations[9, 1], valid[10, 1], truncations[20], valid[21] = True, False, True, False
    never = torch.zeros_like(valid)
    expected, _ = ppo_atari_envpool.gae(rewards, values, never, truncations, next_values, valid, 0.9, 0.7)
    got = measures.advantages(rewards + 0.9 * next_values - values, truncations, 0.9 * 0.7)
    assert torch.allclose(got[valid], expected[valid], atol=1e-5)
    lambdas = measures.advantages(
        (rewards + 0.9 * next_values - values)[:, None], truncations[:, None], 0.9 * torch.tensor([[0.0], [0.7]])
    )
    assert torch.allclose(lambdas[:, 1], got)


# ---- the environment -------------------------------------------------------------------------------------------------
def test_pendulum_clips_actions_and_resets_in_a_step_of_its_own():
    envs = measures.make_envs(2, [1, 1])
    envs.reset()
    for t in range(measures.EPISODE):
        obs, reward, terminated, truncated, _ = envs.step(np.array([[2.0], [7.0]], np.float32))
        assert reward[0] == reward[1] and np.array_equal(obs[0], obs[1]) and not terminated.any()
        assert truncated.all() == (t == measures.EPISODE - 1)
    obs, reward, _, truncated, _ = envs.step(np.zeros((2, 1), np.float32))
    assert not reward.any() and not truncated.any() and abs(obs[0, 2]) <= 1  # a start: angular velocity in [-1, 1]


# ---- figures ---------------------------------------------------------------------------------------------------------
def test_bias_is_a_ratio_of_means_over_seeds():
    bias2, truth2 = np.array([[8.0, 10.0], [-1.0, -3.0], [8.0, 10.0]]), np.array([[1.0, 3.0], [1.0, 3.0], [-1.0, -3.0]])
    assert figures.relative_bias(bias2, truth2) == pytest.approx([(9 / 2) ** 0.5, 0, np.inf])


def test_default_checkpoints_are_the_posts():
    args = gc.Args()
    iterations = measures.checkpoint_iterations(args)
    assert len(iterations) == 20 and [i * measures.BATCH for i in measures.focus_iterations(args)] == list(
        measures.POST_STEPS
    )
    assert measures.focus_iterations(args)[-1] in measures.fresh_iterations(args)


# ---- the whole program -----------------------------------------------------------------------------------------------
@pytest.mark.skipif("ALL_TESTS" not in os.environ, reason="a minute: ALL_TESTS=1 runs it")
def test_a_small_study_writes_tables_and_figures(tmp_path):
    result = subprocess.run([sys.executable, SCRIPT, "--out", tmp_path, *SMALL], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert drawn == {path.stem for path in Path(SCRIPT).parent.glob("*.png")}, "those of the page"
    for name in drawn:
        image = matplotlib.image.imread(tmp_path / f"{name}.png")
        assert min(image.shape[:2]) > 300 and 0.02 < (image[..., :3].min(-1) < 0.9).mean() < 0.9
    tables = {name: pd.read_csv(tmp_path / f"{name}.csv") for name in gc.TABLES}
    assert len(tables["lag_curve"]) == 2 * 2 * 2 * 2 * 6 * 2  # settings, seeds, checkpoints, lambdas, lags, kinds
    assert tables["lag_curve"]["cosine"].between(-1, 1).all() and not tables["variance"].isna().any(axis=None)
    variance = tables["variance"]
    assert np.allclose(variance["individual"] + variance["covariance"], variance["variance"], rtol=1e-4)
    at_zero = tables["bias"].query("`lambda` == 0").groupby(["setting", "seed", "step"])["bias2"]
    assert (at_zero.max() - at_zero.min() <= 1e-5 * at_zero.max().abs()).all()  # lambda 0 looks no step ahead: no T


@pytest.mark.parametrize("kill", [os.kill, os.killpg])  # the program alone; Ctrl-C, which its processes get too
def test_an_interrupted_program_ends_with_its_processes(kill, tmp_path):
    words = ["--out", str(tmp_path), "--seeds", "1"]
    process = subprocess.Popen([sys.executable, SCRIPT, *words], stderr=subprocess.PIPE, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: len(children.read_text().split()) >= 2, process)
    started = [int(pid) for pid in children.read_text().split()]
    kill(process.pid, signal.SIGINT)
    error = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 130 and "interrupted" in error.splitlines(), error
    assert not [*tmp_path.iterdir()]
    deadline = time.time() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.time() < deadline
        time.sleep(0.1)


def test_a_training_does_not_depend_on_the_other_seeds(monkeypatch):
    checkpoints = []
    for seeds in ((1, 2), (2,)):
        args = gc.Args(steps=2048, checkpoints=1, seeds=seeds, update_epochs=1)
        monkeypatch.setattr(measures, "measure", lambda args, checkpoint, fresh: {"policy": [checkpoint]})
        checkpoints.append(measures.train(args, 16, 64)["policy"][-1])
    together, alone = checkpoints
    assert together.seed == alone.seed == 2
    for name in ("obs", "actions"):
        assert torch.allclose(getattr(together, name), getattr(alone, name), atol=1e-4)


@pytest.mark.parametrize(
    "words, named",
    [
        (["--steps", "1000"], "--steps 1000"),
        (["--gamma", "1.5"], "--gamma 1.5"),
        (["--groups", "4"], "--groups 4"),
        (["--lags", "5", "1"], "--lags"),
        (["--lambdas", "0", "1"], "--main-lambda"),
        (["--seeds", "1", "1"], "--seeds"),
        (["--learning-rate", "nan"], "--learning-rate"),
        (["--no-such-option"], "no-such-option"),
        (["--out", "/no/such/place", "--redraw"], "--redraw"),
        (["--out", SCRIPT], "File exists"),
        (["--out", "/proc/x"], "--out /proc/x"),
    ],
)
def test_bad_input_is_one_line(words, named, capsys):
    with pytest.raises(SystemExit) as end:
        gc.main(gc.parse_args(words))
    stderr = capsys.readouterr().err
    assert end.value.code == 2 and stderr.startswith("error: ") and named in stderr and stderr.count("\n") == 1
