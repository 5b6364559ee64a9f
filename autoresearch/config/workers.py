"""Who proposes changes, and where processes run."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from autoresearch.config.checks import require
from common.schema import config_class


@config_class
class Endpoint:
    """A language model behind an OpenAI-compatible endpoint.

    Attributes:
        url: its address, which ends with /v1.
        model: the model's name there.
        key: name of the environment variable that holds the key; empty for none.
        timeout: seconds that a request may take.
        temperature: how random the answers are; 0 is not at all.
        max_tokens: of an answer, at most.
    """

    url: str = "http://127.0.0.1:8000/v1"
    model: str = ""
    key: str = "OPENAI_API_KEY"
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    temperature: Annotated[float, Field(ge=0)] = 0.7
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 600

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            whole = False
        require(
            whole and self.url.isascii() and self.url.isprintable() and " " not in self.url,
            f"url is http(s)://host[:port]/..., not {self.url!r}",
        )


@config_class
class ProposerConfig:
    """Who proposes.

    Attributes:
        kind: random draws from the space; rules is a coach; tpe is Optuna's estimator (extra
            research); llm asks a language model; transcript reads a file.
        candidates: how many a generation has.
        tries: after so many refused proposals in a row, a generation goes on with what it has.
        keys: of random: how many settings a proposal changes at most.
        rules: of rules: the name of a file in conf/autoresearch/rules.
        transcript: of transcript: a file of JSON lines, one proposal each.
        endpoint: of llm: the language model.
    """

    kind: Literal["random", "rules", "tpe", "llm", "transcript"] = "rules"
    candidates: Annotated[int, Field(ge=1, le=99)] = 3
    tries: Annotated[int, Field(ge=1, le=1000)] = 20
    keys: Annotated[int, Field(ge=1, le=10)] = 1
    rules: str = "coach"
    transcript: str = ""
    endpoint: Endpoint = field(default_factory=Endpoint)

    def __post_init__(self) -> None:
        require(
            (self.kind == "transcript") == bool(self.transcript),
            "transcript names a file where kind=transcript, and only there",
        )


@config_class
class ExecutorConfig:
    """How processes run.

    Attributes:
        kind: local is processes of this machine; ray is tasks on a Ray cluster (extra cluster),
            each of whose nodes has this project installed at the same commit.
        jobs: how many run at a time.
        attempts: how often one run may be lost with its process or node.
        address: of ray: host:port of the cluster's head, or auto for the cluster that this machine
            belongs to; empty starts one on this machine for as long as the campaign runs.
        cpus: of ray: what a task takes of its node.
        gpus: of ray: what a task takes of its node.
    """

    kind: Literal["local", "ray"] = "local"
    jobs: Annotated[int, Field(ge=1, le=1024)] = 1
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    address: str = ""
    cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    gpus: Annotated[float, Field(ge=0, le=64)] = 0.0

    def __post_init__(self) -> None:
        require(self.kind == "ray" or not self.address, "address goes with kind=ray")
