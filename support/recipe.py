"""Which N x T and rates a run has: defaults of the task, P3's recipe, rsl_rl's rate, schedules of N and T.

P3 is Beukman et al. 2026, arXiv 2603.06009. Pure arithmetic. Python 3.8.
"""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from support import catalog, devices

FEW_ITERATIONS = 50  # a run with fewer is told so
NAMES_LAW = ("ppo_atari_envpool", "ppo_procgen", "ppo_isaacgym", "ppo_rnd_envpool")  # PPO with CleanRL's rate
LAW = (
    "the law of results/second_look would take the learning rate {:g}; it was only tried with 50,000 to 2.7 million "
    "steps, 3 to 256 of them per gradient step"
)
WAYS = ("more-minibatches", "bigger-minibatches", "sqrt-lr", "hybrid:B")  # what --scaling may be

# Defaults of ppo_envpool.py where actions are continuous, other than those of its Args.
CONTINUOUS: Dict[str, Any] = dict(
    total_timesteps=1_000_000,
    num_minibatches=32,
    update_epochs=10,
    ent_coef=0.0,
    norm_obs=True,
    norm_reward=True,
)

# …and where the task is the user's own: Andrychowicz et al. 2021 (arXiv 2006.05990) advise a lower first deviation.
# EnvPool's tasks keep CleanRL's 1, with which the runs in results/ were made.
OWN_CONTINUOUS: Dict[str, Any] = dict(init_std=0.5)

# Defaults of ppo_envpool.py where an image is observed: CleanRL's network for Atari, or that of MinAtar
IMAGES: Dict[str, Any] = dict(hidden_sizes=(512,), activation="relu", shared_encoder=True)
SMALL_IMAGES: Dict[str, Any] = {**IMAGES, "hidden_sizes": (128,)}

# Defaults of ppo_isaacgym.py for the tasks whose names begin so, later entries first: those of mjlab's own
# configurations of rsl_rl. Total steps are its iterations x steps x 4096 environments, as in its documented commands.
TASKS: Dict[str, Dict[str, Any]] = {
    "Mjlab-": dict(
        num_envs=4096,
        total_timesteps=983_040_000,
        num_steps=24,
        num_minibatches=4,
        update_epochs=5,
        learning_rate=1e-3,
        desired_kl=0.01,
        ent_coef=0.01,
        clip_vloss=True,
        norm_obs=True,
        hidden_sizes=(512, 256, 128),
        activation="elu",
        orthogonal_init=False,
    ),
    "Mjlab-Cartpole": dict(total_timesteps=65_536_000, num_steps=32, norm_obs=False, hidden_sizes=(64, 64)),
    "Mjlab-Lift-Cube": dict(total_timesteps=491_520_000, ent_coef=0.005),
    "Mjlab-Velocity-Flat-Unitree-G1": dict(total_timesteps=2_949_120_000),
    "Mjlab-Velocity-Rough-Unitree-G1": dict(total_timesteps=2_949_120_000),
}


def of_spaces(continuous: bool, has_reals: bool, images: Sequence[bool]) -> Dict[str, Any]:
    """The defaults of ppo_envpool.py for a task.

    continuous: its actions are real numbers; has_reals: so is a part of its observations that is no image; images: of
    each of its images whether it is large.
    """
    found = {**CONTINUOUS, "norm_obs": has_reals} if continuous else {}
    return {**found, **(IMAGES if any(images) else SMALL_IMAGES if images else {})}


def task_defaults(env_id: str) -> Dict[str, Any]:
    """Those of TASKS for one task; {} if it has none of its own."""
    return {name: value for task in TASKS if env_id.startswith(task) for name, value in TASKS[task].items()}


def scaled(
    num_envs: int, scale_from: int, num_steps: int, num_minibatches: int, learning_rate: float, scaling: str
) -> Tuple[int, int, float]:
    """P3's ways to spend a batch of c = num_envs / scale_from times as many rows (section 5 and Fig. 9).

    num_minibatches, learning_rate: those of the base, which has `scale_from` environments; num_steps: of both. The
    minibatches become b times as large, their number c / b times as large, and the learning rate a times:

        more-minibatches    b = 1, a = 1: P3's advice
        bigger-minibatches  b = c, a = 1
        sqrt-lr             b = c, a = sqrt(b)
        hybrid:B            b = B, a = sqrt(b): for hardware that more-minibatches would leave idle

    c may be below 1. Returns (minibatch_size, num_minibatches, learning_rate). ValueError, with what was expected, if
    the way is unknown or a number is not whole.
    """
    c = Fraction(num_envs, scale_from)
    if scaling in WAYS[:3]:
        b = Fraction(1) if scaling == WAYS[0] else c
    else:
        try:
            b = Fraction(scaling[len("hybrid:") :] if scaling.startswith("hybrid:") else "")
        except (ValueError, ZeroDivisionError):
            b = Fraction(0)
        if b <= 0:
            raise ValueError(f"--scaling {scaling}: expected {', '.join(WAYS)} with a positive number B")
    size, number = Fraction(scale_from * num_steps, num_minibatches) * b, num_minibatches * c / b
    if size.denominator > 1 or number.denominator > 1:
        raise ValueError(
            f"--scaling {scaling} from {scale_from} to {num_envs} environments gives {_decimal(number)} minibatches of "
            f"{_decimal(size)} rows: expected whole numbers; choose another --num-envs or --scale-from"
        )
    return int(size), int(number), learning_rate * (1.0 if scaling in WAYS[:2] else math.sqrt(b))


# ---- learning rates --------------------------------------------------------------------------------------------------
MIN_RATE, MAX_RATE = 1e-5, 1e-2  # bounds of --desired-kl's rate, as in rsl_rl
KL_EPSILON = 1e-9  # a smaller KL is rounding: the network is still the one that acted


def adapted_learning_rate(learning_rate: float, kl: float, desired_kl: float) -> float:
    """rsl_rl's rule: the learning rate of a step that finds the policy at the distance `kl` from the one that acted.

    It stays where the KL is below KL_EPSILON: in an iteration's first minibatch the two policies are the same.
    """
    if kl > 2.0 * desired_kl:
        return max(learning_rate / 1.5, MIN_RATE)
    if KL_EPSILON < kl < 0.5 * desired_kl:
        return min(learning_rate * 1.5, MAX_RATE)
    return learning_rate


def law_rate(total_timesteps: int, adam_steps_per_step: float) -> float:
    """The learning rate that the second look registers as a law, to two digits: results/CLAIMS.md, second_look.

        4e-3 x sqrt(150,000 / total_timesteps) x (16 / 1024) / adam_steps_per_step

    adam_steps_per_step: Adam's steps per environment step, epochs / rows of a minibatch; 16 / 1024 at 4 epochs and
    minibatches of 256 rows. Made of the atlas's best rates and of 26 settings that others have tuned. On ten tasks the
    best rate then fell more slowly, as adam_steps_per_step^-0.52 [-0.69, -0.35] (results/second_look, L4).
    """
    return float(f"{4e-3 * math.sqrt(150_000 / total_timesteps) * (16 / 1024) / adam_steps_per_step:.1e}")


def default_rate(arguments: Mapping[str, Any]) -> float:
    """The law's learning rate for a run with these arguments; with --scale-from, for the base that is scaled.

    minibatch_size may be None: then num_minibatches says it, of the base.
    """
    num_envs = arguments.get("scale_from") or arguments["num_envs"]
    rows = arguments.get("minibatch_size") or num_envs * arguments["num_steps"] / arguments["num_minibatches"]
    return law_rate(arguments["total_timesteps"], arguments["update_epochs"] / rows)


# ---- schedules -------------------------------------------------------------------------------------------------------
class Phase(NamedTuple):
    """From this fraction of the total steps on, batches have num_envs x num_steps rows."""

    start: Fraction
    num_envs: int
    num_steps: int


class Schedule:
    """The N x T of a run's batches, as --schedule states them.

    0:8x128,0.5:128x8   phases: each begins with the first batch that starts at or after its fraction of the total
    noise:8-128x32      N is doubled or halved between 8 and 128, from 8 on, at T = 32 (`follow_noise`)

    text: ValueError, with what was expected, if it is neither. total: environment steps of the run. start: where the
    run begins, after 0 if it goes on from another one's checkpoint.

    Attributes: `text`; `phases`; `bounds` of N, None without noise; `last_step`, at which the run ends: no other whole
    batch of the last phase fits, or with noise none of the smallest N; `noise_interval`, iterations from one
    measurement of the gradient's noise to the next, at least. A measurement takes two epochs of gradients.
    """

    def __init__(self, text: str, total: int, start: int = 0) -> None:
        self.text = text
        self.bounds: Optional[Tuple[int, int]] = None
        noise = re.fullmatch(r"noise:(\d{1,9})-(\d{1,9})x(\d{1,9})", text)
        if noise:
            low, high, num_steps = map(int, noise.groups())
            if not (2 <= low <= high and num_steps):  # the noise between environments needs two of them
                raise ValueError(f"--schedule {text}: expected noise:LOW-HIGHxT with 2 <= LOW <= HIGH and T above 0")
            high = low << ((high // low).bit_length() - 1)  # what doubling reaches
            self.bounds, self.phases = (low, high), [Phase(Fraction(0), low, num_steps)]
        else:
            self.phases = _phases(text)
        self.noise_interval = 5 if self.bounds else 20
        self.total, self.last_step = total, start
        ends = [x.start * total for x in self.phases[1:]] + [Fraction(total)]
        begun = []
        for phase, end in zip(self.phases, ends):
            batch_size = phase.num_envs * phase.num_steps
            number = max(0, math.ceil((end - self.last_step) / batch_size))
            fitting = (total - self.last_step) // batch_size
            self.last_step += min(number, fitting) * batch_size
            begun += [phase] * (min(number, fitting) > 0)
            if fitting < number:
                break
        if not start and 0 < len(begun) < len(self.phases):
            _, num_envs, num_steps = next(phase for phase in self.phases if phase not in begun)
            raise ValueError(
                f"--schedule {text}: no batch of {num_envs}x{num_steps} begins in its phase of {total} steps; expected "
                "other fractions, smaller batches or more --total-timesteps"
            )

    def iterations(self, step: int) -> int:
        """How many batches there are from `step` to `last_step`; with noise, at least: N as large as it may be."""
        number, doublings = 0, (self.bounds[1] // self.bounds[0]).bit_length() - 1 if self.bounds else 0
        while step < self.last_step:
            num_envs, num_steps = self.n_by_t(step, doublings)
            following = [math.ceil(x.start * self.total) for x in self.phases if x.start * self.total > step]
            end = min([*following, self.last_step])
            batches = max(1, -(-(end - step) // (num_envs * num_steps)))
            number, step = number + batches, step + batches * num_envs * num_steps
        return number

    def n_by_t(self, step: int, doublings: int) -> Tuple[int, int]:
        """N and T of the batch that starts at `step`. doublings: of the smallest N, the first of `follow_noise`.

        With noise the last batches are as small as it takes to end at `last_step`.
        """
        phase = [x for x in self.phases if x.start * self.total <= step][-1]
        if not self.bounds:
            return phase.num_envs, phase.num_steps
        low, high = self.bounds
        fitting = max(low, min(high, (self.last_step - step) // phase.num_steps))
        while low << doublings > fitting:
            doublings -= 1
        return low << doublings, phase.num_steps

    def follow_noise(
        self, led: Tuple[int, float, float], rows: int, signal: float, noise: float
    ) -> Tuple[int, float, float]:
        """Doubles or halves N for the next batches, if the gradient's noise asks for it and the bounds allow it.

        led: how often the smallest N is doubled, and the sums of `signal` and `noise` of the earlier measurements with
        this N; rows: of a batch; signal, noise: of this measurement, estimates of |G|^2 and of the noise of one sample
        (metrics.noise_scales). B = sum of noise / sum of signal is the batch at which noise and gradient are
        equally long (McCandlish et al. 2018). N is doubled at B >= 2 rows, or if the noise hides the gradient, and
        halved at B <= rows / 2. Returns the new `led`.
        """
        assert self.bounds
        doublings, signal, noise = led[0], led[1] + signal, led[2] + noise
        if (signal <= 0 or noise >= 2 * rows * signal) and self.bounds[0] << (doublings + 1) <= self.bounds[1]:
            return doublings + 1, 0.0, 0.0
        if signal > 0 and 2 * noise <= rows * signal and doublings:
            return doublings - 1, 0.0, 0.0
        return doublings, signal, noise


def schedule_of(arguments: Mapping[str, Any], start: int = 0) -> Schedule:
    """The Schedule of a run with these arguments: that of --schedule, else one N x T from the beginning to the end.

    `noise` alone means from num_envs to 16 times as many. start: as in Schedule. ValueError as there.
    """
    num_envs, num_steps = arguments["num_envs"], arguments["num_steps"]
    text = arguments.get("schedule") or f"0:{num_envs}x{num_steps}"
    if text == "noise":
        text = f"noise:{num_envs}-{16 * num_envs}x{num_steps}"
    return Schedule(text, arguments["total_timesteps"], start)


def _phases(text: str) -> List[Phase]:
    # few digits: of thousands, the search takes seconds and int() refuses the number
    words = [re.fullmatch(r"(\d{0,9}\.?\d{1,18}):(\d{1,9})x(\d{1,9})", word) for word in text.split(",")]
    phases = [Phase(Fraction(word[1]), int(word[2]), int(word[3])) for word in words if word]
    starts = [phase.start for phase in phases]
    rising = starts[:1] == [0] and all(a < b for a, b in zip(starts, [*starts[1:], Fraction(1)]))
    if len(phases) < len(words) or not rising or not all(x.num_envs * x.num_steps for x in phases):
        raise ValueError(
            f"--schedule {text:.200}: expected noise:LOW-HIGHxT, or FRACTION:NxT,... with fractions that rise from 0 "
            "and stay below 1, such as 0:8x128,0.5:128x8"
        )
    return phases


def _decimal(number: Fraction) -> str:
    return f"{float(number):g}"


def plan(
    script: str, arguments: Mapping[str, Any], schedule: Schedule, step: int, runs: int = 1, by_law: bool = False
) -> List[str]:
    """What each of some runs of a script has before it from `step` on, and notes if that is little, or too much for
    the memory of this machine: lines to print. by_law: whether all have the law's learning rate.

    A script of NAMES_LAW says what the law would take where its rate differs by more than three times, unless a KL
    adapts it or --scaling changes it. On images the law gains: results/second_look, L15.
    """
    number, (num_envs, num_steps) = schedule.iterations(step), schedule.n_by_t(step, 0)
    rows, changes = num_envs * num_steps, len(schedule.phases) > 1 or schedule.bounds
    updates = arguments["update_epochs"] * (rows // arguments["minibatch_size"])
    text = f"{number:,} iterations of {num_envs} x {num_steps} steps, {updates:,} gradient steps each"
    text += f", {number * updates:,} in all" if not changes else "; then other N x T"
    if by_law:
        text += f"; learning rate {arguments['learning_rate']:g}, the law's for these steps, epochs and minibatches"
    memory = catalog.memory(script, arguments["env_id"])
    envs = num_envs + arguments["eval_episodes"]  # an evaluation episode has one of its own
    size, available = runs * (envs * memory.env + rows * memory.row), devices.available_bytes()
    if memory.row:
        text += f"; environments and batch take about {size / 1e6:,.0f} MB"
    lines = [text]
    if number < FEW_ITERATIONS:
        lines.append(f"note: these are fewer than {FEW_ITERATIONS} iterations; doubling N or T halves their number")
    if Path(script).stem in NAMES_LAW and not (arguments.get("scaling") or arguments.get("desired_kl")):
        rate, law = arguments["learning_rate"], default_rate(arguments)
        if law > 3 * rate > 0 or 3 * law < rate:
            lines.append(f"note: {LAW}".format(law))
    if size > available:
        lines.append(f"note: {available / 1e6:,.0f} MB of memory are free: this may be killed; use fewer environments")
    return lines
