"""The server's interface: answers, limits, refusals; the tasks are stand-ins, but for one."""

import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install fastapi uvicorn")
pytest.importorskip("httpx", reason="TestClient needs httpx")

from fastapi.testclient import TestClient

from keras_attention.applications.command.serve import Limits, is_local, make_app, serve
from keras_attention.applications.show.explanation import ExplainedAnswer, Explanation
from tests.applications.commands import call_command
from tests.contracts.tasks import TEXTS, translator

HERE = "http://127.0.0.1:8000"


class Stub:
    """A task of the server's kind, which does what it is told to."""

    name_of_task, asks, action = "stub", {"text": "Text"}, "Show"

    def __init__(self, act=lambda text: text):
        self.act = act

    def explain(self, text):
        return Explanation("stub", {"text": text}, self.act(text), [ExplainedAnswer(text)])


def client_of(limits=None, base_url=HERE, hosts=("127.0.0.1",), **tasks):
    examples = {"runs": {"text": "a b"}}
    return TestClient(make_app(tasks, limits, hosts, examples), base_url=base_url)


def ask(client, text="a dog", model="a", **more):
    return client.post("/api/explain", json={"model": model, "inputs": {"text": text}, **more})


def refused(response, status, message):
    assert response.status_code == status and list(response.json()) == ["error"]
    assert message in response.json()["error"] and "\n" not in response.json()["error"]


def test_a_model_answers_as_it_does_in_python(traced_nowhere):
    task = translator()
    with client_of(runs=task, other=Stub()) as client:
        models = client.get("/api/models").json()
        assert models["characters"] == Limits().characters
        size = task.search.beam_size
        assert models["models"] == [
            {
                "name": "runs",
                "task": "translation",
                "asks": {"text": "Sentence"},
                "action": "Translate",
                "example": {"text": "a b"},
                "beam_size": size,
            },
            {
                "name": "other",
                "task": "stub",
                "asks": {"text": "Text"},
                "action": "Show",
                "example": {},
                "beam_size": None,
            },
        ]
        found = ask(client, TEXTS[0], "runs", beam_size=3).json()
    expected = json.loads(task.explain(TEXTS[0], beam_size=3).to_json())
    assert found == {**expected, "model": "runs"} and len(found["answers"]) == 3


def test_the_interface_is_described():
    described = client_of(a=Stub()).get("/openapi.json").json()
    answers = described["paths"]["/api/explain"]["post"]["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Explanation")
    assert {"400", "404", "408", "413", "422", "500", "503"} <= set(answers)
    weights = described["components"]["schemas"]["AttentionMap"]["properties"]["weights"]
    assert weights["type"] == "array"


def test_the_page_may_run_its_own_script_alone():
    shown = client_of(a=Stub()).get("/")
    assert shown.status_code == 200 and "<form" in shown.text
    policy = shown.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy and "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client_of(a=Stub()).get("/docs").status_code == 404  # it would load from elsewhere


def raising(error):
    def act(text):
        raise error

    return act


def test_what_goes_wrong_is_a_line_of_json():
    limits = Limits(characters=31)
    failing, wrong = Stub(raising(KeyError("x\ny"))), Stub(raising(ValueError("no\nwords")))
    client = client_of(limits, a=Stub(), failing=failing, wrong=wrong)
    assert ask(client, "x" * 31).status_code == 200
    refused(ask(client, "x" * 32), 413, "32 characters: at most 31")
    refused(ask(client, model="b"), 404, "no model 'b': expected a")
    refused(ask(client, model="failing"), 500, "the model failed (KeyError")
    refused(ask(client, model="wrong"), 400, "no words")
    for beam_size in (11, True):
        refused(ask(client, beam_size=beam_size), 422, "beam_size")
    refused(ask(client, beams=3), 422, "beams: Extra inputs")
    refused(client.post("/api/explain", json={"model": "a", "inputs": {}}), 400, "should be: text")
    refused(client.post("/api/explain", content="{", headers=JSON), 422, "JSON")
    refused(client.get("/nowhere"), 404, "Not Found")
    response = client.get("/api/explain")
    refused(response, 405, "Method Not Allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", None])
def test_a_body_that_is_not_declared_as_json_is_told_what_is_missing(kind):
    client, question = client_of(a=Stub()), '{"model": "a", "inputs": {"text": "a dog"}}'
    headers = {"content-type": kind} if kind else {}
    response = client.post("/api/explain", content=question, headers=headers)
    message = f"Content-Type should be application/json. Received: {kind or 'none'}"
    refused(response, 422, message)
    response = client.post("/api/explain", content="[]", headers=JSON)
    assert response.status_code == 422 and "Content-Type" not in response.text


JSON = {"content-type": "application/json"}


def test_a_body_is_read_no_further_than_it_may_be_long():
    client, sent = client_of(Limits(characters=3), a=Stub()), []

    def chunks():
        for number in range(100):
            sent.append(number)
            yield b" " * 1000

    response = client.post("/api/explain", content=chunks(), headers=JSON)
    refused(response, 413, "more than 4,132 bytes")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "["}, 403),
        ({"origin": HERE}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
    ],
)
def test_it_answers_by_its_own_name_and_to_its_own_page(headers, status):
    response = client_of(a=Stub()).get("/api/models", headers=headers)
    assert response.status_code == status
    if not headers:
        elsewhere = client_of(a=Stub(), hosts=None, base_url="http://box.lan:8000")
        assert elsewhere.get("/api/models").status_code == 200


def test_two_are_served_at_once_and_a_third_waits():
    both, third, order = threading.Barrier(2), threading.Event(), []

    def meet(text):
        order.append(text)
        if text != "third":
            both.wait(timeout=10)  # each waits for the other: alone, none would come through
            third.wait(timeout=10)
        return text

    tasks = {name: Stub(meet) for name in "abc"}
    with client_of(Limits(waiting=1), **tasks) as client, ThreadPoolExecutor(3) as pool:
        first = [pool.submit(ask, client, name, name) for name in "ab"]
        wait_for(lambda: len(order) == 2)
        waiting = pool.submit(ask, client, "third", "c")
        time.sleep(0.1)
        assert not waiting.done() and sorted(order) == ["a", "b"]
        refused(ask(client, model="c"), 503, "busy: try again")  # one may wait, the next may not
        third.set()
        assert [each.result().status_code for each in (*first, waiting)] == [200] * 3
    assert order[-1] == "third"


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about within 5 seconds")


def test_one_model_answers_one_at_a_time():
    inside, most = [], []

    def act(text):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        return text

    with client_of(a=Stub(act)) as client, ThreadPoolExecutor(3) as pool:
        found = [pool.submit(ask, client, str(n)) for n in range(3)]
        assert [each.result().json()["text"] for each in found] == ["0", "1", "2"]
    assert most == [1, 1, 1]


def test_a_late_model_is_given_up_and_keeps_its_place_until_it_is_done():
    end = threading.Event()
    slow = Stub(lambda text: str(end.wait(timeout=10)))
    with client_of(Limits(seconds=0.1, at_once=1), slow=slow, a=Stub()) as client:
        response = ask(client, model="slow")
        refused(response, 503, "no answer within 0.1 seconds")
        assert response.headers["retry-after"] == "5"
        refused(ask(client), 503, "no answer within")  # which the late one holds up
        end.set()
        wait_for(lambda: ask(client).status_code == 200)


def test_a_port_in_use_is_an_error_of_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"127.0.0.1:{port} cannot be had.*another --host or --port"
        ):
            serve({"a": Stub()}, "127.0.0.1", port, Limits())
        with pytest.raises(ValueError, match="--host should be an address.*Received: ''"):
            serve({"a": Stub()}, "", port, Limits())
    with pytest.raises(ValueError, match="--port must be at least 0 and at most 65535"):
        serve({"a": Stub()}, "127.0.0.1", 70000, Limits())


def test_what_is_local():
    assert [is_local(each) for each in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert not any(map(is_local, ("0.0.0.0", "::", "192.168.1.7", "box.lan")))


def test_without_fastapi_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "keras_attention.applications.command.serve")
    done = call_command(capsys, "serve", "dates")
    assert done.status == 2 and done.err.count("\n") == 1
    assert "pip install fastapi uvicorn" in done.err


def test_the_command_serves_what_it_is_given(monkeypatch, capsys):
    from keras_attention.applications.command import serve as module

    called = []
    monkeypatch.setattr(module, "serve", lambda *given: called.append(given))
    options = ["--port", "0", "--most-characters", "77", "--most-seconds", "3"]
    assert call_command(capsys, "serve", "dates", *options).status == 0
    ((tasks, host, port, limits, examples),) = called
    assert examples == {"dates": {"text": "den 3. Mai 1984"}}
    assert list(tasks) == ["dates"] and tasks["dates"].name_of_task == "translation"
    assert (host, port) == ("127.0.0.1", 0)
    assert (limits.characters, limits.seconds) == (77, 3)
    monkeypatch.setattr("keras_attention.applications.command.cli.default_preset", lambda: "dates")
    assert call_command(capsys, "serve").status == 0
    assert list(called[1][0]) == ["dates"]
    done = call_command(capsys, "serve", "nowhere")
    assert done.status == 2 and "there is no preset nowhere" in done.err
