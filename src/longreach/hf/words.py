"""The words of a task as a tokenizer of Hugging Face."""

import json
from pathlib import Path
from typing import Any

from longreach.system.files import write_atomically
from longreach.system.huggingface import import_transformers
from longreach.tasks import PAD, Task


def save_words(task: Task, folder: Path, longest: int) -> bool:
    """Write a tokenizer of the task's words for `AutoTokenizer`; return False where words have blanks in them.

    Words are separated by blanks.  Where all words are single characters, blanks may be left out.  A word that the task
    does not have is an error.  Prompts are padded on the left.
    """
    words = task.vocabulary
    if any(len(word.split()) != 1 for word in words):
        return False
    import_transformers("a tokenizer for Hugging Face")  # which brings tokenizers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    numbers = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token=_no_word(words)))
    cutters: list[Any] = [pre_tokenizers.WhitespaceSplit()]
    if all(len(word) == 1 for word in words[PAD + 1 :]):
        cutters.append(pre_tokenizers.Split(Regex("."), "isolated"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(cutters)
    special = [words[PAD], *([] if task.stop_token is None else [words[task.stop_token]])]
    backend.add_special_tokens(special)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": special[0],
        **({"eos_token": special[1]} if len(special) > 1 else {}),
        "padding_side": "left",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": longest,
        "split_special_tokens": True,  # the stop token is a word like others
        "clean_up_tokenization_spaces": False,
    }
    write_atomically(folder / "tokenizer.json", backend.to_str(pretty=True).encode())
    write_atomically(folder / "tokenizer_config.json", (json.dumps(settings, indent=1) + "\n").encode())
    return True


def _no_word(words: tuple[str, ...]) -> str:
    """Return a name that no word has: the package then refuses unknown words."""
    name = "<unknown>"
    while name in words:
        name = f"<{name}>"
    return name
