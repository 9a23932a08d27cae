"""Command lines: the types of arguments with what they accept, and how a command line becomes checked arguments.

Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple, Union

from typing_extensions import Annotated, get_args, get_type_hints

from support import devices, recipe, usage


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it has been deleted
        return Path(".")


START = _working_directory()  # of the program: a task that is imported later may call os.chdir
PLACE = frozenset(  # where a run is carried out, how safely and who is told of it, not what it does
    {"run_name", "runs_dir", "num_threads", "env_workers", "checkpoint_minutes"}
    | {"track", "wandb_project_name", "wandb_entity"}
)
PACK = frozenset({"num_seeds", "runs"})  # which runs a command asks for: no argument of any of them
LAUNCHES = frozenset({"cuda_graphs"})  # how kernels reach a GPU: what has begun with graphs can go on without
# Runs that differ in these alone, and in who they are, can share a process, whose script gets them as tensors (S, 1)
SCALARS = ("learning_rate", "gamma", "gae_lambda", "clip_coef", "ent_coef", "vf_coef", "max_grad_norm")
OWN = PACK | {"seed", "run_name", "runs_dir", "resume_from", *SCALARS}
ALONE = {"target_kl": None, "compile": False}  # what only a run without company may have, and its value in company
# what --resume-from may not change
NETWORK = ("env_id", "env_kwargs", "hidden_sizes", "activation", "shared_encoder", "norm_obs")


P3 = {"--prox-com", "--scaling", "--scale-from", "--resume-from"}  # options that all scripts once had


class Range(NamedTuple):
    """The values that an argument may have, both ends included."""

    low: float
    high: float

    def objection(self, value: Any) -> str:
        """What is wrong with the value, as the end of a sentence; "" if nothing is."""
        if self.low <= value <= self.high:  # NaN fails this
            return ""
        form = "," if isinstance(value, int) else ",.15g"
        return f" is out of range: expected {self.low:{form}} to {self.high:{form}}"


class Pattern(NamedTuple):
    """The texts that an argument may have: a regular expression for the whole text, and the same in words."""

    regex: str
    words: str

    def objection(self, text: str) -> str:
        """What is wrong with the text, as the end of a sentence; "" if nothing is."""
        return "" if re.fullmatch(self.regex, text, re.ASCII) else f": expected {self.words}"


# Types for the fields of Args, each with what it accepts; `Optional[Count]` and `Tuple[Count, ...]` work too.
Count = Annotated[int, Range(1, 2**31 - 1)]
Steps = Annotated[int, Range(1, 2**63 - 1)]
Seed = Annotated[int, Range(0, 2**31 - 1)]
Threads = Annotated[int, Range(0, 1024)]
Evaluation = Annotated[int, Range(0, 100000)]
Fraction = Annotated[float, Range(0, 1)]
NonNegative = Annotated[float, Range(0, 1e12)]
Positive = Annotated[float, Range(1e-12, 1e12)]
_N_BY_T = r"[1-9]\d{0,8}x[1-9]\d{0,8}"
NByTs = Annotated[str, Pattern(f"{_N_BY_T}(,{_N_BY_T})*", "N x T, such as 8x128, or several: 8x128,128x8")]


def from_start(path: Union[str, Path]) -> Path:
    """A path of the command line, which still leads to the same place after a task has called os.chdir."""
    return START / path


def return_to_start() -> None:
    """Goes back to where the program was started: a task that it has imported may have gone elsewhere."""
    os.chdir(START)


# ---- arguments -------------------------------------------------------------------------------------------------------
def fail(message: object) -> NoReturn:
    """Ends the program with one line on stderr and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def writable(flag: str, folder: Path) -> Iterator[None]:
    """Makes a directory. Ends the program with one line if that, or what is written inside the block, fails."""
    try:
        from_start(folder).mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        fail(f"--{flag} {folder} ({error.strerror or error}): expected a directory that can be written to")


def _limits(hint: Any) -> Iterator[Union[Range, Pattern]]:
    for part in get_args(hint):
        if isinstance(part, (Range, Pattern)):
            yield part
        else:
            yield from _limits(part)


def whole_number(text: str) -> Optional[int]:
    """The whole number that a text such as 1e6 or 2.5e3 is; None for another text, also for plain digits."""
    found = re.fullmatch(r"(\d+)\.?(\d*)e\+?(\d{1,2})", text, re.ASCII | re.IGNORECASE)
    decimals = found[2].rstrip("0") if found else ""
    if not found or len(decimals) > int(found[3]):
        return None
    return int(found[1] + decimals) * 10 ** (int(found[3]) - len(decimals))


def _with_digits(argv: Sequence[str], hints: Dict[str, Any]) -> List[str]:
    """A command line whose whole numbers, where the hints have an integer, are in digits: int() does not read 1e6."""
    words, whole = [], False
    for word in argv:
        flag, equals, text = word.partition("=") if word.startswith("--") else ("", "", word)
        if flag:
            whole = _leaves(hints.get(flag[2:].replace("-", "_"))) == {int}
        number = whole_number(text) if whole else None
        words.append(word if number is None else f"{flag}{equals}{number}")
    return words


def _leaves(hint: Any) -> Set[Any]:
    """The types in a hint, without None and what Annotated adds."""
    inside = [part for part in get_args(hint) if isinstance(part, type) or get_args(part)]
    return set().union(*map(_leaves, inside)) if inside else {hint} - {type(None)}


def parse(args_class: type, argv: List[str], description: str, default: Any = None) -> Any:
    """Parses `argv` into the dataclass `args_class` with tyro and checks each field against its Range or Pattern.

    `default`: an instance whose values replace the defaults of the class. Exits 2 with one line on bad input.
    """
    import tyro

    if usage.HELP & set(argv):
        own = {name: x for name, x in vars(args_class).items() if not name.startswith("__")}
        path = Path(str(sys.modules[args_class.__module__].__file__))
        usage.show(usage.text(path, description, args_class.__name__, own if default is None else vars(default)))
    defaults = {} if default is None else {"default": default}
    hints = get_type_hints(args_class, include_extras=True)
    box = io.StringIO()  # tyro draws a box around its complaint: put what it says on one line
    try:
        with contextlib.redirect_stderr(box):
            args = tyro.cli(
                args_class, args=_with_digits(argv, hints), description=description.split("\n")[0], **defaults
            )
    except SystemExit as end:
        if end.code:
            flag = re.search(r"--(?:no-)?([\w-]+) (?:true|false)\b", " ".join(argv), re.I)  # as CleanRL once had it
            if flag:
                fail(f"--{flag[1]} takes no value: expected --{flag[1]} or --no-{flag[1]}")
            text = box.getvalue().split("For full helptext")[0].partition("\n")[2]
            text = " ".join(re.sub("[│─|]|-{3,}", " ", text).split())
            found = re.match(r"Error parsing --([\w-]+):.*'([^']*)'\]? Argument", text)
            kind = found and re.search(r"\b(int|float)\b", str(hints[found[1].replace("-", "_")]))
            if found and kind:  # tyro goes through all types of Optional[int]
                fail(f"--{found[1]} {found[2]}: expected {'a whole number' if kind[1] == 'int' else 'a number'}")
            elsewhere = sorted(P3 & {word.split("=")[0] for word in argv} - {f"--{x.replace('_', '-')}" for x in hints})
            if elsewhere:
                fail(
                    f"{elsewhere[0]} is of ppo_ewma_atari_envpool.py, ppo_envpool.py and ppo_isaacgym.py: expected one"
                )
            fail(text)
        raise
    for name, hint in hints.items():
        given = getattr(args, name)
        values = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
        for text in (value for value in values if isinstance(value, str)):
            check_text(f"--{name.replace('_', '-')}", text)
        for limit, value in itertools.product(_limits(hint), values):
            if limit.objection(value):
                fail(f"--{name.replace('_', '-')} {value}{limit.objection(value)}")
    return args


def json_object(text: str) -> str:
    """A JSON object in the one way in which manifests keep it. Raises ValueError for any other text."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return json.dumps(value, sort_keys=True)
    raise ValueError(f"--env-kwargs {text}: expected a JSON object in quotes, such as '{{\"size\": 3}}'")


def value_of(argv: Sequence[str], flag: str, default: str) -> str:
    """The value of the last `--flag VALUE` or `--flag=VALUE` of a command line, before it is parsed."""
    value = default
    for word, following in zip(argv, [*argv[1:], default]):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == flag:
            value = text if equals else following
    return value


def check_text(what: str, text: str) -> None:
    """Ends the program with one line if text is none that a manifest and a path can hold. what: its name."""
    if re.search("[\ud800-\udfff\0]", text):  # bytes that are no UTF-8 arrive as halves of a pair
        fail(f"{what} {ascii(text)}: expected text in UTF-8, without a zero byte")


def check_run_name(name: str) -> None:
    """Ends the program with one line if a run cannot have this name."""
    if not name.isprintable():  # line breaks of all kinds, and what a terminal takes for a command
        fail(f"--run-name {ascii(name)}: expected printable characters")
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts or not parts:
        fail(f"--run-name {name} is not a directory below --runs-dir: expected a relative path without ..")
    if any(part.startswith(".") for part in parts):
        fail(f"--run-name {name} is hidden, and no program would find the run: expected a name without a dot before it")


def check(args: Any, argv: List[str], row_bytes: int = 0, default: Any = None, torchrun: bool = False) -> Any:
    """Checks what concerns several arguments, and fills in `run_name`, `num_minibatches`, `minibatch_size` and, where
    the default is the law's, `learning_rate`.

    `row_bytes`: memory of one stored step, to refuse a batch that cannot fit. `default`: as it was given to `parse`.
    `torchrun`: whether the script trains one run in several processes. Exits 2 with one line on bad input; touches no
    file. Returns `args`.
    """
    if devices.NUM_RANKS > 1 and not torchrun:
        fail("torchrun: expected ppo_ewma_atari_envpool.py or ppo_isaacgym.py; this script trains in one process")
    words = {word.split("=")[0].replace("_", "-") for word in argv}
    phases = _schedule(args, words)
    batch_size = args.num_envs * args.num_steps
    if args.total_timesteps < batch_size:
        fail(f"--total-timesteps {args.total_timesteps} is less than one batch: expected at least {batch_size}")
    if {"--num-minibatches", "--minibatch-size"} <= words:
        fail("--num-minibatches and --minibatch-size exclude each other: give one")
    scales = getattr(args, "scale_from", None) or getattr(args, "scaling", None)
    if scales:
        args.scale_from = args.scale_from or (default or type(args)()).num_envs
    if args.learning_rate is None:
        args.learning_rate = recipe.default_rate(vars(args))
    if scales:
        _scale(args)
    rows_that_fit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // max(row_bytes, 1)
    for num_envs, num_steps in phases:
        if num_envs * num_steps > rows_that_fit:
            fail(
                f"--num-envs {num_envs} x --num-steps {num_steps} does not fit in memory: "
                f"expected a batch of at most {rows_that_fit}"
            )
    flag = "minibatch_size" if args.minibatch_size else "num_minibatches"
    if batch_size % getattr(args, flag):
        fail(
            f"--{flag.replace('_', '-')} {getattr(args, flag)} does not divide the batch of {batch_size} = "
            f"{args.num_envs} envs x {args.num_steps} steps: expected a divisor of it"
        )
    args.minibatch_size = args.minibatch_size or batch_size // args.num_minibatches
    args.num_minibatches = batch_size // args.minibatch_size
    for num_envs, num_steps in phases:
        if num_envs * num_steps % args.minibatch_size:
            fail(
                f"--schedule {args.schedule}: the minibatches of {args.minibatch_size} rows do not divide the batch of "
                f"{num_envs}x{num_steps}: expected another --minibatch-size, or --num-minibatches of the first batch"
            )
        if num_envs % devices.NUM_RANKS or args.minibatch_size % devices.NUM_RANKS:
            fail(
                f"--num-envs {num_envs} or the minibatch size {args.minibatch_size} is not divisible by the "
                f"{devices.NUM_RANKS} processes of torchrun"
            )
    missing = devices.missing(args)
    if missing:
        fail(missing)
    sizes = getattr(args, "hidden_sizes", None)
    if sizes is not None:
        args.hidden_sizes = list(sizes)  # as a manifest gives it back
        if not sizes or min(sizes) < 1 or max(sizes) > 65536:
            fail(f"--hidden-sizes {args.hidden_sizes}: expected one number or more, each 1 to 65,536")
    args.run_name = args.run_name or f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    check_run_name(args.run_name)
    if args.track:
        import wandb  # only when asked for: importing it is enough to have it capture the console

        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            fail("--track needs an account: expected `wandb login`, WANDB_API_KEY=... or WANDB_MODE=offline")
    return args


def _schedule(args: Any, words: Set[str]) -> List[Tuple[int, int]]:
    """The (N, T) of the batches of a run; N and T of the arguments become those of the first.

    words: the flags of the command.
    """
    if not getattr(args, "schedule", None):
        return [(args.num_envs, args.num_steps)]
    excluded = sorted(words & {"--num-envs", "--num-steps", "--scale-from", "--scaling"})
    if excluded:
        fail(f"--schedule and {excluded[0]} exclude each other: give one")
    try:
        schedule = recipe.schedule_of(vars(args))
    except ValueError as error:
        fail(error)
    args.schedule = schedule.text
    if schedule.bounds and not args.diagnostics:
        fail("--schedule noise needs the diagnostics, which measure the noise: expected no --no-diagnostics")
    _, args.num_envs, args.num_steps = schedule.phases[0]
    n_by_ts = [(num_envs, num_steps) for _, num_envs, num_steps in schedule.phases]
    return [*n_by_ts, *((num_envs, args.num_steps) for num_envs in (schedule.bounds or ()))]


def _scale(args: Any) -> None:
    """Sets the minibatches and the learning rate that --scaling asks for, and says so.

    The number of minibatches and the rate of the command, or their defaults, are those of the base.
    """
    if args.minibatch_size:
        fail("--scaling and --minibatch-size exclude each other: expected --num-minibatches of the base, or neither")
    args.scaling = args.scaling or recipe.WAYS[0]
    try:
        args.minibatch_size, number, args.learning_rate = recipe.scaled(
            args.num_envs, args.scale_from, args.num_steps, args.num_minibatches, args.learning_rate, args.scaling
        )
    except ValueError as error:
        fail(error)
    if devices.RANK == 0:
        print(
            f"--scaling {args.scaling} from {args.scale_from} to {args.num_envs} environments: {number} minibatches of "
            f"{args.minibatch_size} rows, learning rate {args.learning_rate:g}",
            flush=True,
        )
