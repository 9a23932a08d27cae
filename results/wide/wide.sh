#!/usr/bin/env bash
# Does the map change with hidden layers of 256 units? The four shapes that separate N from T, two tasks.
# Grid:  2 tasks x 4 shapes x 5 learning rates x 10 seeds, 300,000 steps, as in sweeps/map.sh. On LunarLander the rates are
#        four times as high (results/lunarlander); those that 64 units lack there run with 64 units too.
# Cost:  440 runs, 132 million steps: some two hours of two cores (9,600 steps/s a core with 256 units).
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-300000} EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
. "$(dirname "$0")/../../sweeps/lib.sh"

# `runs GAME SHAPE RATE FLAG…`: one run a seed.
runs() {
    local game=$1 seed
    shape "$2"
    for seed in $SEEDS; do
        run ppo_envpool.py "_lr$3$(tr -d ' ' <<<"${*:4}")" --minibatch-size 256 --learning-rate "$3" "${@:4}"
    done
}

{
    for shape in 8x32 8x128 128x32 128x128; do
        for rate in 2.5e-4 5e-4 1e-3 2e-3 4e-3; do
            runs CartPole-v1 $shape $rate --hidden-sizes 256 256
        done
    done
    for rate in 4e-3 8e-3 1.6e-2; do runs LunarLander-v3 128x128 $rate; done
    runs LunarLander-v3 8x32 1.6e-2
    for shape in 8x32 8x128 128x32 128x128; do
        for rate in 1e-3 2e-3 4e-3 8e-3 1.6e-2; do
            runs LunarLander-v3 $shape $rate --hidden-sizes 256 256
        done
    done
} | launch "$@"
