#!/usr/bin/env bash
# Does the map change with hidden layers of 256 units? The four shapes that separate N from T, two tasks.
# Grid:  2 tasks x 4 shapes x 5 learning rates x 10 seeds, 300,000 steps, as in sweeps/map.sh.
# Cost:  400 runs, 120 million steps: some 1.2 hours of two cores.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-300000} EVAL_EPISODES=50 FLAGS=${FLAGS:---num-logs 20}
GAMES=${GAMES:-CartPole-v1 LunarLander-v3}
SHAPES=${SHAPES:-8x32 8x128 128x32 128x128}
RATES=${RATES:-2.5e-4 5e-4 1e-3 2e-3 4e-3}
. "$(dirname "$0")/../../sweeps/lib.sh"

for game in $GAMES; do
    for SHAPE in $SHAPES; do
        shape "$SHAPE"
        for rate in $RATES; do
            for seed in $SEEDS; do
                run "$(script_of "$game")" "_lr$rate" --minibatch-size 256 --learning-rate "$rate" --hidden-sizes 256 256
            done
        done
    done
done | launch "$@"
