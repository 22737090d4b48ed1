"""`gputax advise`: which sharing technique, and how many tenants, meet a target."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from gputax.cli.duet import EXIT_BUDGET_EXCEEDED, EXIT_INCONCLUSIVE
from gputax.cli.options import Verb, as_json, counts, options, own
from gputax.errors import UsageError
from gputax.plan.options import PRICE, TENANTS, VERDICT

EXIT_CODES = {"yes": 0, "no": EXIT_BUDGET_EXCEEDED, "unsure": EXIT_INCONCLUSIVE}
MOST_TENANTS = 1000


@click.command(cls=Verb)
@click.argument("results", default="")
@options(
    own("published", "Use a published table: a100-nos.", metavar="NAME"),
    own(
        "slo", "mean, p50, p90, p99, ttft or tpot (their p90), in us, ms or s: p99=50ms.", None,
        multiple=True, metavar="NAME=TIME", group=VERDICT,
    ),
    own("rate", "Inferences per second that each tenant needs.", None, kind=float, least=0, key="rate_per_s"),
    own(
        "price", "Price of the device per hour, e.g. 3.67.", None,
        kind=float, least=0, key="price_per_hour", group=PRICE,
    ),
    own("currency", "The currency of --price, e.g. USD.", group=PRICE),
    own(
        "up-to", "Largest number of tenants to consider. [default: as measured]", None,
        kind=int, least=1, most=MOST_TENANTS, group=TENANTS,
    ),
    own("fit", "Fit to these tenants only: the others check the model.", metavar="1,3", group=TENANTS),
    as_json("Write the whole advice to stdout as JSON."),
)  # fmt: skip
def advise(results: str, published: str, fit: str, as_json: bool, **question: Any) -> int:
    """Say which technique and how many tenants meet a target, from the RESULTS of `gputax share`.

    RESULTS is a directory with sharing.json, or published:NAME. A small model is fitted to each technique; rows that
    no run measured are marked. Exits with 0 (something meets the target), 6 (nothing does) or 7 (unsure).
    """
    from gputax import api

    advice = api.advise(_source(results, published), fit_to=counts(fit, "fit") if fit else (), **question)
    if as_json:
        from gputax.report.advice import advice_data

        click.echo(json.dumps(advice_data(advice), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from gputax.report.advice import write_advice

        write_advice(advice, sys.stdout)
    return EXIT_CODES[advice.meets]


def _source(results: str, published: str) -> str:
    if results and published:
        raise UsageError("RESULTS and --published exclude each other", next_step="use one of them")
    if not results and not published:
        raise UsageError("no results given", next_step="gputax advise RESULTS --slo p99=50ms, or --published a100-nos")
    return results or f"published:{published}"
