"""Who proposes changes, and where processes run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from autoresearch.config.checks import require


@dataclass(frozen=True)
class Endpoint:
    """A language model behind an OpenAI-compatible endpoint.

    Attributes:
        url: up to and with /v1.
        model: its name there.
        key: name of the environment variable that holds the key; empty for none.
        timeout: seconds per request.
        temperature, max_tokens: of the request.
    """

    url: str = "http://127.0.0.1:8000/v1"
    model: str = ""
    key: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    temperature: float = 0.7
    max_tokens: int = 600

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
        require(0 < self.timeout <= 3600, f"timeout is above 0 s, not {self.timeout}")
        require(1 <= self.max_tokens <= 100_000, f"max_tokens is at least 1: {self.max_tokens}")


@dataclass(frozen=True)
class ProposerConfig:
    """Who proposes.

    Attributes:
        kind: random, rules, tpe (extra research), llm, or transcript.
        candidates: per generation.
        tries: after so many refused proposals in a row, a generation goes on with what it has.
        keys: of random: how many settings a proposal changes at most.
        rules: of rules: the name of a file in conf/autoresearch/rules.
        transcript: of transcript: a JSON-lines file of proposals.
        endpoint: of llm: the language model.
    """

    kind: Literal["random", "rules", "tpe", "llm", "transcript"] = "rules"
    candidates: int = 3
    tries: int = 20
    keys: int = 1
    rules: str = "coach"
    transcript: str = ""
    endpoint: Endpoint = field(default_factory=Endpoint)

    def __post_init__(self) -> None:
        require(1 <= self.candidates <= 99, f"candidates is 1 to 99, not {self.candidates}")
        require(1 <= self.tries <= 1000, f"tries is 1 to 1000, not {self.tries}")
        require(1 <= self.keys <= 10, f"keys is 1 to 10, not {self.keys}")
        require(
            (self.kind == "transcript") == bool(self.transcript),
            "transcript names a file where kind=transcript, and only there",
        )


@dataclass(frozen=True)
class ExecutorConfig:
    """How processes run.

    Attributes:
        kind: local, processes of this machine; or ray, tasks on a Ray cluster (extra cluster),
            each of whose nodes has this project installed, at the same commit.
        jobs: at a time.
        attempts: of one run that was lost with its process or node.
        address: of ray: host:port of the cluster's head, or auto for the one that this machine
            belongs to; empty starts one on this machine, for as long as the campaign runs.
        cpus, gpus: of ray, what a task takes of its node.
    """

    kind: Literal["local", "ray"] = "local"
    jobs: int = 1
    attempts: int = 3
    address: str = ""
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        require(1 <= self.jobs <= 1024, f"jobs is 1 to 1024, not {self.jobs}")
        require(1 <= self.attempts <= 100, f"attempts is 1 to 100, not {self.attempts}")
        require(self.kind == "ray" or not self.address, "address goes with kind=ray")
        require(0 < self.cpus <= 1024, f"cpus is above 0, not {self.cpus}")
        require(0 <= self.gpus <= 64, f"gpus is at least 0, not {self.gpus}")
