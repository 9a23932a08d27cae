"""gymnasium's environments in several processes, for tasks whose steps take longer than a message. Python 3.8.

gymnasium's own AsyncVectorEnv has a process for each environment: too many for 128 of them.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import subprocess
import sys
import weakref
from typing import Any, Dict, List, Tuple

from support import arguments
from support.envs import gymnasium
from support.envs.spaces import Envs, Unplayable

MESSAGE_SECONDS = 2e-4  # to another process and back, with actions and observations; 1.1e-4 was measured
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}  # what a run is stopped with
WORKER = "import sys; sys.path[:] = sys.argv[2:]; from support.envs.processes import serve; serve(int(sys.argv[1]))"


def num_workers(seconds: float, num_envs: int, cores: int) -> int:
    """The processes for environments whose steps take so many seconds; 1, this one, if a message takes longer."""
    return min(cores, num_envs) if seconds > MESSAGE_SECONDS else 1


def share_of_cores() -> int:
    """The cores for this process: what launch.py or the user says in OMP_NUM_THREADS, or torchrun's share."""
    cores, processes = len(os.sched_getaffinity(0)), os.environ.get("LOCAL_WORLD_SIZE")
    if processes:  # OMP_NUM_THREADS is torchrun's then, and 1
        return max(1, cores // int(processes))
    threads = re.match(r"[1-9]\d*", os.environ.get("OMP_NUM_THREADS", ""))
    return min(cores, int(threads[0])) if threads else cores


class EnvsInProcesses(Envs):
    """The environments of GymnasiumEnvs, bit for bit, in several processes that each step some of them in turn.

    The processes are fresh ones: a fork would share locks, threads and a GPU with this one. They end when their pipe is
    closed, which they see even if this process is killed. Signals that stop a run are for this process alone.
    """

    def __init__(self, env_id: str, env_kwargs: str, seeds: Any, number: int) -> None:
        import numpy as np

        super().__init__(gymnasium.spaces(env_id, env_kwargs), seeds)
        self.env_id, shares = env_id, np.array_split(self.seeds, number)
        self.ends = np.cumsum([len(share) for share in shares])[:-1]
        self.pipes: List[multiprocessing.connection.Connection] = []
        self.processes: List[subprocess.Popen[bytes]] = []
        self.end = weakref.finalize(self, _end, self.pipes, self.processes)  # also when the program ends
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # which the processes inherit, until they ignore them
        try:
            for share in shares:
                here, there = multiprocessing.Pipe()
                words = [sys.executable, "-c", WORKER, str(there.fileno()), *sys.path]
                threads = {"OMP_NUM_THREADS": "1", **os.environ}
                self.processes.append(
                    subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, env=threads, pass_fds=[there.fileno()], cwd=arguments.START
                    )
                )
                there.close()
                self.pipes.append(here)
                here.send((env_id, env_kwargs, share.tolist()))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def answers(self, messages: List[Any]) -> List[Any]:
        """What the processes answer to a message each. Ends the program with one line if one has failed."""
        try:
            for pipe, message in zip(self.pipes, messages):
                pipe.send(message)
            answers = [pipe.recv() for pipe in self.pipes]
        except (EOFError, OSError):
            sys.exit(f"error: --env-id {self.env_id}: a process that steps its environments has ended")
        for answer in answers:
            if isinstance(answer, Unplayable):
                self.close()
                number = len(self.seeds)
                several = f"cannot be made in several processes ({answer}): expected --num-envs 1 and one seed"
                again = gymnasium.only_once(str(answer), number) if number > len(self.pipes) else several
                arguments.fail(f"--env-id {self.env_id} {again}")
            if isinstance(answer, str):
                sys.exit(answer)
        return answers

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        return self.joined(self.answers([None] * len(self.pipes))), {}

    def advance(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        import numpy as np

        answers = zip(*self.answers(np.split(action, self.ends)))
        return (*map(self.joined, answers), {})  # type: ignore[return-value]

    def close(self) -> None:
        self.end()

    def joined(self, parts: Any) -> Any:
        """The arrays of the processes, (n, ...) each, as one of (N, ...) or (S, N, ...)."""
        import numpy as np

        whole = np.concatenate(parts)
        return whole.reshape(*self.shape, *whole.shape[1:])


def _end(pipes: List[Any], processes: List[Any]) -> None:
    """Ends the processes of EnvsInProcesses; kills those whose step takes longer than ten seconds."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve(descriptor: int) -> None:
    """Steps environments for EnvsInProcesses until its end of the pipe is closed.

    The first message is the task, its options and its seeds. Then None asks for a reset, an array of actions for a
    step. An answer that is a text says what the task has raised, an Unplayable why it cannot be made.
    """
    for signum in STOPS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    pipe = multiprocessing.connection.Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        envs = _made(*pipe.recv())
        while True:
            action = pipe.recv()
            answer: Any
            try:
                if isinstance(envs, Unplayable):
                    answer = envs
                else:
                    answer = envs.reset()[0] if action is None else envs.advance(action)[:4]
            except SystemExit as end:
                answer = str(end.code)
            pipe.send(answer)


def _made(*task: Any) -> Any:
    """The environments of a process; if they cannot be made, an Unplayable with what the user's module has raised."""
    try:
        return gymnasium.GymnasiumEnvs(*task)
    except Unplayable as error:
        return Unplayable(gymnasium.cause(error))
