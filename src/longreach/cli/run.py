"""`longreach run RECIPE`: train and test every variant and seed of a recipe, then report."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from longreach.cli.flags import recipe_changes, short_flags
from longreach.config.registry import nearest
from longreach.engine.parallel import check_parallel
from longreach.engine.plan import Parallel
from longreach.engine.ranks import Ranks, join_ranks
from longreach.errors import BadInput, RunFailed
from longreach.runs import (
    Recipe,
    RunConfig,
    RunFolder,
    check,
    check_together,
    check_trackers,
    choose_device,
    cut_into_stacks,
    execute_together,
    gather_info,
    load_recipe,
    new_model,
    runs_together,
    saved_step,
    use_threads,
)
from longreach.runs.profile import CHECK, FOLDERS, REPORT, NoProfile, Profile
from longreach.system.interrupts import deferred
from longreach.tasks.checking import CheckRecord
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.terminal.whole import Whole
from longreach.training import ask_for_repeatable_products
from longreach.verbs.checking import check_before_run

INTERRUPTED = 130

Phase = Callable[[str, int], Callable[[int, str], None]]
"""As in `Observer`."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    profile = _profile(args)
    with profile.phase(CHECK):
        recipe, only, track = _read(args, settings)
        asked = _device(recipe, only)
    if any(config.execution.deterministic for config in recipe.variants.values()):
        ask_for_repeatable_products(asked)  # before the device is looked at
    with join_ranks(choose_device(asked)) as (ranks, device):
        profile.use(device)
        return _run(args, recipe, only, track, ranks, device, profile)


def _profile(args: argparse.Namespace) -> NoProfile:
    """Return the profile of the command: one that measures nothing, unless --profile is given."""
    if args.profile:
        from longreach.cli.profile import start_profile

        return start_profile(args.profile_steps)
    if args.profile_steps is not None:
        raise BadInput("--profile-steps concerns the profile: add --profile")
    return NoProfile()


def _read(args: argparse.Namespace, settings: list[str]) -> tuple[Recipe, list[str] | None, list[str]]:
    """Return the recipe with all changes, the variants to run if only some, and the trackers."""
    only = None if args.only is None else _names(args.only)
    track = [] if args.track is None else _names(args.track)
    if args.stack is not None and args.stack < 1:
        raise BadInput(f"--stack must be at least 1, got {args.stack}")
    short = {"device": args.device, "stack": args.stack, "batch_tokens": args.batch_tokens}
    head = {"preset": args.preset, "seeds": args.seeds, "first_seed": args.first_seed}
    changes = {name: value for name, value in head.items() if value is not None}
    return load_recipe(args.recipe, short_flags(recipe_changes(settings), **short) | changes, only), only, track


def _run(
    args: argparse.Namespace,
    recipe: Recipe,
    only: list[str] | None,
    track: list[str],
    ranks: Ranks,
    device: str,
    profile: NoProfile,
) -> int:
    if args.threads:
        use_threads(args.threads)
    if args.parallel is not None and ranks.count == 1:
        raise BadInput("--parallel is for several processes: torchrun --nproc-per-node 2 -m longreach run ...")
    folder = args.out or Path("runs") / recipe.name
    parallel: Parallel = args.parallel or "ddp"
    console = say if ranks.first else Console(quiet=True)
    chosen = only or list(recipe.variants)
    with profile.phase(CHECK):
        checked = _check_tasks(recipe, folder, args.resume, chosen, args.no_check, console)
        todo = _plan(recipe, folder, args.resume, chosen, ranks.count, device)
    if ranks.count > 1:
        for config in (recipe.variants[one.variant] for (one,) in todo):
            model = new_model(config, seed=0, device="cpu")
            check_parallel(parallel, ranks.count, device, config.train, config.execution, model)
    ranks.wait()  # before the first makes a folder that another finds there
    check_trackers(track, together=max(map(len, todo)))
    if recipe.about and not args.json:
        console.print(recipe.about, markup=False, highlight=False)
    begun = any((one.below(folder).path / "config.yaml").exists() for together in todo for one in together)
    command = shlex.join([*_command(ranks), *sys.argv[1:]])
    resume = command if args.resume else f"{command} --resume"
    state = _State()
    whole = Whole([[_steps_left(recipe.variants[one.variant], one.below(folder)) for one in stack] for stack in todo])
    with (
        deferred(lambda: f"{state.describe()}.  To go on:  {resume}") as should_stop,
        watch(console, quiet=args.json, whole=whole) as observer,
    ):
        observer = replace(observer, phase=state.noting(observer.phase), should_stop=should_stop, profile=profile)
        if args.resume and not begun:
            observer.say(f"nothing to resume in {folder}: starting")
        for number, together in enumerate(todo):
            configs = [recipe.variants[one.variant] for one in together]
            folders = [one.below(folder) for one in together]
            state.work_on(folders[0], configs[0].train.steps)
            whole.begin(number)
            names = [one.name for one in together] if len(together) > 1 else []
            with profile.phase(FOLDERS):
                infos = [
                    replace(
                        gather_info(recipe.name, recipe.title, one.variant, one.seed, device, names, ranks.count),
                        task_check=checked.get(one.variant, ""),
                        variants=[name for name in recipe.variants if name],
                        command=command,
                    )
                    for one in together
                ]
            with profile.section([one.name for one in together]):
                done = execute_together(configs, folders, infos, device, args.resume, observer, track, ranks, parallel)
            if not done:
                console.print(f"interrupted; everything is saved.  To go on:  {resume}", markup=False, soft_wrap=True)
                return INTERRUPTED
    if not ranks.first:
        return 0
    from longreach.reports import THRESHOLDS, load_runs, tables, write_report  # training need not wait for it

    # everything that is finished below the folder: earlier starts may have left more
    with profile.phase(REPORT):
        results, problems = load_runs([folder])
        report = write_report(results, folder / "report", problems)
    profiled = None
    if isinstance(profile, Profile):
        from longreach.cli.profile import write_profile

        profiled = write_profile(profile, folder, recipe.name, device)
    if args.json:
        rows = [
            {
                "variant": group.variant,
                "setting": group.setting,
                "metric": group.metric,
                "seeds": [curve.seed for curve in group.curves],
                "reach": {str(p): group.reaches(p) for p in THRESHOLDS},
                "rates": {str(length): rate for length, rate in group.middle().items()},
            }
            for group in report.groups
        ]
        paths = {"png": str(report.png), "html": str(report.html), "csv": str(report.csv)}
        files = [str(path) for path in report.files]
        facts = {"recipe": recipe.name, "folder": str(folder), "results": rows, **paths, "files": files}
        print(json.dumps(facts if profiled is None else {**facts, "profile": profiled.facts}))
        return 0
    for table in tables(results, report.title, out.width):
        out.print(table)
    for path in report.files:
        name = {".png": "figure", ".html": "page"}.get(path.suffix, path.stem)
        out.print(f"{name:7} {path}", markup=False, highlight=False, soft_wrap=True)
    if profiled is not None:
        profiled.print(out)
    return 0


class _State:
    """The run in progress: what of it is kept if it ends inside a step."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        self.steps = self.done = 0

    def work_on(self, folder: RunFolder, steps: int) -> None:
        self.folder, self.steps, self.done = folder, steps, 0

    def noting(self, phase: Phase) -> Phase:
        """Return a `phase` that records how far its work is."""

        def begin(title: str, total: int) -> Callable[[int, str], None]:
            report = phase(title, total)

            def note(done: int, text: str) -> None:
                self.done = done
                report(done, text)

            return note

        return begin

    def describe(self) -> str:
        if self.folder is None:
            return "nothing was computed yet"
        saved = saved_step(self.folder)
        if saved >= self.steps:
            return "training is saved, its test begins anew"
        where = f"the checkpoint at step {saved} is kept" if saved else "no checkpoint had been saved"
        return f"{where}, {max(0, self.done - saved)} finished steps are lost"


def _steps_left(config: RunConfig, folder: RunFolder) -> int | None:
    """Return the training steps that a run has left; None if it is finished."""
    return None if folder.finished else max(0, config.train.steps - saved_step(folder))


def _command(ranks: Ranks) -> list[str]:
    if ranks.count == 1:
        return ["longreach"]
    return ["torchrun", "--nproc-per-node", os.environ["LOCAL_WORLD_SIZE"], "-m", "longreach"]


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


class _One(NamedTuple):
    """A run."""

    variant: str
    seed: int

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.variant, f"seed-{self.seed}")))

    def below(self, folder: Path) -> RunFolder:
        return RunFolder(folder / self.name)


def _plan(recipe: Recipe, folder: Path, resume: bool, only: list[str], processes: int, device: str) -> list[list[_One]]:
    """All runs, those together that are trained as one, with every mistake found before the first of them starts."""
    runs = []
    for variant in only:
        if variant not in recipe.variants:
            known = [name for name in recipe.variants if name]
            raise BadInput(f"{recipe.name} has no variant {variant!r}{nearest(variant, known)}")
        config = recipe.variants[variant]
        stack = config.execution.stack_size(1)
        if stack > 1 and processes > 1:
            raise BadInput(
                f"{processes} processes train one seed at a time: leave out --stack, or set execution.stack to 1"
            )
        seeds = [_One(variant, seed) for seed in recipe.seeds]
        together = min(stack, len(seeds))
        try:
            if any(_steps_left(config, one.below(folder)) for one in seeds):
                fits = partial(check_together, number=together, device=device, processes=processes)
                check(config, together > 1, fits)
            else:
                check(config, together > 1)
        except BadInput as error:
            raise BadInput(f"{variant}: {error}" if variant else str(error)) from error
        for one in seeds:
            path = one.below(folder).path
            if path.exists() and not resume:
                raise BadInput(f"{path} exists: add --resume to continue it, or choose another --out")
        runs.append((config, seeds))
    if folder.exists() and not folder.is_dir():
        raise RunFailed(f"{folder} is not a folder")

    def most(config: RunConfig) -> int:
        return config.execution.stack_size(1 if processes > 1 else runs_together(config, device))

    return cut_into_stacks(runs, most)


def _check_tasks(
    recipe: Recipe, folder: Path, resume: bool, only: list[str], skip: bool, console: Console
) -> dict[str, CheckRecord]:
    """Return, by variant, the result of the check of its task; raise BadInput if a task fails."""

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    found: dict[str, CheckRecord] = {}
    known: dict[str, CheckRecord] = {}
    for variant in (name for name in only if name in recipe.variants):  # `_plan` refuses the others
        if resume and all(_One(variant, seed).below(folder).begun for seed in recipe.seeds):
            continue
        config = recipe.variants[variant]
        key = f"{config.task} {config.train.lengths}"
        if key not in known:
            known[key] = check_before_run(config.task, config.train.lengths, tell, skip)
        found[variant] = known[key]
    return found


def _device(recipe: Recipe, only: list[str] | None) -> str:
    """Return the device that the variants ask for."""
    asked = {config.execution.device for name, config in recipe.variants.items() if only is None or name in only}
    if len(asked) > 1:
        raise BadInput(f"execution.device must be the same for all variants, got {', '.join(sorted(asked))}")
    return asked.pop() if asked else "auto"  # a variant that does not exist is refused later
