"""Plays episodes with the trained network of a run, and reports the mean score.

    python scripts/evaluate.py runs/my_run --episodes 100
    python scripts/evaluate.py runs/my_run --episodes 1 --video episode.mp4
    python scripts/evaluate.py runs/my_run --envpool           # Atari on the emulator of the training
    python scripts/evaluate.py runs/my_run --export policy.onnx    # the actor as a file, of ppo_envpool.py
    python scripts/evaluate.py runs/my_run --best              # the network with the highest return in training

RUN may be a directory of several seeds, such as that of --num-seeds: the finished run with the highest mean return of
its last 100 training episodes is taken, and a note says which one that is. Of equal ones the lowest seed counts. The
seeds of the episodes here are others than those of the training and of --eval-episodes.

Atari is played on ale-py through gymnasium. The training used EnvPool: if both give the same score, both are likely to
be right (example: results/small). Procgen is played on EnvPool, on all levels (the test set of Cobbe et al. 2020)
or, with `--train-levels`, on the levels of the training. mjlab's tasks are played in mjlab, with films of 100 steps;
small tasks where they were trained; films of MuJoCo's and gymnasium's need requirements-video.txt.
Actions are drawn as in training (PPO samples, PQN is epsilon-greedy with its last epsilon); `--greedy` takes the most
likely one, as the `action` of an exported network is.

Prints one line of JSON: the return of every episode, their mean with Student's 95 % interval, and both normalised,
(return - zero) / (one - zero), where there are references: in Atari random and human (support/human_at30.csv), on small
tasks random and best known (support/small_worlds.csv), in Procgen R_min and R_max. The interval is over the episodes of
one network, with the references as exact.
"""

from launching.root import ROOT

import contextlib
import ctypes.util
import importlib
import json
import os
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, NamedTuple, Optional

import ale_py
import cv2
import gymnasium
import imageio.v2 as imageio
import numpy as np
import torch
import tyro

from support import catalog, progress, reading, several_seeds
from support.arguments import Range, fail, from_start, parse
from support.best import BEST
from support.envs.episodes import env_seeds, mean_interval
from support.envs.gymnasium import check_trusted, modules
from support.envs.spaces import Unplayable

MAX_STEPS = 27000  # time limit of an Atari game, 108,000 frames: EnvPool's, and that of the human scores
FILMED_STEPS = 100  # frames of mjlab: a second each where no GPU draws them


@dataclass
class Args:
    run_dir: tyro.conf.Positional[Path]  # the run directory, or a directory of several seeds
    best: bool = False  # takes best.pt, the network at the log point with the highest return, not the newest one
    episodes: Annotated[int, Range(1, 10**4)] = 100  # how many to play
    num_envs: Annotated[int, Range(1, 4096)] = 16  # episodes played at the same time
    greedy: bool = False  # takes the most likely action instead of sampling one
    train_levels: bool = False  # Procgen: plays the levels of the training, not all levels
    envpool: bool = False  # Atari: plays on EnvPool, as the training did, not on ale-py
    seed: Annotated[int, Range(0, 2**30 - 1)] = 1000  # the seed of the episodes and of the actions
    video: Optional[Path] = None  # records the first episode, in colour: a .mp4 or .gif file
    trust: bool = False  # runs the code of a task that came with the run, in a folder of results
    export: Optional[Path] = None  # writes the actor to this .onnx file, with a .json next to it, and plays nothing


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = parse(Args, argv, __doc__)
    if args.video and args.video.suffix not in (".mp4", ".gif"):
        fail(f"--video {args.video}: expected a .mp4 or .gif file")
    if args.video and not os.access(args.video.parent, os.W_OK):
        fail(f"--video {args.video}: expected a file in a directory that can be written to")
    if args.export and (args.export.suffix != ".onnx" or not os.access(args.export.parent, os.W_OK)):
        fail(f"--export {args.export}: expected a .onnx file in a directory that can be written to")
    return args


class Trained(NamedTuple):
    """A trained network: its checkpoint, the arguments of its run, and the name of that run's script without .py."""

    checkpoint: dict
    args: SimpleNamespace
    script: str
    about: dict  # where it is from, for the JSON


def load(folder, best=False, trust=False):
    """The Trained of a run, or of the best of several seeds: its newest readable checkpoint, or best.pt.

    Exits 2 with one line if the directory holds no run of one of catalog.SCRIPTS, or no such file, or if its task is
    code that came with the run; not so with `trust`.
    """
    run_dir, chosen = (folder, None) if (folder / "manifest.json").exists() else best_seed(folder)
    manifest = reading.read_json(run_dir / "manifest.json")
    script, arguments = reading.script_of(manifest), manifest.get("arguments")
    if not isinstance(arguments, dict) or "env_id" not in arguments:
        fail(f"{run_dir} has no manifest.json of a run: expected a run directory")
    if script not in catalog.SCRIPTS:
        fail(f"{run_dir} is a run of {script}.py: expected one of {' '.join(catalog.SCRIPTS)}")
    found = best_network(run_dir) if best else reading.newest_checkpoint(run_dir)
    if not found:
        fail(f"{run_dir} has no checkpoint.pt: expected a run directory with a checkpoint")
    path, checkpoint = found
    try:
        if not trust:
            check_trusted(str(arguments["env_id"]), run_dir)
    except Unplayable as error:
        fail(f"{run_dir}: its task {error}")
    for module in modules(str(arguments["env_id"])):
        print(f"note: {run_dir}: its task is of the module {module}, which is imported now", file=sys.stderr)
    defaults = reading.default_arguments(str(ROOT / f"{script}.py"))  # for what an older run's manifest lacks
    step = checkpoint["run"]["global_step"]
    about = {"run_dir": str(run_dir), "chosen": chosen, "network": path.name, "global_step": step}
    return Trained(checkpoint, SimpleNamespace(**{**defaults, **arguments}), script, about)


def best_seed(folder):
    """The directory of the best of several seeds, and a text that says why it is. Exits 2 with one line without one."""
    try:
        runs = several_seeds.members(folder)
    except ValueError as error:
        fail(f"{folder}: {error}: expected a run directory, or one of runs that differ in their seeds alone")
    if not runs:
        fail(f"{folder} has no manifest.json of a run: expected a run directory, or one of several seeds")
    try:
        member, says = several_seeds.best(folder, runs)
    except ValueError as error:
        fail(f"{folder}: {error}: expected a finished run, or the directory of one of them, as {runs[0].path}")
    print(f"note: {says}", file=sys.stderr)
    return member.path, says


def best_network(run_dir):
    """The path and the content of best.pt."""
    path = run_dir / BEST
    if not path.exists():
        fail(
            f"{run_dir} has no {BEST}: expected a run in which 100 episodes had ended at a log point before the last "
            "checkpoint; older versions did not write it"
        )
    return path, reading.load_checkpoint(path, "cpu")


@contextlib.contextmanager
def prints_on_stderr():
    """What a task or a library prints inside, in C too, goes to stderr: stdout is for one line of JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def trained_agent(weights, script, args, *sizes):
    """The network of a run on the CPU, with its weights. sizes: of a simulator, where make_agent asks for them."""
    try:
        agent = importlib.import_module(script).make_agent(args, *sizes)
        agent.load_state_dict(weights)
    except (RuntimeError, AttributeError, KeyError, StopIteration) as error:
        fail(f"the checkpoint does not fit the network of this version's {script}.py ({error})")
    return agent


def make_policy(agent, args, greedy, seed):
    """Returns a function of obs (B, H, W, C) uint8 to actions (B,) int64, as in training or greedy."""
    generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def choose(obs):
        output = agent(torch.from_numpy(obs))[0]  # logits, or Q-values
        best = output.argmax(-1)
        if greedy:
            return best.numpy()
        if hasattr(args, "end_e"):
            explore = torch.rand(len(best), generator=generator) < args.end_e
            return torch.where(explore, torch.randint(output.shape[1], best.shape, generator=generator), best).numpy()
        return torch.multinomial(output.softmax(-1), 1, generator=generator)[:, 0].numpy()

    return choose


class AtariGame:
    """One game at a time on ale-py, preprocessed as EnvPool does it in training.

    A step is four frames; the observation is the pixelwise maximum of the last two, grey, 84 x 84. Every life, not only
    the game, begins with 1 to 30 frames without an action, the last of them FIRE if the game has it; the first
    observation is the screen after them (Reset in EnvPool's envpool/atari/atari_env.h). A test compares the pixels.
    """

    def __init__(self, args, video=None):
        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        sticky = getattr(args, "repeat_action_probability", 0.0)
        try:
            env = gymnasium.make(
                f"ALE/{args.env_id}",
                frameskip=1,
                repeat_action_probability=sticky,
                max_num_frames_per_episode=0,
                render_mode="rgb_array" if video else None,
            )
        except gymnasium.error.Error as error:
            fail(f"ale-py cannot play {args.env_id} ({error}): use --envpool")
        self.env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=4, screen_size=84)
        self.console, self.ale, self.video = env.unwrapped, env.unwrapped.ale, video
        meanings = env.unwrapped.get_action_meanings()
        self.fire = meanings.index("FIRE") if "FIRE" in meanings else 0

    def reset(self, seed):
        """Starts a game. Returns obs (84, 84, 4) uint8, the newest frame last."""
        self.env.reset(seed=seed)
        self.rng = np.random.default_rng(seed)
        self.score, self.steps = 0.0, 0
        self.frames = deque([self.begin_life(self.rng.integers(1, 31))] * 4, maxlen=4)
        return np.stack(self.frames, -1)

    def begin_life(self, num_frames):
        """Lets `num_frames` frames go by. Returns the screen after them, (84, 84) uint8."""
        for i in range(num_frames):
            self.score += self.console.step(self.fire if i == num_frames - 1 else 0)[1]
        self.lives = self.ale.lives()
        return cv2.resize(self.ale.getScreenGrayscale(), (84, 84), interpolation=cv2.INTER_AREA)

    def step(self, action):
        """Returns obs and whether the game is over; `score` is its sum of raw rewards so far."""
        frame, reward, terminated, _, _ = self.env.step(int(action))
        self.frames.append(frame)
        self.score += float(reward)
        self.steps += 1
        if self.video:
            self.video.append_data(self.env.render().repeat(2, axis=0).repeat(2, axis=1))
        over = terminated or self.steps >= MAX_STEPS
        if not over and 0 < self.ale.lives() < self.lives:  # at 0 some games go on for a few frames
            self.frames.append(self.begin_life(self.rng.integers(1, 31)))
            over = self.ale.game_over()
        self.lives = self.ale.lives()  # it can also rise
        return np.stack(self.frames, -1), over


def play_atari(choose, args, episodes, num_envs, seed, video):
    """Plays `episodes` games of Atari on ale-py, with the seeds seed, seed + 1, … Returns their scores, a list.

    Which games are played is decided before the first one: if the first to end counted, long games would be left out.
    """
    games = [AtariGame(args, video if i == 0 else None) for i in range(min(num_envs, episodes))]
    waiting = [list(range(i, episodes, len(games)))[::-1] for i in range(len(games))]  # game numbers for each emulator
    obs = {i: game.reset(seed + waiting[i].pop()) for i, game in enumerate(games)}
    scores, bar = [], progress.progress_bar(episodes, "episode", args.env_id)
    with bar, ThreadPoolExecutor(torch.get_num_threads()) as pool:  # the emulator runs outside Python's lock
        while obs:
            actions = choose(np.stack(list(obs.values())))
            playing = list(obs)
            results = list(pool.map(lambda i, action: games[i].step(action), playing, actions))
            for i, (next_obs, over) in zip(playing, results):
                obs[i] = next_obs
                if over:
                    scores.append(games[i].score)
                    bar.update()
                    games[i].video = None  # only the first game is recorded
                    if waiting[i]:
                        obs[i] = games[i].reset(seed + waiting[i].pop())
                    else:
                        del obs[i]
    return scores


def play_envpool(agent, args, module, episodes, num_envs, greedy, seed, video):
    """Plays `episodes` on EnvPool as the script does after training, `num_envs` at a time. Returns their scores.

    The scores do not depend on `num_envs`. `video` works for Procgen: it gets the observations of the first episode.
    """

    def filmed_agent(obs):
        video.append_data(obs[0].numpy().repeat(8, axis=0).repeat(8, axis=1))
        return agent(obs)

    seeds = env_seeds(seed, "evaluate", 0, range(episodes))
    scores, bar = [], progress.progress_bar(episodes, "episode", args.env_id)
    while len(scores) < episodes:
        filming = video is not None and not scores
        numbers = range(len(scores), min(episodes, len(scores) + (1 if filming else num_envs)))
        player = filmed_agent if filming else agent
        scores += module.play_episodes(player, args, torch.device("cpu"), seeds, numbers, bar, greedy)
    bar.close()
    return scores


@torch.no_grad()
def film_task(agent, args, module, greedy, seeds, video):
    """Plays the episode of seeds[0] as module.play_episodes does, and films it. Returns its score."""
    score, over, generator = 0.0, False, torch.Generator().manual_seed(seeds[0])
    steps, limit = 0, module.tasks.eval_max_steps(args)
    std = None if agent.actor_logstd is None else agent.actor_logstd[0].exp().numpy()
    try:
        envs = module.tasks.make(args.env_id, seeds[:1], 1, film=True, env_kwargs=args.env_kwargs)
        obs, _ = envs.reset()
        video.append_data(envs.frame())
    except Exception as error:  # each renderer has its own
        fail(f"--video: {args.env_id} cannot be drawn ({error}): expected requirements-video.txt or another task")
    while not over and steps != limit:
        steps += 1
        outputs = agent(torch.from_numpy(obs.astype(agent.observation.dtype)[None]))[0][0].numpy()
        noise = module.draw_noise((len(seeds), outputs.shape[-1]), std is not None, generator)[:1].numpy()
        action = module.sample(outputs, 0.0 if greedy else noise, std, agent.actions.parts)
        obs, reward, terminated, truncated, _ = envs.step(action)
        video.append_data(envs.frame())
        score += float(reward[0])
        over = terminated[0] or truncated[0]
    envs.close()  # of some tasks there can be one at a time
    return score


def play_task(weights, args, episodes, num_envs, greedy, seed, video):
    """Plays `episodes` of ppo_envpool.py, which do not depend on `num_envs`. Returns their scores."""
    if video:
        use_gl()
        with contextlib.suppress(ImportError):
            import mujoco  # noqa: F401 - before EnvPool, or it finds no OpenGL
    module = importlib.import_module("ppo_envpool")
    module.tasks.check_env_id(args.env_id, args.env_kwargs)
    agent = trained_agent(weights, "ppo_envpool", args)
    seeds = env_seeds(seed, "evaluate", 0, range(episodes))
    scores = [film_task(agent, args, module, greedy, seeds, video)] if video else []
    with progress.progress_bar(episodes, "episode", args.env_id) as bar:
        while len(scores) < episodes:
            numbers = range(len(scores), min(episodes, len(scores) + num_envs))
            scores += module.play_episodes(agent, args, torch.device("cpu"), [seeds], numbers, bar, greedy)[0]
    return scores


def export_network(trained, path):
    """Writes the actor of a run of ppo_envpool.py to an ONNX file, and a JSON about it. Returns what `main` prints."""
    from support import export
    from support.envs import tasks

    args = trained.args
    tasks.check_env_id(args.env_id, args.env_kwargs)
    agent = trained_agent(trained.checkpoint["agent"], "ppo_envpool", args)
    about = {"env_id": args.env_id, "env_kwargs": json.loads(args.env_kwargs), **trained.about}
    export.write(agent, tasks.spaces(args.env_id, args.env_kwargs)[1], from_start(path), about)
    action = "its `action` is the most likely one, as with --greedy; without it this program draws actions"
    return {**about, "export": str(path), "about": str(path.with_suffix(".json")), "note": action}


def use_gl():
    """Has MuJoCo draw with EGL or OSMesa; it reads MUJOCO_GL when it is imported. Returns whether there is one."""
    libraries = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
    if libraries:
        os.environ["MUJOCO_GL"] = libraries[0].lower()
    return bool(libraries)


@torch.no_grad()
def play_mjlab(weights, args, episodes, num_envs, greedy, seed, video):
    """Plays `episodes` episodes in mjlab, an equal share in each environment. Returns their scores.

    `video` gets the first FILMED_STEPS steps.
    """
    if video and not use_gl():
        fail("--video: expected EGL (package libegl1) or OSMesa (libosmesa6) on this machine")
    module = importlib.import_module("ppo_isaacgym")
    if args.env_id not in module.simulators.mjlab_tasks():
        fail(f"--env-id {args.env_id} cannot be played here: expected a task of mjlab (requirements-mjlab.txt)")
    num_envs = min(num_envs, episodes)
    torch.manual_seed(seed)
    envs = module.simulators.MjlabEnvs(args, num_envs, seed, "cpu", "rgb_array" if video else None)
    agent = trained_agent(weights, "ppo_isaacgym", args, envs.sizes)
    share = [len(range(i, episodes, num_envs)) for i in range(num_envs)]
    obs, running, filmed = envs.reset(0)[0], torch.zeros(num_envs), 0
    scores, bar = [], progress.progress_bar(episodes, "episode", args.env_id)
    while any(share):
        mean = agent(obs)[0]
        obs, reward, _, _, _, ended, _ = envs.step(mean if greedy else torch.normal(mean, agent.actor_logstd.exp()))
        running += reward
        if video and filmed < FILMED_STEPS:
            video.append_data(envs.env.render())
            filmed += 1
        for i in ended.tolist():
            if share[i]:
                share[i] -= 1
                scores.append(running[i].item())
                bar.update()
            running[i] = 0.0
    bar.close()
    envs.env.close()
    return scores


def summarize(env_id, scores, scale):
    """The statistics that `main` prints. scale: catalog.Scale or None. The normalised ones are None outside it."""
    mean, interval = float(np.mean(scores)), mean_interval(scores)
    result = {"mean": mean, "ci95": interval}
    references = scale.returns.get(catalog.task_name(env_id)) if scale else None
    if references is None:
        return {**result, "normalized": None, "normalized_ci95": None, "scale": None}
    zero, one = references
    return {
        **result,
        "normalized": (mean - zero) / (one - zero),
        "normalized_ci95": interval and [(bound - zero) / (one - zero) for bound in interval],
        "scale": scale.words,
    }


def open_video(path):
    """A writer of frames, 15 a second."""
    settings = {"fps": 15, "macro_block_size": 2} if path.suffix == ".mp4" else {"duration": 1000 / 15}
    return contextlib.closing(imageio.get_writer(path, **settings))


def how_it_acts(args, greedy):
    """How the actions follow from the network, in words."""
    if greedy:
        return "the most likely ones"
    return f"epsilon-greedy, epsilon {args.end_e:g}" if hasattr(args, "end_e") else "drawn, as in training"


def main(options):
    with prints_on_stderr():
        result = result_of(options)
    print(json.dumps(result))


def result_of(options):
    """Plays, or exports. Returns what `main` prints."""
    trained = load(options.run_dir, options.best, options.trust)
    checkpoint, args, script, about = trained
    atari = script not in ("ppo_procgen", "ppo_isaacgym", "ppo_envpool")
    if options.train_levels and not getattr(args, "num_levels", 0):
        fail("--train-levels: expected a run of ppo_procgen.py with --num-levels")
    if options.export:
        if script != "ppo_envpool":
            fail(f"--export: {about['run_dir']} is a run of {script}.py: expected one of ppo_envpool.py")
        return export_network(trained, options.export)
    if options.envpool and (not atari or options.video):
        fail("--envpool: expected a run of one of the Atari scripts, and no --video")
    if script == "ppo_procgen" and not options.train_levels:
        args.num_levels = args.start_level = 0
    emulator = "mjlab" if script == "ppo_isaacgym" else "ale-py" if atari and not options.envpool else "envpool"
    if args.env_id.startswith("gymnasium:"):
        emulator = "gymnasium"
    episodes, num_envs, seed, greedy = options.episodes, options.num_envs, options.seed, options.greedy
    with open_video(from_start(options.video)) if options.video else contextlib.nullcontext() as video:
        if script in ("ppo_isaacgym", "ppo_envpool"):
            play = play_mjlab if script == "ppo_isaacgym" else play_task
            scores = play(checkpoint["agent"], args, episodes, num_envs, greedy, seed, video)
        else:
            agent = trained_agent(checkpoint["agent"], script, args)
            if emulator == "envpool":
                module = importlib.import_module(script)
                scores = play_envpool(agent, args, module, episodes, num_envs, greedy, seed, video)
            else:
                choose = make_policy(agent, args, greedy, seed)
                scores = play_atari(choose, args, episodes, num_envs, seed, video)
    return {
        **about,
        "env_id": args.env_id,
        "emulator": emulator,
        "greedy": greedy,
        "actions": how_it_acts(args, greedy),
        "episodes": len(scores),
        **summarize(args.env_id, scores, catalog.scale(script, catalog.procgen_mode(vars(args)))),
        "scores": scores,
    }


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
    sys.stdout.flush()
    os.dup2(2, 1)  # what is printed when the program ends, and what C has printed and not written yet
