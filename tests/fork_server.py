"""Runs Python programs in forks of a process that has imported what they import: that takes longer than most test runs.

An argument is a library that is loaded before all of them. On stdin a JSON object a line. A program: argv, cwd, env,
and the files that take stdout and stderr; the answer is its process id. {"wait": id}: the answer is its exit code
(minus the signal that killed it), or null while it runs.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import sys

for library in sys.argv[1:]:
    ctypes.CDLL(library)
for name in (
    "envpool",
    "torch._dynamo",  # the first optimiser imports it
    "torch.optim",
    "tyro",
    "tqdm",
    "tensorboard.backend.event_processing.event_file_loader",
    "tensorboard.summary.writer.record_writer",
):
    importlib.import_module(name)
gc.freeze()  # or each child searches all of this for garbage when it ends: a second and a half
for line in sys.stdin:
    job = json.loads(line)
    if "wait" in job:
        pid, status = os.waitpid(job["wait"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
else:
    sys.exit()

os.chdir(job["cwd"])
os.environ.clear()
os.environ.update(job["env"])
for descriptor, path in ((0, os.devnull), (1, job["stdout"]), (2, job["stderr"])):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
sys.argv = job["argv"]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
