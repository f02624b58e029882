"""`keras-attention serve`: a local page, and a JSON interface, that show what models attend to.

The models answer in threads: `Limits` says how many at once, how long, and to texts of what length.
"""

import asyncio
import base64
import dataclasses
import hashlib
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from keras_attention import __version__

from ..base.search_task import SearchTask
from ..base.task import TextTask
from ..errors import UserError, check_range, one_line, say
from ..show.explanation import Explanation, page

LOCAL = ("localhost", "127.0.0.1", "::1")
MOST_BEAMS = 10
LATER = {"Retry-After": "5"}
SPARE_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a request and of the server.

    Args:
        characters: of all texts of a request.
        seconds: for an answer, waiting included; a model that is late goes on until it is done and
            keeps its place.
        at_once: requests that are worked on at the same time; a model answers one at a time.
        waiting: requests that wait; the next one gets status 503.
    """

    characters: int = 2000
    seconds: float = 60.0
    at_once: int = 2
    waiting: int = 8


class Model(BaseModel):
    """A model that is served, with the texts that it asks for, by name; beams where it has any.

    `action` is what the button of the page says, and `example` holds texts to try, if there are.
    """

    name: str
    task: str
    asks: dict[str, str]
    action: str
    example: dict[str, str]
    beam_size: int | None


class Models(BaseModel):
    """The models that are served, and how many characters a request may have."""

    models: list[Model]
    characters: int


class Question(BaseModel, extra="forbid"):
    """Texts for a model, by the names that it asks for."""

    model: str
    inputs: dict[str, str]
    beam_size: Annotated[int | None, Field(strict=True, ge=1, le=MOST_BEAMS)] = None


class LongText(BaseModel, extra="forbid"):
    """A text of any number of paragraphs for a translator."""

    model: str
    text: str
    beam_size: Annotated[int | None, Field(strict=True, ge=1, le=MOST_BEAMS)] = None


class Sentence(BaseModel):
    """A sentence of a document: its tokens and translation, and where both lie in the texts.

    `alignment` has a row for each of `tokens`, and a column for each of `source_tokens`.
    """

    source_span: tuple[int, int]
    span: tuple[int, int]
    score: float | None
    source_tokens: list[str]
    tokens: list[str]
    alignment: list[list[float]] | None


class Document(BaseModel):
    """The translation of a document, and of its sentences."""

    model: str
    text: str
    sentences: list[Sentence]


class Problem(BaseModel):
    """An error, in one line."""

    error: str


class Desk:
    """Lets so many requests work at once and so many wait, each for a limited time."""

    def __init__(self, limits: Limits):
        self.limits, self.threads = limits, ThreadPoolExecutor(limits.at_once, "answer")
        self.taken: list[Future] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return what `work` gives in a thread; raise an HTTPException where it is too late."""
        self.taken = [each for each in self.taken if not each.done()]
        if len(self.taken) >= self.limits.at_once + self.limits.waiting:
            raise HTTPException(503, "the server is busy: try again in a moment", LATER)
        self.taken.append(self.threads.submit(work))
        try:
            # Nobody can stop a thread that works: a late one keeps its place until it is done.
            return await asyncio.wait_for(asyncio.wrap_future(self.taken[-1]), self.limits.seconds)
        except asyncio.TimeoutError:
            raise HTTPException(
                503,
                f"no answer within {self.limits.seconds:g} seconds: try a shorter text, or later",
                LATER,
            ) from None


class Guard:
    """Refuses requests that are too large, or come by another name (DNS rebinding) or page."""

    def __init__(self, app: Any, hosts: Iterable[str] | None, most: int, seconds: float):
        self.app, self.most, self.seconds = app, most, seconds
        self.hosts = None if hosts is None else set(hosts)

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._refuse_strangers(headers)
            body = await asyncio.wait_for(self._body(receive), self.seconds)
        except asyncio.TimeoutError:
            return await _problem(408, "the request did not arrive in time")(scope, receive, send)
        except HTTPException as error:
            return await _problem(error.status_code, error.detail)(scope, receive, send)
        whole = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay():
            return next(whole, None) or await receive()

        return await self.app(scope, replay, send)

    def _refuse_strangers(self, headers):
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if self.hosts is not None and name not in self.hosts:
            raise HTTPException(
                403, f"this server does not answer as {host!r}: open it by its address"
            )
        if origin is not None and origin.partition("://")[2] != host:
            raise HTTPException(403, "this server answers its own page only")

    async def _body(self, receive):
        """Return the body; refuse it as soon as it is too large."""
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
            if len(body) > self.most:
                raise HTTPException(413, f"the request has more than {self.most:,} bytes")
        return body


def _problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


def make_app(
    tasks: Mapping[str, TextTask],
    limits: Limits | None = None,
    hosts: Iterable[str] | None = LOCAL,
    examples: Mapping[str, Mapping[str, str]] | None = None,
) -> FastAPI:
    """Return the application that serves tasks, for any ASGI server.

    Args:
        tasks: the tasks by the names that the page shows.
        limits: of requests, and of the server.
        hosts: the names by which it may be called; None for any.
        examples: texts for tasks that the page offers to try, by their names.
    """
    limits = limits or Limits()
    app = FastAPI(
        title="keras-attention",
        version=__version__,
        description="What models answer, and what they attend to.",
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    # Each character is up to 6 bytes, as `\u1234`, and 12 beyond the basic plane.
    most = 12 * limits.characters + SPARE_BYTES
    app.add_middleware(Guard, hosts=hosts, most=most, seconds=limits.seconds)
    _add_answers(app, dict(tasks), limits, {k: dict(v) for k, v in (examples or {}).items()})
    _add_problems(app)
    content = page()
    headers = {"Content-Security-Policy": _policy(content), "X-Content-Type-Options": "nosniff"}

    @app.get("/", include_in_schema=False)
    def show_page() -> Response:
        return Response(content, media_type="text/html", headers=headers)

    return app


def _add_answers(
    app: FastAPI,
    tasks: dict[str, TextTask],
    limits: Limits,
    examples: dict[str, dict[str, str]],
) -> None:
    desk = Desk(limits)
    locks = {name: threading.Lock() for name in tasks}
    statuses = (400, 403, 404, 408, 413, 422, 500, 503)
    problems: Any = {status: {"model": Problem} for status in statuses}

    @app.get("/api/models", summary="The models")
    def models() -> Models:
        served = [
            Model(
                name=name,
                task=task.name_of_task,
                asks=dict(task.asks),
                action=task.action,
                example=examples.get(name, {}),
                beam_size=task.search.beam_size if isinstance(task, SearchTask) else None,
            )
            for name, task in tasks.items()
        ]
        return Models(models=served, characters=limits.characters)

    def check(name: str, characters: int) -> TextTask:
        if name not in tasks:
            raise HTTPException(404, f"there is no model {name!r}: expected {', '.join(tasks)}")
        if characters > limits.characters:
            raise HTTPException(
                413,
                f"the text has {characters:,} characters: at most {limits.characters:,} are taken",
            )
        return tasks[name]

    @app.post(
        "/api/explain",
        summary="An answer and what was attended to",
        responses={200: {"model": Explanation}, **problems},
    )
    async def explain(question: Question) -> Response:
        name, inputs = question.model, question.inputs
        task = check(name, sum(map(len, inputs.values())))
        if set(inputs) != set(task.asks):
            asked = ", ".join(task.asks)
            raise HTTPException(400, f"`inputs` of this model should be: {asked}")
        options = {"beam_size": question.beam_size} if isinstance(task, SearchTask) else {}

        def work() -> bytes:
            with locks[name]:  # a Keras model is not made for two threads
                found = task.explain(**inputs, **options)
            return dataclasses.replace(found, model=name).to_json().encode("utf-8")

        return Response(await desk.run(work), media_type="application/json")

    @app.post(
        "/api/document",
        summary="The translation of a document, sentence by sentence",
        responses={200: {"model": Document}, **problems},
    )
    async def document(asked: LongText) -> Response:
        task = check(asked.model, len(asked.text))
        if not hasattr(task, "translate_document"):
            raise HTTPException(400, f"the model {asked.model!r} translates no documents")

        def work() -> bytes:
            with locks[asked.model]:
                found = task.translate_document(asked.text, beam_size=asked.beam_size, n_best=1)
            return _described(asked.model, found).model_dump_json().encode("utf-8")

        return Response(await desk.run(work), media_type="application/json")


def _described(model: str, found: Any) -> Document:
    """Return a `TranslatedDocument` as the server answers it."""
    parts = zip(found.source_spans, found.spans, found.sentences, strict=True)
    sentences = [
        Sentence(
            source_span=source_span,
            span=span,
            score=each.score,
            source_tokens=each.source_tokens,
            tokens=each.tokens,
            alignment=None if each.alignment is None else each.alignment.round(4).tolist(),
        )
        for source_span, span, each in parts
    ]
    return Document(model=model, text=found.text, sentences=sentences)


def _add_problems(app: FastAPI) -> None:
    """Answer every error by a line of JSON."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        # Status 503 says when to try again, and 405 which methods there are.
        return _problem(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def not_understood(request: Request, error: RequestValidationError) -> JSONResponse:
        said = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        kind = request.headers.get("content-type", "none")
        # FastAPI reads a body as JSON only if the header says so; that of `curl --data` does not.
        if "json" not in kind.lower():
            said.append(f"the header Content-Type should be application/json. Received: {kind}")
        return _problem(422, one_line("; ".join(said)))

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> JSONResponse:
        return _problem(400, one_line(error))

    @app.middleware("http")
    async def broken(request: Request, call_next: Any) -> Response:
        try:
            return await call_next(request)
        except Exception as error:
            message = f"the model failed ({type(error).__name__}: {one_line(error)[:300]})"
            say(message)
            return _problem(500, message)


def _policy(content: str) -> str:
    """Return what the page may do: run its own script and style, ask this server, nothing else."""

    def hashes(tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
        digests = (hashlib.sha256(part.encode("utf-8")).digest() for part in parts)
        return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    tasks: Mapping[str, TextTask],
    host: str,
    port: int,
    limits: Limits,
    examples: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Serve tasks until interrupted; `examples` are as of `make_app`.

    Raises:
        UserError: where the address cannot be had.
    """
    import uvicorn

    check_range("--port", port, at_least=0, at_most=65535)
    if not host:  # the system takes it for all addresses of this machine
        raise UserError("--host should be an address, such as 127.0.0.1. Received: ''")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{host}:{port} cannot be had ({reason}): give another --host or --port."
        ) from None
    name = f"[{host}]" if ":" in host else host
    local = is_local(host)
    if not local:
        say(f"note: whoever reaches {host} can use this server, which asks for no password.")
    app = make_app(tasks, limits, (*LOCAL, host) if local else None, examples)
    print(f"http://{name}:{listening.getsockname()[1]}/", flush=True)
    say("Ctrl-C ends.")
    config = uvicorn.Config(app, log_level="warning", limit_concurrency=64, timeout_keep_alive=5)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        say("stopped.")
