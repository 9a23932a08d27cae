#!/usr/bin/env bash
# All sweeps, one after the other, in an order that yields figures early: first the sweeps that share runs with others,
# with the seeds as the outermost loop; last the large grids. Options and variables as in any sweep, for all of them.
#     SEEDS=1 bash sweeps/all.sh --gpus 0,1,2,3,4,5,6,7; bash sweeps/all.sh --gpus 0,1,2,3,4,5,6,7
# draws every figure from one seed first, and then adds the other four seeds.
cd "$(dirname "$0")/.." || exit 1
result=0
for sweep in fixed_budget scaling_data coverage hard_exploration procgen isaacgym pqn decoupled learning_rate data_reuse \
    rnd gamma outer_loop step_size switch num_envs_trend shape_rate schedule; do
    echo "== $sweep"
    bash "sweeps/$sweep.sh" "$@" </dev/null
    code=$?
    [ $code -lt 128 ] || exit $code # stopped by a signal
    [ $code = 0 ] || result=$code
done
exit $result
