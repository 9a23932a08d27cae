#!/usr/bin/env bash
# P1, Fig. 1a: a batch of 1024 steps, from many environments or from long rollouts.
# Claim: (N, T) = (128, 8) beats (8, 128), the base.
# Grid:  Atari-10 x (8, 128) (128, 8) x 5 seeds. FULL=1 adds (4, 256) (16, 64) (32, 32) (64, 16) (256, 4) (our choice).
# Cost:  100 runs, 10 billion steps: 6,000 A100-hours (2 to 3 days a run). FULL=1: 350 runs, 21,000.
# Draws: IQM curves; with three N x T or more also the final IQM against N.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
SHAPES=${SHAPES:-8x128 128x8 ${FULL:+4x256 16x64 32x32 64x16 256x4}}
bases_are "${SHAPES%% *}"
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        for n_by_t in $SHAPES; do
            set_n_by_t "$n_by_t"
            run "$(script_of "$game")" ""
        done
    done
done | launch "$@"
