"""A language model as proposer, through any OpenAI-compatible endpoint.

The model is sent settings and numbers, never logs or file contents. It answers with one JSON
object. Nothing but a proposal can come of the answer: `Proposal.parse` takes four fields and no
others, and G0 takes only keys and values inside the campaign's space.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from autoresearch.config import CampaignConfig, Endpoint, Range
from autoresearch.propose.brief import Brief
from autoresearch.types.proposal import Proposal
from common.errors import ConfigError, UserError
from common.files import to_plain

MAX_REPLY = 1 << 20
REFUSALS = (401, 403, 404)
"""HTTP status: a missing or wrong key, no such address, no such model."""
_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)

SYSTEM = """You tune a training configuration. You are given the settings that may change with \
their ranges, the current values, what the current configuration measured, and what was tried \
before. Propose one small change that you can give a reason for. Answer with one JSON object and \
nothing else: {"change": {"<key>": <value>}, "hypothesis": "<why it helps>", "observable": \
"<measure that must move if you are right>", "sign": 1 or -1}"""


class ProposalFailed(UserError):
    """The endpoint gave no proposal.

    Attributes:
        tokens: what the attempt cost.
        evidence: hashes of the prompt and, if there was one, of the reply.
    """

    def __init__(self, message: str, tokens: int = 0, evidence: dict[str, str] | None = None):
        super().__init__(message)
        self.tokens, self.evidence = tokens, evidence or {}


class EndpointDown(ConfigError):
    """The endpoint cannot be reached, or refuses us. Asking again is useless: the campaign stops.
    It can be resumed when the endpoint works."""


class LanguageModelProposer:
    """Asks the endpoint of `config.proposer.endpoint`."""

    def __init__(self, config: CampaignConfig) -> None:
        self.config, self.endpoint = config, config.proposer.endpoint
        if not self.endpoint.model:
            raise UserError(
                "proposer=llm: name the model (proposer.endpoint.model=...) and where it is served "
                f"(proposer.endpoint.url={self.endpoint.url})"
            )

    def propose(self, brief: Brief) -> Proposal:
        """One proposal.

        Raises `ProposalFailed` if the endpoint fails or does not answer in JSON, and `EndpointDown`
        if it cannot be reached.
        """
        prompt = json.dumps(to_plain(self.message(brief)), sort_keys=True)
        evidence = {"prompt_sha256": _sha256(SYSTEM + prompt)}
        reply, tokens = self._ask(prompt, evidence)
        evidence["reply_sha256"] = _sha256(reply)
        source = f"llm {self.endpoint.model}"
        try:
            proposal = Proposal.parse(_json_in(reply), source)
        except UserError as error:
            raise ProposalFailed(f"reply: {error}", tokens, evidence) from None
        return Proposal(
            proposal.change, proposal.hypothesis, proposal.observable, proposal.sign, source,
            {"tokens": tokens}, evidence,
        )  # fmt: skip

    def message(self, brief: Brief) -> dict[str, Any]:
        """The content of the prompt, as data."""
        config, primary = self.config, self.config.gates.primary
        return {
            "settings": {
                key: {"now": brief.value(key)} | _described(span)
                for key, span in config.space.items()
            },
            "goal": {
                "measure": primary.name,
                "better": "larger" if primary.sign > 0 else "smaller",
                "must_not_get_worse": [guard.measure.name for guard in config.gates.guards],
            },
            "observables": list(config.metrics or (primary.name,)),
            "measured": brief.measures,
            "tried": [
                {
                    "change": trial.change,
                    "gain": trial.gain,
                    "verdict": trial.verdict,
                    "mechanism": trial.mechanism,
                }
                for trial in brief.history[-30:]
            ],
        }

    def _ask(self, prompt: str, evidence: dict[str, str]) -> tuple[str, int]:
        endpoint = self.endpoint
        body = {
            "model": endpoint.model,
            "messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": prompt},
            ],
            "temperature": endpoint.temperature,
            "max_tokens": endpoint.max_tokens,
        }
        headers = {"Content-Type": "application/json"}
        if endpoint.key and (key := os.environ.get(endpoint.key, "").strip()):
            if not (key.isascii() and key.isprintable()):
                raise EndpointDown(f"the key in ${endpoint.key} is no key: it has odd characters")
            headers["Authorization"] = f"Bearer {key}"
        url = f"{endpoint.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            raw = _within(endpoint.timeout, lambda: _read(request, endpoint.timeout))
        except urllib.error.HTTPError as error:
            if error.code in REFUSALS or 300 <= error.code < 400:
                raise EndpointDown(_refused(url, error.code, endpoint)) from None
            raise ProposalFailed(f"endpoint: HTTP {error.code}", 0, evidence) from None
        except TimeoutError:
            message = f"endpoint: no answer within {endpoint.timeout:g} s"
            raise ProposalFailed(message, 0, evidence) from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise EndpointDown(_unreachable(url, reason)) from None
        except (http.client.HTTPException, ValueError) as error:
            message = f"endpoint: no HTTP that can be read ({type(error).__name__})"
            raise ProposalFailed(message, 0, evidence) from None
        if len(raw) > MAX_REPLY:
            raise ProposalFailed(f"endpoint: more than {MAX_REPLY:,} bytes", 0, evidence)
        try:
            content = json.loads(raw)
            tokens = max(int(content.get("usage", {}).get("total_tokens", 0)), 0)
            reply = str(content["choices"][0]["message"]["content"])
            reply.encode()  # JSON can hold lone surrogates, which cannot be encoded
            return reply, tokens
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            message = "endpoint: not the answer of a chat completion"
            raise ProposalFailed(message, 0, evidence) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key is for the endpoint that was named, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(request: urllib.request.Request, timeout: float) -> bytes:
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as response:
        return response.read(MAX_REPLY + 1)


def _within(seconds: float, ask: Callable[[], bytes]) -> bytes:
    """What `ask` returns or raises; `TimeoutError` if that takes longer.

    A socket's timeout applies to each read, so a server that sends a byte now and then never meets
    it. The thread that waits for such a server is left behind.
    """
    result: Future[bytes] = Future()

    def work() -> None:
        try:
            result.set_result(ask())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return result.result(seconds)


def _json_in(reply: str) -> Any:
    """The one JSON object of a reply, alone or in a fence."""
    fenced = _FENCED.findall(reply)
    text = fenced[0] if len(fenced) == 1 else reply
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError("no JSON object") from None


def _refused(url: str, status: int, endpoint: Endpoint) -> str:
    advice = {
        401: f"put the right key into ${endpoint.key}",
        403: f"put a key that may use this model into ${endpoint.key}",
        404: "proposer.endpoint.url ends with /v1, and proposer.endpoint.model is a name that the "
        "endpoint knows",
    }.get(status, "proposer.endpoint.url is the final address; redirects are not followed")
    return f"{url}: HTTP {status}; {advice}; then run the campaign again, it goes on"


def _unreachable(url: str, reason: object) -> str:
    return (
        f"{url}: {reason}; start an OpenAI-compatible server there (for example with "
        "`pip install vllm` and `vllm serve <model>`), or name another one with "
        "proposer.endpoint.url=...; then run the campaign again, it goes on"
    )


def _described(span: Range) -> Mapping[str, Any]:
    if span.choices:
        return {"choices": list(span.choices)}
    bounds = {"low": span.low, "high": span.high}
    return bounds | ({"whole_numbers": True} if span.integer else {})


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
