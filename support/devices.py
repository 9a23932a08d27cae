"""Where a run computes: the device, CPU threads, copies to a GPU, torch.compile, CUDA graphs and torchrun's processes.

Nothing here knows what is computed. torch is imported when a function needs it, so that importing this module costs
nothing and so that Isaac Gym can be imported before torch. Python 3.8, for Isaac Gym.

With one process every collective is the identity: the scripts call them unconditionally, and the same text runs under
torchrun.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

T = TypeVar("T")

# torchrun's process number, the number of processes, and the process number on this machine
RANK, NUM_RANKS, LOCAL_RANK = (
    int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
)


def available_bytes() -> float:
    """Bytes of main memory that are free; infinite where /proc does not say."""
    try:
        with open("/proc/meminfo") as file:
            return 1024 * int(next(line for line in file if line.startswith("MemAvailable")).split()[1])
    except (OSError, StopIteration):
        return float("inf")


def missing(args: Any) -> Optional[str]:
    """What --compile or --cuda-graphs need and this machine lacks, as one line for the user; None if nothing is."""
    import importlib.util
    import shutil

    if getattr(args, "cuda_graphs", False):
        import torch

        if not (args.cuda and torch.cuda.is_available()) or NUM_RANKS > 1:
            return "--cuda-graphs needs an NVIDIA GPU and one process: use --no-cuda-graphs"
        if importlib.util.find_spec("tensordict") is None:
            return "--cuda-graphs needs the package tensordict: pip install -r requirements-gpu.txt"
        for flag in ("prox_com", "schedule"):
            if getattr(args, flag, None) is not None:
                return f"--{flag.replace('_', '-')} and --cuda-graphs exclude each other: use --no-cuda-graphs"
    if getattr(args, "compile", False):
        if not shutil.which(os.environ.get("CXX", "g++")):
            return "--compile needs a C++ compiler, g++ or what CXX names: use --no-compile"
        import torch

        if not (args.cuda and torch.cuda.is_available()) and (args.num_threads or default_threads()) > 1:
            return "--compile works in one thread on a CPU: use --num-threads 1"
    return None


def set_up(args: Any) -> Any:
    """Returns the torch.device of this process, with PyTorch set up for it. Joins torchrun's processes, if any.

    Reads `num_threads`, `cuda`, `torch_deterministic` and, where a script has it, `tf32`.

    --num-threads, which this function makes `default_threads` if it is 0, are on a CPU the threads of `Workers`: each
    has one thread of PyTorch, and EnvPool one for each of its pieces. On a GPU they are EnvPool's; PyTorch has one, for
    its threads would wake at each copy, and spin, just when EnvPool's need the cores.
    """
    import torch

    device = torch.device(f"cuda:{LOCAL_RANK}" if args.cuda and torch.cuda.is_available() else "cpu")
    args.num_threads = args.num_threads or default_threads()
    set_up_cpu(1 if device.type == "cuda" else args.num_threads)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    if hasattr(args, "tf32"):
        torch.backends.cudnn.allow_tf32 = args.tf32
        torch.set_float32_matmul_precision("high" if args.tf32 and device.type == "cuda" else "highest")
    if NUM_RANKS > 1:
        _join_processes(device)
    return device


def default_threads() -> int:
    """PyTorch's own number of threads; under torchrun, which sets OMP_NUM_THREADS to 1, a share of the cores."""
    import torch

    processes = os.environ.get("LOCAL_WORLD_SIZE")
    if processes is None or not hasattr(os, "sched_getaffinity"):
        return int(torch.get_num_threads())
    return max(1, len(os.sched_getaffinity(0)) // int(processes))


def env_threads(args: Any, device: Any) -> int:
    """How many threads EnvPool gets for one piece of the environments (`set_up`)."""
    return args.num_threads if device.type == "cuda" else 1


def set_up_cpu(num_threads: int) -> None:
    """Sets PyTorch's number of threads, and keeps memory that is freed in the process.

    glibc returns blocks of 32 MB and more to the system at once, and each page of the next tensor is then a fault: a
    quarter of the time of an update at minibatches of 1024 frames.
    """
    import ctypes

    import torch

    torch.set_num_threads(num_threads)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl and macOS have none
    if mallopt:
        # M_MMAP_THRESHOLD: glibc 2.31 refuses more than 32 MB, and M_TRIM_THRESHOLD alone would leave it at 128 KB
        mallopt(-3, 2**30) or mallopt(-3, 2**25)
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def bf16_hint(bf16: bool) -> Optional[str]:
    """What --bf16 would gain or costs on this CPU, in one line for the user; None if the choice is the fast one."""
    try:
        with open("/proc/cpuinfo") as file:
            native = not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(file.read().split())
    except OSError:  # not Linux: unknown
        return None
    if native and not bf16:
        return "this CPU computes in bfloat16: --bf16 would train up to twice as fast"
    if bf16 and not native:
        return "this CPU does not compute in bfloat16: without --bf16 training is two to three times as fast"
    return None


def pinned(array: Any, device: Any) -> Any:
    """The NumPy array; for a GPU a copy in pinned memory, from which `to_device` copies without the host.

    Make it once and keep it: to pin memory at each step takes longer than a copy. Write to it only after a wait for the
    GPU: a copy may still be under way.
    """
    import torch

    return torch.from_numpy(array).pin_memory().numpy() if device.type == "cuda" else array


def to_device(array: Any, device: Any) -> Any:
    """The NumPy array as a tensor on the device, for which the host does not wait. On a CPU they share their memory."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor.to(device, non_blocking=True) if device.type == "cuda" else tensor


def numbers(values: Dict[str, Any]) -> Dict[str, Any]:
    """{name: number} of numbers and tensors, without dimensions or (S,), which become floats or lists of S floats.

    The host waits for a GPU once, for all tensors together.
    """
    import torch

    far = [name for name, x in values.items() if isinstance(x, torch.Tensor) and x.device.type == "cuda"]
    copies = torch.stack([values[name].double() for name in far]).cpu() if far else []
    values = {**values, **dict(zip(far, copies))}
    return {name: x.tolist() if isinstance(x, torch.Tensor) else x for name, x in values.items()}


def copy_state(source: Any, target: Any) -> None:
    """Copies the parameters and buffers of a module to another one on the CPU; from a GPU, all in one message.

    Does nothing if both are the same module.
    """
    import torch

    if source is target:
        return
    tensors, copies = ([*x.state_dict().values()] for x in (source, target))
    flat = torch.cat([x.flatten().double() for x in tensors]).cpu()  # float32 is exact in float64
    for copy, part in zip(copies, flat.split([x.numel() for x in copies])):
        copy.copy_(part.view(copy.shape))


def joined(tensor: Any, dim: int) -> Any:
    """A tensor of this process and those of the others, side by side along `dim`; itself if there is one process."""
    if not _in_a_group():
        return tensor
    import torch

    return torch.cat(gather(tensor.cpu()), dim).to(tensor.device)


def compiled(function: Callable, enabled: bool) -> Callable:
    """torch.compile of the function for fixed shapes, if enabled. Call it once, before the loop."""
    import torch

    return torch.compile(function, dynamic=False) if enabled else function


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Sets the learning rate of all parameters; in place where a CUDA graph reads it, from a tensor."""
    for group in optimizer.param_groups:
        group["lr"] = rate if isinstance(group["lr"], float) else group["lr"].fill_(rate)


def load_optimizer(optimizer: Any, state: Any) -> None:
    """optimizer.load_state_dict(state), where only one of the two may have CUDA graphs.

    With graphs the learning rate is a tensor, and the count of steps lies on the GPU (`capturable`). The optimizer
    keeps its own kind of both, and gets the value of the state's rate, which all groups share.
    """
    own = [{key: group[key] for key in ("lr", "capturable") if key in group} for group in optimizer.param_groups]
    groups = [{**group, **kept} for group, kept in zip(state["param_groups"], own)]
    optimizer.load_state_dict({**state, "param_groups": groups})
    set_learning_rate(optimizer, float(state["param_groups"][0]["lr"]))


def graphed(function: Callable, enabled: bool) -> Callable:
    """The function as a CUDA graph (tensordict's CudaGraphModule), if enabled: one launch instead of hundreds.

    The function takes tensors that need no gradient, always of the same shapes, and returns detached tensors. It must
    not wait for the GPU. All else that it reads or writes must stay at one place in memory. Arguments that are not
    tensors are not allowed: the graph would replay the value of the first call. The first three calls run as they are.
    """
    if not enabled:
        return function
    from tensordict.nn import CudaGraphModule

    return CudaGraphModule(function, warmup=4)


def averaged(module: Any, com: Optional[float]) -> Any:
    """A copy of the module whose parameters are averages of what the module's have been: a debiased EWMA.

    None if com is None.

    com: the centre of mass of the weights, in calls of `update_parameters(module)`. Each call multiplies the weights so
    far by com / (com + 1) and adds the present parameters with weight 1; the weights are then divided by their sum. The
    first call is `begin_average`'s. The averages have no gradient. Buffers are the module's own.
    """
    import torch
    from torch.optim.swa_utils import AveragedModel

    if com is None:
        return None
    decay = com / (com + 1.0)

    class Average(AveragedModel):
        @torch.no_grad()
        def update_parameters(self, module: Any) -> None:
            # AveragedModel's own copies its counter to the GPU each time, and waits for that
            weight = (1.0 - decay) / (1.0 - decay ** (int(self.n_averaged) + 1))
            torch._foreach_lerp_(list(self.module.parameters()), list(module.parameters()), weight)
            self.n_averaged += 1

    average = Average(module).requires_grad_(False)
    for mine, its in zip(average.module.modules(), module.modules()):
        mine._buffers.update(its._buffers)
    return average


def begin_average(average: Any, module: Any) -> None:
    """Initialises an average (`averaged`, or None) from the module, unless a checkpoint has restored it.

    Call it once, after `restore`: a checkpoint without an average may have changed the module.
    """
    if average is not None and average.n_averaged == 0:
        average.update_parameters(module)


class Workers:
    """Threads that carry out pieces of work, each with one PyTorch thread. Results do not depend on their number.

    `pieces` cuts work without knowing the number of threads, and the threads take the pieces from a queue. If the
    system deschedules a thread, only its piece is late. PyTorch's own threads would all wait for it, in hundreds of
    parallel regions per minibatch: beside one busy program they lose nine tenths of their speed.

    The number of PyTorch's threads, grad mode and autocast are settings of each thread. On a GPU, and with one thread,
    the calling thread does the work. On a GPU the work is one piece.
    """

    def __init__(self, args: Any, device: Any) -> None:
        import torch

        self._whole = device.type == "cuda"
        self._threads = None
        if not self._whole:
            hint = bf16_hint(args.bf16) if hasattr(args, "bf16") else None
            if hint:
                print(hint, flush=True)
            number = args.num_threads or torch.get_num_threads()
            torch.set_num_threads(1)  # the calling thread's: its diagnostics and optimiser would stall likewise
            if number > 1:
                from concurrent.futures import ThreadPoolExecutor

                self._threads = ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,))

    def pieces(self, number: int, size: int = 32) -> List[slice]:
        """Cuts range(number) into slices of `size` or more: at least two if it can, at most sixteen. On a GPU: one."""
        count = 1 if self._whole else max(1, min(number, 16, max(2, number // size)))
        return [slice(number * i // count, number * (i + 1) // count) for i in range(count)]

    def map(self, function: Callable, *sequences: Iterable[Any]) -> List[Any]:
        """[function(*items) for items in zip(*sequences)], in the threads, with the caller's grad mode.

        Raises the first exception of a piece.
        """
        if self._threads is None:
            return [function(*items) for items in zip(*sequences)]
        import torch

        grad_mode = torch.is_grad_enabled()

        def piece(*items: Any) -> Any:
            with torch.set_grad_enabled(grad_mode):
                return function(*items)

        return list(self._threads.map(piece, *sequences))

    def summed(self, function: Callable, rows: Any) -> Tuple[List[Any], Dict[str, Any]]:
        """function(rows), computed in pieces of 128 rows or more and summed in the order of the pieces.

        rows: a NamedTuple of tensors, each of which is cut into the same number of pieces: as many as its first one
        needs. The function returns a list and a dict of tensors.
        """
        import torch

        # with 64 rows a training step of the Atari network takes 10 % longer
        count = len(self.pieces(len(rows[0]), 128))
        pieces = [rows._make(x[len(x) * i // count : len(x) * (i + 1) // count] for x in rows) for i in range(count)]
        parts = self.map(function, pieces)
        total, named = parts[0]
        for more, more_named in parts[1:]:
            torch._foreach_add_(total, more)
            named = {name: value + more_named[name] for name, value in named.items()}
        return total, named


# ---- torchrun's processes: each has its share of the environments ----------------------------------------------------
def _join_processes(device: Any) -> None:
    """The first process writes the run and speaks for all; the others are silent but for errors.

    Where the kernel can do so, it stops them when torchrun, which has started them, is killed.
    """
    import atexit
    import ctypes
    import signal
    import sys

    import torch
    import torch.distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if dist.get_backend() == "gloo":  # its threads, left alone, abort one exit in twenty
        atexit.register(dist.destroy_process_group)
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if RANK > 0:
        sys.stdout = open(os.devnull, "w")


def _in_a_group() -> bool:
    if NUM_RANKS == 1:
        return False
    import torch.distributed as dist

    return dist.is_initialized()


def share(number: int) -> range:
    """The part of range(number) that is this process's: contiguous, and as equal as can be."""
    return range(number * RANK // NUM_RANKS, number * (RANK + 1) // NUM_RANKS)


def sum_over_ranks(tensor: Any) -> Any:
    """The sum of a tensor over all processes; the tensor itself if there is one process."""
    if not _in_a_group():
        return tensor
    import torch.distributed as dist

    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


def add_over_ranks(tensors: Sequence[Any]) -> None:
    """Replaces each tensor by its sum over all processes, in one message for all of them."""
    if not _in_a_group():
        return
    import torch

    flat = sum_over_ranks(torch.cat([x.flatten() for x in tensors]))
    for x, total in zip(tensors, flat.split([x.numel() for x in tensors])):
        x.copy_(total.view_as(x))


def gather(value: T) -> List[T]:
    """The values of all processes, by rank: anything small that can be pickled. [value] if there is one process."""
    if not _in_a_group():
        return [value]
    import torch.distributed as dist

    values: List[Any] = [None] * NUM_RANKS
    dist.all_gather_object(values, value)
    return values


def mean_over_ranks(count: int, mean: float) -> Tuple[int, float]:
    """The number of rows of all processes and the mean over them, from those of each process. NaN of no rows."""
    parts = [(n, n * x) for n, x in gather((count, mean)) if n > 0]
    total = sum(n for n, _ in parts)
    return total, sum(x for _, x in parts) / total if total else float("nan")
