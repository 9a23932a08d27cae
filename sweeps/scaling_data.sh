#!/usr/bin/env bash
# P1, Fig. 1b, 3, 4, 10, 17: a larger batch, by more environments or by longer rollouts; returns and all diagnostics.
# Claim: scaling N beats scaling T. With N, feature rank and ESS rise; dormant neurons, weight norm, gradient kurtosis
#        and policy variance fall.
# Grid:  Atari-10 x {base 8x128, N x 2 4 8 16, T x 2 4 8 16 (our choice)} x 5 seeds.
# Cost:  450 runs, 45 billion steps: 27,000 A100-hours. Other sweeps share the base.
# Draws: IQM curves; `_games`: returns and four diagnostics by game; `_policy`: returns, policy variance, ESS.
. "$(dirname "$0")/lib.sh"
GAMES=${GAMES:-$ATARI_10}
BASE=${BASE:-8x128}
FACTORS=${FACTORS:-2 4 8 16}
bases_are "$BASE"
varies num_envs num_steps

for seed in $SEEDS; do
    for game in $GAMES; do
        set_n_by_t "$BASE"
        run "$(script_of "$game")" ""
        for factor in $FACTORS; do
            set_n_by_t "$BASE" "$factor" 1
            run "$(script_of "$game")" ""
            set_n_by_t "$BASE" 1 "$factor"
            run "$(script_of "$game")" ""
        done
    done
done | launch "$@"
