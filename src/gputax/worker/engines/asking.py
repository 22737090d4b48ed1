"""What the engines that ask a server have in common: a run is a number of requests that are sent together."""

from __future__ import annotations

from typing import Any

from gputax.errors import EngineError
from gputax.plan.servers import ServerAddress
from gputax.worker.engines.engine import Samples
from gputax.worker.servers import failures
from gputax.worker.servers.exchange import Exchange


class AskingEngine:
    """Sends requests and waits for their answers; the server does all the work, and its inputs are the requests."""

    exchange: Exchange
    samples: int
    """How many different requests there are."""
    _address: ServerAddress
    _secret: str

    def redact(self, text: str) -> str:
        """Return a text of the server without the key."""
        return failures.redacted(text, self._secret)

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged: the requests are the inputs."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Send these requests together and wait for all of them."""
        for row in range(count):
            self.exchange.start(row, (first + row) % self.samples)
        ended = 0
        while ended < count:
            for answer in self.exchange.wait(2**62):
                ended += 1
                if answer.status:
                    what = f"{failures.words_for(answer.status)}: {self.redact(answer.detail)}"
                    raise EngineError(what, where=self._address.text)

    def close(self) -> None:
        """End all connections."""
        self.exchange.close()
