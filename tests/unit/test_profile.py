"""Phases that add up, steps that are timed and traced, names of kernels.  No test depends on how fast anything is."""

from types import SimpleNamespace

import pytest
import torch
from test_runs import CONFIG

from longreach.api import RunConfig, TrainConfig
from longreach.decoding import write_answers
from longreach.engine.drawing import HostStream
from longreach.evaluation import plain_judge
from longreach.execution import ExecutionConfig
from longreach.runs.operators import (
    PYTHON,
    OperatorRow,
    OperatorTrace,
    count_kernels,
    covered,
    first_rows,
    group_of,
    short_name,
)
from longreach.runs.parts import training_data
from longreach.runs.phases import OTHER, Phase, Phases
from longreach.runs.profile import NoProfile, Profile, Training
from longreach.runs.profile_result import phase_times
from longreach.runs.step_times import StepTimes
from longreach.system.process_start import process_age


def _clock(*times):
    return iter(times).__next__


def test_phases_are_exclusive_and_add_up():
    phases = Phases(0.0, clock=_clock(1.0, 3.0, 4.0, 9.0, 10.0))
    with phases.phase("outer"), phases.phase("inner"):  # 1 to 9, and within it 3 to 4
        pass
    phases.switch(Phase(OTHER))
    assert phases.seconds == {Phase(OTHER): 2.0, Phase("outer"): 7.0, Phase("inner"): 1.0}
    assert sum(phases.seconds.values()) == phases.total() == 10.0


def test_a_phase_waits_for_the_device_before_the_clock_is_read():
    read = []
    phases = Phases(0.0, clock=lambda: read.append("clock") or 1.0)
    phases.wait = lambda: read.append("wait")
    with phases.phase("one"):
        pass
    assert read == ["wait", "clock"] * 2


def test_a_phase_that_fails_ends_and_is_counted():
    phases = Phases(0.0, clock=_clock(1.0, 2.0))
    with pytest.raises(ValueError, match="broken"), phases.phase("one"):
        raise ValueError("broken")
    assert phases.seconds[Phase("one")] == 1.0
    assert phases.running == Phase(OTHER)


def test_time_is_moved_to_the_phase_that_it_turns_out_to_be():
    phases = Phases(0.0, clock=_clock(1.0, 2.0, 4.0))
    phases.begin("unknown")
    phases.begin("known", 8)
    phases.move(Phase("unknown"), Phase("known", None, 8))
    phases.switch(Phase(OTHER))
    assert phases.seconds == {Phase(OTHER): 1.0, Phase("known", None, 8): 3.0}
    phases.move(Phase("nothing"), Phase("known", None, 8))


def test_phases_come_in_order_and_empty_ones_are_left_out():
    found = phase_times([("b", 1.0), ("new", 2.0), ("a", 0.5), ("b", 0.5)], 4.0, ["a", "b", "c"])
    assert [(one.name, one.seconds, one.share) for one in found] == [
        ("a", 0.5, 0.125),
        ("b", 1.5, 0.375),
        ("new", 2.0, 0.5),
    ]


def test_without_a_profile_everything_is_as_it_was():
    profile, step = NoProfile(), _Step()
    assert profile.wrap("x", print) is print
    with profile.training(step, _training()) as taken, profile.phase("x"), profile.section(["x"]):
        assert taken is step
    with profile.testing(plain_judge, write_answers, print) as callables:
        assert callables == (plain_judge, write_answers, print)


def test_an_age_is_known_where_the_system_says(tmp_path):
    assert process_age(tmp_path / "stat") is None
    stat = tmp_path / "stat"
    stat.write_text("1 (a) b (c)) R 1")
    assert process_age(stat) is None
    stat.write_text(f"1 (a) b (c)) {' '.join(['0'] * 19)} 0 0")
    if process_age() is not None:
        assert process_age(stat) > process_age() > 0


# --- steps ------------------------------------------------------------------------------------------------------------


def _training(steps=1000, validate_every=1000, save_every=1000, start=0):
    config = RunConfig(
        task=CONFIG.task,
        train=TrainConfig(steps=steps, validate_every=validate_every, lengths=CONFIG.train.lengths),
        execution=ExecutionConfig(save_every=save_every),
    )
    return Training([(config, 0)], start, training_data(config, 0, "cpu"))


@pytest.mark.parametrize(
    ("training", "window"),
    [
        (_training(), (21, 20)),
        (_training(start=500), (521, 20)),
        (_training(validate_every=30), (30, 20)),  # 9 steps would be left before the validation
        (_training(validate_every=12), (24, 10)),
        (_training(validate_every=13), (26, 10)),
        (_training(steps=6, save_every=3), (3, 1)),
        (_training(steps=2), (1, 0)),
        (_training(save_every=1), (21, 0)),
    ],
)
def test_steps_are_traced_where_nothing_interrupts_them(training, window):
    assert training.find_window(20) == window
    assert training.find_window(0)[1] == 0


def test_tokens_are_those_that_all_models_read():
    one = _training()
    (config, seed) = one.runs[0]
    assert Training([(config, seed), (config, 1)], 0, one.drawn).tokens() == 2 * one.tokens()
    longest = config.task.max_tokens(config.train.lengths.high)
    assert 0 < one.tokens() <= config.train.batch_size * (longest - 1)


class _Step:
    model, values, reads_host = None, ("loss",), True

    def __init__(self):
        self.taken = []

    def __call__(self, number):
        self.taken.append(number)
        return torch.ones(1, 1) * number

    def rates(self, number):
        return [0.5]

    def finite(self):
        return [True]


def test_a_measured_step_takes_every_step_once_and_times_all_but_some():
    profile, step = Profile(0.0, "the test", traced_steps=4), _Step()
    with profile.section(["seed-0"]), profile.training(step, _training(steps=40)) as measured:
        assert [float(measured(number)) for number in range(40)] == list(range(40))
        assert (measured.values, measured.reads_host) == (("loss",), True)
        assert (measured.rates(0), measured.finite()) == ([0.5], [True])
    assert step.taken == list(range(40))
    result = profile.result()
    (training,) = result.sections[0].training
    assert (training.first, training.steps, training.timed, training.models) == (0, 40, 40 - 1 - 2 - 4, 1)
    assert 0 < training.median_milliseconds <= training.slowest_milliseconds
    assert training.operators.steps == 4
    assert 0 < training.busy_share <= 1
    assert "aten::mul" in [row.name for row in training.operators.rows]
    assert {"first step", "training steps", "training steps under the profiler"} <= {one.name for one in result.phases}
    assert sum(one.seconds for one in result.phases) == pytest.approx(result.seconds)
    assert sum(one.share for one in result.phases) == pytest.approx(1)
    assert 0 < result.seconds_to_first_step < result.seconds


def test_waiting_for_batches_is_a_share_of_training():
    training = _training(steps=40)
    drawn = HostStream(training.drawn)  # the training process draws them itself

    class Drawing(_Step):
        def __call__(self, number):
            drawn.batch(number)
            return super().__call__(number)

    profile = Profile(0.0, "the test", traced_steps=4)
    with profile.training(Drawing(), Training(training.runs, 0, drawn)) as measured:
        for number in range(40):
            measured(number)
    assert 0 < measured.speed().waiting_share < 1


def test_an_interrupted_training_ends_its_trace():
    profile = Profile(0.0, "the test", traced_steps=4)
    with profile.training(_Step(), _training(steps=40)) as measured:
        for number in range(15):
            measured(number)
        assert measured.trace.running
    assert not measured.trace.running
    with profile.training(_Step(), _training(steps=40)) as measured:  # another one can follow
        for number in range(40):
            measured(number)
    assert measured.trace.found is not None


def test_times_begin_anew_after_what_lies_between(monkeypatch):
    monkeypatch.setattr("longreach.runs.step_times.time.perf_counter", _clock(1.0, 3.0, 4.0, 10.0, 11.5))
    times = StepTimes("cpu")
    times.begin()
    times.end()
    times.end()
    times.begin()
    times.end()
    assert times.seconds() == [2.0, 1.0, 1.5]


# --- kernels and operators --------------------------------------------------------------------------------------------


def test_operators_of_the_steps_are_counted_and_those_of_the_warm_up_are_not():
    trace, left = OperatorTrace(3, "cpu"), torch.ones(8, 8)
    trace.start()
    for _ in range(2 + 3 - 1):
        left @ left
        assert not trace.step()
    left @ left
    assert trace.step()
    found = trace.found
    calls = {row.name: row.calls for row in found.rows}
    assert calls["aten::mm"] == 1
    assert calls[PYTHON] == 0
    assert sum(row.share for row in found.rows) == pytest.approx(1)
    assert sum(row.milliseconds for row in found.rows) == pytest.approx(found.milliseconds)
    assert found.busy_milliseconds < found.milliseconds


def test_kernels_of_two_streams_overlap():
    def event(name, start, end, device="DeviceType.CUDA", annotation=False, stream=7):
        facts = {"device_type": device, "is_user_annotation": annotation, "device_resource_id": stream}
        return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start, end=end), **facts)

    events = [
        event("nvjet_tst", 0.0, 4000.0),
        event("nvjet_tst", 6000.0, 10000.0),
        event("Memcpy DtoD", 1000.0, 7000.0, stream=20),
        event("aten::mm", 0.0, 9000.0, device="DeviceType.CPU"),
        event("ProfilerStep#3", 0.0, 9000.0),
        event("my range", 0.0, 9000.0, annotation=True),
    ]
    found = count_kernels(events, steps=2)
    assert found.kind == "kernels"
    assert [(row.name, row.group, row.calls, row.milliseconds) for row in found.rows] == [
        ("nvjet_tst", "products", 1, 4),
        ("Memcpy DtoD", "copies", 0.5, 3),
    ]
    assert (found.milliseconds, found.busy_milliseconds, found.streams) == (7, 5, (4, 3))


def test_what_is_covered_by_intervals():
    assert covered([]) == 0
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 4.0), (2.0, 3.0)]) == 5.0


def test_rows_beyond_the_first_ones_are_summed():
    rows = [OperatorRow(str(number), "", 1.0, 2.0, 0.25) for number in range(4)]
    assert first_rows(rows, 4) == rows
    assert first_rows(rows, 2) == [*rows[:2], OperatorRow("2 others", "", 2.0, 4.0, 0.5)]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("nvjet_tst_128x64_64x9_2x1_v_bz_TNT", "products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", "products"),
        ("aten::addmm", "products"),
        ("MmBackward0", "products"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "norms"),
        ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate", "norms"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "sums"),
        ("void (anonymous namespace)::softmax_warp_forward<float>", "softmax"),
        ("aten::linalg_vector_norm", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("Memset (Device)", "copies"),
        ("_gelu_forward", "fused layers"),
        ("_norm_backward", "norms"),
        ("_gelu_product_forward", "products"),
        ("pointer_backward_tokens", "pointer head"),
        ("_cross_entropy_forward", "softmax"),
        ("attention_backward", "attention"),
        ("aten::amax", "sums"),
        ("aten::as_strided", ""),
        ("aten::transpose", ""),
    ],
)
def test_a_kind_is_told_by_the_name_alone(name, group):
    assert group_of(name) == group


def test_names_are_shortened_by_what_all_of_them_have():
    name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
    assert short_name(name) == "vectorized_layer_norm_kernel<float, float>"
    assert short_name("reduce_kernel<" + "512, " * 99) == f"reduce_kernel<{'512, ' * 11}51…"
