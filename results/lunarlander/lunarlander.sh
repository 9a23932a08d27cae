#!/usr/bin/env bash
# What makes 128 x 8 lose LunarLander, and are there good rates above those of results/map? Final returns.
# Grid:  300,000 steps, ten seeds: one change at a time at 2e-3, and rates that the map has not tried.
#        sweeps/map.sh makes the runs of 900,000 steps.
# Cost:  240 runs, 72 million steps: three quarters of an hour of two cores; stagger.py makes ten more runs.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=300000 EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"
game=LunarLander-v3

# `runs NxT RATE FLAG…`: one run per seed.
runs() {
    local seed
    set_n_by_t "$1"
    for seed in $SEEDS; do
        run ppo_envpool.py "_lr$2$(tr -d ' ' <<<"${*:3}")" --minibatch-size 256 --learning-rate "$2" "${@:3}"
    done
}

{
    for change in "--no-clip-vloss" "--ent-coef 0" "--no-anneal-lr" "--max-grad-norm 1e9" "--norm-reward" "--gae-lambda 1"; do
        runs 128x8 2e-3 $change
    done
    runs 128x32 2e-3 --gae-lambda 0.8
    runs 8x128 2e-3 --no-clip-vloss
    for rate in 4e-3 8e-3; do
        for n_by_t in 8x32 128x32 32x32 128x8; do runs $n_by_t $rate; done
    done
    runs 8x128 8e-3
    for n_by_t in 128x32 32x32 128x8 8x128; do runs $n_by_t 1.6e-2; done
    for n_by_t in 32x32 128x8 8x128; do runs $n_by_t 3.2e-2; done
} | launch "$@"
