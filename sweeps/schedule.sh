#!/usr/bin/env bash
# P1's future work: N and T that change during training, at equal data and equal minibatches.
# Claim: more environments late in training, when the gradient is noisy, beat the best N x T that is kept.
# Grid:  $SMALL x {fixed: 8x128, 32x32, 128x8; growing N: 8x128, 32x32, 128x8; growing T: the same backwards; growing
#        batch: 8x32, 32x32, 128x32, each for a third of the steps; N led by the gradient's noise: 8 to 128, T = 32}
#        x 10 seeds, minibatches of 256 rows, learning rate RATE (5e-4), 200k steps (our choice).
# Cost:  350 runs, 70 million steps: hours on two cores.
# Draws: curves of the fixed N x T and of the schedules; `_games`: by game, with N.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-200000}
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$SMALL}
RATE=${RATE:-0.0005}
FLAGS="--minibatch-size 256 --learning-rate $RATE ${FLAGS:-}"
bases_are 32x32
varies num_envs num_steps schedule

for seed in $SEEDS; do
    for game in $GAMES; do
        script=$(script_of "$game")
        for n_by_t in 32x32 8x128 128x8; do
            set_n_by_t $n_by_t
            run "$script" "_fixed"
        done
        set_n_by_t 8x32
        run "$script" "_noise" --schedule noise:8-128x32
        run "$script" "_growing_batch" --schedule 0:8x32,0.3333:32x32,0.6667:128x32
        set_n_by_t 8x128
        run "$script" "_growing_n" --schedule 0:8x128,0.3333:32x32,0.6667:128x8
        set_n_by_t 128x8
        run "$script" "_growing_t" --schedule 0:128x8,0.3333:32x32,0.6667:8x128
    done
done | launch "$@"
