#!/usr/bin/env bash
# results/map: where do many environments win, where do long rollouts, and how does it depend on the budget?
# Claim: K1 to K6 in results/CLAIMS.md.
# Grid:  six tasks x 6 N x T x 8 learning rates x 10 seeds at 100k and 300k steps; the runs of 900k are those of an older
#        plan. Minibatches of 256 rows, 4 epochs (10 for continuous actions, the script's default). Our choice.
# Cost:  7000 runs, 2.3 billion steps, in blocks of a task and a budget: some fifteen hours of two cores.
# Draws: `python scripts/judge.py map`.
# Each block adds its rows to results/runs.csv.gz. Runs that have a row there are not made again, so another machine can
# go on where the table ends. BUDGETS: some of the three.
SEEDS=${SEEDS:-1 2 3 4 5 6 7 8 9 10} EVAL_EPISODES=${EVAL_EPISODES:-50} FLAGS=${FLAGS:---num-logs 20}
GAMES=${GAMES:-CartPole-v1 Acrobot-v1 MiniGrid-DoorKey-5x5-v0 PendulumSwingup-v1 CartpoleSwingup-v1 LunarLander-v3}
. "$(dirname "$0")/lib.sh"
BUDGETS=${BUDGETS:-100000 300000 900000}
bases_are 8x128 --minibatch-size 256
varies num_envs num_steps learning_rate total_timesteps

# Prints the commands of the runs that are missing: `missing STEPS GAMES SEEDS`.
missing() {
    local STEPS=$1 game rate seed
    "$PYTHON" results/map/map_rates.py --steps "$1" --games $2 --seeds $3 | while read -r game N T rate seed; do
        run "$(script_of "$game")" "_lr${rate}_$STEPS" --minibatch-size 256 --learning-rate "$rate"
    done
}

case " $* " in
    *" --dry-run "* | *" --status "*)
        for steps in $BUDGETS; do missing "$steps" "$GAMES" "$SEEDS"; done | launch "$@"
        exit
        ;;
esac
for steps in $BUDGETS; do
    for game in $GAMES; do
        mapfile -t commands < <(missing "$steps" "$game" "$SEEDS")
        block=$((54000000 / steps)) # runs; two cores make their 54 million steps in 13 to 50 minutes, by task
        for ((i = 0; i < ${#commands[@]}; i += block)); do
            printf '%s\n' "${commands[@]:i:block}" | launch "$@" || [ $? -eq 1 ] # 1: a run has failed
            "$PYTHON" scripts/judge.py map --runs "$RUNS_DIR/map" --table-only
        done
        left=$(missing "$steps" "$game" "$SEEDS" | wc -l)
        [ "$left" = 0 ] || echo "$game at $steps steps: $left runs are missing"
    done
done
