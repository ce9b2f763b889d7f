"""Settings of earlier versions: `train.objective`, one mapping with the settings of all losses."""

from collections.abc import Mapping
from typing import Any

_PREDICTED_IDS = {
    "id_weight": ("weight", 1.0),
    "id_loss_on": ("on", "answer"),
    "feed_predicted": ("feed_predicted", 0.0),
    "feed_from": ("feed_from", 0.5),
}
"""Old name -> name in `predicted_ids`, default."""


def upgrade_objective(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain settings of `train` with `objective` replaced by `objectives`; defaults are left out."""
    upgraded = dict(train)
    old = upgraded.get("objective")
    if not isinstance(old, Mapping):
        return upgraded
    del upgraded["objective"]
    ids: dict[str, Any] = {}
    dependency_weight = 1.0
    for key, value in old.items():
        name, default = _PREDICTED_IDS.get(key, (key, None))  # `predicted_ids` refuses keys that never existed
        if key == "dependency_weight":
            dependency_weight = value
        elif value != default:
            ids[name] = value
    found = [{"name": "predicted_ids", **ids}] if ids else []
    if dependency_weight != 1.0:
        found.append({"name": "dependencies", "weight": dependency_weight})
    if found:
        upgraded["objectives"] = [*upgraded.get("objectives", []), *found]
    return upgraded
