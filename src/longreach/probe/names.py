"""Short names of models and texts, made distinct where several have the same."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from longreach.probe.passage import document_of
from longreach.probe.result import Probed

_SHOWN = 6
"""Letters of a fingerprint that tell two of the same name apart."""


def tell_apart(probes: Sequence[Probed]) -> list[Probed]:
    """The same probes; models that have one name, and texts that have one title, get another each."""
    models = _distinct((probe.model, probe.model_fingerprint) for probe in probes)
    texts = _distinct((document_of(probe.title), probe.text_fingerprint) for probe in probes)
    named = []
    for probe in probes:
        text = document_of(probe.title)
        title = texts[text, probe.text_fingerprint] + probe.title.removeprefix(text)
        named.append(replace(probe, model=models[probe.model, probe.model_fingerprint], title=title))
    return named


def _distinct(known: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """For each name and fingerprint the name alone, or, where others have it too, with the fingerprint's beginning."""
    fingerprints = defaultdict(set)
    for name, fingerprint in known:
        fingerprints[name].add(fingerprint)
    return {
        (name, fingerprint): name if len(all_of_name) == 1 or not fingerprint else f"{name} #{fingerprint[:_SHOWN]}"
        for name, all_of_name in fingerprints.items()
        for fingerprint in all_of_name
    }
