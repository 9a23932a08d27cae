"""ppo_envpool.py whose environments start at different points of an episode (E6, E9), for tasks of EnvPool.

    python results/second_look/staggered.py --env-id CartPole-v1 --num-envs 128 --num-steps 8

Environments that are reset together reach the same part of an episode together, and a short rollout sees that part only
(P4: Bharthulwar et al. 2025, arXiv 2511.21011). Here each environment first plays an episode of random actions, of L
steps. Then it begins another and takes a number of random steps drawn from 0 to L - 1. These steps are in no rollout
and count as no environment steps. The first training return of each environment is that of the rest of its episode.
`--eval-episodes` plays the last network, from the start of an episode; scripts/evaluate.py does not know this program.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import numpy as np

import ppo_envpool
from support import arguments, rundir
from support.envs import envpool, tasks

MOST = 27_000  # steps of an episode of random actions; a task without a time limit may never end it

collect_steps, parse_its_args = ppo_envpool.collect_steps, ppo_envpool.parse_args


def stagger(envs, rng):
    """Takes the random steps in environments that have been reset. Returns their observations, (S, N, width).

    envs: support.envs.envpool.EnvPoolEnvs; rng: NumPy's generator. No environment is left at the end of an episode, so
    the next step is none that only resets.
    """
    number = len(envs.seeds)
    lengths = np.zeros(number, int)  # of the first episode of each environment
    for step in range(1, MOST + 1):
        done = some_steps(envs, np.arange(number), rng)[1]
        lengths[(lengths == 0) & (done | (step == MOST))] = step
        if lengths.all():
            break
    obs = envs.reset()[0].reshape(number, -1)
    left = rng.integers(0, lengths)  # random steps that each environment has still to take
    while left.any():
        ids = left.nonzero()[0]
        obs[ids], done = some_steps(envs, ids, rng)
        left[ids] -= 1
        left[ids[done]] = np.maximum(left[ids[done]], 1)  # one more, which resets
    return obs.reshape(*envs.shape, -1)


def some_steps(envs, ids, rng):
    """A random step of the environments `ids`. Returns their observations, (len(ids), width), and which have ended."""
    pool, space = envs.envs, envs.action_space
    if envs.actions.continuous:
        actions = rng.uniform(space.low, space.high, (len(ids), *space.shape))
    else:
        actions = rng.integers(space.start, space.start + space.n, len(ids))
    pool._send([pool.all_env_ids[ids], pool.all_env_ids[ids], actions.astype(envs.action_type)])
    states = pool._recv()
    obs = envs.observation.rows([states[i] for i in envs.obs], len(ids))
    return obs, states[envs.others[1]]


def collect_staggered(agent, rollout, noise, next_obs, envs, run):
    """ppo_envpool.collect_steps, before which environments that are new take their random steps."""
    if not hasattr(envs, "staggered"):
        envs.staggered = True
        rng = np.random.default_rng([envs.seeds[0], run.global_step])
        next_obs = stagger(envs, rng).astype(next_obs.dtype)
    return collect_steps(agent, rollout, noise, next_obs, envs, run)


def parse_args(argv):
    """ppo_envpool.parse_args, which here ends the program for a task whose random steps are not known."""
    args = parse_its_args(argv)
    if args.env_id not in envpool.families() or tasks.rows_of(args.env_id, args.env_kwargs)[1].kind == "categoricals":
        arguments.fail(f"--env-id {args.env_id}: expected a task of EnvPool with one discrete action or real ones")
    return args


if __name__ == "__main__":
    ppo_envpool.parse_args, ppo_envpool.collect_steps = parse_args, collect_staggered
    with rundir.full_disk_in_one_line():
        ppo_envpool.main(parse_args(sys.argv[1:]))
