"""Which line of a sweep file a run's complaint belongs to."""

from dataclasses import dataclass, field

from longreach.sweep.block import Block
from longreach.sweep.expand import Choice, Combination
from longreach.sweep.source import Place, Source


@dataclass
class _Case:
    """The runs of a block that complain alike."""

    block: Block
    names: list[str] = field(default_factory=list)
    combinations: list[Combination] = field(default_factory=list)


@dataclass
class Complaints:
    """Many runs complain of one mistake: it is told once, at the line that made it as far as one can tell."""

    source: Source
    cases: dict[tuple[Place, str], _Case] = field(default_factory=dict)
    fine: dict[Place, list[Combination]] = field(default_factory=dict)
    """Combinations that nothing is wrong with, by block."""

    def add(self, block: Block, name: str, combination: Combination, text: str) -> None:
        case = self.cases.setdefault((block.place, text), _Case(block))
        case.names.append(f"{block.name}/{name}" if name else block.name)
        case.combinations.append(combination)

    def passed(self, block: Block, combination: Combination) -> None:
        self.fine.setdefault(block.place, []).append(combination)

    def tell(self) -> None:
        for (_, text), case in self.cases.items():
            others = f" and {len(case.names) - 1} more" if len(case.names) > 1 else ""
            self.source.blame(self._place(case, text), f"{text} ({case.names[0]}{others})")

    def _place(self, case: _Case, text: str) -> Place:
        """Where the complaint's setting is written, else the value that only runs with this complaint have."""
        written = _written(case, text.split(":")[0].split("=")[0])
        if written in self.source.lines:
            return written
        fine = self.fine.get(case.block.place, [])
        shared = [choice for choice in case.combinations[0] if all(choice in other for other in case.combinations)]
        suspects = [choice for choice in shared if not any(choice in other for other in fine)] or shared
        if suspects:
            return min(suspects, key=lambda choice: _count(choice, fine)).place
        return (*case.block.place, "recipe")


def _written(case: _Case, path: str) -> Place:
    """The place that a setting would have in the grid or list, in a `when`, or in the block itself."""
    for choice in case.combinations[0]:
        if choice.path == path:
            return choice.place
    for when in case.block.whens:
        if path in when.changes:
            return (*when.condition.place, "set", path)
    return (*case.block.place, *path.split("."))


def _count(choice: Choice, combinations: list[Combination]) -> int:
    return sum(choice in combination for combination in combinations)
