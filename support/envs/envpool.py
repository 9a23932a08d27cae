"""EnvPool's environments: C++ threads that step many at once. Python 3.8."""

import contextlib
import difflib
import functools
import importlib.util
import json
import re
import sys
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from support import arguments, catalog
from support.envs.spaces import Envs, Unplayable

OURS = frozenset(  # options of EnvPool that are no task's own, or that a run sets
    """num_envs batch_size num_threads max_num_players thread_affinity_offset base_path seed env_seed
    gym_reset_return_info reward_threshold""".split()
)


def library() -> Any:
    """EnvPool, imported in 0.4 s in place of 1.1: without the renderer of its Jumanji tasks, which imports matplotlib.

    While EnvPool registers its tasks, an empty package stands in place of theirs, which is imported once one is made.
    """
    spec, name = importlib.util.find_spec("envpool"), "envpool.jumanji"
    if "envpool" in sys.modules or not (spec and spec.submodule_search_locations):
        return importlib.import_module("envpool")
    empty = sys.modules[name] = types.ModuleType(name)
    empty.__path__ = [str(Path(folder, "jumanji")) for folder in spec.submodule_search_locations]
    try:
        return importlib.import_module("envpool")
    finally:
        del sys.modules[name]


def families() -> Dict[str, str]:
    """{name: module} of all tasks that EnvPool has registered, such as {"Breakout-v5": "envpool.atari"}."""
    return {name: module for name, (module, *_) in library().registration.registry.specs.items()}


def check_env_id(env_id: str, family: str, what: str, full_name: str = "") -> None:
    """Refuses a name that is no task of `family`, a module of EnvPool such as envpool.atari, and shows the nearest.

    full_name: EnvPool's name of the task, if the user's is shorter.
    """
    names = [name for name, module in families().items() if module == family]
    name = full_name or env_id
    if name not in names:
        near = difflib.get_close_matches(name.replace("NoFrameskip-v4", "").split("/")[-1], names, 3, 0.3) or names[:3]
        said = f"{env_id} ({full_name})" if full_name else env_id
        arguments.fail(f"--env-id {said} is not {what} of EnvPool; near: {' '.join(near)}")


@functools.lru_cache(maxsize=None)
def spaces(env_id: str, env_kwargs: str = "{}") -> Tuple[Any, Any]:
    """The observation space and the action space of a task with these options, of gymnasium. Raises Unplayable.

    env_kwargs: JSON, an object. A dict's keys are sorted.
    """
    from gymnasium.spaces import Dict

    envpool = library()
    options = json.loads(env_kwargs)
    known = set(envpool.make_spec(env_id)._config_keys if options else ()) - OURS
    wrong = sorted(options.keys() - known)
    if wrong:
        raise Unplayable(f"with --env-kwargs {env_kwargs}: it has no {wrong[0]}: expected {' '.join(sorted(known))}")
    with warnings.catch_warnings():  # gymnasium's, about the precision of bounds
        warnings.simplefilter("ignore")
        try:
            spec = envpool.make_spec(env_id, **options)
        except Exception as error:  # of its bindings to C++, over many lines
            first = str(error).partition(".")[0]
            raise Unplayable(
                f"with --env-kwargs {env_kwargs} cannot be made ({type(error).__name__}: {first})"
            ) from error
        space = spec.gymnasium_observation_space
        return Dict(dict(space.spaces)) if isinstance(space, Dict) else space, spec.gymnasium_action_space


def has_time_limit(env_id: str, env_kwargs: str = "{}") -> bool:
    """Whether a task with these options truncates its episodes: without a limit EnvPool has the largest int32."""
    return bool(library().make_spec(env_id, **json.loads(env_kwargs)).config.max_episode_steps < 2**31 - 1)


def make_envpool(env_id: str, seeds: List[int], num_threads: int, **options: Any) -> Any:
    """EnvPool's environments of a task with gymnasium's methods, one for each of the seeds, integers below 2**31.

    num_threads: at most. EnvPool's own default sees the cores of the host, not those of the job.
    """
    return _Pool(make_raw(env_id, seeds, num_threads, **options))


def make_raw(env_id: str, seeds: List[int], num_threads: int, **options: Any) -> Any:
    """The same as EnvPool makes them."""
    number = len(seeds)
    options = {"num_envs": number, "num_threads": min(num_threads, number), "seed": seeds, **options}
    with contextlib.ExitStack() as stack:
        if env_id in catalog.DMC and not options.get("render_mode"):
            options.update(stack.enter_context(_small_textures()))
        return library().make(env_id, env_type="gymnasium", **options)


class _Pool:
    """EnvPool's environments, whose `step` goes to its C++ functions at once.

    EnvPool's own step looks at all names of actions and states each time, for 0.1 ms: on a GPU, where nothing else is
    done meanwhile, a tenth of a step of 8 games.
    """

    def __init__(self, envs: Any) -> None:
        self.envs, names = envs, list(envs._state_keys)
        self._ids = envs.all_env_ids
        self._columns = [names.index(name) for name in ("obs", "reward", "done", "trunc")]
        self._info = [(name[len("info:") :], i) for i, name in enumerate(names) if name.startswith("info:")]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def step(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        """One step of each environment. Returns what gymnasium's does; arrays are (N, ...), new ones each time."""
        self.envs._send([self._ids, self._ids, action])  # as int32, whatever the action's type
        states = self.envs._recv()
        obs, reward, done, truncated = (states[i] for i in self._columns)
        return obs, reward, done & ~truncated, truncated, {name: states[i] for name, i in self._info}


@contextlib.contextmanager
def _small_textures() -> Iterator[Dict[str, str]]:
    """Options of envpool.make: DeepMind Control's files with textures of 2 x 2 pixels. They are read at once.

    MuJoCo paints a sky of 800 x 800 x 6 pixels for each environment, 12 MB in 0.1 s, which only a picture shows.
    """

    def small(texture: "re.Match[str]") -> str:
        return re.sub(r'(width|height)="\d+"', r'\1="2"', texture[0])

    files = Path(library().make_spec("PendulumSwingup-v1").config.base_path, "mujoco", "assets_dmc")
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


class EnvPoolEnvs(Envs):
    """EnvPool, without the Python around its C++ functions, which takes as long as a step of a small task."""

    def __init__(self, env_id: str, env_kwargs: str, seeds: Any, num_threads: int, film: bool) -> None:
        if film and families()[env_id].startswith("envpool.mujoco"):  # it draws in a context that it does not make
            import mujoco  # type: ignore

            self.context = mujoco.GLContext(640, 480)
            self.context.make_current()
        super().__init__(spaces(env_id, env_kwargs), seeds)
        options = {"render_mode": "rgb_array" if film else None, **json.loads(env_kwargs)}
        self.envs = make_raw(env_id, self.seeds, num_threads, **options)
        self.ids, self.action_type = self.envs.all_env_ids, self.envs.spec.action_array_spec["action"].dtype
        names = self.envs._state_keys
        self.obs = [names.index(":".join(["obs", *entry.path])) for entry in self.observation.entries]
        self.others = [names.index(name) for name in ("reward", "done", "trunc")]

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        self.envs.async_reset()
        states = self.envs._recv()
        return self.rows([states[i] for i in self.obs]), {}

    def advance(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        self.envs._send([self.ids, self.ids, action.astype(self.action_type)])
        states = self.envs._recv()
        reward, done, truncated = (states[i] for i in self.others)
        return self.rows([states[i] for i in self.obs]), reward, done & ~truncated, truncated, {}

    def frame(self) -> Any:
        """The picture of the first environment, (H, W, 3) uint8, if they were made with `film`."""
        return self.envs.render()[0]  # type: ignore[index]
