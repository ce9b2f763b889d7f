"""Runs: recipes, folders, and what turns the one into the other."""

from longreach.runs.check import check
from longreach.runs.execute import choose_device, execute, execute_together, refuse_other_config, use_threads
from longreach.runs.folder import RunFolder, RunInfo, commit_of_this_code, device_name, find_runs, gather_info
from longreach.runs.measuring import MeasurePlan, measure_run, plan_measures
from longreach.runs.memory import check_together, check_training_memory
from longreach.runs.observer import Observer, saved_step
from longreach.runs.pace import MEASURED_STEPS, seconds_per_step
from longreach.runs.parts import new_model, runs_together
from longreach.runs.preset import on_preset, shipped_presets, with_test_lengths
from longreach.runs.recipe import (
    SECTIONS,
    Recipe,
    RunConfig,
    build_config,
    changed_title,
    find_recipe,
    load_recipe,
    parse_recipe,
    seeds_of,
    shipped_recipes,
    task_name,
    variant_names,
    variant_settings,
)
from longreach.runs.scoring import expect_test, left_out, load_model, run_test, work_of_test
from longreach.runs.stacks import cut_into_stacks
from longreach.runs.tracking import check_trackers
from longreach.system.lock import HOLDER, LOCK, hold, is_locked, wait_for_lock

__all__ = [
    "HOLDER",
    "LOCK",
    "MEASURED_STEPS",
    "SECTIONS",
    "MeasurePlan",
    "Observer",
    "Recipe",
    "RunConfig",
    "RunFolder",
    "RunInfo",
    "build_config",
    "changed_title",
    "check",
    "check_together",
    "check_trackers",
    "check_training_memory",
    "choose_device",
    "commit_of_this_code",
    "cut_into_stacks",
    "device_name",
    "execute",
    "execute_together",
    "expect_test",
    "find_recipe",
    "find_runs",
    "gather_info",
    "hold",
    "is_locked",
    "left_out",
    "load_model",
    "load_recipe",
    "measure_run",
    "new_model",
    "on_preset",
    "parse_recipe",
    "plan_measures",
    "refuse_other_config",
    "run_test",
    "runs_together",
    "saved_step",
    "seconds_per_step",
    "seeds_of",
    "shipped_presets",
    "shipped_recipes",
    "task_name",
    "use_threads",
    "variant_names",
    "variant_settings",
    "wait_for_lock",
    "with_test_lengths",
    "work_of_test",
]
