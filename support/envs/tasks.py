"""Tasks of ppo_envpool.py by their names: their spaces, whether they can be trained, and their environments.

A task is named as in EnvPool (`CartPole-v1`), or `gymnasium:MODULE:ID` for what MODULE, which may be empty, registers
in gymnasium. Python 3.8.
"""

import difflib
import functools
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from support import arguments, catalog, devices, recipe
from support.envs import envpool, gymnasium, processes
from support.envs.envpool import families
from support.envs.spaces import Actions, Observation, Unplayable, actions_of, observation_of
from support.reading import manifests

TRAINED = {module: family.words for module, family in catalog.FAMILIES.items() if family.script == "ppo_envpool"}
EVAL_MAX_STEPS = 27000  # ends an evaluation episode of a task without a time limit, as an Atari game


def spaces(env_id: str, env_kwargs: str = "{}") -> Tuple[Any, Any]:
    """The observation space and the action space of a task, of gymnasium. Raises Unplayable.

    env_kwargs, here and below: the options of the task, JSON as arguments.json_object returns it.
    """
    if env_id.startswith("gymnasium:"):
        return gymnasium.spaces(env_id, env_kwargs)
    module = families().get(env_id)
    family = catalog.FAMILIES.get(module or "")
    if not family or family.script != "ppo_envpool":
        command = of_another_script(env_id)
        if command:
            raise Unplayable(f"is not for ppo_envpool.py: expected python {command}")
    if module is None:
        names = [name for name, module in families().items() if module in TRAINED]
        near = difflib.get_close_matches(env_id.split("/")[-1], names, 3, 0.3) or ["CartPole-v1"]
        there = gymnasium.registered(env_id)
        if there:
            raise Unplayable(f"is not a task of EnvPool, but {there[0]} it: expected --env-id {there[1]}")
        own = f"; for a task that your module registers in gymnasium: expected gymnasium:MODULE:{env_id or 'ID'}"
        raise Unplayable(f"is not a task of EnvPool; near: {' '.join(near)}{own}")
    if not family:
        raise Unplayable(f"is one of {module}, which has not been tried here: expected {', '.join(TRAINED.values())}")
    return envpool.spaces(env_id, env_kwargs)


def of_another_script(env_id: str) -> str:
    """The command that trains on a task of Atari, Procgen or mjlab, whichever package's name it has; "" for others."""
    if env_id.startswith("Mjlab-"):
        return f"ppo_isaacgym.py --env-id {env_id}"
    family = catalog.FAMILIES.get(families().get(env_id, ""))
    if family and family.script != "ppo_envpool":
        return f"{family.script}.py --env-id {env_id}"
    task = catalog.task_name(re.sub("^(procgen:)?procgen-", "", env_id))
    if task in catalog.PROCGEN_SCORES:
        return f"ppo_procgen.py --env-id {task}"
    return f"ppo_atari_envpool.py --env-id {task}-v5" if families().get(f"{task}-v5") == "envpool.atari" else ""


def rows_of(env_id: str, env_kwargs: str = "{}") -> Tuple[Observation, Actions]:
    """What the observations and the actions of a task are as rows of numbers. Raises Unplayable."""
    space, actions = spaces(env_id, env_kwargs)
    return observation_of(space), actions_of(actions)


def defaults(env_id: str, env_kwargs: str = "{}") -> Dict[str, Any]:
    """The defaults of ppo_envpool.py that a task has of its own; {} for a task that cannot be trained."""
    try:
        seen, acts = rows_of(env_id, env_kwargs)
    except Unplayable:
        return {}
    found = recipe.of_spaces(acts.continuous, any(seen.real), [entry.image.large for entry in seen.images])
    return {**found, **recipe.OWN_CONTINUOUS} if acts.continuous and env_id.startswith("gymnasium:") else found


def defaults_of_command(argv: Sequence[str], env_id: str) -> Dict[str, Any]:
    """`defaults` of the task that a command line names, or of env_id. Ends the program if --env-kwargs is no object."""
    return defaults(arguments.value_of(argv, "--env-id", env_id), options_of_command(argv))


def options_of_command(argv: Sequence[str]) -> str:
    """The --env-kwargs of a command line, as a manifest keeps them. Ends the program with one line if they are none."""
    try:
        return arguments.json_object(arguments.value_of(argv, "--env-kwargs", "{}"))
    except ValueError as error:
        arguments.fail(error)


def default_arguments(script: str, env_id: str = "", env_kwargs: str = "{}") -> Dict[str, Any]:
    """reading.default_arguments, with those of a task of gymnasium too: this imports the module that it names."""
    values = manifests.default_arguments(script, env_id)
    asks = Path(script).stem == "ppo_envpool" and (env_id.startswith("gymnasium:") or env_kwargs != "{}")
    return {**values, **defaults(env_id, env_kwargs)} if asks else values


def check_env_id(env_id: str, env_kwargs: str = "{}") -> None:
    """Ends the program with one line if ppo_envpool.py cannot train on the task."""
    try:
        rows_of(env_id, env_kwargs)
    except Unplayable as error:
        arguments.fail(f"--env-id {env_id} {error}")


def check(args: Any) -> int:
    """Ends the program with one line if args.env_id cannot be trained on, or not with --norm-obs or --init-std.

    Returns the bytes of an observation.
    """
    import numpy as np

    args.env_kwargs = options_of_command(["--env-kwargs", args.env_kwargs])
    check_env_id(args.env_id, args.env_kwargs)
    if args.env_id.startswith("gymnasium:"):
        number = _most_envs(args)
        found = gymnasium.probe(args.env_id, args.env_kwargs, twice=number > max(1, args.env_workers))
        if found.second:
            arguments.fail(f"--env-id {args.env_id} {gymnasium.only_once(found.second, number)}")
        if found.masks:
            print(f"note: {args.env_id}: action masks are not supported: every action may be drawn", file=sys.stderr)
    elif args.env_workers:
        arguments.fail(
            f"--env-workers {args.env_workers}: EnvPool steps {args.env_id} in threads: expected no such flag"
        )
    seen, acts = rows_of(args.env_id, args.env_kwargs)
    if args.init_std != 1.0 and not acts.continuous:
        arguments.fail(f"--init-std {args.init_std:g}: {args.env_id} has no real actions: expected no such flag")
    if args.norm_obs and not any(seen.real):
        arguments.fail(f"--norm-obs: {args.env_id} observes no vector of real numbers: expected --no-norm-obs")
    return seen.width * np.dtype(seen.dtype).itemsize


def _most_envs(args: Any) -> int:
    """The environments that this process needs at a time, over its agents; 1 for arguments that are refused later."""
    try:
        phases = recipe.schedule_of(vars(args)).phases
    except ValueError:
        return 1
    return max(phase.num_envs for phase in phases) * args.num_seeds // devices.NUM_RANKS


def make(
    env_id: str, seeds: Any, num_threads: int, film: bool = False, env_workers: int = 1, env_kwargs: str = "{}"
) -> Any:
    """An environment for each of the seeds (N,) or (S, N), integers below 2**31, in `num_threads` threads on EnvPool.

    env_workers: processes of gymnasium's environments, at most; 0: as num_workers says. What the environments do does
    not depend on their number. With `film` they have a further method, `frame`, which returns the picture of the first.
    For MuJoCo's, mujoco has to be imported before EnvPool, or it finds no OpenGL. Ends the program with one line if
    they cannot be made.
    """
    if not env_id.startswith("gymnasium:"):
        return envpool.EnvPoolEnvs(env_id, env_kwargs, seeds, num_threads, film)
    import numpy as np

    number = min(env_workers, np.size(seeds))
    if not number:
        seconds = gymnasium.probe(env_id, env_kwargs).seconds
        number = processes.num_workers(seconds, np.size(seeds), processes.share_of_cores())
    try:
        if number > 1:
            return processes.EnvsInProcesses(env_id, env_kwargs, seeds, number)
        return gymnasium.GymnasiumEnvs(env_id, env_kwargs, seeds, film)
    except Unplayable as error:
        arguments.fail(f"--env-id {env_id} {error}")


def close(envs: Any) -> None:
    """Closes environments, before others of the task are made: of some tasks there can be one at a time. None: none."""
    if envs is not None:
        envs.close()


def in_turn(play: Callable) -> Callable:
    """play_episodes of ppo_envpool.py, which then plays as many episodes at a time as there can be environments.

    That is all of them, or one for each of --env-workers where a task cannot be made twice in one process.
    """

    @functools.wraps(play)
    def played(agent: Any, args: Any, device: Any, seeds: Any, episodes: range, *rest: Any, **named: Any) -> List[Any]:
        number = len(episodes)
        if args.env_id.startswith("gymnasium:") and number * len(seeds) > max(1, args.env_workers):
            if gymnasium.probe(args.env_id, args.env_kwargs, twice=True).second:
                number = max(1, args.env_workers // len(seeds))
        pieces = [episodes[i : i + number] for i in range(0, len(episodes), number)]
        parts = [play(agent, args, device, seeds, piece, *rest, **named) for piece in pieces]
        return [sum(of_agent, []) for of_agent in zip(*parts)]

    return played


def eval_max_steps(args: Any) -> Optional[int]:
    """The steps at which an evaluation episode is cut: those of --eval-max-steps, or EVAL_MAX_STEPS for a task
    without a time limit; None: the task's own limit ends each episode."""
    if args.eval_max_steps:
        return args.eval_max_steps
    if not args.env_id.startswith("gymnasium:"):
        return None if envpool.has_time_limit(args.env_id, args.env_kwargs) else EVAL_MAX_STEPS
    return None if gymnasium.declared(args.env_id, args.env_kwargs).max_episode_steps else EVAL_MAX_STEPS
