"""Plays games with the network of a run, on an emulator that the run did not train on.

    python scripts/evaluate.py runs/my_run --episodes 100
    python scripts/evaluate.py runs/my_run --episodes 1 --video episode.mp4

Atari is played through ale-py and gymnasium: the training ran on EnvPool, so that agreement of the two scores checks
both. Procgen is played on EnvPool, on the whole distribution of levels (Cobbe et al. 2020's test set) or, with
`--train-levels`, on those of the training. Actions are drawn as in training (PPO samples, PQN is epsilon-greedy with
its last epsilon); `--greedy` takes the most likely one. A task of mjlab is played in mjlab, its film 100 steps long.
Prints one line of JSON: mean, 95 % bootstrap interval, scores.
"""

import ctypes.util
import importlib
import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import ale_py
import gymnasium
import imageio.v2 as imageio
import numpy as np
import torch
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
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
    seed: int = 1000
    """the seed of the games and of the actions"""
    video: Optional[Path] = None
    """records the first game, in colour: a .mp4 or .gif file"""


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def load(run_dir):
    """Returns the weights of the run's last checkpoint, its arguments, and the name of its script.

    Exits 2 with one line if the directory holds no run or no checkpoint of one of the five scripts.
    """
    try:
        manifest = json.loads((run_dir / "manifest.json").read_text())
        checkpoint = torch.load(run_dir / "checkpoint.pt", map_location="cpu", weights_only=True)
    except OSError as error:
        fail(f"{run_dir} has no {Path(error.filename).name}: a run directory with a checkpoint is accepted")
    args = SimpleNamespace(**manifest["arguments"])
    script = next(Path(word).stem for word in shlex.split(manifest["command"]) if word.endswith(".py"))
    if script not in {*AGENTS, "ppo_isaacgym"}:
        fail(f"{run_dir} is a run of {script}.py: one of {' '.join(AGENTS)} ppo_isaacgym is accepted")
    return checkpoint["agent"], args, script


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
    """One game at a time with ale-py through gymnasium, preprocessed as by EnvPool: up to 30 no-ops, four frames a
    step of which the last two are maximised, grey, 84 x 84, FIRE at the start of every life, 108,000 frames at most."""

    def __init__(self, args, video=None):
        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        sticky = getattr(args, "repeat_action_probability", 0.0)
        env = gymnasium.make(f"ALE/{args.env_id}", frameskip=1, repeat_action_probability=sticky,
                             render_mode="rgb_array" if video else None)
        env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
        self.env = gymnasium.wrappers.FrameStackObservation(env, 4)
        self.ale, self.video = env.unwrapped.ale, video
        meanings = env.unwrapped.get_action_meanings()
        self.fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, seed):
        """Starts a game. Returns obs (84, 84, 4) uint8."""
        obs, _ = self.env.reset(seed=seed)
        self.score, self.lives = 0.0, 0
        return self.begin_life(obs)

    def begin_life(self, obs):
        if self.fire is not None and self.ale.lives() != self.lives:
            self.env.unwrapped.step(self.fire)
        self.lives = self.ale.lives()
        return obs.transpose(1, 2, 0)

    def step(self, action):
        """Returns obs and whether the game is over; `score` is its sum of raw rewards so far."""
        obs, reward, terminated, truncated, _ = self.env.step(int(action))
        self.score += float(reward)
        if self.video:
            self.video.append_data(self.env.render().repeat(2, axis=0).repeat(2, axis=1))
        over = terminated or truncated or self.ale.getEpisodeFrameNumber() >= 108000
        return (obs.transpose(1, 2, 0) if over else self.begin_life(obs)), over


def play_atari(choose, args, episodes, num_envs, seed, video):
    """Returns the scores of `episodes` games. Each of the parallel games has its share: none is lost for being long."""
    games = [AtariGame(args, video if i == 0 else None) for i in range(min(num_envs, episodes))]
    waiting = [list(range(i, episodes, len(games)))[::-1] for i in range(len(games))]  # a fixed share of each
    obs = {i: game.reset(seed + waiting[i].pop()) for i, game in enumerate(games)}
    scores = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # the emulator runs outside Python's lock
        while obs:
            actions = choose(np.stack(list(obs.values())))
            playing = list(obs)
            results = list(pool.map(lambda i, action: games[i].step(action), playing, actions))
            for i, (next_obs, over) in zip(playing, results):
                obs[i] = next_obs
                if over:
                    scores.append(games[i].score)
                    games[i].video = None  # one game is recorded
                    if waiting[i]:
                        obs[i] = games[i].reset(seed + waiting[i].pop())
                    else:
                        del obs[i]
    return scores


def play_procgen(choose, args, module, episodes, num_envs, train_levels, seed, video):
    """Returns the scores of `episodes` games, in equal shares of the parallel environments."""
    num_envs = min(num_envs, episodes)
    levels = {} if train_levels else {"num_levels": 0, "start_level": 0}
    envs = module.make_envs(SimpleNamespace(**{**vars(args), **levels, "num_envs": num_envs}), seed)
    share = [len(range(i, episodes, num_envs)) for i in range(num_envs)]
    obs, _ = envs.reset()
    running, scores = np.zeros(num_envs), []
    recording = video is not None
    while any(share):
        obs, reward, terminated, truncated, _ = envs.step(choose(obs).astype(np.int32))
        running += reward
        if recording:
            video.append_data(obs[0].repeat(8, axis=0).repeat(8, axis=1))
        for i in np.flatnonzero(terminated | truncated):
            if share[i]:
                share[i] -= 1
                scores.append(float(running[i]))
            recording &= i != 0
            running[i] = 0
    return scores


@torch.no_grad()
def play_mjlab(weights, args, episodes, num_envs, greedy, seed, video):
    """Returns the scores of `episodes` episodes, in equal shares of the parallel environments; films the start."""
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
    obs, running, scores, filmed = envs.reset(0)[0], torch.zeros(num_envs), [], 0
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
            running[i] = 0.0
    envs.env.close()
    return scores


def bootstrap(scores, seed=0, resamples=10000):
    """The 95 % percentile interval of the mean; None for fewer than two scores."""
    if len(scores) < 2:
        return None
    draws = np.random.default_rng(seed).choice(scores, (resamples, len(scores))).mean(1)
    return np.percentile(draws, [2.5, 97.5]).tolist()


def main(options):
    if options.episodes < 1 or options.num_envs < 1:
        fail(f"--episodes {options.episodes} --num-envs {options.num_envs}: 1 or more is accepted")
    if options.video and options.video.suffix not in (".mp4", ".gif"):
        fail(f"--video {options.video}: a .mp4 or .gif file is accepted")
    weights, args, script = load(options.run_dir)
    if options.train_levels and not getattr(args, "num_levels", 0):
        fail("--train-levels: a run of ppo_procgen.py with --num-levels is accepted")
    settings = {"macro_block_size": 2} if options.video and options.video.suffix == ".mp4" else {}
    video = imageio.get_writer(options.video, fps=15, **settings) if options.video else None
    if script == "ppo_isaacgym":
        scores = play_mjlab(weights, args, options.episodes, options.num_envs, options.greedy, options.seed, video)
    else:
        choose = make_policy(make_agent(weights, args, script), args, options.greedy, options.seed)
    if script == "ppo_procgen":
        module = importlib.import_module(script)
        scores = play_procgen(choose, args, module, options.episodes, options.num_envs, options.train_levels,
                              options.seed, video)
    elif script != "ppo_isaacgym":
        scores = play_atari(choose, args, options.episodes, options.num_envs, options.seed, video)
    if video:
        video.close()
    result = {"run_dir": str(options.run_dir), "env_id": args.env_id, "greedy": options.greedy, "episodes": len(scores),
              "mean": float(np.mean(scores)), "ci95": bootstrap(scores), "scores": scores}
    print(json.dumps(result))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__.split("\n")[0]))
