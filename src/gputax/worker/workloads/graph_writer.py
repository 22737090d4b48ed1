"""Build a graph node by node; parameters and constants are declared where they are used."""

from __future__ import annotations

from collections import Counter

from gputax.worker.workloads.workload import Attribute, Constant, Graph, Node, Parameter


class GraphWriter:
    """Collects nodes, constants and parameters in the order in which a workload describes itself."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._constants: dict[str, Constant] = {}
        self._parameters: dict[str, Parameter] = {}
        self._names: Counter[str] = Counter()

    def node(self, op: str, *inputs: str, at: str, output: str = "", **attributes: Attribute) -> str:
        """Add one operation and return the name of its output: `output`, or the place and the operation."""
        name = output or f"{at}/{op}"
        self._names[name] += 1
        if self._names[name] > 1:
            name = f"{name}_{self._names[name]}"
        self._nodes.append(Node(op, inputs, name, tuple(sorted(attributes.items()))))
        return name

    def parameter(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        std: float,
        mean: float = 0.0,
        transposed: bool = False,
        is_buffer: bool = False,
    ) -> str:
        """Declare a parameter and return its name."""
        if name in self._parameters:
            raise ValueError(f"parameter {name} is declared twice")
        self._parameters[name] = Parameter(name, shape, std, mean, transposed, is_buffer)
        return name

    def constant(self, values: tuple[int, ...] | int | float) -> str:
        """Declare a constant (equal ones are shared) and return its name."""
        name = f"constant/{type(values).__name__}/{values}".replace(" ", "")
        self._constants[name] = Constant(name, values)
        return name

    def graph(self) -> Graph:
        """Return the graph."""
        return Graph(tuple(self._nodes), tuple(self._constants.values()), tuple(self._parameters.values()))
