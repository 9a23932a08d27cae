"""python gpu.py LIBRARY WAITS SCRIPT …: runs a script on a stand-in for one NVIDIA GPU, which computes on the CPU.

A tensor on cuda:0 is an `OnGPU`: to PyTorch it lies there, and `inner` has its numbers on the CPU. Every operator that
gets one, or that makes one, arrives at `operate`, below autograd and autocast. There

- tensors of two devices raise as CUDA would, and so do a generator of the other device and a GPU's index into a tensor
  on the CPU; a number on the CPU (a tensor of no dimension) is allowed where CUDA allows it;
- each wait of the host for the GPU is counted, by the line of this repository that asks for it: numbers that are read,
  copies, and sizes that the GPU alone knows, such as that of x[mask].

`numpy` raises. A checkpoint is loaded onto the device that the script names, whatever device a tensor was on. The state
of a GPU's generator does not fit into a CPU's, and the other way round.

What differs from a GPU: an operator's result is there at once, so a missing wait is not seen; numbers are rounded as by
a CPU; memory is not limited; torch.compile and CUDA graphs do not work; torchrun's processes talk as on a CPU.

LIBRARY is gpu.cpp, built by `build`; it has to be loaded before torch. WAITS is the file that gets the waits of each
iteration: a JSON list of {"log_point": bool, "waits": {"file: line of code": number}, "pins": number of calls of
pin_memory, "threads": number of PyTorch's}.
"""

import collections
import ctypes
import json
import linecache
import runpy
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(path):
    """Compiles gpu.cpp to `path`. Raises an error without a C++ compiler."""
    import torch

    folder = Path(torch.__file__).parent
    words = [
        "g++",
        "-shared",
        "-fPIC",
        "-std=c++20",
        "-O0",
        f"-I{folder}/include",
        str(ROOT / "tests/stand_in/gpu.cpp"),
    ]
    libraries = [f"-L{folder}/lib", f"-Wl,-rpath,{folder}/lib", "-lc10", "-ltorch_cpu"]
    if (folder / "lib/libtorch_cuda.so").exists():  # a build for CUDA: what it registers has to come first
        libraries += ["-Wl,--no-as-needed", "-ltorch_cuda"]
    subprocess.run([*words, *libraries, "-o", str(path)], check=True)


if __name__ == "__main__" and "torch" not in sys.modules:
    ctypes.CDLL(sys.argv[1])
import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map_only  # noqa: E402

aten, GPU, CPU = torch.ops.aten, torch.device("cuda:0"), torch.device("cpu")
MOVES = {aten.copy_.default, aten._to_copy.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
WHOLE = {aten.cat.default, aten.stack.default}  # where CUDA takes no number from the CPU either
READS = {  # what the host has to wait for: a number, or a size
    *(aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default, aten.masked_select.default),
    *(aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default, aten.bincount.default),
    *(aten.repeat_interleave.Tensor, aten._linalg_eigh.default, aten._linalg_svd.default),
}
waits = collections.Counter()  # since the last iteration
iterations, pins = [], []


class OnGPU(torch.Tensor):
    """A tensor on cuda:0 whose numbers are in `inner`, a tensor on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=GPU
        )

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return operate(func, args, kwargs or {})

    def numpy(self, **_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def tolist(self):
        wait()
        return self.inner.tolist()

    def __deepcopy__(self, memo):
        made = self.detach().clone().requires_grad_(self.requires_grad)
        made._is_param = isinstance(self, torch.nn.Parameter)
        return memo.setdefault(id(self), made)

    def get_data(self):
        return torch.Tensor.data.__get__(self)

    def set_data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.inner = value.inner

    data = property(get_data, set_data)

    def __repr__(self):
        return f"OnGPU({self.inner})"


class Generator(torch._C.Generator):
    """torch.Generator, which here draws the same on both devices."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu"):
        self.on_gpu = torch.device(device).type == "cuda"

    @property
    def device(self):
        return GPU if self.on_gpu else CPU

    def get_state(self):
        state = super().get_state()
        return torch.cat([state, state[:16]]) if self.on_gpu else state

    def set_state(self, state):
        own = len(super().get_state())
        if len(state) != own + 16 * self.on_gpu:
            raise RuntimeError("RNG state is wrong size")
        return super().set_state(state[:own])


def is_ours(path):
    """Whether a file is a program of this repository, not a library, a test or a stand-in."""
    return path.startswith(f"{ROOT}/") and not {"site-packages", "stand_in"} & set(Path(path).parts)


def wait():
    """Counts a wait for the GPU, for the line of this repository that is being executed."""
    frame = sys._getframe(1)
    while frame and not is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame:
        path = frame.f_code.co_filename
        waits[f"{Path(path).relative_to(ROOT)}: {linecache.getline(path, frame.f_lineno).strip()}"] += 1


def check(func, tensors, args):
    """Raises what CUDA would of tensors on two devices."""
    if func in MOVES:
        return
    numbers_may_differ = func not in WHOLE
    if func in INDEXED:
        indices = [x for x in tree_leaves(args[1]) if x is not None]
        if not isinstance(args[0], OnGPU) and any(isinstance(x, OnGPU) for x in indices):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        tensors = [x for x in tensors if not any(x is index for index in indices)]
    devices = {isinstance(x, OnGPU) for x in tensors if x.dim() > 0 or not numbers_may_differ}
    if any(isinstance(x, OnGPU) for x in tensors) and False in devices:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu: {func}")


def count_waits(func, args, kwargs, target):
    """Counts what the host would wait for. target: the device of a copy."""
    if func in READS and any(isinstance(x, OnGPU) for x in tree_leaves(args)):
        wait()
    if func in INDEXED and isinstance(args[0], OnGPU):
        for index in args[1]:
            if index is not None and (index.dtype in (torch.bool, torch.uint8) or not isinstance(index, OnGPU)):
                wait()
    source = args[1] if func is aten.copy_.default else args[0] if func is aten._to_copy.default else None
    if source is not None and isinstance(source, OnGPU) != (target.type == "cuda"):
        late = kwargs.get("non_blocking", False) or len(args) > 2 and args[2]
        if late and target.type == "cpu":
            raise RuntimeError("a copy to the CPU that nobody waits for may be read too early")
        if not late:
            wait()


def operate(func, args, kwargs):
    """Computes an operator of PyTorch on the inner tensors."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    device = kwargs.get("device")
    if device is not None:
        target = torch.device(device)
        kwargs = {**kwargs, "device": CPU}
    elif func is aten.copy_.default:
        target = args[0].device
    else:
        target = GPU if any(isinstance(x, OnGPU) for x in tensors) else CPU
    if target == CPU and not any(isinstance(x, OnGPU) for x in tensors):
        return func(*args, **kwargs)
    check(func, tensors, args)
    count_waits(func, args, kwargs, target)
    inner = tree_map_only(OnGPU, lambda x: x.inner, (args, kwargs))
    result = func(*inner[0], **inner[1])
    if target.type == "cpu":
        return result
    return return_and_correct_aliasing(func, args, kwargs, tree_map_only(torch.Tensor, OnGPU, result))


class Operators(TorchDispatchMode):
    """Where tensors can be made on the GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return operate(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """What does not arrive at an operator: the generator that the script has made, and numbers of Python on the GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor):
            device = kwargs.pop("device", None)
            made = func(*args, **kwargs)
            return made if device is None else made.to(device)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[0], OnGPU):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            index = tuple(torch.tensor(x).to(GPU) if isinstance(x, (list, numpy.ndarray)) else x for x in index)
            args = (args[0], index, *args[2:])
        generator = kwargs.get("generator")
        if generator is not None:
            tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
            target = torch.device(kwargs.get("device") or (CPU if tensor is None else tensor.device))
            if generator.device.type != target.type:
                raise RuntimeError(f"Expected a '{target}' generator device but found '{generator.device}'")
        return func(*args, **kwargs)


def install():
    """Has torch say that there is a GPU."""
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "a stand-in",
        "is_bf16_supported": True,
        **dict.fromkeys(("_lazy_init", "set_device", "synchronize", "manual_seed_all")),
    }.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    torch.Generator = Generator
    torch.Tensor.pin_memory = lambda tensor: pins.append(tensor) or tensor.clone()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # `inner` is no part of what param.data = x copies
    join = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend: join("gloo")
    save, load = torch.save, torch.load

    def save_numbers(content, file, **options):
        save(tree_map_only(OnGPU, lambda x: x.inner, content), file, **options)

    def load_onto(file, map_location=None, **options):
        content = load(file, map_location="cpu", **options)
        on_gpu = torch.device(map_location or "cpu").type == "cuda"
        return tree_map_only(torch.Tensor, OnGPU, content) if on_gpu else content

    torch.save, torch.load = save_numbers, load_onto


def watch(rundir):
    """Keeps the waits of each iteration in `iterations`."""
    log, end_iteration = rundir.Run.log, rundir.Run.end_iteration
    logged = []

    def log_and_say(run, scalars):
        logged.append(True)
        log(run, scalars)

    def end_and_keep(run, *copies):
        end_iteration(run, *copies)
        counts = {"pins": len(pins), "threads": torch.get_num_threads()}
        iterations.append({"log_point": bool(logged), "waits": dict(waits), **counts})
        logged.clear()
        pins.clear()
        waits.clear()

    rundir.Run.log, rundir.Run.end_iteration = log_and_say, end_and_keep


if __name__ == "__main__":
    _, library, waits_path, *sys.argv = sys.argv
    sys.path.insert(0, str(ROOT))
    sys.modules["isaacgym"] = types.ModuleType("isaacgym")  # it refuses to be imported after torch, as Isaac Gym does
    install()
    from support import rundir

    watch(rundir)
    try:
        with Operators(), Functions():
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        Path(waits_path).write_text(json.dumps(iterations))
