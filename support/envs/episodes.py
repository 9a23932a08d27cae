"""Episodes: their seeds, how many end while a run trains, and whole ones of a trained network. Python 3.8."""

from typing import Any, Callable, Iterable, List, Optional, Tuple, Union

from support import devices, progress


def env_seeds(seed: int, purpose: str, step: int, numbers: Iterable[int]) -> List[int]:
    """The seeds, 0 to 2**31 - 1, of environments by their number: seeds[i] is of environment numbers[i].

    They differ between the environments of one (seed, purpose, step); those of two such triples coincide by chance
    only. `step`: the steps done when the environments start, since restarted ones must not repeat the first episodes.
    """
    import numpy as np

    words = [seed, step, *purpose.encode()]
    start, stride = np.random.SeedSequence(words).generate_state(2, np.uint64).tolist()
    return [(start + number * (stride | 1)) % 2**31 for number in numbers]  # an odd stride: no two seeds agree


# ---- while a run trains ----------------------------------------------------------------------------------------------
class Episodes:
    """Counts the episodes of N environments, from one rollout to the next; or those of S agents with N each.

    num_envs: N, or (S, N). whole: whether the episodes under way began at their start; if not, the first of each
    environment is not counted.
    """

    def __init__(self, num_envs: Union[int, Tuple[int, int]], whole: bool = True) -> None:
        import numpy as np

        self.has_agents = isinstance(num_envs, tuple)
        self.returns: Any = np.atleast_2d(np.zeros(num_envs))  # (S, N), so far; S is 1 without agents
        self.lengths: Any = np.zeros(self.returns.shape, dtype=np.int64)
        self.whole: Any = np.full(self.returns.shape, whole)

    def add(self, rewards: Any, ended: Any, valid: Any) -> Tuple[Any, Any, Any, Any]:
        """T more steps: what Run.add_episodes gets of them.

        rewards (T, N): raw ones, 0 in autoreset steps; ended (T, N) bool: the step ended a whole episode; valid (T, N)
        bool: it was no autoreset step. NumPy arrays. Returns (return, length) of each episode that has ended, in order;
        how many each environment has finished, (N,); the sum of the rewards; and the number of their steps. Of S agents
        the arrays are (T, S, N), and each result is a sequence of S.
        """
        import numpy as np

        rewards, ended, valid = (x.reshape(len(x), *self.returns.shape) for x in (rewards, ended, valid))
        episodes: List[List[Tuple[float, int]]] = [[] for _ in self.returns]
        finished: Any = np.zeros(self.returns.shape, dtype=np.int64)
        for t in range(len(rewards)):
            self.returns += rewards[t]
            self.lengths += valid[t]
            if ended[t].any():
                for s, i in zip(*ended[t].nonzero()):
                    if self.whole[s, i]:
                        episodes[s].append((float(self.returns[s, i]), int(self.lengths[s, i])))
                        finished[s, i] += 1
                    self.returns[s, i], self.lengths[s, i], self.whole[s, i] = 0.0, 0, True
        of_agents = rewards.swapaxes(0, 1).reshape(len(episodes), -1)  # each summed alone
        results = (episodes, finished, of_agents.sum(1, np.float64).tolist(), valid.sum((0, 2)).tolist())
        return results if self.has_agents else tuple(x[0] for x in results)  # type: ignore[return-value]


# ---- evaluation ------------------------------------------------------------------------------------------------------
def run_episodes(envs: Any, act: Callable[[Any, Any], Any], bar: Any, max_steps: Optional[int] = None) -> List[Any]:
    """Runs one whole episode in each of N environments, or in each of (S, N), as envs.shape says.

    act: maps observations (N, ...) and whose episode is under way, (N,) bool, to actions (N, ...); those of the others
    are ignored. Returns the raw returns, through all lives, and closes the environments. `bar` shows the progress.
    max_steps: an episode that has not ended by then counts with its return so far, and a note says so.
    """
    import numpy as np

    obs, _ = envs.reset()
    shape = getattr(envs, "shape", (len(obs),))
    returns, running = np.zeros(shape), np.ones(shape, dtype=bool)  # type: Any, Any
    running[getattr(envs, "retired", [])] = False
    steps = 0
    while running.any():
        if steps == max_steps:
            text = f"{int(running.sum())} evaluation episodes have not ended and are cut at {steps:,} steps"
            print(f"note: {text}", flush=True)
            break
        steps += 1
        obs, reward, terminated, truncated, info = envs.step(act(obs, running))
        returns += info.get("reward", reward) * running  # Atari's is clipped
        over = running & (info.get("terminated", terminated).astype(bool) | truncated)  # Atari's is a life
        running &= ~over
        bar.update(int(over.sum()))
    envs.close()
    return returns.tolist()


def evaluate(workers: Any, play_piece: Callable, seeds: List[int]) -> List[float]:
    """The returns of this process's part of the episodes, one for each of the seeds, in the threads of `workers`.

    play_piece(seeds, episodes, bar) plays `episodes`, a range of places in `seeds`, and returns a number for each.
    Without workers all episodes are one piece.
    """
    episodes = devices.share(len(seeds))
    if not episodes:  # more processes than episodes
        return []
    with progress.progress_bar(len(episodes), "episode", "evaluation episodes") as bar:
        if workers is None:
            return play_piece(seeds, episodes, bar)
        pieces = [episodes[piece] for piece in workers.pieces(len(episodes))]
        return sum(workers.map(lambda piece: play_piece(seeds, piece, bar), pieces), [])


def mean_interval(values: List[float]) -> Optional[List[float]]:
    """Student's 95 % interval, [low, high], of the mean of some numbers; None below two numbers."""
    import numpy as np
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes longer to import

    if len(values) < 2:
        return None
    half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5
    return [float(np.mean(values) - half), float(np.mean(values) + half)]
