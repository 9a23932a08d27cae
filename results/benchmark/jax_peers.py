"""Trains several seeds of PureJaxRL's or rejax's PPO on CartPole-v1 at once with `jax.vmap`, for benchmark_packs.py.

    python jax_peers.py purejaxrl SEEDS NUM_ENVS NUM_STEPS STEPS    # PYTHONPATH: purejaxrl/ and purejaxrl/purejaxrl/
    python jax_peers.py rejax SEEDS NUM_ENVS NUM_STEPS STEPS

It needs a Python environment of its own: jax 0.10.2, gymnax 0.0.8, distrax 0.1.9, flax 0.12.8, rejax 0.1.3 from PyPI,
PureJaxRL 31756b1. Both get CleanRL's settings of CartPole. Neither runs evaluation episodes or writes files; rejax's
evaluation between iterations is off. Prints the CPU-seconds of the compilation and of the training.
"""

import resource
import sys
import types

import jax

jax.tree_map = jax.tree.map  # both use it; JAX has removed it


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def purejaxrl(num_envs, num_steps, steps):
    for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
        sys.modules[name] = types.ModuleType(name)  # its wrappers import them; CartPole needs neither
    sys.modules["brax"].envs = sys.modules["brax.envs"]
    training = sys.modules["brax.envs.wrappers.training"]
    training.EpisodeWrapper = training.AutoResetWrapper = object
    import ppo

    config = {"ENV_NAME": "CartPole-v1", "NUM_ENVS": num_envs, "NUM_STEPS": num_steps, "TOTAL_TIMESTEPS": steps}
    config |= {"LR": 2.5e-4, "ANNEAL_LR": True, "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 4, "GAMMA": 0.99}
    config |= {"GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5}
    return ppo.make_train({**config, "ACTIVATION": "tanh", "DEBUG": False})


def rejax(num_envs, num_steps, steps):
    import rejax

    algorithm = rejax.PPO.create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh"},
        num_envs=num_envs,
        num_steps=num_steps,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=2.5e-4,  # not annealed: it has no such option
        max_grad_norm=0.5,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        vf_coef=0.5,
        ent_coef=0.01,
    )
    return algorithm.replace(eval_callback=lambda algorithm, state, rng: ()).train


make = {"purejaxrl": purejaxrl, "rejax": rejax}[sys.argv[1]]
seeds, *settings = map(int, sys.argv[2:])
keys = jax.random.split(jax.random.PRNGKey(1), seeds)
train = jax.jit(jax.vmap(make(*settings))).lower(keys).compile()
compiled = cpu()
jax.block_until_ready(train(keys))
trained = cpu() - compiled
speed = seeds * settings[-1] / trained
print(f"start and compilation {compiled:.1f} CPU-s, training {trained:.1f}: {speed:,.0f} steps/CPU-s")
