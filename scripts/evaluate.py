"""Plays games with the network of a run, on an emulator that the run did not train on.

    python scripts/evaluate.py runs/my_run --episodes 100
    python scripts/evaluate.py runs/my_run --episodes 1 --video episode.mp4
    python scripts/evaluate.py runs/my_run --envpool           # Atari where it trained, with the same frozen weights

Atari is played through ale-py and gymnasium: the training ran on EnvPool, so that agreement of the two scores checks
both (results/evaluation has an example). Procgen is played on EnvPool, on the whole distribution of levels (Cobbe et
al. 2020's test set) or, with `--train-levels`, on those of the training. Actions are drawn as in training (PPO samples,
PQN is epsilon-greedy with its last epsilon); `--greedy` takes the most likely one. A task of mjlab is played in mjlab,
its film 100 steps long.

Prints one line of JSON: the mean score, its 95 % bootstrap interval, both human-normalised for the 57 games of
scripts/human_at30.csv, (score - random) / (human - random), else null, and the scores.
"""

import contextlib
import csv
import ctypes.util
import importlib
import io
import json
import os
import re
import shlex
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import ale_py
import cv2
import gymnasium
import imageio.v2 as imageio
import numpy as np
import torch
import tyro
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
HUMAN = Path(__file__).with_name("human_at30.csv")
MAX_STEPS = 27000  # of a game of Atari, 108,000 frames: EnvPool's time limit, and that of the human scores
FILMED_STEPS = 100  # of mjlab: a second each where no GPU draws them
AGENTS = {  # how each EnvPool script builds the network that its checkpoint fills
    "ppo_atari_envpool": lambda module, actions, args: module.Agent(actions, args.shared_encoder, args.bf16),
    "pqn_atari_envpool": lambda module, actions, args: module.QNetwork(actions, args.layer_norm, args.bf16),
    "ppo_procgen": lambda module, actions, args: module.Agent(actions, args.shared_encoder, args.bf16),
    "ppo_rnd_envpool": lambda module, actions, args: module.Agent(actions, args.shared_encoder, args.bf16),
}
OUTPUT_LAYERS = ("actor.bias", "actor.2.bias", "network.13.bias")  # of PPO, RND and PQN: one entry an action


@dataclass
class Args:
    run_dir: tyro.conf.Positional[Path]
    """the run directory"""
    episodes: int = 100
    """games to play"""
    num_envs: int = 16
    """games played at the same time"""
    greedy: bool = False
    """takes the most likely action in place of sampling"""
    train_levels: bool = False
    """Procgen: plays the levels of the training, not the whole distribution"""
    envpool: bool = False
    """Atari: plays on EnvPool, as the training did, not on ale-py"""
    seed: int = 1000
    """the seed of the games and of the actions"""
    video: Optional[Path] = None
    """records the first game, in colour: a .mp4 or .gif file"""


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad ones."""
    box = io.StringIO()  # tyro draws a box around its complaint: what stands in it is put on one line
    try:
        with contextlib.redirect_stderr(box):
            options = tyro.cli(Args, args=argv, description=__doc__.split("\n")[0])
    except SystemExit as end:
        if end.code:
            text = box.getvalue().split("For full helptext")[0].partition("\n")[2]
            fail(re.sub("[│─|]|-{3,}", " ", text))
        raise
    if options.episodes < 1 or options.num_envs < 1:
        fail(f"--episodes {options.episodes} --num-envs {options.num_envs}: 1 or more is accepted")
    if not 0 <= options.seed < 2**30:
        fail(f"--seed {options.seed}: 0 to {2**30 - 1} is accepted")
    if options.video and options.video.suffix not in (".mp4", ".gif"):
        fail(f"--video {options.video}: a .mp4 or .gif file is accepted")
    if options.video and not os.access(options.video.parent, os.W_OK):
        fail(f"--video {options.video}: a file in a directory that can be written to is accepted")
    return options


def load(run_dir):
    """Returns the last whole checkpoint of the run, its arguments, and the name of its script.

    Exits 2 with one line if the directory holds no run, or no whole checkpoint, of one of the five scripts.
    """
    try:
        manifest = json.loads((run_dir / "manifest.json").read_text())
        args, words = SimpleNamespace(**manifest["arguments"]), shlex.split(manifest["command"])
    except OSError:
        fail(f"{run_dir} has no manifest.json that can be read: a run directory is accepted")
    except (ValueError, KeyError, TypeError):
        fail(f"{run_dir / 'manifest.json'} is not that of a run: a run directory is accepted")
    script = next((Path(word).stem for word in words if word.endswith(".py")), None)
    if script not in {*AGENTS, "ppo_isaacgym"}:
        fail(f"{run_dir} is a run of {script}.py: one of {' '.join(AGENTS)} ppo_isaacgym is accepted")
    paths = [path for path in (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt") if path.exists()]
    for path in paths:
        try:
            return torch.load(path, map_location="cpu", weights_only=True), args, script
        except Exception as error:  # a file that is not whole breaks in many ways
            print(f"note: {path} cannot be read ({type(error).__name__})", file=sys.stderr)
    fail(f"{run_dir} has no {'whole ' if paths else ''}checkpoint.pt: a run directory with a checkpoint is accepted")


def make_agent(weights, args, script):
    """The network of a run of one of the EnvPool scripts, on the CPU."""
    num_actions = next(len(weights[name]) for name in OUTPUT_LAYERS if name in weights)
    agent = AGENTS[script](importlib.import_module(script), num_actions, args)
    agent.load_state_dict(weights)
    return agent.to(memory_format=torch.channels_last)


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
    """One game at a time with ale-py through gymnasium, as EnvPool plays it in training: four frames a step of which
    the last two are maximised, grey, 84 x 84. Every life, not only the game, begins with 1 to 30 frames without an
    action, the last of them FIRE if the game has it, and is first shown as it is after them (EnvPool's Reset in
    envpool/atari/atari_env.h). With the same numbers of frames and actions both show the same pixels: a test does so.
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
            fail(f"ale-py cannot play {args.env_id} ({error}): --envpool can")
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


def play_atari(choose, args, episodes, num_envs, seed, video, record):
    """Plays `episodes` games and calls `record` with each score. Each of the parallel games has its share: none is lost
    for being long."""
    games = [AtariGame(args, video if i == 0 else None) for i in range(min(num_envs, episodes))]
    waiting = [list(range(i, episodes, len(games)))[::-1] for i in range(len(games))]  # a fixed share of each
    obs = {i: game.reset(seed + waiting[i].pop()) for i, game in enumerate(games)}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # the emulator runs outside Python's lock
        while obs:
            actions = choose(np.stack(list(obs.values())))
            playing = list(obs)
            results = list(pool.map(lambda i, action: games[i].step(action), playing, actions))
            for i, (next_obs, over) in zip(playing, results):
                obs[i] = next_obs
                if over:
                    record(games[i].score)
                    games[i].video = None  # one game is recorded
                    if waiting[i]:
                        obs[i] = games[i].reset(seed + waiting[i].pop())
                    else:
                        del obs[i]


def play_envpool(choose, args, module, episodes, num_envs, seed, video, record):
    """Plays `episodes` games of Procgen, or of Atari, where the training did, in equal shares of the parallel
    environments, and calls `record` with each score. `video` is for Procgen, whose observations are its pictures."""
    num_envs = min(num_envs, episodes)
    envs = module.make_envs(SimpleNamespace(**{**vars(args), "num_envs": num_envs}), seed)
    share = [len(range(i, episodes, num_envs)) for i in range(num_envs)]
    obs, _ = envs.reset()
    running = np.zeros(num_envs)
    while any(share):
        channels_last = obs.transpose(0, 2, 3, 1) if obs.shape[1] == 4 else obs  # Atari: (N, 4, 84, 84)
        obs, reward, terminated, truncated, info = envs.step(choose(channels_last).astype(np.int32))
        running += info.get("reward", reward)  # Atari: not clipped, and over when the game is, not the life
        if video:
            video.append_data(obs[0].repeat(8, axis=0).repeat(8, axis=1))
        for i in np.flatnonzero(info.get("terminated", terminated) | truncated):
            if share[i]:
                share[i] -= 1
                record(float(running[i]))
            if i == 0:
                video = None
            running[i] = 0


@torch.no_grad()
def play_mjlab(weights, args, episodes, num_envs, greedy, seed, video, record):
    """Plays `episodes` episodes in equal shares of the parallel environments, and calls `record` with each score;
    films the start."""
    if video:  # mujoco looks when it is imported
        libraries = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
        if not libraries:
            fail("--video needs EGL (libegl1) or OSMesa (libosmesa6), and neither is here")
        os.environ["MUJOCO_GL"] = libraries[0].lower()
    module = importlib.import_module("ppo_isaacgym")
    if args.env_id not in module.mjlab_tasks():
        fail(f"--env-id {args.env_id} cannot be played here: a task of mjlab (requirements-mjlab.txt) is accepted")
    num_envs = min(num_envs, episodes)
    torch.manual_seed(seed)
    envs = module.MjlabEnvs(args, num_envs, seed, "cpu", "rgb_array" if video else None)
    agent = module.Agent(*envs.sizes, args)
    agent.load_state_dict(weights)
    share = [len(range(i, episodes, num_envs)) for i in range(num_envs)]
    obs, running, filmed = envs.reset(0)[0], torch.zeros(num_envs), 0
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
                record(running[i].item())
            running[i] = 0.0
    envs.env.close()


def bootstrap(scores, seed=0, resamples=10000):
    """The 95 % percentile interval of the mean; None for fewer than two scores."""
    if len(scores) < 2:
        return None
    rng = np.random.default_rng(seed)
    return np.percentile([rng.choice(scores, len(scores)).mean() for _ in range(resamples)], [2.5, 97.5]).tolist()


def human_scores(env_id):
    """(random, human): the mean scores of a game of Atari-57, e.g. of "Alien-v5"; None for any other."""
    with open(HUMAN) as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if env_id == f"{row['game']}-v5":
                return float(row["random"]), float(row["human"])
    return None


def summarize(env_id, scores):
    """The numbers that `main` prints. Human-normalised: 0 is a random policy, 1 a human; null without a table entry."""
    mean, ci95, references = float(np.mean(scores)), bootstrap(scores), human_scores(env_id)

    def normalized(value):
        return (value - references[0]) / (references[1] - references[0])

    return {
        "mean": mean,
        "ci95": ci95,
        "human_normalized": normalized(mean) if references else None,
        "human_normalized_ci95": [normalized(value) for value in ci95] if references and ci95 else None,
        "human_table": HUMAN.stem if references else None,
    }


def main(options):
    checkpoint, args, script = load(options.run_dir)
    weights, atari = checkpoint["agent"], script not in ("ppo_procgen", "ppo_isaacgym")
    if options.train_levels and not getattr(args, "num_levels", 0):
        fail("--train-levels: a run of ppo_procgen.py with --num-levels is accepted")
    if options.envpool and (not atari or options.video):
        fail("--envpool: a run of one of the Atari scripts, without --video, is accepted")
    if script == "ppo_procgen" and not options.train_levels:
        args.num_levels = args.start_level = 0
    if script != "ppo_isaacgym":
        try:
            agent = make_agent(weights, args, script)
        except (RuntimeError, AttributeError, StopIteration) as error:
            fail(f"{options.run_dir}: its checkpoint is not of the network of this {script}.py ({error})")
        choose = make_policy(agent, args, options.greedy, options.seed)
    count, num_envs, seed, scores = options.episodes, options.num_envs, options.seed, []
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=count, disable=None, dynamic_ncols=True, unit="game", desc=args.env_id))
        video = None
        if options.video:
            settings = {"fps": 15, "macro_block_size": 2} if options.video.suffix == ".mp4" else {"duration": 1000 / 15}
            video = stack.enter_context(contextlib.closing(imageio.get_writer(options.video, **settings)))

        def record(score):
            scores.append(score)
            bar.set_postfix_str(f"mean {np.mean(scores):.1f}", refresh=False)
            bar.update()

        if script == "ppo_isaacgym":
            play_mjlab(weights, args, count, num_envs, options.greedy, seed, video, record)
        elif options.envpool or not atari:
            play_envpool(choose, args, importlib.import_module(script), count, num_envs, seed, video, record)
        else:
            play_atari(choose, args, count, num_envs, seed, video, record)
    print(
        json.dumps(
            {
                "run_dir": str(options.run_dir),
                "env_id": args.env_id,
                "global_step": checkpoint["global_step"],
                "emulator": "ale-py"
                if atari and not options.envpool
                else "mjlab"
                if script == "ppo_isaacgym"
                else "envpool",
                "greedy": options.greedy,
                "episodes": len(scores),
                **summarize(args.env_id, scores),
                "scores": scores,
            }
        )
    )


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
