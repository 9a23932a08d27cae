#!/usr/bin/env bash
# results/atlas: over forty tasks, what does tuning the learning rate buy, and what does tuning N x T buy beside it?
# Claim: A1 to A6 in results/CLAIMS.md.
# Grid:  a pilot sets the budget of each task (16x64, 2 rates, 2 seeds); step 1 chooses a rate for 8x128, 32x32 and 128x8
#        (7 rates, the same for all, 3 seeds); step 2 trains five to seven settings with six to ten fresh seeds. Minibatches
#        of 256 rows and 4 epochs for every task, continuous ones too. Our choice.
# Cost:  196 pilots and 4,364 runs, 1.3 billion steps: 25 hours of one core of an AMD EPYC with AVX-512.
# Draws: `python scripts/judge.py atlas`.
# A finished task is a file in results/atlas/blocks; the same command resumes there. STAGE: pilot, or tasks. AFTER: a
# command that runs after each block, such as a commit. AT_ONCE: tasks side by side, each with --workers processes.
EVAL_EPISODES=${EVAL_EPISODES:-20}
. "$(dirname "$0")/lib.sh"
AFTER=${AFTER:-true} AT_ONCE=${AT_ONCE:-1}
[[ $AT_ONCE =~ ^[1-9][0-9]{0,3}$ ]] || { echo "error: AT_ONCE=$AT_ONCE: expected a number above 0" >&2 && exit 2; }
plan() { "$PYTHON" results/atlas/plan.py "$@"; }

# Turns what plan.py prints into commands: TASK N T RATE SEED STEPS, one run per line.
commands() {
    local game N T rate seed STEPS points
    while read -r game N T rate seed STEPS; do
        points=20 && [ "$seed" -lt 1000 ] || points=18 # of a pilot: one every 50,000 steps
        FLAGS="--num-logs $points ${FLAGS:-}" run ppo_envpool.py "_lr${rate}_$STEPS" --learning-rate "$rate" \
            --minibatch-size 256 --update-epochs 4
    done
}

# Runs what the plan says, in blocks, and keeps the runs that are done: `block RUNS WORD [TASK]`.
block() {
    local lines i
    mapfile -t lines < <(plan "${@:2}" | commands)
    for ((i = 0; i < ${#lines[@]}; i += $1)); do
        printf '%s\n' "${lines[@]:i:$1}" | launch "${OPTIONS[@]}" || [ $? -eq 1 ] # 1: a run has failed
        (flock 9 && plan take --runs "$RUNS_DIR/atlas" && $AFTER) 9>"$RUNS_DIR/atlas.lock" # one task at a time
    done
}

base_is ppo_envpool.py 8x128 --minibatch-size 256 --update-epochs 4
varies num_envs num_steps learning_rate total_timesteps
OPTIONS=(--together 21 "$@") # seven rates of three seeds, in one process
case " $* " in
    *" --dry-run "* | *" --status "*)
        { if [ "${STAGE:-pilot}" = pilot ]; then plan pilot; else for task in $(plan tasks); do plan choose "$task"; done; fi; } |
            commands | launch "${OPTIONS[@]}"
        exit
        ;;
esac
if [ "${STAGE:-pilot}" = pilot ]; then
    while [ -n "$(plan pilot)" ]; do
        "$PYTHON" results/atlas/tasks.py random --tasks $(plan pilot | cut -d' ' -f1 | uniq) &
        block 8 pilot # and again: a task that does not rise gives its place to another
        wait
    done
fi
if [ "${STAGE:-tasks}" = tasks ]; then
    # all tasks with six judging seeds, then the repeats, then, as the hours allow, the other four seeds
    until_fewer() { while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n; done; }
    for words in "choose judge" repeat more; do
        for task in $(plan tasks); do
            until_fewer "$AT_ONCE"
            for word in $words; do block 1000 "$word" "$task"; done &
        done
        until_fewer 1
    done
fi
