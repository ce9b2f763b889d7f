"""Runs: recipes, folders, and what turns the one into the other."""

from longreach.runs.check import check
from longreach.runs.execute import Observer, choose_device, execute, execute_together, load_model
from longreach.runs.folder import RunFolder, RunInfo, commit_of_this_code, find_runs, gather_info
from longreach.runs.parts import new_model, seeds_together
from longreach.runs.recipe import Recipe, RunConfig, find_recipe, load_recipe, parse_recipe, shipped_recipes
from longreach.runs.tracking import check_trackers

__all__ = [
    "Observer",
    "Recipe",
    "RunConfig",
    "RunFolder",
    "RunInfo",
    "check",
    "check_trackers",
    "choose_device",
    "commit_of_this_code",
    "execute",
    "execute_together",
    "find_recipe",
    "find_runs",
    "gather_info",
    "load_model",
    "load_recipe",
    "new_model",
    "parse_recipe",
    "seeds_together",
    "shipped_recipes",
]
