"""Which line of a sweep file a run's complaint belongs to."""

from dataclasses import dataclass, field

from longreach.sweeps.block import SweepBlock
from longreach.sweeps.source import Place, SweepSource

Origins = tuple[Place, ...]
"""The parts of a file that made a run what it is: conditions that held, values it was given, its variant."""


@dataclass
class _Case:
    """The runs of a block that complain alike."""

    names: list[str] = field(default_factory=list)
    origins: list[Origins] = field(default_factory=list)


@dataclass
class Complaints:
    """Many runs of a block complain of one mistake: it is told once, at the line that seems to have made it."""

    source: SweepSource
    block: SweepBlock
    cases: dict[str, _Case] = field(default_factory=dict)
    runs: list[Origins] = field(default_factory=list)
    """Of all runs of the block, whether they complain or not."""

    def add(self, name: str, origins: Origins, text: str) -> None:
        case = self.cases.setdefault(text, _Case())
        case.names.append(f"{self.block.name}/{name}" if name else self.block.name)
        case.origins.append(origins)

    def tell(self) -> None:
        for text, case in self.cases.items():
            others = f" and {len(case.names) - 1} more" if len(case.names) > 1 else ""
            self.source.blame(self._place(case, text), f"{text} ({case.names[0]}{others})")

    def _place(self, case: _Case, text: str) -> Place:
        """Where the setting that is complained of is written, else what only runs with this complaint have."""
        path = text.split(":")[0]
        for origin in case.origins[0]:
            for place in (origin, (*origin, "set", path)):
                if path in place and place in self.source.lines:
                    return place
        written = (*self.block.place, *path.split("."))
        if written in self.source.lines:
            return written
        shared = [origin for origin in case.origins[0] if all(origin in others for others in case.origins)]
        # the fewer other runs have it, the likelier it is what makes these complain
        return min(shared, key=lambda origin: sum(origin in one for one in self.runs), default=self.block.place)
