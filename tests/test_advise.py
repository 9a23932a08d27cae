"""scripts/advise.py on planted problems: scores that are given, and run directories that are already finished."""

import importlib
import json

import numpy as np
import pytest
from planted_runs import write_run  # puts scripts/ on the path

# isort: split
import advise
from advise import Candidate, Result
from launching import jobs

SMALL = "--env-id CartPole-v1 --steps 4096 --shapes 4x32 32x4 --rates 1e-3 2.5e-4 --minibatch-sizes 32 --budget 0.8"


def planted(quality, noise, rng):
    """A `play` in which a candidate has the score quality(candidate, place), with noise from seed to seed."""

    def play(candidates, place):
        return {one: Result(quality(one, place) + noise * rng.normal(size=5), 1.0, 100) for one in candidates}

    return play


def test_halving_finds_the_planted_best_within_the_budget():
    args = advise.parse_args("--env-id CartPole-v1 --steps 2e6".split())
    assert len(args.candidates) == 42 and [rung.count for rung in args.rungs] == [42, 10, 2]
    steps = sum(rung.steps * rung.count * rung.seeds for rung in args.rungs)
    assert 0.15 < steps / (7 * 3 * 5 * 2e6) <= 0.25
    assert [rung.steps for rung in args.rungs] == [125000, 500000, 2000000] and args.rungs[-1].seeds == 5
    best, seen = args.candidates[17], []

    def quality(candidate, place):  # in short runs one half is as good as the best; the longest run tells
        seen.append((place, candidate))
        return 1.0 * (candidate == best) + 0.9 * (candidate.num_envs > 32) * (place == 0)

    found = advise.halve(args.candidates, args.rungs, planted(quality, 0.01, np.random.default_rng(0)))
    assert [len(results) for results in found] == [42, 10, 2] and next(iter(found[-1])) == best
    assert len(seen) == 54 and advise.level_with_best(found[-1]) == {}
    slow = advise.halve(
        args.candidates, args.rungs, planted(quality, 0.01, np.random.default_rng(0)), lambda x: x.mean < 1
    )
    assert all(result.mean < 1.1 for result in slow[-1].values()) and best not in slow[1]
    assert not advise.plan(args, 10**6)


def test_the_fine_print_of_a_ranking(tmp_path):
    a, b, c, d = (Candidate(n, 8, 8, 1e-3) for n in (1, 2, 3, 4))
    scores = {a: [1, 2, 3, 2, 2], b: [9, np.nan, 9, 9, 9], c: [], d: [5, 6, 5, 6, 5.5]}
    results = advise.ranked({one: Result(np.array(values, float)) for one, values in scores.items()})
    assert list(results) == [b, d, a, c]  # no run of c has finished
    assert results[b].scores.tolist() == [9, 1, 9, 9, 9]  # the diverged run has the worst score of all
    level = advise.level_with_best(results)
    assert list(level) == [d] and level[d].low < 0 < level[d].value
    same = {one: Result(np.full(5, 500.0), hours) for one, hours in ((a, 2.0), (b, 1.0))}
    assert list(advise.level_with_best(same)) == [b]  # equal scores tell nothing
    args = advise.parse_args([*SMALL.split(), "--runs-dir", str(tmp_path)])
    missing = advise.read_result(jobs.read_jobs([advise.command(args, a, 4096, seed=1)]))
    assert missing.mean == -np.inf and not advise.level_with_best({b: results[b], a: missing})
    assert advise.frontier({"a": (1, 5), "b": (2, 4), "c": (2, 6), "d": (3, 6), "e": (1, 3)}) == ["a", "c"]


def plant(args, score):
    """Finished runs of every candidate in every rung, as the program will ask for them. score: of (candidate, seed)."""
    for place, rung in enumerate(args.rungs):
        for candidate in args.candidates:
            for i in range(rung.seeds):
                line = advise.command(args, candidate, rung.steps, args.seed + 1000 * place + i)
                (job,) = jobs.read_jobs([line])
                flags = {name: value for name, value in job.flags.items() if name not in ("env_id", "run_name")}
                flags.update(script="ppo_envpool", game="CartPole-v1", steps=rung.steps, final=score(candidate, i))
                scalars = {"outer/ddr": 40000.0, "charts/episodic_length": 64.0}
                run = write_run(job.path, 1.0, scalars=scalars, **flags)
                done = json.loads((run / "done.json").read_text())
                done["wall_seconds"] = 3.6 * rung.steps / candidate.num_envs
                (run / "done.json").write_text(json.dumps(done))


@pytest.mark.parametrize("gap,word", [(1.0, "decided"), (0.0, "undecided")])
def test_an_answer_from_runs_that_are_there(gap, word, tmp_path):
    words = [*SMALL.split(), "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--workers", "1"]
    args = advise.parse_args(words)
    assert [rung.count for rung in args.rungs] == [4, 2, 2]
    plant(args, lambda one, i: 0.1 * i + (one.learning_rate > 5e-4) * (3 + gap * (one.num_envs == 4)))
    found = advise.halve(args.candidates, args.rungs, advise.player(args))
    table = advise.table_of(args, found)
    lines = list(advise.report(args, found, table))
    text = "\n".join(lines)
    assert ("\ndecided: " in text) == (word == "decided") and ("\nundecided: " in text) == (word == "undecided")
    chosen = "4 --num-steps 32" if word == "decided" else "32 --num-steps 4"  # of equals the faster one
    command = (
        f"python ppo_envpool.py --env-id CartPole-v1 --total-timesteps 4096 --num-envs {chosen} --minibatch-size 32"
    )
    assert f"  {command} --learning-rate 0.001" in lines
    module = importlib.import_module("ppo_envpool")
    assert module.parse_args(command.split()[2:]).total_timesteps == 4096
    assert "DDR: 40,000 samples" in text and "of a game of 64 steps" in text and "not measured" in text
    used = 5 * 2 * 4096 + 3 * 2 * 2048 + 3 * 4 * 1024
    assert lines[-1] == f"used {used:,} steps, {used / (5 * 4 * 4096):.0%} of the exhaustive grid"
    assert (table["num_envs"][table["frontier_hours"]] == 32).sum() >= 1 and table["went_on"].sum() == 4
    assert table["score"].max() == pytest.approx(3.2 + gap) and table["ci_low"].max() < table["score"].max()


def test_the_picture_shows_what_is_in_the_table(tmp_path):
    args = advise.parse_args(SMALL.split())
    found = advise.halve(
        args.candidates, args.rungs, planted(lambda one, _: one.num_envs, 1.0, np.random.default_rng(0))
    )
    advise.draw(args, advise.table_of(args, found), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    "words,says",
    [
        ("--steps 2e4", "expected --steps 101110 or more, 7 candidates or fewer by --shapes, "),
        ("--gamma 2", "--gamma 2.0 is out of range"),
        ("--num-envs 4", "--num-envs is set by the search"),
        ("--no-such-flag 1", "--no-such-flag"),
    ],
)
def test_bad_input_ends_in_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as end:
        advise.parse_args(["--env-id", "CartPole-v1", "--steps", "2e5", *words.split()])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1 and says in error


def test_the_price_and_the_flags_of_the_script(tmp_path, capsys):
    words = f"--env-id CartPole-v1 --steps 2e5 --runs-dir {tmp_path} --gamma 0.95 --no-norm-adv --workers 2"
    args = advise.parse_args(words.split())
    advise.main(advise.parse_args([*words.split(), "--dry-run"]))
    shown = capsys.readouterr().out
    assert "in all 25.4 runs of your length" in shown and "166 runs, 5,075,000 steps; 0 runs are finished" in shown
    assert "3,320 final games" in shown and "2 processes at a time" in shown and not any(tmp_path.iterdir())
    (job,) = jobs.read_jobs([advise.command(args, args.candidates[0], 200000, seed=1)])
    assert (job.args["gamma"], job.args["norm_adv"], job.args["num_steps"]) == (0.95, False, 256)
    args.flags = []
    assert job.name != jobs.read_jobs([advise.command(args, args.candidates[0], 200000, seed=1)])[0].name


def test_what_to_try_at_an_edge_of_the_grid():
    args = advise.parse_args("--env-id CartPole-v1 --steps 2e6 --shapes 8x128 32x32 128x8".split())
    inside, corner = Candidate(32, 32, 256, 5e-4), Candidate(8, 128, 256, 1e-3)
    assert not list(advise.edges(args, inside))
    rate, envs, length = advise.edges(args, corner)
    assert rate.endswith("no rate beyond 0.001 was tried: try --shapes 8x128 --rates 0.001 0.002 0.004")
    assert envs.endswith("try --shapes 8x128 4x128") and length.endswith("try --shapes 8x128 8x256")
