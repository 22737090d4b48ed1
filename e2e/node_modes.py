"""Which mode the node is in, and the way to the next one: the node's labels say what is wanted, the offer follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from e2e.device_offer import EXCLUSIVE, Mode, Switches, changes, discovery_labels
from e2e.plugin_config import CONFIG_LABEL, MIG_LABEL, MIG_STATE_LABEL, ConfigError, mig_mode, mode_of

MIG_TAKES_S = 1.0
"""How long MIG stays pending at least: on a GPU it is a minute, and a reboot more."""


class Node(Protocol):
    """What of the node is read and set."""

    @property
    def known(self) -> bool:
        """Whether it has been seen yet."""
        ...

    def label(self, name: str) -> str:
        """Return a label; empty where there is none."""
        ...

    def configuration(self, key: str) -> str | None:
        """Return one file of the plugin's ConfigMap; None where it is not there."""
        ...

    def set(self, labels: dict[str, str | None]) -> bool:
        """Set and remove labels; say whether it was done."""
        ...


class Offered(Protocol):
    """A resource that the kubelet knows, until it is withdrawn."""

    def withdraw(self) -> None:
        """End it."""
        ...


class NodeModes:
    """Brings the node to what its labels ask for."""

    def __init__(
        self,
        node: Node,
        switches: Callable[[], Switches],
        gpus: Callable[[], int],
        serve: Callable[[Mode], Offered],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._node, self._switches, self._gpus = node, switches, gpus
        self._serve, self._sleep = serve, sleep
        self._service: Offered | None = None
        self._mode: Mode | None = None
        self._config: tuple[str, Mode] = ("", EXCLUSIVE)
        self._mig: tuple[str, Mode] = ("", EXCLUSIVE)
        self._stuck = False
        """MIG stays pending, and nothing is offered."""
        self._labels: dict[str, str] = {}
        self._said = ""

    def follow(self) -> None:
        """Do what the labels ask for now; return at once where nothing changed."""
        if not self._node.known:
            return
        turned = self._switches()
        config = self._wanted_config()
        label = self._node.label(MIG_LABEL)
        if label != self._mig[0]:
            self._follow_mig(label, turned, config)
        elif not self._stuck:
            self._bring(self._mig[1] if self._mig[1].profile else config, turned)

    def close(self) -> None:
        """Withdraw what is offered."""
        if self._service is not None:
            self._service.withdraw()
            self._service = None

    def _wanted_config(self) -> Mode:
        """Return the mode of the chosen file. As with NVIDIA's, the file is read when the label changes, not after."""
        key = self._node.label(CONFIG_LABEL)
        if key == self._config[0]:
            return self._config[1]
        if not key:
            self._config = ("", EXCLUSIVE)
            return EXCLUSIVE
        text = self._node.configuration(key)
        if text is None:
            # NVIDIA's side container ends here and is started again until the file is there; the plugin goes on.
            self._say(f"specified config {key} does not exist")
            return self._config[1]
        try:
            self._config = (key, mode_of(text))
        except ConfigError as error:
            self._say(f"unable to load config {key}: {error}")
            self._config = (key, self._config[1])
        return self._config[1]

    def _follow_mig(self, label: str, turned: Switches, config: Mode) -> None:
        self._mig, self._stuck = (label, EXCLUSIVE), False
        if not label:
            self._node.set({MIG_STATE_LABEL: None})
            return
        self._node.set({MIG_STATE_LABEL: "pending"})
        self.close()  # the MIG manager ends the plugin first: nothing may use the GPU meanwhile
        self._sleep(MIG_TAKES_S)
        try:
            wanted = mig_mode(label)
        except ConfigError as error:
            self._say(str(error))
            self._node.set({MIG_STATE_LABEL: "failed"})
            return
        self._stuck = turned.never_ready and wanted != EXCLUSIVE
        if self._stuck:
            self._say(f"never ready: {label} stays pending")
        elif turned.mig_fails and wanted != EXCLUSIVE:
            self._node.set({MIG_STATE_LABEL: "failed"})
        else:
            self._mig = (label, wanted)
            self._bring(wanted if wanted.profile else config, turned)
            self._node.set({MIG_STATE_LABEL: "success"})

    def _bring(self, mode: Mode, turned: Switches) -> None:
        if mode != self._mode:
            self.close()
            self._mode = mode
        if self._service is None:
            if turned.never_ready and mode != EXCLUSIVE:
                self._say(f"never ready: {mode.resource} is not offered")
                return
            self._service = self._serve(mode)
        wanted = discovery_labels(mode, self._gpus())
        if self._node.set(changes(self._labels, wanted)):
            self._labels = wanted

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            print(words, flush=True)
