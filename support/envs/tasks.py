"""EnvPool's small worlds and gymnasium's behind one interface, and which of them ppo_envpool.py can play.

A game is named as in EnvPool (`CartPole-v1`), or `gymnasium:MODULE:ID` for what MODULE, which may be empty, registers
in gymnasium. `make` gets a seed for each game: N of them, or S lists of N for S agents. Every array then has the shape
(N, ...) or (S, N, ...); N stands for both here. `shape` is (N,) or (S, N), and the object has these methods:

    reset() -> obs, info
    step(action) -> obs, reward (N,), terminated (N,), truncated (N,), info

action: (N,) integers, or (N, A) floats, which are clipped to the bounds of the action space. obs: (N, width), of what
`Observation` says. The step after an end only resets: its action is ignored, and what it pays belongs to no game.

The actions, observations and rewards of the agents in `retired` are 0: theirs may not be finite any more.

Python 3.8.
"""

import contextlib
import difflib
import functools
import importlib.util
import io
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from support import arguments, catalog, reading, recipe

PLAYED = {module: family.words for module, family in catalog.FAMILIES.items() if family.script == "ppo_envpool"}
IMAGE, MISSION = (7, 7, 3), "mission"  # MiniGrid's image, and what is left out of its observation
ROOT = Path(__file__).parents[2]
MESSAGE_SECONDS = 2e-4  # to another process and back, with actions and observations; 1.1e-4 was measured
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}  # what a run is stopped with
WORKER = "import sys; sys.path[:] = sys.argv[2:]; from support.envs.tasks import serve; serve(int(sys.argv[1]))"
EVAL_MAX_STEPS = 27000  # ends a final game of a task without a time limit, as an Atari game
MAX_WIDTH = 4096  # numbers in an observation; the largest here is DeepMind Control's dog with a ball, 239


class Observation(NamedTuple):
    """What an observation is as a row of numbers, before any network has seen it."""

    kind: str  # vector; index (one integer below `values`); grid (MiniGrid's direction, then its image, row by row)
    width: int  # numbers in a row
    dtype: str
    values: int = 0  # how many values an index has


class Unplayable(ValueError):
    """Why a game cannot be played here; the text goes on after `--env-id NAME`."""


# ---- names and spaces ------------------------------------------------------------------------------------------------
def families() -> Dict[str, str]:
    """{name: module} of all games that EnvPool has registered, such as {"Breakout-v5": "envpool.atari"}."""
    import envpool

    return {name: module for name, (module, *_) in envpool.registration.registry.specs.items()}


@functools.lru_cache(maxsize=None)
def spaces(env_id: str) -> Tuple[Any, Any]:
    """The observation space and the action space of one game, of gymnasium. Raises Unplayable."""
    with warnings.catch_warnings():  # gymnasium's, about the precision of bounds and old versions of games
        warnings.simplefilter("ignore")
        if env_id.startswith("gymnasium:"):
            envs = _make_gymnasium(env_id)
            found = envs.observation_space, envs.action_space
            envs.close()
            return found
        module = families().get(env_id)
        family = catalog.FAMILIES.get(module or "")
        if family and family.script != "ppo_envpool":
            raise Unplayable(f"observes pixels: expected {family.script}.py, which plays it")
        if module is None:
            names = [name for name, module in families().items() if module in PLAYED]
            near = difflib.get_close_matches(env_id.split("/")[-1], names, 3, 0.3) or ["CartPole-v1"]
            raise Unplayable(f"is not a game of EnvPool; near: {' '.join(near)}")
        if not family:
            raise Unplayable(
                f"is one of {module}, which has not been tried here: expected {', '.join(PLAYED.values())}"
            )
        import envpool

        spec = envpool.make_spec(env_id)
        return spec.gymnasium_observation_space, spec.gymnasium_action_space


def modules(env_id: str) -> List[str]:
    """The modules that a task of gymnasium imports: those before its ID, which gymnasium splits at a colon too."""
    return [name for name in env_id.split(":")[1:-1] if name] if env_id.startswith("gymnasium:") else []


def _check_module(name: str) -> None:
    """Raises Unplayable if a module lies in a run directory: results, which may be another's, bring no code.

    Imports nothing below the first package.
    """
    head, *rest = name.split(".")
    spec = None if name in sys.modules else importlib.util.find_spec(head)
    for place in (spec.submodule_search_locations or [str(spec.origin)]) if spec else ():
        path = Path(place, *rest).resolve()
        for folder in (path, *path.parents):
            if isinstance(reading.read_json(folder / "manifest.json").get("arguments"), dict):
                raise Unplayable(f"is code in the run directory {folder}: expected a module outside of it")


def _make_gymnasium(env_id: str, film: bool = False) -> Any:
    """One game of gymnasium, whose module is found in the working directory too. Raises Unplayable."""
    import gymnasium

    if env_id.count(":") < 2:
        raise Unplayable("is incomplete: expected gymnasium:MODULE:ID, as in gymnasium::CartPole-v1")
    name = env_id.split(":", 2)[2]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: it hides no installed package
    try:
        for module in modules(env_id):
            _check_module(module)
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(module)
        return gymnasium.make(name, render_mode="rgb_array") if film else gymnasium.make(name)
    except Unplayable:
        raise
    except Exception as error:  # whatever the user's module raises
        missing = isinstance(error, ModuleNotFoundError) and any(
            f"{module}.".startswith(f"{error.name}.") for module in modules(env_id)
        )
        looked = f"; looked in {os.getcwd()}, {ROOT}, PYTHONPATH and the installed packages" if missing else ""
        raise Unplayable(
            f"cannot be made ({type(error).__name__}: {error}){looked}: expected gymnasium:MODULE:ID"
        ) from error


def _ends_in(env_id: str, error: Exception) -> str:
    """What a user's task raised, and where: one line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    at = f" in {own[-1].name}, {own[-1].filename} line {own[-1].lineno}" if own else ""
    return " ".join(f"--env-id {env_id} raised {type(error).__name__}: {error}{at}".split())


@functools.lru_cache(maxsize=None)
def step_seconds(env_id: str) -> float:
    """The median time of a step of a task of gymnasium: up to 20 random actions, for about a second at most.

    Ends the program with one line if the task raises an error, or observes another shape than it declares.
    """
    import numpy as np

    space = spaces(env_id)[0]

    def check_shape(obs: Any) -> None:
        parts = getattr(space, "spaces", None)
        for key, part in parts.items() if isinstance(parts, dict) else [("", space)]:
            shape = np.shape(obs[key] if key else obs)
            if part.shape is not None and shape != part.shape:
                raise ValueError(f"an observation {key} has the shape {shape}, and {part.shape} was declared")

    seconds: List[float] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            game, over = _make_gymnasium(env_id), True
            game.action_space.seed(0)
            while len(seconds) < 20 and sum(seconds) < 1:
                if over:
                    check_shape(game.reset(seed=0)[0])
                action = game.action_space.sample()
                start = time.perf_counter()
                obs, reward, terminated, truncated, _ = game.step(action)
                seconds.append(time.perf_counter() - start)
                check_shape(obs)
                over = bool(terminated or truncated)
                float(reward)
            game.close()
    except Exception as error:  # whatever the user's task raises
        arguments.fail(_ends_in(env_id, error))
    return sorted(seconds)[len(seconds) // 2]


def observation(env_id: str) -> Observation:
    """What the observations of a game are. Raises Unplayable."""
    from gymnasium.spaces import Box, Discrete

    space = spaces(env_id)[0]
    if isinstance(space, Discrete):
        return Observation("index", 1, "int32", int(space.n))
    parts = getattr(space, "spaces", {"": space})
    if isinstance(parts, dict) and parts.keys() - {MISSION} == {"direction", "image"} and parts["image"].shape == IMAGE:
        return Observation("grid", 1 + 7 * 7 * 3, "uint8")
    boxes = list(parts.values()) if isinstance(parts, dict) else [space]
    if not all(isinstance(box, Box) for box in boxes):
        raise Unplayable(f"observes {space}: expected a vector, an integer, MiniGrid's grid or a dict of vectors")
    if any(len(box.shape) > 2 for box in boxes):
        raise Unplayable("observes pixels, and no script here plays it: expected a vector or MiniGrid's grid")
    width = sum(_size(box) for box in boxes)
    if width > MAX_WIDTH:
        raise Unplayable(f"observes {width:,} numbers: expected at most {MAX_WIDTH:,}")
    return Observation("vector", width, "float32")


def _size(box: Any) -> int:
    size = 1
    for length in box.shape:
        size *= int(length)
    return size


def num_actions(env_id: str) -> Tuple[int, bool]:
    """The number of actions, or of an action's dimensions, and whether it is the latter. Raises Unplayable."""
    from gymnasium.spaces import Box, Discrete

    space = spaces(env_id)[1]
    if isinstance(space, Discrete) and space.start == 0:
        return int(space.n), False
    if isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f":
        return space.shape[0], True
    raise Unplayable(f"has the actions {space}: expected Discrete, or a vector of real numbers")


def has_continuous_actions(env_id: str) -> bool:
    """Whether a game's actions are real numbers; False for a game that cannot be played."""
    try:
        return num_actions(env_id)[1]
    except Unplayable:
        return False


def default_arguments(script: str, env_id: str = "") -> Dict[str, Any]:
    """reading.default_arguments, with those of a task of gymnasium too: this imports the module that it names."""
    values = reading.default_arguments(script, env_id)
    asks = Path(script).stem == "ppo_envpool" and env_id.startswith("gymnasium:")
    return {**values, **recipe.CONTINUOUS} if asks and has_continuous_actions(env_id) else values


def check_env_id(env_id: str) -> None:
    """Ends the program with one line if ppo_envpool.py cannot play the game."""
    try:
        observation(env_id), num_actions(env_id)
    except Unplayable as error:
        arguments.fail(f"--env-id {env_id} {error}")


def check(args: Any) -> int:
    """Ends the program with one line if args.env_id cannot be played, or not with --norm-obs.

    Returns the bytes of an observation.
    """
    import numpy as np

    check_env_id(args.env_id)
    if args.env_id.startswith("gymnasium:"):
        step_seconds(args.env_id)
    elif args.env_workers:
        arguments.fail(
            f"--env-workers {args.env_workers}: EnvPool plays {args.env_id} in threads: expected no such flag"
        )
    seen = observation(args.env_id)
    if args.norm_obs and seen.kind != "vector":
        arguments.fail(f"--norm-obs: {args.env_id} observes no vector of real numbers: expected --no-norm-obs")
    return seen.width * np.dtype(seen.dtype).itemsize


def procgen_id(args: Any) -> str:
    """EnvPool's name of a Procgen game: args.env_id is `bigfish`, and the mode is added, or such a name itself."""
    if "-v" in args.env_id:
        return args.env_id
    return f"{args.env_id.capitalize()}{(args.distribution_mode or 'easy').capitalize()}-v0"


def check_procgen(args: Any) -> None:
    """Ends the program with one line if args name none of EnvPool's Procgen games, or levels that make no sense."""
    arguments.check_env_id(args.env_id, "envpool.procgen", "a Procgen game", procgen_id(args))
    if (args.distribution_mode or "").capitalize() not in procgen_id(args):
        arguments.fail(
            f"--distribution-mode {args.distribution_mode} contradicts --env-id {args.env_id}: give one of them"
        )
    if args.start_level and not args.num_levels:
        arguments.fail(f"--start-level {args.start_level} without --num-levels: expected --num-levels of 1 or more")
    import envpool

    try:
        envpool.make_spec(procgen_id(args))
    except ImportError:  # Procgen draws with Qt, which EnvPool's wheel includes only from Python 3.12 on
        arguments.fail(f"--env-id {args.env_id} needs Qt 5: `sudo apt-get install -y libqt5gui5` installs it on Debian")


def arrays(env_id: str, shape: Tuple[int, ...]) -> Dict[str, Any]:
    """Arrays of zeros for a rollout of `shape`, such as (T, S, N), by name.

    obs (*shape, width), of the observation's type; actions (*shape) int64, or (*shape, A) float32 if continuous;
    outputs, logits or means, (*shape, A) float32; values and rewards float32; terminations and truncations bool.
    """
    import numpy as np

    seen, (number, continuous) = observation(env_id), num_actions(env_id)
    return {
        "obs": np.zeros((*shape, seen.width), seen.dtype),
        "actions": np.zeros((*shape, number), np.float32) if continuous else np.zeros(shape, np.int64),
        "outputs": np.zeros((*shape, number), np.float32),
        **{name: np.zeros(shape, np.float32) for name in ("values", "rewards")},
        **{name: np.zeros(shape, bool) for name in ("terminations", "truncations")},
    }


# ---- whole games -----------------------------------------------------------------------------------------------------
class Episodes:
    """Counts the games of N environments, from one rollout to the next; or those of S agents with N each.

    num_envs: N, or (S, N). whole: whether the games under way began at their start; if not, the first of each
    environment is not counted.
    """

    def __init__(self, num_envs: Union[int, Tuple[int, int]], whole: bool = True) -> None:
        import numpy as np

        self.has_agents = isinstance(num_envs, tuple)
        self.returns: Any = np.atleast_2d(np.zeros(num_envs))  # (S, N), of the games under way; S is 1 without agents
        self.lengths: Any = np.zeros(self.returns.shape, dtype=np.int64)
        self.whole: Any = np.full(self.returns.shape, whole)

    def add(self, rewards: Any, ended: Any, valid: Any) -> Tuple[Any, Any, Any, Any]:
        """T more steps: what Run.add_games gets of them.

        rewards (T, N): raw ones, 0 in reset rows; ended (T, N) bool: the step ended a whole game; valid (T, N) bool: it
        was no reset. NumPy arrays. Returns (return, length) of each game that has ended, in order; how many each
        environment has finished, (N,); the sum of the rewards; and the number of their steps. Of S agents the arrays
        are (T, S, N), and each result is a sequence of S.
        """
        import numpy as np

        rewards, ended, valid = (x.reshape(len(x), *self.returns.shape) for x in (rewards, ended, valid))
        games: List[List[Tuple[float, int]]] = [[] for _ in self.returns]
        finished: Any = np.zeros(self.returns.shape, dtype=np.int64)
        for t in range(len(rewards)):
            self.returns += rewards[t]
            self.lengths += valid[t]
            if ended[t].any():
                for s, i in zip(*ended[t].nonzero()):
                    if self.whole[s, i]:
                        games[s].append((float(self.returns[s, i]), int(self.lengths[s, i])))
                        finished[s, i] += 1
                    self.returns[s, i], self.lengths[s, i], self.whole[s, i] = 0.0, 0, True
        of_agents = rewards.swapaxes(0, 1).reshape(len(games), -1)  # each summed alone
        results = (games, finished, of_agents.sum(1, np.float64).tolist(), valid.sum((0, 2)).tolist())
        return results if self.has_agents else tuple(x[0] for x in results)  # type: ignore[return-value]


def play(envs: Any, act: Callable[[Any, Any], Any], bar: Any, max_steps: Optional[int] = None) -> List[Any]:
    """Plays one whole game in each of N environments, or in each of (S, N), which envs.shape says.

    act: maps observations (N, ...) and whose game is under way, (N,) bool, to actions (N, ...); those of the others are
    ignored. Returns the raw returns, through all lives. `bar` shows the progress. max_steps: a game that has not ended
    then counts with its return so far, which is said.
    """
    import numpy as np

    obs, _ = envs.reset()
    shape = getattr(envs, "shape", (len(obs),))
    returns, playing = np.zeros(shape), np.ones(shape, dtype=bool)  # type: Any, Any
    playing[getattr(envs, "retired", [])] = False
    steps = 0
    while playing.any():
        if steps == max_steps:
            print(f"note: {int(playing.sum())} final games have not ended and are cut at {steps:,} steps", flush=True)
            break
        steps += 1
        obs, reward, terminated, truncated, info = envs.step(act(obs, playing))
        returns += info.get("reward", reward) * playing  # Atari's is clipped
        over = playing & (info.get("terminated", terminated).astype(bool) | truncated)  # Atari's is a life
        playing &= ~over
        bar.update(int(over.sum()))
    return returns.tolist()


def eval_max_steps(args: Any) -> Optional[int]:
    """The steps at which a final game is cut: those of --eval-max-steps, or EVAL_MAX_STEPS for a task of gymnasium that
    is registered without a limit; None: the task's own limit ends each game."""
    if args.eval_max_steps or not args.env_id.startswith("gymnasium:"):
        return args.eval_max_steps
    game = _make_gymnasium(args.env_id)
    limit = game.spec.max_episode_steps
    game.close()
    return None if limit else EVAL_MAX_STEPS


# ---- games -----------------------------------------------------------------------------------------------------------
def num_workers(seconds: float, num_games: int, cores: int) -> int:
    """The processes for games whose steps take so many seconds; 1, this one, if a message costs more than a step."""
    return min(cores, num_games) if seconds > MESSAGE_SECONDS else 1


def share_of_cores() -> int:
    """The cores for this process: what launch.py or the user says in OMP_NUM_THREADS, or torchrun's share."""
    cores, processes = len(os.sched_getaffinity(0)), os.environ.get("LOCAL_WORLD_SIZE")
    if processes:  # OMP_NUM_THREADS is torchrun's then, and 1
        return max(1, cores // int(processes))
    threads = re.match(r"[1-9]\d*", os.environ.get("OMP_NUM_THREADS", ""))
    return min(cores, int(threads[0])) if threads else cores


def make(env_id: str, seeds: Any, num_threads: int, film: bool = False, env_workers: int = 1) -> Any:
    """One game for each of the seeds (N,) or (S, N), integers below 2**31, in `num_threads` threads on EnvPool.

    env_workers: processes of gymnasium's games, at most; 0: as num_workers says. The games are the same in any number.
    With `film` the games have a further method, `frame`, which returns the picture of the first, (H, W, 3) uint8. For
    MuJoCo's, mujoco has to be imported before EnvPool, or it finds no OpenGL.
    """
    if not env_id.startswith("gymnasium:"):
        return EnvPoolGames(env_id, seeds, num_threads, film)
    import numpy as np

    number = min(env_workers, np.size(seeds)) or num_workers(step_seconds(env_id), np.size(seeds), share_of_cores())
    return GamesInProcesses(env_id, seeds, number) if number > 1 else GymnasiumGames(env_id, seeds, film)


def envpool_games(task: str, seeds: List[int], num_threads: int, **options: Any) -> Any:
    """EnvPool's games of a task with gymnasium's methods, one for each of the seeds, integers below 2**31.

    num_threads: at most. EnvPool's own default sees the cores of the host, not those of the job.
    """
    import envpool  # takes a second: not for --help

    number = len(seeds)
    options = {"num_envs": number, "num_threads": min(num_threads, number), "seed": seeds, **options}
    with contextlib.ExitStack() as stack:
        if task in catalog.DMC and not options.get("render_mode"):
            options.update(stack.enter_context(small_textures()))
        return envpool.make(task, env_type="gymnasium", **options)


@contextlib.contextmanager
def small_textures() -> Iterator[Dict[str, str]]:
    """Options of envpool.make: DeepMind Control's files with textures of 2 x 2 pixels. They are read at once.

    MuJoCo paints a sky of 800 x 800 x 6 pixels for each game, 12 MB in 0.1 s, which only a picture shows.
    """
    import envpool

    def small(texture: "re.Match[str]") -> str:
        return re.sub(r'(width|height)="\d+"', r'\1="2"', texture[0])

    files = Path(envpool.make_spec("PendulumSwingup-v1").config.base_path, "mujoco", "assets_dmc")
    with contextlib.ExitStack() as stack:
        options = {}
        with contextlib.suppress(OSError):  # without room for a copy, the files themselves
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            copy = Path(folder, "mujoco", "assets_dmc")
            for path in files.rglob("*.xml"):
                target = copy / path.relative_to(files)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(re.sub("<texture[^>]*>", small, path.read_text()))
            (copy / "dog_assets").symlink_to(files / "dog_assets")
            options["base_path"] = folder
        yield options


class Rooms:
    """The rooms that the games of one of Atari's tasks have entered, told apart by bytes of the RAM (AtariARI)."""

    BYTES = {"MontezumaRevenge-v5": [3, 57], "PrivateEye-v5": [92], "Venture-v5": [90]}

    def __init__(self, env_id: str) -> None:
        self.bytes = self.BYTES.get(env_id, [])
        self.entered: Set[Tuple[int, ...]] = set()

    def add(self, info: Dict[str, Any]) -> None:
        """Adds the rooms that the games are in after a step. Does nothing for a task without an entry in BYTES."""
        if self.bytes:
            self.entered.update(map(tuple, info["ram"][:, self.bytes].tolist()))


class Games:
    """What both makers have in common: observations become rows of numbers, actions stay within their bounds."""

    def __init__(self, env_id: str, seeds: Any) -> None:
        import numpy as np

        self.observation_space, self.action_space = space, actions = spaces(env_id)
        self.shape = np.shape(seeds)
        self.seeds: List[int] = np.ravel(seeds).tolist()
        self.envs: Any = None  # the maker's environments
        self.keys = [key for key in sorted(getattr(space, "spaces", ())) if key != MISSION]  # a dict's keys
        self.start = int(getattr(space, "start", 0))  # the lowest index
        self.bounds = (actions.low, actions.high) if num_actions(env_id)[1] else None
        self.retired: List[int] = []

    def step(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        if self.retired:
            action[self.retired] = 0
        obs, reward, terminated, truncated, info = self.played(self.clipped(action))
        reward, terminated, truncated = (x.reshape(self.shape) for x in (reward, terminated, truncated))
        if self.retired:
            obs[self.retired] = reward[self.retired] = 0
        return obs, reward, terminated, truncated, info

    def played(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        """One step of the maker's games."""
        raise NotImplementedError

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        raise NotImplementedError

    def rows(self, parts: List[Any]) -> Any:
        """The observations (N, ...), or the parts of a dict in the order of their sorted names, as (N, width)."""
        import numpy as np

        rows = [part.reshape(*self.shape, -1) for part in parts]
        if len(rows) > 1:
            return np.concatenate(rows, axis=-1)
        return rows[0] - self.start if self.start else rows[0]

    def close(self) -> None:
        self.envs.close()

    def clipped(self, action: Any) -> Any:
        """The actions as the maker takes them: one after the other, and within their bounds."""
        return action.reshape(-1, action.shape[-1]).clip(*self.bounds) if self.bounds else action.ravel()


class EnvPoolGames(Games):
    """EnvPool, without the Python around its C++ functions, which takes as long as a step of a small game."""

    def __init__(self, env_id: str, seeds: Any, num_threads: int, film: bool) -> None:
        if film and families()[env_id].startswith("envpool.mujoco"):  # it draws in a context that it does not make
            import mujoco  # type: ignore

            self.context = mujoco.GLContext(640, 480)
            self.context.make_current()
        super().__init__(env_id, seeds)
        self.envs = envpool_games(env_id, self.seeds, num_threads, render_mode="rgb_array" if film else None)
        self.ids, self.action_type = self.envs.all_env_ids, self.envs.spec.action_array_spec["action"].dtype
        names = self.envs._state_keys
        self.obs = [names.index(f"obs:{key}") for key in self.keys] or [names.index("obs")]
        self.others = [names.index(name) for name in ("reward", "done", "trunc")]

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        self.envs.async_reset()
        states = self.envs._recv()
        return self.rows([states[i] for i in self.obs]), {}

    def played(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        self.envs._send([self.ids, self.ids, action.astype(self.action_type)])
        states = self.envs._recv()
        reward, done, truncated = (states[i] for i in self.others)
        return self.rows([states[i] for i in self.obs]), reward, done & ~truncated, truncated, {}

    def frame(self) -> Any:
        return self.envs.render()[0]  # type: ignore[index]


class GymnasiumGames(Games):
    """gymnasium's SyncVectorEnv: one game after the other, in the thread that calls."""

    def __init__(self, env_id: str, seeds: Any, film: bool = False) -> None:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        super().__init__(env_id, seeds)
        self.env_id = env_id
        makers = [functools.partial(_make_gymnasium, env_id, film)] * len(self.seeds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.envs = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        assert self.envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP

    def parts(self, obs: Any) -> List[Any]:
        return [obs[key] for key in self.keys] or [obs]

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        with self.one_line():
            obs, _ = self.envs.reset(seed=self.seeds)
        return self.rows(self.parts(obs)), {}

    def played(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        with self.one_line():
            obs, reward, terminated, truncated, _ = self.envs.step(action)
        return self.rows(self.parts(obs)), reward, terminated, truncated, {}

    @contextlib.contextmanager
    def one_line(self) -> Iterator[None]:
        """Ends the program with one line where the task raises an error; with 1, as a second try may succeed."""
        try:
            yield
        except Exception as error:  # whatever the user's task raises
            sys.exit("error: " + _ends_in(self.env_id, error))

    def frame(self) -> Any:
        return self.envs.envs[0].render()


class GamesInProcesses(Games):
    """The games of GymnasiumGames, bit for bit, in several processes that each play some of them in turn.

    The processes are fresh ones: a fork would share locks, threads and a GPU with this one. They end when their pipe is
    closed, which they see even if this process is killed. Signals that stop a run are for this process alone.
    """

    def __init__(self, env_id: str, seeds: Any, number: int) -> None:
        import numpy as np

        super().__init__(env_id, seeds)
        self.env_id, shares = env_id, np.array_split(self.seeds, number)
        self.ends = np.cumsum([len(share) for share in shares])[:-1]
        self.pipes: List[multiprocessing.connection.Connection] = []
        self.processes: List[subprocess.Popen[bytes]] = []
        self.end = weakref.finalize(self, _end, self.pipes, self.processes)  # also when the program ends
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # which the processes inherit, until they ignore them
        try:
            for share in shares:
                here, there = multiprocessing.Pipe()
                words = [sys.executable, "-c", WORKER, str(there.fileno()), *sys.path]
                threads = {"OMP_NUM_THREADS": "1", **os.environ}
                self.processes.append(
                    subprocess.Popen(words, stdin=subprocess.DEVNULL, env=threads, pass_fds=[there.fileno()])
                )
                there.close()
                self.pipes.append(here)
                here.send((env_id, share.tolist()))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def answers(self, messages: List[Any]) -> List[Any]:
        """What the processes answer to a message each. Ends the program with one line if one has failed."""
        try:
            for pipe, message in zip(self.pipes, messages):
                pipe.send(message)
            answers = [pipe.recv() for pipe in self.pipes]
        except (EOFError, OSError):
            sys.exit(f"error: --env-id {self.env_id}: a process that plays its games has ended")
        for answer in answers:
            if isinstance(answer, str):
                sys.exit(answer)
        return answers

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        return self.joined(self.answers([None] * len(self.pipes))), {}

    def played(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        import numpy as np

        answers = zip(*self.answers(np.split(action, self.ends)))
        return (*map(self.joined, answers), {})  # type: ignore[return-value]

    def close(self) -> None:
        self.end()

    def joined(self, parts: Any) -> Any:
        """The arrays of the processes, (n, ...) each, as one of (N, ...) or (S, N, ...)."""
        import numpy as np

        whole = np.concatenate(parts)
        return whole.reshape(*self.shape, *whole.shape[1:])


def _end(pipes: List[Any], processes: List[Any]) -> None:
    """Ends the processes of GamesInProcesses; kills those whose step takes longer than ten seconds."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve(descriptor: int) -> None:
    """Plays games for GamesInProcesses until its end of the pipe is closed.

    The first message is the task and its seeds. Then None asks for a reset, an array of actions for a step. An answer
    that is a text says what the task has raised.
    """
    for signum in STOPS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    pipe = multiprocessing.connection.Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        games = GymnasiumGames(*pipe.recv())
        while True:
            action = pipe.recv()
            answer: Any
            try:
                answer = games.reset()[0] if action is None else games.played(action)[:4]
            except SystemExit as end:
                answer = str(end.code)
            pipe.send(answer)
