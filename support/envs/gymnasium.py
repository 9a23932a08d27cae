"""gymnasium's environments, and the module of a user that registers them. Python 3.8.

A task is named `gymnasium:MODULE:ID`, for what MODULE, which may be empty, registers in gymnasium.
"""

import contextlib
import functools
import importlib.util
import io
import itertools
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

from support import arguments
from support.envs.spaces import Envs, Unplayable, observation_of
from support.reading.files import read_json

ROOT = Path(__file__).parents[2]
SMALLEST_FRAME = 160  # the least height and width of a film


def modules(env_id: str) -> List[str]:
    """The modules that a task of gymnasium imports: those before its ID, which gymnasium splits at a colon too."""
    return [name for name in env_id.split(":")[1:-1] if name] if env_id.startswith("gymnasium:") else []


def _places(head: str) -> List[str]:
    """Where a module is, or a package, which may be in several folders; [] if it is nowhere. Imports nothing."""
    try:
        spec = importlib.util.find_spec(head)
    except ValueError:  # no name of a module
        return []
    return list(spec.submodule_search_locations or [str(spec.origin)]) if spec else []


def _check_module(name: str) -> None:
    """Raises Unplayable if a module lies in a run directory: results, which may be another's, bring no code.

    Imports nothing below the first package.
    """
    head, *rest = name.split(".")
    for place in () if name in sys.modules else _places(head):
        path = Path(place, *rest).resolve()
        for folder in (path, *path.parents):
            if isinstance(read_json(folder / "manifest.json").get("arguments"), dict):
                raise Unplayable(f"is code in the run directory {folder}: expected a module outside of it")


def check_trusted(env_id: str, run_dir: Path) -> None:
    """Raises Unplayable if a module of a run's task came with the run, which may be another's: it would run as code.

    That is a module beside the run directory, and one that shares a folder with it below the place where Python found
    the module: theirs.payload for theirs/run1, but not my_task.py in the working directory for runs/mine. Imports
    nothing.
    """
    search_working_directory()
    ways: Tuple[Callable[[Any], str], ...] = (os.path.realpath, os.path.abspath)  # what links lead to, and they
    for name, follow in itertools.product(modules(env_id), ways):
        run, (head, *rest) = Path(follow(arguments.from_start(run_dir))), name.split(".")
        for root in _places(head):
            place = Path(root, *rest)
            path, searched = Path(follow(place)), Path(follow(root)).parent
            folders = [folder for folder in (run, *run.parents) if searched in folder.parents]
            if path.parent == run.parent or any(folder in (path, *path.parents) for folder in folders):
                expected = "expected a module elsewhere, or --trust, which runs that code"
                raise Unplayable(f"is of the module {name}, which came with the run ({place}): {expected}")


def search_working_directory() -> None:
    """Lets modules be found where the program was started. Last: none hides an installed package."""
    if str(arguments.START) not in sys.path:
        sys.path.append(str(arguments.START))


def make_one(env_id: str, env_kwargs: str = "{}", film: bool = False) -> Any:
    """One environment, whose module is found in the working directory too. Raises Unplayable.

    env_kwargs: JSON, an object: what gymnasium.make gets beside the name.
    """
    import gymnasium

    if env_id.count(":") < 2:
        raise Unplayable("is incomplete: expected gymnasium:MODULE:ID, as in gymnasium::CartPole-v1")
    name = env_id.split(":", 2)[2]
    search_working_directory()
    try:
        for module in modules(env_id):
            _check_module(module)
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(module)
        options = json.loads(env_kwargs)
        return gymnasium.make(name, **{**options, "render_mode": "rgb_array"} if film else options)
    except Unplayable:
        raise
    except Exception as error:  # whatever the user's module raises
        missing = isinstance(error, ModuleNotFoundError) and any(
            f"{module}.".startswith(f"{error.name}.") for module in modules(env_id)
        )
        places = ", ".join(dict.fromkeys([str(arguments.START), str(ROOT), "PYTHONPATH"]))
        looked = f"; looked in {places} and the installed packages" if missing else ""
        given = "" if env_kwargs == "{}" else f"with --env-kwargs {env_kwargs} "
        raise Unplayable(
            f"{given}cannot be made ({type(error).__name__}: {error}){looked}: expected gymnasium:MODULE:ID"
        ) from error


@functools.lru_cache(maxsize=None)
def spaces(env_id: str, env_kwargs: str = "{}") -> Tuple[Any, Any]:
    """The observation space and the action space of a task with these options. Raises Unplayable."""
    with warnings.catch_warnings():  # gymnasium's, about the precision of bounds and old versions of tasks
        warnings.simplefilter("ignore")
        env = make_one(env_id, env_kwargs)
        env.close()
        return env.observation_space, env.action_space


def _raised(env_id: str, error: Exception) -> str:
    """What a user's task raised, and where: one line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    own = [x for x in frames if "site-packages" not in x.filename and Path(x.filename).parent != ours]
    at = f" in {own[-1].name}, {own[-1].filename} line {own[-1].lineno}" if own else ""
    return " ".join(f"--env-id {env_id} raised {type(error).__name__}: {error}{at}".split())


@functools.lru_cache(maxsize=None)
def step_seconds(env_id: str, env_kwargs: str = "{}") -> float:
    """The median time of a step of a task: up to 20 random actions, for about a second at most.

    Ends the program with one line if the task raises an error, or observes another shape than it declares.
    """
    import numpy as np

    entries = observation_of(spaces(env_id, env_kwargs)[0]).entries

    def check_shape(obs: Any) -> None:
        for entry in entries:
            part, declared = entry.of(obs), entry.space.shape
            shape = declared if declared is None else np.shape(part)
            if shape != declared:
                raise ValueError(f"an observation{entry.name} has the shape {shape}, and {declared} was declared")

    seconds: List[float] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env, over = make_one(env_id, env_kwargs), True
            env.action_space.seed(0)
            while len(seconds) < 20 and sum(seconds) < 1:
                if over:
                    check_shape(env.reset(seed=0)[0])
                action = env.action_space.sample()
                start = time.perf_counter()
                obs, reward, terminated, truncated, _ = env.step(action)
                seconds.append(time.perf_counter() - start)
                check_shape(obs)
                over = bool(terminated or truncated)
                float(reward)
            env.close()
    except Exception as error:  # whatever the user's task raises
        arguments.fail(_raised(env_id, error))
    return sorted(seconds)[len(seconds) // 2]


class GymnasiumEnvs(Envs):
    """gymnasium's SyncVectorEnv: one environment after the other, in the thread that calls."""

    def __init__(self, env_id: str, env_kwargs: str, seeds: Any, film: bool = False) -> None:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        super().__init__(spaces(env_id, env_kwargs), seeds)
        self.env_id = env_id
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            makers = [functools.partial(make_one, env_id, env_kwargs, film)] * len(self.seeds)
            self.envs = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        assert self.envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        with self.one_line():
            obs, _ = self.envs.reset(seed=self.seeds)
            return self.rows([entry.of(obs) for entry in self.observation.entries]), {}

    def advance(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        import numpy as np

        with self.one_line():
            # a list of arrays, since an array of numbers would be taken apart into scalars
            actions = action if action.ndim > 1 or not self.actions.continuous else [*map(np.asarray, action)]
            obs, reward, terminated, truncated, _ = self.envs.step(actions)
            rows = self.rows([entry.of(obs) for entry in self.observation.entries])
            return rows, reward, terminated, truncated, {}

    @contextlib.contextmanager
    def one_line(self) -> Iterator[None]:
        """Ends the program with one line where the task raises an error; with 1, as a second try may succeed."""
        try:
            yield
        except Exception as error:  # whatever the user's task raises
            sys.exit("error: " + _raised(self.env_id, error))

    def frame(self) -> Any:
        """The picture of the first environment, (H, W, 3) uint8, if they were made with `film`; small ones enlarged."""
        import numpy as np

        frame = np.asarray(self.envs.envs[0].render())
        if frame.ndim != 3:
            raise ValueError("its render() returns no picture")
        if frame.dtype.kind == "f":  # 0 to 1, as MinAtar's
            frame = (255 * frame).astype(np.uint8)
        times = -(-SMALLEST_FRAME // min(frame.shape[:2]))
        return frame.repeat(times, 0).repeat(times, 1)
