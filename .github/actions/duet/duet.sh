#!/usr/bin/env bash
# Runs the duet of action.yml: a step summary, JUnit XML, numbers for history, the verdict as output and exit code.
# Inputs come as variables, never as text of this script: a name from a pull request is not a command.
set -uo pipefail

results=${RUNNER_TEMP:?}/gputax-results/duet-${GITHUB_RUN_ID:-0}-$$
read -r -a more <<<"${DUET_ARGUMENTS:-}"
words=(duet "${DUET_A:?}" "${DUET_B:?}" --workload "${DUET_WORKLOAD:-resnet50}" --max-time "${DUET_MAX_TIME:-120}")
words+=(--out "$results" --export "summary=${GITHUB_STEP_SUMMARY:?}")
[ -n "${DUET_BUDGET:-}" ] && words+=(--budget "$DUET_BUDGET")
[ "${DUET_GATE:-true}" = true ] && words+=(--gate)

messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
gputax "${words[@]}" ${more[@]+"${more[@]}"} 2> >(tee "$messages" >&2)
code=$?
wait

if [ -f "$results/comparison.json" ]; then
  for pair in junit=junit.xml benchmark=benchmark.json openmetrics=metrics.prom; do
    gputax report "$results" --format "${pair%%=*}" --out "$results/${pair#*=}" >/dev/null
  done
fi
case $code in
  0) verdict=pass ;;
  3) verdict=refused ;;
  5) verdict=disturbed ;;
  6) verdict=fail ;;
  7) verdict=undecided ;;
  *) verdict=error ;;
esac
if [ ! -f "$results/comparison.json" ]; then
  # Nothing was measured: the message is the summary.
  { echo "### ❔ gputax duet: $verdict"; echo; echo '```text'; tail -n 6 "$messages"; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
fi
{ echo "verdict=$verdict"; echo "results=$results"; } >>"${GITHUB_OUTPUT:?}"
case $verdict in
  undecided | disturbed)
    [ "${DUET_UNDECIDED:-fail}" = warn ] || exit "$code"
    echo "::warning title=gputax::The duet is $verdict: this is not a pass."
    ;;
  *) exit "$code" ;;
esac
