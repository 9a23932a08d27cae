#!/usr/bin/env bash
# P1, Fig. 16: many environments or long rollouts with an exploration bonus (random network distillation).
# Claim: N helps more than T.
# Grid:  the games of hard_exploration x {base 128x128, N x 2, T x 2 (our choice)} x 5 seeds.
# Cost:  120 runs, 12 billion steps: 7,200 A100-hours at P1's speed for PPO, more with the bonus.
# Draws: IQM curves; `_games`: returns by game; `_dynamics`: the intrinsic reward and four diagnostics.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-MontezumaRevenge-v5 Phoenix-v5 Freeway-v5 Gravitar-v5 Pitfall-v5 PrivateEye-v5 Solaris-v5 Venture-v5}
BASE=${BASE:-128x128}
base_is ppo_rnd_envpool.py "$BASE"
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        for factors in "1 1" "2 1" "1 2"; do
            set_n_by_t "$BASE" $factors
            run ppo_rnd_envpool.py ""
        done
    done
done | launch "$@"
