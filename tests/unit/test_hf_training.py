"""Data sets of position IDs for Hugging Face's Trainer: keyed by seed, epoch and index, so a resume changes nothing."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator

from longreach.api import (
    CoupledDataset,
    Pose,
    PoseDataset,
    UncutCollator,
    UniformPose,
    keep_attention_uncut,
    position_callback,
    stream,
    with_position_head,
)
from longreach.errors import BadInput
from longreach.tasks import Text, build_sample
from longreach.tasks.relabelling import increasing

ROWS = [{"input_ids": [1 + (7 * row + 3 * place) % 29 for place in range(8 + row % 3)]} for row in range(10)]
COUPLED = [{**row, "places": [0, *range(1, len(row["input_ids"]))]} for row in ROWS]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)

    def __len__(self):
        return len(ROWS)


def tiny():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
        return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=32, **sizes))


def at_epoch(dataset, epoch):
    dataset.set_epoch(epoch)
    return dataset


def ids_of(dataset, epoch):
    at_epoch(dataset, epoch)
    return [row["position_ids"].tolist() for row in map(dataset.__getitem__, range(len(dataset)))]


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, Pose(max_id=99)),
        ({"chunks": 3}, Pose(max_id=99, chunks=3)),
        ({"uniform": True}, UniformPose(max_id=99)),
    ],
)
def test_ids_are_those_of_the_policy_for_seed_epoch_and_index(options, policy):
    dataset = PoseDataset(ROWS, 99, seed=5, **options)
    found = [ids_of(dataset, epoch) for epoch in (0, 1)]
    for epoch in (0, 1):
        for index, row in enumerate(ROWS):
            size = torch.tensor([len(row["input_ids"])])
            sample = build_sample(torch.tensor([row["input_ids"]]), size, torch.ones_like(size), size)
            draws = stream(5, f"PoseDataset, epoch {epoch}", torch.tensor([index]))
            assert found[epoch][index] == policy.training_ids(Text(), sample, draws)[0, 0].tolist()
    assert found[0] != found[1]
    assert found[0] != ids_of(PoseDataset(ROWS, 99, seed=6, **options), 0)
    assert found[0] == ids_of(PoseDataset(ROWS, 99, seed=5, **options), 0)
    assert max(max(ids) for ids in found[0]) > 20


def test_seams_and_padding_are_not_predicted():
    rows = [{"input_ids": list(range(1, 13)), "attention_mask": [1] * 9 + [0] * 3}] * 20
    dataset = at_epoch(PoseDataset(rows, 50, chunks=3, mask_seams=True), 0)
    masked = 0
    for index in range(20):
        row = dataset[index]
        ids, labels = row["position_ids"][:9], row["labels"]
        seam = torch.cat([torch.tensor([False]), ids.diff() != 1])
        assert torch.equal(labels[:9] == -100, seam)
        assert labels[:9][~seam].tolist() == [token for token, cut in enumerate(seam.tolist(), start=1) if not cut]
        assert labels[9:].tolist() == [-100] * 3
        assert row["position_ids"][9:].tolist() == [0] * 3
        masked += int(seam.sum())
    assert masked > 20
    assert rows[0] == {"input_ids": list(range(1, 13)), "attention_mask": [1] * 9 + [0] * 3}
    plain = at_epoch(PoseDataset(ROWS, 50), 0)[0]
    assert "labels" not in plain
    given = at_epoch(PoseDataset([{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}], 50, mask_seams=True), 0)
    assert given[0]["labels"][0] == -100


def test_coupled_ids_are_relabelled_in_every_epoch():
    dataset = CoupledDataset(COUPLED, ids="places", max_id=40, seed=3)
    found = [ids_of(dataset, epoch) for epoch in (0, 1)]
    assert found[0] != found[1]
    for index, row in enumerate(COUPLED):
        draws = stream(3, "CoupledDataset, epoch 1", torch.tensor([index]))
        assert found[1][index] == increasing(torch.tensor([row["places"]]), 40, draws)[0].tolist()
        assert found[1][index][0] == 0
    assert "places" not in dataset[0]
    assert ids_of(CoupledDataset(COUPLED, ids="places", relabel="none"), 4) == [row["places"] for row in COUPLED]
    moved = ids_of(CoupledDataset(COUPLED, ids="places", relabel="offset", max_id=40), 0)
    assert all(torch.tensor(ids[1:]).diff().eq(1).all() for ids in moved)


def coupled_levels(rows):
    """Return rows with two columns that grow, one of classes, and labels on the last four tokens."""
    found = []
    for row in rows:
        count = len(row["input_ids"])
        labels = [-100] * (count - 4) + row["input_ids"][-4:]
        first = [*range(1, count - 3), 1, 2, count - 3, count - 2]  # the last two go on beyond the prompt
        beside = [*range(count - 4, 0, -1), 2, 1, count - 4, 1]
        columns = {"at": first, "beside": beside, "side": [place % 3 for place in range(count)]}
        found.append({"input_ids": row["input_ids"], "labels": labels, **columns})
    return found


def test_several_levels_are_relabelled_apart_or_together_and_go_on_by_one_behind_the_prompt():
    rows = coupled_levels(ROWS)
    levels = ["at", "beside", "side"]
    apart = at_epoch(CoupledDataset(rows, levels, max_id=60, classes=["side"], prompt=True), 1)
    alone = at_epoch(CoupledDataset(rows, "at", max_id=60, prompt=True), 1)
    together = at_epoch(CoupledDataset(rows, levels, max_id=60, classes=["side"], same_places=True), 1)
    equal = 0
    for index, row in enumerate(rows):
        found = apart[index]
        count = len(row["input_ids"])
        assert set(found) == {"input_ids", "labels", "position_ids"}
        assert found["position_ids"].shape == (3, count)
        first = found["position_ids"][0].tolist()
        assert first == alone[index]["position_ids"].tolist()
        top = max(first[: count - 4])
        assert first[-2:] == [top + 1, top + 2]  # gaps of 1, whatever the others are
        assert first[-4] == first[0]
        assert top + 2 <= 60
        assert found["position_ids"][2].tolist() == row["side"]
        equal += sorted(first[: count - 4]) == sorted(found["position_ids"][1].tolist()[: count - 4])
        both = together[index]["position_ids"]
        pairs = set(zip(row["at"] + row["beside"], both[:2].flatten().tolist(), strict=True))
        assert len(pairs) == len(set(row["at"]))  # one map
    assert equal < 5
    batch = UncutCollator()([apart[0], apart[2]])
    assert batch["position_ids"].shape == (2, 3, 10)
    assert torch.equal(batch["position_ids"][1], apart[2]["position_ids"])
    assert batch["position_ids"][0, :, 8:].tolist() == [[0, 0]] * 3
    plain = at_epoch(CoupledDataset(COUPLED, ["places"], relabel="none"), 0)[0]
    assert plain["position_ids"].tolist() == [COUPLED[0]["places"]]


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (
            lambda: at_epoch(CoupledDataset(COUPLED, "places", max_id=40, prompt=True), 0)[0],
            "prompt=True needs labels that are -100 at the tokens of the prompt",
        ),
        (
            lambda: CoupledDataset(COUPLED, ["places"], max_id=9, classes=["side"]),
            "classes must be some of the columns",
        ),
        (
            lambda: UncutCollator()([{"input_ids": [1], "position_ids": [[1], [1]]}, {"input_ids": [1]}]),
            "rows have position_ids with different numbers of levels",
        ),
        (lambda: PoseDataset(ROWS, 99)[0], r"the epoch is not known.*callbacks=\[position_callback\(\)\] or call set"),
        (lambda: at_epoch(PoseDataset(ROWS, 8), 0)[2], "max_id=8 is too small for a row of 10 tokens"),
        (lambda: PoseDataset(ROWS, 99, chunks=3, uniform=True), "uniform skips need chunks=2, got 3"),
        (lambda: PoseDataset(ROWS, 0), "pose.max_id must be at least 1"),
        (lambda: PoseDataset(Stream(), 9), "PoseDataset needs rows by index, and a Stream has none"),
        (lambda: PoseDataset(iter(ROWS), 9), "PoseDataset needs rows by index, and a list_iterator has none"),
        (lambda: at_epoch(PoseDataset([{"text": "a"}], 9), 0)[0], "row 0 has no input_ids: it has text"),
        (
            lambda: at_epoch(PoseDataset([{"input_ids": [1], "position_ids": [0]}], 9), 0)[0],
            "row 0 has position_ids already",
        ),
        (
            lambda: at_epoch(PoseDataset([{"input_ids": [0, 1], "attention_mask": [0, 1]}], 9), 0)[0],
            "padded on the right",
        ),
        (lambda: CoupledDataset(COUPLED, ids="places", relabel="decreasing", max_id=9), "relabel must be one of"),
        (lambda: CoupledDataset(COUPLED, ids="places"), "max_id must be at least 1"),
        (lambda: CoupledDataset(COUPLED, ids="places", relabel="none", max_id=3), "or 0 with relabel='none'"),
        (lambda: at_epoch(CoupledDataset(COUPLED, ids="place", max_id=40), 0)[0], "no column place: they have"),
        (lambda: at_epoch(CoupledDataset(COUPLED, ids="places", max_id=3), 0)[0], "a row has 7 coupled IDs"),
        (
            lambda: at_epoch(CoupledDataset([{"input_ids": [1, 2], "at": [0, 9]}], ids="at", max_id=9), 0)[0],
            "at must go from 0 to at most the number of tokens: 0 to 9 found",
        ),
        (
            lambda: at_epoch(CoupledDataset([{"input_ids": [1, 2], "at": [0.5, 1]}], ids="at", max_id=9), 0)[0],
            "a whole number for each of 2 tokens",
        ),
    ],
)
def test_mistakes_are_one_line(use, complaint):
    with pytest.raises(ValueError, match=complaint) as refused:
        use()
    assert "\n" not in str(refused.value)


def test_workers_that_live_on_see_the_new_epoch():
    dataset = at_epoch(PoseDataset(ROWS, 99), 0)
    loader = DataLoader(dataset, batch_size=5, num_workers=1, persistent_workers=True, collate_fn=UncutCollator())
    seen = []
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        rows = [row[:8].tolist() for batch in loader for row in batch["position_ids"]]
        assert rows == [ids[:8] for ids in ids_of(dataset, epoch)]
        seen.append(rows)
    assert seen[0] != seen[1]


def train(folder, dataset, resume=None, workers=0, model=None, callbacks=True, collator=None, **arguments):
    """Return the trained weights, and the position IDs of all batches."""
    model, seen = model or tiny(), []
    arguments = {"num_train_epochs": 3, "save_steps": 4, "per_device_train_batch_size": 2} | arguments
    settings = TrainingArguments(
        str(folder),
        **arguments,
        learning_rate=0.01,
        dataloader_num_workers=workers,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Trainer(
        model,
        settings,
        train_dataset=dataset,
        eval_dataset=ROWS,
        data_collator=collator or UncutCollator(),
        callbacks=[position_callback()] if callbacks else None,
    )
    hook = lambda module, args, given: seen.append(given["position_ids"].tolist()) if module.training else None  # noqa: E731
    model.register_forward_pre_hook(hook, with_kwargs=True)
    trainer.train(resume_from_checkpoint=resume)
    return model.state_dict(), seen


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("pose", 2),
        ("coupled", 0),
        pytest.param("pose", 0, marks=pytest.mark.slow),
        pytest.param("coupled", 2, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_training_is_bit_for_bit_the_same(kind, workers, tmp_path):
    pytest.importorskip("accelerate")

    def dataset():
        if kind == "pose":
            return PoseDataset(ROWS, 31, mask_seams=True, seed=1)
        return CoupledDataset(COUPLED, ids="places", max_id=31, seed=1)

    whole, seen = train(tmp_path, dataset(), workers=workers)
    assert len(seen) == 15
    assert len({str(ids) for ids in seen}) == 15
    for step in (4, 8):  # 5 steps are an epoch
        resumed, rest = train(tmp_path, dataset(), resume=str(tmp_path / f"checkpoint-{step}"), workers=workers)
        assert rest == seen[step:]
        assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_a_resume_without_the_callback_is_refused(tmp_path):
    pytest.importorskip("accelerate")
    train(tmp_path, PoseDataset(ROWS, 31), callbacks=False, max_steps=5)
    with pytest.raises(BadInput, match=r"the epoch is not known.*position_callback"):
        train(tmp_path, PoseDataset(ROWS, 31), callbacks=False, resume=str(tmp_path / "checkpoint-4"))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_and_gradient_checkpointing_train_uncut(checkpointing, tmp_path):
    pytest.importorskip("accelerate")
    peft = pytest.importorskip("peft")
    datasets = pytest.importorskip("datasets")
    model = peft.get_peft_model(tiny(), peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    rows = datasets.Dataset.from_list([{**row, "text": "left out by Trainer"} for row in ROWS])
    options = {"gradient_checkpointing": checkpointing, "max_steps": 2}
    after, seen = train(tmp_path, PoseDataset(rows, 31), model=model, eval_strategy="epoch", **options)
    assert len(seen) == 2
    assert {name for name in after if not torch.equal(after[name], before[name])}


def test_a_model_with_a_position_head_trains_on_several_levels(tmp_path):
    pytest.importorskip("accelerate")
    rows = coupled_levels(ROWS)
    data = CoupledDataset(rows, ["at", "beside", "side"], max_id=40, classes=["side"], prompt=True)
    model = with_position_head(tiny(), level_sizes=(0, 0, 2), moves=9)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    options = {"gradient_checkpointing": True, "gradient_accumulation_steps": 2, "max_steps": 2, "bf16": True}
    after, seen = train(tmp_path, data, model=model, **options)
    assert len(seen) == 4
    assert {len(ids[0]) for ids in seen} == {3}
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert "id_embedding.weight" in moved
    assert any(name.startswith("position_head.") for name in moved)
    assert any(name.startswith("language_model.") for name in moved)
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
    metrics = lambda found: {"shape": found.predictions.shape}  # noqa: E731
    trainer = Trainer(model, arguments, data_collator=UncutCollator(), eval_dataset=data, compute_metrics=metrics)
    assert trainer.evaluate()["eval_shape"] == (len(rows), 10, 32)  # logits alone


def test_training_starts_with_a_check_of_attention(tmp_path):
    pytest.importorskip("accelerate")
    rows = [{"input_ids": row["input_ids"][:8], "labels": row["input_ids"][:8]} for row in ROWS]
    with pytest.raises(BadInput, match="attention of this llama model is cut where position IDs skip"):
        train(tmp_path, PoseDataset(rows, 31), collator=default_data_collator)
    model = tiny()
    keep_attention_uncut(model)
    train(tmp_path, PoseDataset(rows, 31), collator=default_data_collator, model=model, max_steps=1)
    with pytest.raises(BadInput, match="a list has no set_epoch"):
        train(tmp_path, rows)
