"""Every option that several verbs share, declared once: name, type, default, help, group and environment variable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from gputax import __version__
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import DEVICES, PRECISIONS, SCENARIOS
from gputax.plan.own_program import UNITS
from gputax.plan.workloads import MICRO, WORKLOADS

NAMESPACE = "gputax"
IMAGE = f"gputax:{__version__}"
PULL_POLICIES = ("IfNotPresent", "Always", "Never")
DRA = "dra"
SHARING_FLAVOURS = ("auto", "device-plugin", "operator", "gke", "nos", "hami", "volcano-vgpu", "kai", DRA)

# The groups of `--help-all`, in their order.
LOAD = "Load"
SETUP = "Engine and device"
SERVER = "Server scenario"
VERDICT = "Verdict"
TENANTS = "Tenants"
PLACE = "Container, Kubernetes, ssh"
GKE = "Google Kubernetes Engine"
PRICE = "Price"
MACHINE = "Software device, GPU proxy, files of this machine"
OUTPUT = "Output"
QUIET = "A quiet machine"
GROUPS = (LOAD, SETUP, SERVER, VERDICT, QUIET, TENANTS, PLACE, GKE, PRICE, MACHINE, OUTPUT)


@dataclass(frozen=True)
class Option:
    """One option of the command line; its type is that of its default, or `kind` if that is None."""

    name: str
    help: str
    default: str | int | float | bool | None = ""
    group: str = LOAD
    short: bool = False
    """Whether `--help` shows it; `--help-all` shows all."""
    key: str = ""
    """The keyword argument for a verb; empty: the name with underscores."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    multiple: bool = False
    metavar: str = ""
    show_default: bool = False
    negation: str = ""
    """The word that turns a flag off, e.g. no-control."""
    variable: str = ""
    """The equivalent environment variable; a result depends on it wherever it is set."""
    kind: type = str
    """The type of an option that has no default."""

    @property
    def value_type(self) -> type:
        """The type of its value."""
        return self.kind if self.default is None else type(self.default)

    @property
    def keyword(self) -> str:
        """The name as Python spells it."""
        return self.key or self.name.replace("-", "_")


T = TypeVar("T")


def _place(name: str, default: T, help_text: str, **more: Any) -> T:
    """Declare a field of `EnvironmentOptions` together with its option."""
    option = Option(name, help_text, default, PLACE, **more)  # type: ignore[arg-type]
    field: T = dataclasses.field(default=default, metadata={"option": option})
    return field


@dataclass(frozen=True)
class EnvironmentOptions:
    """The user's options for a place; the defaults fit an image built from this checkout."""

    inside: bool = _place("inside", False, "k8s: this process already runs in the pod (e.g. as a Job); create none.")
    image: str = _place("image", IMAGE, "container, k8s: the image of gputax.", show_default=True)
    pull_policy: str = _place("pull-policy", PULL_POLICIES[0], "k8s: when to pull.", choices=PULL_POLICIES)
    namespace: str = _place("namespace", NAMESPACE, "k8s: namespace of the pods.", show_default=True)
    context: str = _place("context", "", "k8s: the kubeconfig's context. [default: current]", key="context_")
    node: str = _place("node", "", "k8s: the node by name. [default: the scheduler chooses]")
    runtime_class: str = _place("runtime-class", "", "k8s: RuntimeClass of the pod. [default: the cluster's]")
    pull_secret: str = _place("pull-secret", "", "k8s: name of the secret to pull the image with.")
    # 0: as many as a bare worker of this machine would use, so that the threads are equal.
    cpus: int = _place("cpus", 0, "container, k8s: whole CPUs. [default: a bare worker's]", least=0, most=1024)
    memory: str = _place("memory", "4Gi", "container, k8s: memory.", show_default=True)
    gpus: int = _place("gpus", -1, "container, k8s: GPUs. [default: 1 for --device cuda]", least=-1, most=64)
    remote_command: str = _place(
        "remote-command", "", "ssh: what starts the worker. [default: python3 -m gputax.worker]"
    )
    # A node that is still being created takes minutes.
    ready_timeout_s: int = _place(
        "ready-timeout", 300, "k8s: seconds to wait for a pod to be ready.", least=1, show_default=True
    )
    sharing_flavour: str = _place(
        "sharing-flavour", SHARING_FLAVOURS[0],
        "k8s: who divides a GPU among tenants; auto: by the node's labels; dra: ResourceClaims.",
        choices=SHARING_FLAVOURS, show_default=True,
    )  # fmt: skip
    plugin_config: str = _place(
        "plugin-config", "", "k8s: NAMESPACE/NAME of the device plugin's ConfigMap. [default: found]"
    )
    resource_claim: str = _place(
        "resource-claim", "", "k8s, dra: a ResourceClaim of yours, or template/NAME. [default: made for the run]"
    )
    time_slice: str = _place("time-slice", "", "k8s, dra: Default, Short, Medium or Long. [default: not set]")
    mig_profile: str = _place("mig-profile", "", "k8s: a tenant's MIG profile, e.g. 1g.10gb. [default: by tenants]")

    def changed(self, words: Iterable[str]) -> EnvironmentOptions:
        """Return the options, overridden by words such as `image=gputax:next`."""
        known = {each.name.replace("_", "-"): each.name for each in dataclasses.fields(self) if each.name != "inside"}
        changes: dict[str, str | int] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if key not in known:
                raise unknown_name("option of an environment", key, known)
            if not equals:
                raise UsageError(f"{word!r} has no value", next_step=f"e.g. {key}=VALUE")
            name = known[key]
            number = isinstance(PLACE_OPTIONS[name].default, int)
            if number and not value.isdigit():
                raise UsageError(f"{key}={value!r} is not a number")
            if name == "sharing_flavour" and value not in SHARING_FLAVOURS:
                raise unknown_name("sharing flavour", value, SHARING_FLAVOURS)
            changes[name] = int(value) if number else value
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def gpu_count(self, device: str) -> int:
        """Return the number of GPUs that the place needs for this device."""
        return self.gpus if self.gpus >= 0 else int(device == "cuda")


PLACE_OPTIONS: dict[str, Option] = {
    each.name: each.metadata["option"] for each in dataclasses.fields(EnvironmentOptions)
}

_ENGINES = "onnx, torch, tinygrad, synthetic or driver, with :KEY=VALUE,…; openai:URL or kserve:URL"
# What run, duet, share, client, doctor, exec and demo take; a verb overrides only what differs.
OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("workload", f"One of {', '.join(WORKLOADS)}, {MICRO}.", "resnet50", short=True, show_default=True),
        Option("scenario", f"One of {', '.join(SCENARIOS)}.", "", short=True),
        Option("batch", "Samples per inference.", 1, least=1, short=True, show_default=True),
        Option("seed", "Seed of weights, inputs and order.", 7, least=0, show_default=True),
        Option("stall-timeout", "Kill a worker that reports no progress for N seconds.", 0.0, least=0.0),
        Option("suite", "quick, standard, mlperf, or your own TOML file.", "quick", short=True, show_default=True),
        Option("engine", f"{_ENGINES} [default: onnx; micro: driver; proxy: tinygrad]", "", SETUP),
        Option(
            "device",
            f"{', '.join(DEVICES)}; fails instead of falling back to another device.",
            "auto",
            SETUP,
            short=True,
            show_default=True,
        ),
        Option(
            "precision",
            f"{PRECISIONS[0]}, or {PRECISIONS[1]} if the device supports it.",
            "fp32",
            SETUP,
            show_default=True,
        ),
        Option("threads", "CPU threads. [default: affinity and quota]", 0, SETUP, least=0, most=1024),
        Option(
            "weights", "Your own ONNX file, or `official` after `gputax models fetch`. [default: seeded]", "", SETUP
        ),
        Option(
            "model",
            "Your own ONNX file, or torch module by its factory, instead of a workload (docs/your-own.md).",
            "",
            SETUP,
            metavar="FILE.onnx|PACKAGE:FACTORY",
            short=True,
        ),
        Option(
            "shape",
            "--model: axes that the file leaves free, a module's inputs, e.g. ids=1x384; may be repeated.",
            None,
            SETUP,
            key="shapes",
            multiple=True,
            metavar="NAME=1xN",
        ),
        Option(
            "input",
            "--model: range of drawn values, e.g. ids=0..30521; may be repeated. [default: 0..1, or a table's rows]",
            None,
            SETUP,
            key="ranges",
            multiple=True,
            metavar="NAME=A..B",
        ),
        Option(
            "prompt-tokens",
            "openai:URL: length of drawn prompts. [default: 128]",
            None,
            SETUP,
            kind=int,
            least=1,
            most=1_000_000,
        ),
        Option(
            "output-tokens",
            "openai:URL: tokens to ask for. [default: 64]",
            None,
            SETUP,
            kind=int,
            least=1,
            most=1_000_000,
        ),
        Option("prompts", "openai:URL: your own prompts, one per line (docs/servers.md).", "", SETUP, metavar="FILE"),
        Option(
            "unit",
            "-- COMMAND: unit of printed latencies that name none.",
            None,
            SETUP,
            choices=UNITS,
        ),
        Option(
            "repeat-by-process",
            "-- COMMAND: time whole processes, from start to exit, instead of what it prints.",
            False,
            SETUP,
        ),
        Option("inputs", "--model: your own samples instead of drawn ones.", "", SETUP, metavar="FILE.npz"),
        Option(
            "libcuda",
            "Another driver library, as a file or its directory; not for engines on the CPU.",
            "",
            SETUP,
            metavar="PATH",
        ),
        Option(
            "budget",
            "e.g. 5%, p99=2ms or proxy=3%; may be repeated. [default: the layers' own]",
            None,
            VERDICT,
            short=True,
            key="budgets",
            multiple=True,
        ),
        Option(
            "wait-quiet",
            "Wait up to so many minutes until nothing disturbs the machine; else stop with exit code 3.",
            0.0,
            QUIET,
            least=0.0,
            metavar="MINUTES",
        ),
        Option(
            "accept-disturbed",
            "A disturbed machine is labelled, but costs no verdict and no exit code.",
            False,
            QUIET,
            variable="GPUTAX_ACCEPT_DISTURBED",
        ),
        Option("out", "Result directory.", "", OUTPUT, short=True),
        Option("overwrite", "Measure again into a directory that already has results.", False, OUTPUT),
        Option("dry-run", "Show the cells and about how long they take; measure nothing.", False, OUTPUT, short=True),
        Option("json", "Write the record to stdout instead of the table.", False, OUTPUT, short=True, key="as_json"),
    )
}


_SHARED = OPTIONS | {option.name: option for option in PLACE_OPTIONS.values()}


# What a user's own model takes; a verb adds them all.
MODEL_OPTIONS = ("model", "shape", "input", "inputs")
# What a server of language models is asked.
SERVER_OPTIONS = ("prompt-tokens", "output-tokens", "prompts")
# What a user's own program takes, behind `--`.
PROGRAM_OPTIONS = ("unit", "repeat-by-process")


def declared(name: str, **differs: Any) -> Option:
    """Return a shared option, with overrides for one verb."""
    return dataclasses.replace(_SHARED[name], **differs)


# For compare and duet: the suite whose budgets count, not its cells.
BUDGET_SUITE = declared(
    "suite", help="Suite that supplies the budgets not set with --budget.", default="", metavar="NAME|FILE",
    short=False, show_default=False, group=VERDICT,
)  # fmt: skip
# How status, collect, cost and destroy name the deployment that `gputax deploy --out` made.
DEPLOYMENT = declared("out", help="The deployment's result directory. [default: the only one under results/]")


def _variable(name: str, variable: str, help_text: str, **more: Any) -> Option:
    return Option(name, help_text, None, MACHINE, variable=variable, **more)


# Variables that affect a result: each has an equivalent option, which wins.
VARIABLE_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        _variable(
            "soft-kernel-us",
            "GPUTAX_SOFT_KERNEL_US",
            "Software device: time of a kernel in µs. [default: none]",
            least=0.0,
        ),
        _variable(
            "soft-kernels",
            "GPUTAX_SOFT_KERNELS",
            "Software device: computed, or null: launches take a stated time and compute nothing. [default: computed]",
            choices=("computed", "null"),
        ),
        _variable(
            "soft-kernel-ns",
            "GPUTAX_SOFT_KERNEL_NS",
            "Null kernels: ns of a launch, or a file of lines `NS KERNEL [BLOCKS THREADS]`. [default: 0]",
        ),
        _variable(
            "soft-copy-gbps",
            "GPUTAX_SOFT_COPY_GBPS",
            "Software device: copies in GB/s. [default: the host's]",
            least=0.0,
        ),
        _variable(
            "soft-memory-mb", "GPUTAX_SOFT_MEMORY_MB", "Software device: its memory in MiB. [default: 1024]", least=0.0
        ),
        _variable(
            "soft-timeout-s",
            "GPUTAX_SOFT_TIMEOUT_S",
            "Software device: longest kernel, or load of a module, in s. [default: 20]",
            least=0.0,
        ),
        _variable(
            "soft-compile",
            "GPUTAX_SOFT_COMPILE",
            "Software device: kernels to compile: auto (costly ones), always, never. [default: auto]",
            choices=("auto", "always", "never"),
        ),
        _variable(
            "soft-code", "GPUTAX_SOFT_CODE", "Software device: folder of its code. [default: ~/.cache/gputax/kernels]"
        ),
        _variable(
            "soft-printf",
            "GPUTAX_SOFT_PRINTF",
            "Software device: off drops what kernels print. [default: shown; off in a proxy]",
        ),
        _variable(
            "cuda-runtime",
            "GPUTAX_CUDA_RUNTIME",
            "libvgpu, software device: take programs on the CUDA runtime (docs/cuda-runtime.md). [default: refused]",
            kind=bool,
        ),
        _variable("proxy-spin", "GPUTAX_PROXY_SPIN", "GPU proxy: how it waits: auto, always, never. [default: auto]"),
        _variable(
            "proxy-transport", "GPUTAX_PROXY_TRANSPORT", "GPU proxy: shm, unix-socket, xen in a guest. [default: shm]"
        ),
        _variable("proxy-socket", "GPUTAX_PROXY_SOCKET", "GPU proxy: socket of a running proxy. [default: start one]"),
        _variable("native", "GPUTAX_NATIVE", "Directory of the native parts. [default: the wheel's, or native/build]"),
        _variable("models", "GPUTAX_MODELS", "Directory of model files. [default: ~/.cache/gputax/models]"),
    )
}

# Variables that gputax itself sets for workers and in pods; they need no option.
OWN_VARIABLES: dict[str, str] = {
    "GPUTAX_LIMIT_CPUS": "The CPU limit of a container or pod, told by the coordinator: a sandbox may hide it inside.",
    "GPUTAX_SCRATCH": "The directory for temporary files of one worker; the coordinator creates and removes it.",
    "GPUTAX_SOFT_COMPILER": "The socket of the process that compiles kernels for a confined worker of the GPU proxy.",
    "GPUTAX_SOFT_PERCENT": "The share of the software device's time that a process may have; the GPU proxy sets it.",
    "GPUTAX_SOFT_SHARED": "The memory in which the workers of one GPU proxy share one software device.",
    "GPUTAX_TECHNIQUE": "How the device is shared: a label of the tenant's metrics (option --technique).",
    "GPUTAX_METRICS_PORT": "Port at which a tenant's worker serves /metrics.",
    "GPUTAX_METRICS_ADDRESS": "Address at which a tenant's worker serves /metrics.",
    "GPUTAX_IMAGE": "The image of the pod: a label of the tenant's metrics.",
    "GPUTAX_POD": "The pod's name, from the downward API.",
    "GPUTAX_POD_UID": "The pod's UID, from the downward API: evidence that this process is in that pod.",
    "GPUTAX_NODE": "The node's name, from the downward API.",
    "GPUTAX_NAMESPACE": "The pod's namespace, from the downward API.",
}


def variables_page() -> str:
    """Return docs/variables.md."""
    lines = [
        "# Environment variables",
        "",
        "Every variable that gputax and its native parts read. An option of the same meaning wins over its variable;",
        "`gputax run --help-all` shows the options. `python -m gputax.plan.options` writes this page from their",
        "declarations in `plan/options.py`, and a test compares it with the source.",
        "",
        "## Variables that decide a result",
        "",
        "| variable | option | meaning |",
        "|---|---|---|",
        *(
            f"| `{each.variable}` | `--{each.name}` | {each.help} |"
            for each in (*OPTIONS.values(), *VARIABLE_OPTIONS.values())
            if each.variable
        ),
        "",
        "## Variables that gputax sets itself",
        "",
        "For its workers, and in the pods that it creates.",
        "",
        "| variable | meaning |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in OWN_VARIABLES.items()),
        "",
        "`NO_COLOR` turns colours off. `COLUMNS` sets the width of tables; without it they are as wide as the terminal,"
        " and 80 columns in a pipe or a file. `KUBECONFIG` names the clusters.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(variables_page(), end="")
