"""How the stand-in follows its node's labels: the way to each mode, and the faults on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from e2e.device_offer import EXCLUSIVE, Mode, switches
from e2e.node_modes import NodeModes
from e2e.plugin_config import CONFIG_LABEL, MIG_LABEL, MIG_STATE_LABEL

STRATEGY = "nvidia.com/gpu.sharing-strategy"
TIME_SLICING = Mode("time-slicing", 7)


def file(kind: str, replicas: int = 7) -> str:
    resources = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    return json.dumps({"version": "v1", "sharing": {kind: {"resources": resources}}})


@dataclass
class FakeNode:
    labels: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=lambda: {"ts": file("timeSlicing"), "mps": file("mps")})
    known: bool = True
    states: list[str] = field(default_factory=list)
    """Each state of MIG in turn."""
    reachable: bool = True

    def label(self, name: str) -> str:
        return self.labels.get(name, "")

    def configuration(self, key: str) -> str | None:
        return self.files.get(key)

    def set(self, labels: dict[str, str | None]) -> bool:
        if not self.reachable:
            return False
        for name, value in labels.items():
            if name == MIG_STATE_LABEL and value:
                self.states.append(value)
            if value is None:
                self.labels.pop(name, None)
            else:
                self.labels[name] = value
        return True


class Bench:
    """The modes on a fake node; `offered` is what the kubelet would know now."""

    def __init__(self) -> None:
        self.node = FakeNode()
        self.words: list[str] = []
        self.offered: list[Mode] = []
        self.modes = NodeModes(self.node, lambda: switches(self.words), lambda: 1, self.serve, lambda _: None)

    def serve(self, mode: Mode) -> Bench.Service:
        self.offered.append(mode)
        return Bench.Service(self, mode)

    @dataclass
    class Service:
        bench: Bench
        mode: Mode

        def withdraw(self) -> None:
            self.bench.offered.remove(self.mode)

    def labelled(self, **labels: str | None) -> Bench:
        names = {"config": CONFIG_LABEL, "mig": MIG_LABEL}
        self.node.set({names[name]: value for name, value in labels.items()})
        self.modes.follow()
        return self


def test_before_the_node_is_known_nothing_is_offered() -> None:
    bench = Bench()
    bench.node.known = False
    assert bench.labelled().offered == []


def test_without_a_label_the_gpus_are_exclusive() -> None:
    bench = Bench().labelled()
    assert bench.offered == [EXCLUSIVE]
    assert bench.node.labels[STRATEGY] == "none"


def test_the_label_chooses_a_file_and_its_removal_goes_back() -> None:
    bench = Bench().labelled().labelled(config="ts")
    assert bench.offered == [TIME_SLICING]
    assert bench.node.labels[STRATEGY] == "time-slicing"
    assert bench.labelled(config="mps").offered == [Mode("mps", 7)]
    assert bench.labelled(config=None).offered == [EXCLUSIVE]
    assert bench.node.labels[STRATEGY] == "none"


def test_a_file_that_is_not_there_changes_nothing_until_it_is() -> None:
    bench = Bench().labelled().labelled(config="late")
    assert bench.offered == [EXCLUSIVE]
    bench.node.files["late"] = file("timeSlicing")
    assert bench.labelled().offered == [TIME_SLICING]


def test_a_file_that_changes_under_the_same_label_is_not_read_again() -> None:
    bench = Bench().labelled(config="ts")
    bench.node.files["ts"] = file("timeSlicing", 3)
    assert bench.labelled().offered == [TIME_SLICING]


def test_a_broken_file_leaves_what_was() -> None:
    bench = Bench().labelled()
    bench.node.files["bad"] = file("timeSlicing", 1)
    assert bench.labelled(config="bad").offered == [EXCLUSIVE]


def test_mig_is_pending_then_a_success_and_offers_slices() -> None:
    bench = Bench().labelled(config="ts").labelled(mig="all-1g.10gb")
    assert bench.node.states == ["pending", "success"]
    assert bench.offered == [Mode(profile="1g.10gb")]
    assert bench.labelled(mig="all-disabled").offered == [TIME_SLICING]
    assert bench.labelled(mig=None).offered == [TIME_SLICING]
    assert MIG_STATE_LABEL not in bench.node.labels
    assert not any("mig-1g" in name for name in bench.node.labels)


def test_an_unknown_profile_fails_and_the_gpus_come_back() -> None:
    bench = Bench().labelled().labelled(mig="all-balancd").labelled()
    assert bench.node.states == ["pending", "failed"]
    assert bench.offered == [EXCLUSIVE]


def test_never_ready_withdraws_the_old_offer_and_brings_no_new_one() -> None:
    bench = Bench().labelled()
    bench.words = ["never-ready"]
    assert bench.labelled(config="ts").labelled().offered == []
    assert bench.node.labels[STRATEGY] == "none"
    assert bench.labelled(config=None).offered == [EXCLUSIVE], "the way back is open"


def test_mig_that_is_never_ready_stays_pending_until_the_label_goes() -> None:
    bench = Bench().labelled()
    bench.words = ["never-ready"]
    assert bench.labelled(mig="all-1g.10gb").labelled().offered == []
    assert bench.node.states == ["pending"]
    assert bench.labelled(mig=None).labelled().offered == [EXCLUSIVE]


def test_mig_that_fails_says_so_and_offers_whole_gpus_again() -> None:
    bench = Bench().labelled()
    bench.words = ["mig-fails"]
    assert bench.labelled(mig="all-1g.10gb").labelled().offered == [EXCLUSIVE]
    assert bench.node.states == ["pending", "failed"]


def test_labels_that_could_not_be_set_are_set_later() -> None:
    bench = Bench()
    bench.node.reachable = False
    bench.labelled()
    bench.node.reachable = True
    bench.labelled()
    assert bench.node.labels[STRATEGY] == "none"


def test_closing_withdraws_the_offer() -> None:
    bench = Bench().labelled()
    bench.modes.close()
    assert bench.offered == []
