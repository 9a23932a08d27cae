#!/usr/bin/env bash
# The three ways of outer_loop.sh at 16 times as many environments, each with its own learning rates.
# Grid:  CartPole-v1, Acrobot-v1, DoorKey-5x5 x {base 8x32, 128x32 with more minibatches, 128x32 with bigger ones} x the
#        learning rate 2.5e-4 times {1/2, 1, 2, 4}, of bigger minibatches times 8 and 16 too, x 10 seeds. Four times the
#        rate is the square-root rule.
# Cost:  420 runs, 42 million steps: 80 minutes on two cores.
GAMES=${GAMES:-CartPole-v1 Acrobot-v1 MiniGrid-DoorKey-5x5-v0} SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10}
STEPS=${STEPS:-100000} EVAL_EPISODES=${EVAL_EPISODES:-50} FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"
bases_are 8x32 --num-minibatches 4 --learning-rate 0.00025
varies num_envs minibatch_size num_minibatches learning_rate

for seed in $SEEDS; do
    for game in $GAMES; do
        script=$(script_of "$game")
        for rate in 0.000125 0.00025 0.0005 0.001 0.002 0.004; do
            shape 128x32
            run "$script" "_bigger_lr$rate" --num-minibatches 4 --learning-rate $rate
            case $rate in 0.002 | 0.004) continue ;; esac
            run "$script" "_more_lr$rate" --num-minibatches 64 --learning-rate $rate
            shape 8x32
            run "$script" "_base_lr$rate" --num-minibatches 4 --learning-rate $rate
        done
    done
done | launch "$@"
