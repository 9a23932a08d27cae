#!/usr/bin/env bash
# P1, Fig. 7 and 18: N and T with thousands of environments on the GPU.
# Claim: at a fixed N x T many environments win (7, left); more environments win (7, right, and 18).
# Grid:  3 tasks x {base 4096x16; 1024x64 and 16384x4 (our choice) at the same batch; N x 2 4 8 (our choice)} x 5 seeds;
#        100M steps (our choice). The tasks are mjlab's, which anyone can install. With Isaac Gym:
#        GAMES="Ant Humanoid ShadowHand" (our choice too: P1's text names no task). The learning rate is fixed for all:
#        mjlab's own rule moves it with the KL divergence, and so with N and T.
# Cost:  90 runs, 9 billion steps: 50 A100-hours at 50,000 steps/s, 25 at 100,000. `--sps` takes your speed.
# Draws: IQM curves; `_fixed`: by task at one batch size; `_games`: by task at each N.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$PHYSICS}
BASE=${BASE:-4096x16}
SHAPES=${SHAPES:-1024x64 16384x4}
FACTORS=${FACTORS:-1 2 4 8}
FIXED="--desired-kl None"
base_is ppo_isaacgym.py "$BASE" $FIXED
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor"
            run ppo_isaacgym.py "" $FIXED
        done
        for n_by_t in $SHAPES; do
            set_n_by_t "$n_by_t"
            run ppo_isaacgym.py "" $FIXED
        done
    done
done | launch "$@"
