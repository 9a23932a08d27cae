#!/usr/bin/env bash
# The small tasks for which CleanRL and RL Zoo publish returns, at their budgets and settings.
# Grid:  20 seeds of each, in one process; Hopper 10 seeds.
# Cost:  42 million steps: 75 minutes of one core.
cd "$(dirname "$0")/../.." || exit
PYTHON=${PYTHON:-python} RUNS_DIR=${RUNS_DIR:-runs}

reference() { # NAME, the number of seeds, and the flags
    "$PYTHON" ppo_envpool.py --runs-dir "$RUNS_DIR" --run-name "references/$1" --num-seeds "$2" --num-logs 50 \
        --eval-episodes 100 --num-threads 1 "${@:3}"
}

for task in CartPole-v1 Acrobot-v1 MountainCar-v0; do
    reference "cleanrl_$task" 20 --env-id $task --num-envs 4 --num-steps 128 --total-timesteps 500000 \
        --learning-rate 2.5e-4
done
reference zoo_CartPole-v1 20 --env-id CartPole-v1 --num-envs 8 --num-steps 32 --minibatch-size 256 --update-epochs 20 \
    --gae-lambda 0.8 --gamma 0.98 --ent-coef 0 --learning-rate 1e-3 --no-clip-vloss --total-timesteps 100000
reference cleanrl_Hopper-v4 10 --env-id Hopper-v4 --num-envs 1 --num-steps 2048 --num-minibatches 32 \
    --update-epochs 10 --learning-rate 3e-4 --ent-coef 0 --norm-obs --norm-reward --total-timesteps 1000000
