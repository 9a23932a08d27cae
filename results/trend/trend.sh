#!/usr/bin/env bash
# Does more N go on to help at a fixed T? Under two rules: four minibatches of any size, or minibatches of 64 rows.
# Grid:  CartPole-v1, Acrobot-v1, DoorKey-5x5 x N {4, 16, 64, 256, 1024} at T = 16 x 2 rules x 10 seeds (our choice),
#        163,840 steps: 10 iterations at N = 1024. At N = 16 both rules give one run.
# Cost:  270 runs, 44 million steps: one to two hours on two cores.
GAMES=${GAMES:-CartPole-v1 Acrobot-v1 MiniGrid-DoorKey-5x5-v0} SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10}
STEPS=${STEPS:-163840} EVAL_EPISODES=${EVAL_EPISODES:-50} FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"
bases_are 16x16 --minibatch-size 64
varies num_envs minibatch_size

for seed in $SEEDS; do
    for game in $GAMES; do
        for n in 4 16 64 256 1024; do
            shape "${n}x16"
            run "$(script_of "$game")" "_mb64" --minibatch-size 64
            [ "$n" = 16 ] || run "$(script_of "$game")" "_four" --minibatch-size "$((n * 4))"
        done
    done
done | launch "$@"
