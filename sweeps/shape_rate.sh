#!/usr/bin/env bash
# P1's central claim, each N x T at its tuned learning rate: which N x T of 1024 steps wins?
# Claim: N beats T at a fixed batch; the best N x T at the default rate is also the best at its tuned rate.
# Grid:  $SMALL x 7 N x T of 1024 x learning rate {2.5e-4, 5e-4, 1e-3} (our choice) x 10 seeds, 200k steps (our choice).
# Cost:  1050 runs, 210 million steps: hours on two cores.
# Draws: final score of each N x T at its tuned rate; `_map`: at each rate; `_curves`: at the base's rate.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} STEPS=${STEPS:-200000}
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$SMALL}
SHAPES=${SHAPES:-8x128 128x8 32x32 4x256 16x64 64x16 256x4}
RATES=${RATES:-0.00025 0.001 0.0005}
bases_are "${SHAPES%% *}" --learning-rate "${RATES%% *}"
varies num_envs num_steps learning_rate

for seed in $SEEDS; do
    for game in $GAMES; do
        for rate in $RATES; do
            for n_by_t in $SHAPES; do
                set_n_by_t "$n_by_t"
                run "$(script_of "$game")" "_lr$rate" --learning-rate "$rate"
            done
        done
    done
done | launch "$@"
