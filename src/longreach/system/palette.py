"""One look for each variant, in figures and pages alike."""

from collections.abc import Sequence
from typing import Any

# Okabe and Ito's colours, which people with colour-blindness can tell apart
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

Style = dict[str, Any]


def styles(names: Sequence[str]) -> dict[str, Style]:
    """Return a colour, dashes and a marker for each name.  `pose-softmax` has the colour of `pose`, and dashes.

    Give it the names of all variants, as `variant_order` returns them: a name's style follows from its place.
    """
    plain = {name: name.split(" (")[0] for name in names}
    families: dict[str, list[str]] = {}
    for name in names:
        parents = [other for other in plain.values() if plain[name].startswith(f"{other}-")]
        families.setdefault(min(parents, key=len, default=plain[name]), []).append(name)
    found = {}
    for number, members in enumerate(families.values()):
        for member, name in enumerate(sorted(members, key=len)):  # the family's own name comes first
            # when the dashes are used up, other markers; when the colours are, other markers too
            marker = number + number // len(COLOURS) + 4 * (member // len(DASHES))
            found[name] = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": DASHES[member % len(DASHES)],
                "marker": MARKERS[marker % len(MARKERS)],
            }
    return {name: found[name] for name in names}
