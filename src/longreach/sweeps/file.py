"""The sweep file: one block of runs, or several under `runs`.  docs/cluster.md shows what may stand in it."""

from collections.abc import Mapping
from dataclasses import dataclass

from longreach.config import build
from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.sweeps.block import KEYS, SweepBlock, count, read_block
from longreach.sweeps.resources import Resources
from longreach.sweeps.source import SweepSource

_HEAD = ("title", "about", "retries", "resources")


@dataclass(frozen=True)
class SweepFile:
    title: str
    blocks: list[SweepBlock]
    retries: int
    """How often a run that failed is tried again."""
    resources: Resources


def read_file(source: SweepSource) -> SweepFile:
    """What a file asks for.  Mistakes are noted in the source; what could be read is there all the same."""
    content = source.content
    several = "runs" in content
    known = (*_HEAD, "runs") if several else (*_HEAD, *KEYS, "runs")
    for key in content:
        if key not in known:
            inside = "; with `runs`, it belongs into each of them" if several and key in KEYS else ""
            source.blame((str(key),), f"{key}: unknown key{inside or nearest(str(key), known)}")
    entries = content.get("runs")
    if several and (not isinstance(entries, list) or not entries):
        source.blame(("runs",), f"runs: expected a list of blocks, got {entries!r}")
        entries = []
    title = str(content.get("title", source.path.stem))
    blocks = []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, Mapping):
            blocks.append(read_block(source, dict(entry), ("runs", index), source.path.stem, ""))
        else:
            source.blame(("runs", index), f"expected a mapping such as {{recipe: demo}}, got {entry!r}")
    if not several:
        own = {key: value for key, value in content.items() if key not in _HEAD}
        blocks.append(read_block(source, own, (), source.path.stem, title if "title" in content else ""))
    return SweepFile(title, blocks, count(source, content, "retries", (), least=0, default=2), _resources(source))


def _resources(source: SweepSource) -> Resources:
    try:
        return build(Resources, source.content.get("resources", {}), "resources")
    except BadInput as error:
        source.blame(("resources", *str(error).split(":")[0].split(".")[1:]), str(error))
        return Resources()
