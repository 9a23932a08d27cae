"""Trains PufferLib 3.0.0's PPO on its own CartPole on the CPU, for benchmark_packs.py.

    python puffer_peer.py NUM_ENVS NUM_STEPS STEPS [own]

PufferLib 3.0.0 is the source package of PyPI, built without CUDA and with no environment but CartPole, in a Python
environment of its own with numpy 1.26. It gets CleanRL's settings of CartPole; with `own` it keeps its own (Muon of
heavyball 1.7.2, minibatches of 8,192 rows, one epoch). It brings its own CartPole in C. Its network has one hidden
layer of 128 units for both heads. It runs no evaluation episodes and writes no event files. Prints its dashboard and
its speed.
"""

import os
import resource
import sys
import tempfile

CLEANRL = {
    "optimizer": "adam",
    "learning_rate": 2.5e-4,
    "adam_beta1": 0.9,
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "update_epochs": 4,
    "clip_coef": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "minibatch_size": 256,
}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(num_envs, num_steps, steps, own):
    os.chdir(tempfile.mkdtemp())  # PufferLib leaves a link and its checkpoints where it is imported
    import pufferlib.vector
    import torch
    from pufferlib import models, pufferl
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    torch.set_num_threads(1)
    config = pufferl.load_config("puffer_cartpole")["train"]
    config |= {"device": "cpu", "total_timesteps": steps, "bptt_horizon": num_steps, "use_rnn": False}
    config |= {"data_dir": "experiments", "env": "puffer_cartpole"}
    config |= {} if own else CLEANRL
    envs = pufferlib.vector.make(
        Cartpole, env_kwargs={"num_envs": num_envs}, backend=pufferlib.vector.Serial, num_envs=1
    )
    trainer = pufferl.PuffeRL(config, envs, models.Default(envs.driver_env))
    before = cpu()
    while trainer.global_step < steps:
        trainer.evaluate()
        trainer.train()
    print(f"{trainer.global_step} steps, {trainer.global_step / (cpu() - before):.0f} a CPU-second after the start")
    os._exit(0)  # its monitor thread does not end otherwise


if __name__ == "__main__":
    flags = sys.argv[1:]
    del sys.argv[1:]  # load_config reads it too
    main(*map(int, flags[:3]), own=flags[3:] == ["own"])
