"""What the host asks of a GPU in each step of a rollout and in each minibatch, on the tests' stand-in for a GPU.

    python results/benchmark/launches.py ppo_atari_envpool.py --total-timesteps 2048 --no-diagnostics

Prints the most frequent counts: of a step, from one call of EnvPool to the next; of a minibatch, from one step of the
optimiser to the next. What comes once in a rollout, an epoch or an iteration is in neither.

operators   calls of PyTorch's operators that compute on the GPU: at least one launch of a kernel each
to GPU      copies from the host
to host     copies, and numbers and sizes that the host reads: it waits for each
waits       the two together, as far as the host waits for them
pin_memory  calls that make new pinned memory
"""

import ctypes
import runpy
import subprocess
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path

STAND_IN = Path(__file__).resolve().parents[2] / "tests/stand_in"
LIBRARY = str(Path(tempfile.gettempdir(), "stand_in_gpu.so"))
sys.path.insert(0, str(STAND_IN))
subprocess.run([sys.executable, "-c", f"import gpu; gpu.build({LIBRARY!r})"], check=True, cwd=STAND_IN)
ctypes.CDLL(LIBRARY)  # before torch

import gpu  # noqa: E402
import torch.utils._foreach_utils  # noqa: E402
from envpool.atari.atari_envpool import _AtariEnvPool  # noqa: E402

optimizer = sys.modules["torch.optim.optimizer"]
operate, send = gpu.operate, _AtariEnvPool._send
NO_LAUNCH = ("aten::empty", "aten::new_empty", "aten::set_", "aten::detach", "aten::lift", "aten::_local_scalar_dense")
now = Counter()  # since the last call of EnvPool or step of the optimiser
last = None  # which of the two that was
between = {"step": Counter(), "minibatch": Counter()}


def counted(func, args, kwargs):
    """gpu.operate, with its operator counted."""
    before = now["waits"]
    result = operate(func, args, kwargs)
    tensors = [x for x in gpu.tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
    source, target = (args[1], args[0]) if func is gpu.aten.copy_.default else (args[0] if args else None, result)
    is_view = any(x.alias_info and not x.alias_info.is_write for x in func._schema.returns)
    if func in gpu.MOVES and isinstance(source, gpu.OnGPU) != isinstance(target, gpu.OnGPU):
        now["to GPU" if isinstance(target, gpu.OnGPU) else "to host"] += 1
    elif any(isinstance(x, gpu.OnGPU) for x in tensors) and not is_view:
        now["to host"] += now["waits"] - before
        now["operators"] += not func._schema.name.startswith(NO_LAUNCH)
    return result


def count_wait():
    now["waits"] += 1


def mark(name):
    """Keeps the counts since the last call, if that was of the same name."""
    global last
    if name == last:
        between[name][tuple(sorted({**now, "pin_memory": len(gpu.pins)}.items()))] += 1
    last = name
    now.clear()
    gpu.pins.clear()


if __name__ == "__main__":
    sys.argv.pop(0)
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    sys.modules["isaacgym"] = types.ModuleType("isaacgym")  # as in gpu.py
    gpu.install()
    gpu.wait, gpu.operate = count_wait, counted
    for supported in (optimizer._foreach_supported_types, torch.utils._foreach_utils._foreach_supported_types):
        supported.append(gpu.OnGPU)  # as a GPU's tensors are
    _AtariEnvPool._send = lambda envs, *inputs: mark("step") or send(envs, *inputs)
    optimizer.register_optimizer_step_post_hook(lambda *_: mark("minibatch"))
    try:
        with gpu.Operators(), gpu.Functions():
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        for name, counts in between.items():
            for kinds, number in counts.most_common(3):
                print(f"{name}: {number} times", *(f"{kind} {count}" for kind, count in kinds if count), sep="   ")
