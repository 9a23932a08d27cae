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
import re
import statistics
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from support import arguments
from support.envs.contract import Watch
from support.envs.spaces import Envs, Unplayable, observation_of
from support.reading.files import read_json

ROOT = Path(__file__).parents[2]
MOST_FILES = 500  # of the working directory, that are searched for a task
SMALLEST_FRAME = 160  # the least height and width of a film
SHORT_RESET = 4e-3  # seconds: 20 steps' shares of it are below processes.MESSAGE_SECONDS
MASK = "action_mask"  # what tasks call it


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


def registered(name: str) -> Optional[Tuple[str, str]]:
    """Who registers an ID in gymnasium, in words, and the full name of the task; None if nothing is found.

    Looks into gymnasium, and into the text of the modules in the working directory, of which none is imported.
    """
    import gymnasium

    if name in gymnasium.registry:
        return "gymnasium has", f"gymnasium::{name}"
    call = re.compile(rf"""register\(\s*(id\s*=\s*)?["']{re.escape(name)}["']""")
    paths = itertools.chain(Path().glob("*.py"), Path().glob("*/*.py"))
    for path in itertools.islice(paths, MOST_FILES):
        parts = path.with_suffix("").parts
        with contextlib.suppress(OSError, ValueError):  # it cannot be read, or is no text
            if all(map(str.isidentifier, parts)) and call.search(path.read_text()):
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                return f"{path} registers", f"gymnasium:{module}:{name}"
    return None


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


def cause(error: BaseException) -> str:
    """What a user's module has raised, in words; of an Unplayable what it was raised from."""
    raised = error.__cause__ if isinstance(error, Unplayable) else error
    return f"{type(raised).__name__}: {raised}"


def only_once(why: str, number: int) -> str:
    """What is said where so many environments in one process are too many, and what helps."""
    helps = f"expected --num-envs 1 and one seed, or --env-workers {number}, a process for each environment"
    return f"cannot be made a second time in one process ({why}): {helps}"


class Declared(NamedTuple):
    """What a task says of itself."""

    observation_space: Any
    action_space: Any
    max_episode_steps: Optional[int]  # its own time limit


@functools.lru_cache(maxsize=None)
def declared(env_id: str, env_kwargs: str = "{}") -> Declared:
    """What a task with these options declares. Raises Unplayable."""
    with warnings.catch_warnings():  # gymnasium's, about the precision of bounds and old versions of tasks
        warnings.simplefilter("ignore")
        env = make_one(env_id, env_kwargs)
        env.close()
        return Declared(env.observation_space, env.action_space, env.spec.max_episode_steps)


def spaces(env_id: str, env_kwargs: str = "{}") -> Tuple[Any, Any]:
    """The observation space and the action space of a task with these options. Raises Unplayable."""
    return declared(env_id, env_kwargs)[:2]


def _in_one_line(env_id: str, error: Exception, objection: str = "") -> str:
    """The objection to what a user's task has returned, else what it has raised, and where: one line."""
    if objection:
        return f"--env-id {env_id}: {objection}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    own = [x for x in frames if "site-packages" not in x.filename and Path(x.filename).parent != ours]
    at = f" in {own[-1].name}, {own[-1].filename} line {own[-1].lineno}" if own else ""
    return " ".join(f"--env-id {env_id} raised {type(error).__name__}: {error}{at}".split())


class Probe(NamedTuple):
    """What a task has shown in a few random steps."""

    seconds: float  # of a step, with its share of a reset
    masks: bool  # whether it says which actions are allowed, as PettingZoo's tasks do
    second: str  # why no second environment can be made beside one in the same process; "" if one can


@functools.lru_cache(maxsize=None)
def probe(env_id: str, env_kwargs: str = "{}", twice: bool = False) -> Probe:
    """Steps a task for about a second at most. twice: whether to make a second environment beside it.

    Ends the program with one line if the task raises an error, or returns what gymnasium does not allow.
    """
    entries = observation_of(spaces(env_id, env_kwargs)[0]).entries
    second, watch = "", None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = make_one(env_id, env_kwargs)
            watch = Watch(env, entries)
            seconds, masks = _play(env, watch)
            masks |= any(MASK in entry.path for entry in entries)
            if twice:
                try:
                    make_one(env_id, env_kwargs).close()
                except Unplayable as error:
                    second = cause(error)
            env.close()
    except Exception as error:  # whatever the user's task raises
        arguments.fail(_in_one_line(env_id, error, watch.objection() if watch else ""))
    return Probe(seconds, masks, second)


def _play(env: Any, watch: Watch) -> Tuple[float, bool]:
    """The time of a step of random actions with its share of a reset, and whether an info has had a mask of actions.

    Up to 20 steps, for about a second at most. Where resets are slow it goes on to the end of an episode, 0.1 s at
    most. The first reset is left out if there is a second: it may prepare something. The times are medians, which a
    busy machine changes little. Raises ValueError at an objection.
    """
    steps: List[float] = []
    resets: List[float] = []
    ends: List[int] = []  # of episodes, in steps from the start
    masks: List[bool] = []

    def timed(times: List[float], function: Callable, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        returned = function(*args, **kwargs)
        times.append(time.perf_counter() - start)
        if watch.objection():
            raise ValueError(watch.objection())
        masks.append(MASK in returned[-1])
        return returned

    def go_on() -> None:
        if len(resets) == len(ends):
            timed(resets, env.reset, **seed)
            seed.clear()
        _, _, terminated, truncated, _ = timed(steps, env.step, env.action_space.sample())
        if terminated or truncated:
            ends.append(len(steps))

    env.action_space.seed(0)
    seed = {"seed": 0}  # of the first reset alone, as in training
    while len(steps) < 20 and sum(steps) + sum(resets[1:]) < 1:
        go_on()
    if resets[0] > SHORT_RESET:
        with contextlib.suppress(Exception):  # an error so late is the run's
            while not ends and sum(steps) < 0.1:
                go_on()
            if len(resets) == 1:
                timed(resets, env.reset)
    length = ends[-1] / len(ends) if ends else env.spec.max_episode_steps or len(steps)
    return statistics.median(steps) + statistics.median(resets[1:] or resets) / length, any(masks)


class GymnasiumEnvs(Envs):
    """gymnasium's SyncVectorEnv: one environment after the other, in the thread that calls.

    Raises Unplayable if an environment cannot be made.
    """

    def __init__(self, env_id: str, env_kwargs: str, seeds: Any, film: bool = False) -> None:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        super().__init__(spaces(env_id, env_kwargs), seeds)
        self.env_id = env_id
        made: List[Any] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for _ in self.seeds:
                    made.append(make_one(env_id, env_kwargs, film))
                makers = [functools.partial(made.__getitem__, i) for i in range(len(made))]
                self.envs = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
            except Exception as error:  # whatever the user's module raises, and spaces that differ
                for env in made:
                    env.close()
                if not made:
                    raise
                why = error.__cause__ or error
                raise Unplayable(only_once(cause(why), len(self.seeds))) from why
        self.watches = [Watch(env, self.observation.entries) for env in made]
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
            objection = next(filter(None, (watch.objection() for watch in self.watches)), "")
            sys.exit("error: " + _in_one_line(self.env_id, error, objection))

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
