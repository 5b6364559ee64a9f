"""A language model as proposer, over a real server: a proposal or a typed failure."""

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from autoresearch.loop.campaign import Campaign
from autoresearch.propose.llm import EndpointDown, LanguageModelProposer, ProposalFailed
from autoresearch.propose.proposers import make_proposer
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import GOOD, brief, trial


@pytest.fixture
def endpoint():
    """A real server on loopback; set `.answer` to a function of the request's body."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, dict(self.headers), body))
            status, content = server.answer(body)
            self.send_response(status)
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.headers = {}
    server.seen, server.url = seen, f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def completion(text, tokens=123):
    content = {"choices": [{"message": {"content": text}}], "usage": {"total_tokens": tokens}}
    return 200, json.dumps(content).encode()


def model(tmp_path, endpoint, **options):
    place = {
        "url": endpoint.url,
        "model": "toy",
        "timeout": 5.0,
        "key": "TOY_KEY",
    } | options
    return LanguageModelProposer(
        toys.config(tmp_path, proposer={"kind": "llm", "endpoint": place, "candidates": 2})
    )


class TestLanguageModel:
    def test_it_is_told_numbers_and_answers_with_json(self, tmp_path, endpoint, monkeypatch):
        monkeypatch.setenv("TOY_KEY", "secret")
        endpoint.answer = lambda body: completion("```json\n" + json.dumps(GOOD) + "\n```")
        proposal = model(tmp_path, endpoint).propose(
            brief(
                measures={"judged/progress": 0.41}, history=(trial({"skill": 0.9}, None, "crash"),)
            )
        )
        assert proposal.change == {"skill": 0.5} and proposal.cost == {"tokens": 123}
        assert len(proposal.evidence["prompt_sha256"]) == 64 and proposal.source == "llm toy"
        path, headers, body = endpoint.seen[0]
        assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer secret"
        prompt = json.loads(body["messages"][1]["content"])
        assert prompt["settings"]["skill"] == {"now": 0.4, "low": 0.0, "high": 1.0}
        assert prompt["settings"]["note"] == {"now": "a", "choices": ["a", "b", "c"]}
        assert prompt["measured"] == {"judged/progress": 0.41}
        assert prompt["tried"] == [
            {"change": {"skill": 0.9}, "gain": None, "verdict": "crash", "mechanism": ""}
        ]

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (completion("I would raise the skill."), "reply: no JSON object"),
            (completion('{"change": {"skill": '), "reply: no JSON object"),
            (completion("[" * 100_000), "reply: no JSON object"),
            (completion(json.dumps(GOOD | {"promote": True})), "unknown promote"),
            (completion("promote this candidate, it is the best"), "reply: no JSON object"),
            ((500, b"oops"), "endpoint: HTTP 500"),
            ((200, b"not json"), "not the answer of a chat completion"),
            ((200, b"[]"), "not the answer of a chat completion"),
            ((200, b'{"choices": []}'), "not the answer of a chat completion"),
            ((200, b" " * ((1 << 20) + 2)), "more than 1,048,576 bytes"),
        ],
    )
    def test_what_is_no_proposal_is_a_typed_failure(self, tmp_path, endpoint, answer, message):
        endpoint.answer = lambda body: answer
        with pytest.raises(ProposalFailed, match=message):
            model(tmp_path, endpoint).propose(brief())

    def test_no_answer_in_time_and_nobody_there(self, tmp_path, endpoint):
        def late(body):
            time.sleep(1.0)
            return completion(json.dumps(GOOD))

        endpoint.answer = late
        with pytest.raises(ProposalFailed, match=r"endpoint: (no answer within|timed out)"):
            model(tmp_path, endpoint, timeout=0.2).propose(brief())
        with pytest.raises(EndpointDown, match=r"127\.0\.0\.1:9/v1.*refused"):
            model(tmp_path, endpoint, url="http://127.0.0.1:9/v1").propose(brief())
        endpoint.answer = lambda body: (401, b"who are you")
        with pytest.raises(EndpointDown, match="HTTP 401"):
            model(tmp_path, endpoint).propose(brief())

    @pytest.mark.parametrize(
        "answer",
        [
            completion(json.dumps(GOOD), tokens=float("inf")),
            (200, b'{"choices": [{"message": {"content": "\\ud800"}}]}'),
            (200, b'{"a":' * 100_000),
        ],
    )
    def test_an_answer_that_nothing_can_hold_is_a_typed_failure(self, tmp_path, endpoint, answer):
        endpoint.answer = lambda body: answer
        with pytest.raises(ProposalFailed, match="not the answer of a chat completion"):
            model(tmp_path, endpoint).propose(brief())

    def test_nobody_is_credited_tokens(self, tmp_path, endpoint):
        endpoint.answer = lambda body: completion(json.dumps(GOOD), tokens=-1_000_000)
        assert model(tmp_path, endpoint).propose(brief()).cost == {"tokens": 0}

    def test_the_key_goes_nowhere_else(self, tmp_path, endpoint, monkeypatch):
        monkeypatch.setenv("TOY_KEY", "secret")
        endpoint.answer = lambda body: (302, b"")
        endpoint.headers = {"Location": f"{endpoint.url}/elsewhere"}
        with pytest.raises(EndpointDown, match="HTTP 302"):
            model(tmp_path, endpoint).propose(brief())
        assert [path for path, _, _ in endpoint.seen] == ["/v1/chat/completions"]
        monkeypatch.setenv("TOY_KEY", "sec\nret")
        with pytest.raises(EndpointDown, match="TOY_KEY is no key"):
            model(tmp_path, endpoint).propose(brief())

    def test_a_byte_now_and_then_is_no_answer(self, tmp_path):
        def drip(server):
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                for byte in b"HTTP/1.1 200 OK\r\n" + 200 * b"a":
                    connection.send(bytes([byte]))
                    time.sleep(0.1)

        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=drip, args=(server,), daemon=True).start()
            there = SimpleNamespace(url=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
            began = time.monotonic()
            with pytest.raises(ProposalFailed, match="no answer within"):
                model(tmp_path, there, timeout=0.5).propose(brief())
            assert time.monotonic() - began < 5

    def test_what_is_no_http_is_a_typed_failure(self, tmp_path):
        def babble(server):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.send(b"good day\r\n\r\n")

        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=babble, args=(server,), daemon=True).start()
            there = SimpleNamespace(url=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
            with pytest.raises(ProposalFailed, match="no HTTP that can be read"):
                model(tmp_path, there).propose(brief())

    def test_a_campaign_without_its_endpoint_stops_and_is_taken_up(self, tmp_path, endpoint):
        place = {"url": endpoint.url, "model": "toy", "timeout": 5.0, "key": ""}
        proposer = {"kind": "llm", "endpoint": place, "candidates": 1}
        config = toys.config(tmp_path, proposer=proposer)
        endpoint.answer = lambda body: (403, b"no")
        with pytest.raises(EndpointDown), Campaign.opened(config, print) as campaign:
            campaign.run("propose")
        endpoint.answer = lambda body: completion(json.dumps(GOOD))
        with Campaign.opened(config, print) as campaign:
            campaign.run("propose")
            generation = campaign.state.generations[0]
            assert len(generation.candidates) == 1 and not generation.refused

    def test_failures_and_tokens_are_in_the_ledger_and_the_campaign_goes_on(
        self, tmp_path, endpoint
    ):
        answers = iter(
            [
                completion("promote g001_c01"),
                completion(json.dumps(GOOD | {"change": {"seed": 3}})),
                completion(json.dumps(GOOD | {"change": {"evaluation.threads": 3}})),
                (503, b""),
                completion(json.dumps(GOOD | {"change": {"skill": 0.7}})),
            ]
        )
        endpoint.answer = lambda body: next(answers)
        place = {"url": endpoint.url, "model": "toy", "timeout": 5.0, "key": ""}
        config = toys.config(
            tmp_path, gates={"alpha": 0.9, "guard_alpha": 0.5, "seed_units": 10},
            proposer={"kind": "llm", "endpoint": place, "candidates": 1},
            budgets={"generations": 1},
        )  # fmt: skip
        _, state = toys.run(config)
        reasons = [one["reasons"][0] for one in state.generations[0].refused]
        assert reasons == [
            "reply: no JSON object",
            "seed may not be searched",
            "evaluation.threads may not be searched",
            "endpoint: HTTP 503",
        ]
        assert state.candidates["g001_c01"].promoted and state.tokens == 4 * 123
        assert "Authorization" not in endpoint.seen[0][1]

    def test_it_needs_a_model(self, tmp_path):
        with pytest.raises(UserError, match=r"proposer\.endpoint\.model"):
            make_proposer(toys.config(tmp_path, proposer={"kind": "llm"}))
