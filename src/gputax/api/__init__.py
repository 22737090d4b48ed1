"""The public API: each command of the command line as a function, for notebooks and programs."""

from gputax.api.deployments import collect, cost, deploy, deploy_plan, destroy, status
from gputax.api.duets import duet, duet_directory, duet_request, gate, resolution
from gputax.api.models import own_model
from gputax.api.results import advise, build_report, compare, read_results, report, report_path
from gputax.api.runs import plan_like, run, run_directory
from gputax.api.selftest import selftest, selftest_directory
from gputax.api.sharing import share, share_directory, share_plan
from gputax.api.variables import variables_named, variables_set
from gputax.plan.suites import load_plan

__all__ = [
    "advise",
    "build_report",
    "collect",
    "compare",
    "cost",
    "deploy",
    "deploy_plan",
    "destroy",
    "duet",
    "duet_directory",
    "duet_request",
    "gate",
    "load_plan",
    "own_model",
    "plan_like",
    "read_results",
    "report",
    "report_path",
    "resolution",
    "run",
    "run_directory",
    "selftest",
    "selftest_directory",
    "share",
    "share_directory",
    "share_plan",
    "status",
    "variables_named",
    "variables_set",
]
