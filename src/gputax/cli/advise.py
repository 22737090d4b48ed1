"""`gputax advise`: which sharing technique, and how many tenants, meet a target."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from gputax.cli.duet import EXIT_BUDGET_EXCEEDED, EXIT_INCONCLUSIVE
from gputax.cli.options import AtLeast, counts
from gputax.errors import UsageError

if TYPE_CHECKING:
    from gputax.advise.targets import Question

EXIT_CODES = {"yes": 0, "no": EXIT_BUDGET_EXCEEDED, "unsure": EXIT_INCONCLUSIVE}
MOST_TENANTS = 1000


@click.command()
@click.argument("results", default="")
@click.option("--published", default="", metavar="NAME", help="Use a published table: a100-nos.")
@click.option("--slo", multiple=True, metavar="NAME=TIME", help="mean, p50, p90 or p99, in us, ms or s: p99=50ms.")
@click.option("--rate", type=AtLeast(0), help="Inferences per second that each tenant needs.")
@click.option("--price", type=AtLeast(0), help="Price of the device per hour, e.g. 3.67.")
@click.option("--currency", default="", help="The currency of --price, e.g. USD.")
@click.option(
    "--up-to",
    type=click.IntRange(1, MOST_TENANTS),
    help="Largest number of tenants to consider. [default: as measured]",
)
@click.option(
    "--fit", "fit_to", default="", metavar="1,3", help="Fit to these tenants only: the others check the model."
)
@click.option("--json", "as_json", is_flag=True, help="Write the whole advice to stdout as JSON.")
def advise(
    results: str,
    published: str,
    slo: tuple[str, ...],
    rate: float | None,
    price: float | None,
    currency: str,
    up_to: int | None,
    fit_to: str,
    as_json: bool,
) -> int:
    """Say which technique and how many tenants meet a target, from the RESULTS of `gputax share`.

    RESULTS is a directory with sharing.json, or published:NAME. A small model is fitted to each technique; rows that
    no run measured are marked. Exits with 0 (something meets the target), 6 (nothing does) or 7 (unsure).
    """
    source = _source(results, published)
    only = counts(fit_to, "fit") if fit_to else ()
    question = _question(slo, rate, price, currency, up_to)
    # Imported here: numpy and pydantic are not needed to refuse a wrong command line.
    from gputax.advise.advice import advise as advise_on
    from gputax.advise.sources import read_table

    advice = advise_on(read_table(source), question, only)
    if as_json:
        from gputax.advise.document import advice_data

        click.echo(json.dumps(advice_data(advice), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from gputax.report.advice_tables import write_advice

        write_advice(advice, sys.stdout)
    return EXIT_CODES[advice.meets]


def _source(results: str, published: str) -> str:
    if results and published:
        raise UsageError("RESULTS and --published exclude each other", next_step="use one of them")
    if not results and not published:
        raise UsageError("no results given", next_step="gputax advise RESULTS --slo p99=50ms, or --published a100-nos")
    return results or f"published:{published}"


def _question(
    slo: tuple[str, ...], rate: float | None, price: float | None, currency: str, up_to: int | None
) -> Question:
    from gputax.advise.targets import Question, parse_targets

    for name, value in (("--rate", rate), ("--price", price)):
        if value == 0.0:
            raise UsageError(f"{name} must be above zero", next_step=f"drop it, or e.g. {name} 3.67")
    if currency and price is None:
        raise UsageError("--currency without a --price", next_step="e.g. --price 3.67 --currency USD")
    if not slo and rate is None:
        raise UsageError("no target or rate is given", next_step="e.g. --slo p99=50ms, or --rate 10")
    return Question(parse_targets(slo), rate, price, currency, up_to)
