"""The bench of victims, in short: every attacker attacks until it is ended, and the victim beside it is served."""

from __future__ import annotations

import pytest

from bench import victims
from bench.attackers import ATTACKERS


def test_a_victim_is_served_beside_every_attacker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "PAIRS", 1)
    monkeypatch.setattr(victims, "BLOCK_S", 0.3)
    found = victims.proxy_victims()  # raises where an attacker ends by itself or leaves a tenant behind
    served = {kind: found[f"proxy_victim_operations_{kind}"] for kind in ATTACKERS}
    assert all(operations > 0 for operations in served.values()), served
    assert found["proxy_victim_p99_us_alone"] > 100
