#!/usr/bin/env bash
# P1, Fig. 2 and 9: how much of the state space the collected batches cover (coverage.npz in each run directory).
# Claim: more environments cover more: (128, 8) against (8, 128), and N = 8 to 128 at T = 128.
# Grid:  Atari-10 x {8x128, 128x8; N = 16 32 64 128 (ours) at T = 128} x 5 seeds.
# Cost:  300 runs, 30 billion steps: 18,000 A100-hours, and none of it after fixed_budget and scaling_data, which have
#        the same runs.
# Draws: scripts/umap_coverage.py draws the figure; `_returns`, `_returns_games`: the returns of the runs.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
SHAPES=${SHAPES:-8x128 128x8 16x128 32x128 64x128 128x128}
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
