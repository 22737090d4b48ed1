#!/usr/bin/env bash
# One command to a GKE cluster with a GPU, the benchmark on it, and its results in results/baseline/.
# The same as `gputax deploy gke`, with the same options: ./deploy.sh --project PROJECT_ID [--zone …] [--spot] [--dry-run]
# It shows the plan and its price first, and asks. Take it away again with: .venv/bin/gputax destroy
set -euo pipefail
cd "$(dirname "$0")"
gputax=${GPUTAX:-.venv/bin/gputax}
if ! command -v "$gputax" >/dev/null; then
  echo "gputax is not installed here yet. Next: make .venv/.installed" >&2
  exit 3
fi
exec "$gputax" deploy gke "$@"
