"""results/plasticity/plasticity.py on networks that were damaged on purpose, and its correlations on planted tables."""

import importlib
import re
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from analysis.statistics import spearman, spearman_within
from conftest import study
from planted_runs import write_run

import ppo_envpool
from support import reading

plasticity = study("plasticity", "plasticity")
CHEAP = "--states 64 --steps 40 --learning-rate 0.01 --targets 2 --fresh 2".split()
COMMON = dict(shared_encoder=False, bf16=True, hidden_sizes=[32], activation="relu", norm_obs=True)


def plant_network(path, weights, script, env_id, scalars=None, **args):
    """A finished run whose checkpoint has these weights, and whose coverage.npz has 100 random states."""
    write_run(path, 1.0, script=script, game=env_id, scalars=scalars, **args)
    torch.save({"format": reading.FORMAT, "run": {"global_step": 1024}, "agent": weights}, path / "checkpoint.pt")
    obs = np.random.default_rng(0).normal(5, size=(100, 4)).astype(np.float32)
    np.savez(path / "coverage.npz", obs=obs, step=np.arange(100))


def test_networks_with_dead_units_are_slow_and_what_follows_the_damage_correlates(tmp_path, capsys):
    for i, dead in enumerate((0, 10, 20, 26, 30, 32)):
        agent = ppo_envpool.make_agent(SimpleNamespace(env_id="CartPole-v1", **COMMON), [100 + i])
        with torch.no_grad():
            agent.network[0].bias[0, 0, 0, :dead] = -100.0  # the actor's encoder: these of its 32 units never fire
            agent.obs_mean += 5.0  # the mean of the states: a fresh network has to see what this one sees
        scalars = {
            "diagnostics/weight_norm": dead,
            "probe/feature_rank": dead,
            "probe/ess": -dead,
            "probe/dormant_neurons": 0,
        }
        plant_network(tmp_path / f"r{i}", agent.state_dict(), "ppo_envpool", "CartPole-v1", scalars, seed=i, **COMMON)
    write_run(tmp_path / "other", 1.0, script="ppo_envpool", game="CartPole-v1", done=False)
    args = plasticity.parse_args(["--runs", str(tmp_path), *CHEAP])
    runs = plasticity.finished_runs(args)
    table = plasticity.measure(runs, args)
    assert "other left out" in capsys.readouterr().err
    bank, losses = plasticity.bank_of(runs, args), []
    for target in plasticity.random_targets(bank, 2, args.frequency, args.seed):  # each from the run's own weights
        losses.append(plasticity.fit(plasticity.trained_network(tmp_path / "r0")[0], bank, target, 40, 0.01)[0])
    assert table["loss"][0] == pytest.approx(np.prod(losses) ** 0.5)
    assert table["slowdown"][0] == pytest.approx(1, abs=0.2) and table["slowdown_critic"].between(0.8, 1.2).all()
    assert table["slowdown"].is_monotonic_increasing and table["loss"].iloc[-1] > 0.98
    found = plasticity.correlations(table)
    rows = found[found["kind"] == "all runs"].set_index("diagnostic")
    assert rows["rho"]["diagnostics/weight_norm"] == 1 and rows["verdict"]["diagnostics/weight_norm"] == "supported"
    assert rows["rho"]["probe/feature_rank"] == 1 and rows["verdict"]["probe/feature_rank"] == "contradicted"
    assert rows["verdict"]["probe/ess"] == "supported"
    assert rows["why"]["probe/dormant_neurons"] == "constant" and rows["why"]["probe/policy_variance"] == "not logged"
    lines = "\n".join(plasticity.describe(table, found))
    assert re.search(r"weight_norm +1.00 \[ 1.00,  1.00\] +P1: positive +supported", lines)


def test_networks_of_atari_are_measured_on_states_of_a_random_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(plasticity, "RANDOM_STEPS", 8)
    module = importlib.import_module("ppo_atari_envpool")
    torch.manual_seed(0)
    agent = module.Agent(4, shared_encoder=False)
    plant_network(tmp_path / "r", agent.state_dict(), "ppo_atari_envpool", "Breakout", shared_encoder=False, bf16=False)
    words = "--states 32 --steps 3 --targets 1 --fresh 1".split()
    args = plasticity.parse_args(["--runs", str(tmp_path), "--out", str(tmp_path), *words])
    runs = plasticity.finished_runs(args)
    states = plasticity.bank_of(runs, args)  # (rows, height, width, frames): a wall at the left, none above the score
    assert (states[:, 30:70, 1] > 100).all() and (states[:, 1, 30:70] == 0).all()
    (row,) = plasticity.measure(runs, args).itertuples()
    assert row.states == 32 and 0.5 < row.loss < 0.999
    assert row.slowdown == pytest.approx(1, abs=0.2) and row.slowdown_critic == pytest.approx(1, abs=0.2)


def test_targets_are_standardised_and_the_same_for_all_networks():
    bank = torch.randn(200, 3, dtype=torch.float64) * torch.tensor([1.0, 100.0, 0.0])
    targets = plasticity.random_targets(bank, 3, 1.0, seed=1)
    assert targets.mean(1).abs().max() < 1e-5 and (targets.std(1, unbiased=False) - 1).abs().max() < 1e-5
    assert torch.equal(targets, plasticity.random_targets(bank, 3, 1.0, seed=1)) and not torch.equal(*targets[:2])
    assert np.abs(np.corrcoef(targets)[~np.eye(3, dtype=bool)]).max() < 0.9


def test_within_configurations_nothing_is_left_of_their_differences():
    rng = np.random.default_rng(0)
    configuration = np.repeat([0.0, 1.0, 2.0], 40)
    x, y = 5 * configuration + rng.normal(size=(2, 120))
    sample = [np.array([x, y, configuration])]
    assert spearman(sample) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert spearman(sample) > 0.8 and abs(spearman_within(sample)) < 0.25
    low, high = plasticity.evidence_of(spearman_within, sample).estimate[1:]
    assert -0.5 < low < 0 < high < 0.5
    y = y + 3 * (x - 5 * configuration)
    assert spearman_within([np.array([x, y, configuration])]) > 0.8
