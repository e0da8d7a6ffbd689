"""Live reads over HTTP: the same named queries as over NATS, and ad-hoc SQL in its sandbox; nothing else, and nothing that writes.

::

    GET  /                      what this is, how fresh it is
    GET  /q                     the questions and what each takes
    GET  /q/NAME?param=value    an answer; .json .csv .parquet .arrow at the end of NAME, or the Accept header, choose its form
    POST /sql                   one SELECT, on the newest published copy

Every answer says as of when it holds, in its headers and, in JSON, in its body; its ETag is made of that sequence and the question,
because an answer is a function of both. An error is a JSON document of what was wrong and what to do. Questions wait for the same
two readers as those over NATS; when too many wait already, the next one is told to come back.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from apportion.adapters.projector import formats
from apportion.adapters.projector.answering import LONG, Answering, Refusal
from apportion.adapters.projector.listening import is_loopback
from apportion.adapters.projector.sandbox import SQL_BYTES_MAX, Limits, SandboxRefused, run_sql
from apportion.adapters.text import render
from apportion.projections import queries, storage
from apportion.projections.fingerprint import fingerprint
from apportion.projections.queries import Parameter, QueryRefused

logger = logging.getLogger(__name__)

WAITING_MAX = 16
ANSWER_BYTES_MAX = 64 * 1024 * 1024
SQL_LIMIT_S = 10.0
RETRY_S = "1"
MEDIA = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
STATUS = {
    "usage": 400, "memory": 400, "token": 401, "host": 403, "unknown": 404, "form": 406, "size": 413, "failed": 500, "missing": 501,
    "stale": 503, "busy": 503, "time": 504,
}  # fmt: skip
SQL_HELP = "GET /q lists the named questions; select table_name from duckdb_tables() the tables"
NO_COPY = "no copy of the projection has been published yet"
_MOMENT = {"seq": Parameter("seq", "bigint", False), "at_ms": Parameter("at_ms", "bigint", False)}
_EXTRA = {"audit": {"check": Parameter("check", "varchar", False)}, "usage": {"by": Parameter("by", "varchar", False)}}

Answer = Callable[[Request], Awaitable[Response]]


def app(answering: Answering, published: Path, token: str) -> Starlette:
    """Return the application: it asks ``answering``, and the copies in ``published``. A ``token`` of '' asks for none."""
    web = _Web(answering, published, token)
    routes = [
        Route("/", web.guarded(web.about)),
        Route("/q", web.guarded(web.questions)),
        Route("/q/{name}", web.guarded(web.question)),
        Route("/sql", web.guarded(web.sql), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_such_page})


class _Web:
    """The pages, and what they share: who may ask, how many wait."""

    def __init__(self, answering: Answering, published: Path, token: str) -> None:
        self._answering = answering
        self._published = published
        self._token = token.encode()
        self._waiting = 0
        self._sandbox = asyncio.Semaphore(1)

    def guarded(self, page: Answer) -> Answer:
        """Return the page for those who may ask, with its refusals as documents."""

        @functools.wraps(page)
        async def guarded(request: Request) -> Response:
            try:
                self._admit(request)
                return await page(request)
            except Refusal as refusal:
                return _refused(refusal)

        return guarded

    def _admit(self, request: Request) -> None:
        if self._token:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
                raise Refusal("token", "no token, or not the right one", "send the header Authorization: Bearer TOKEN")
            return
        # a page of another site that points its name at this machine asks under that name
        host = request.url.hostname or ""
        if not is_loopback(host):
            raise Refusal("host", f"{host!r} is not this machine", "ask for 127.0.0.1 or localhost")

    async def about(self, request: Request) -> Response:
        """What this is."""
        at = await self._answering.freshness()
        document = {"apportion": "live reads", "as_of": _moment(at), "questions": "/q", "sql": "POST /sql"}
        return _json(document, at)

    async def questions(self, request: Request) -> Response:
        """The questions."""
        found = [
            {
                "query": one.name, "question": one.question, "path": f"/q/{one.name}",
                "parameters": [
                    {"name": p.name, "type": p.kind, "required": p.required, "default": p.default, "meaning": p.meaning}
                    for p in one.parameters.values()
                ],
            }
            for one in queries.catalog().values()
        ]  # fmt: skip
        return Response(msgspec.json.encode({"queries": found}), media_type=MEDIA["json"])

    async def question(self, request: Request) -> Response:
        """An answer."""
        name, _, suffix = request.path_params["name"].partition(".")
        if name not in LONG:
            _known(name)
        form = _form(request, suffix)
        params = _params(name, request)
        tag = _tag(name, params, form)
        if not params.keys() & _MOMENT.keys():  # else only the answer knows its tick
            at = await self._answering.freshness()
            if _unchanged(request, f'W/"{at["seq"]}-{tag}"'):
                return _headed(Response(status_code=304), at, tag)
        with _Place(self):
            document = await self._answering.ask(name, params)
        at = document["as_of"]
        if _unchanged(request, f'W/"{at["seq"]}-{tag}"'):
            return _headed(Response(status_code=304), at, tag)
        told = {} if name in LONG else {"query": name, "question": queries.find(name).question}
        body = await asyncio.to_thread(_body, form, document, told)
        return _headed(Response(body, media_type=MEDIA[form]), at, tag)

    async def sql(self, request: Request) -> Response:
        """An answer to SQL."""
        form = _form(request, "")
        text = await _sql_text(request)
        copy = storage.newest(self._published)
        if copy is None:
            raise Refusal("stale", NO_COPY, "one is made every 30 s; ask again in a moment")
        if self._sandbox.locked():
            raise Refusal("busy", "another SQL question is being answered", "ask again in a moment")
        async with self._sandbox:
            try:
                answer = await asyncio.to_thread(run_sql, copy, text, Limits(time_s=SQL_LIMIT_S))
            except SandboxRefused as refused:
                raise Refusal(refused.kind, str(refused), SQL_HELP) from None
        seq = self._answering.readable_seq
        lag = max(0, seq - answer.as_of_seq)
        at = {"seq": answer.as_of_seq, "time_ms": answer.as_of_ms, "lag": lag, "lag_ms": 0, "stream_seq": seq}
        rows = answer.dicts()
        types = formats.guessed_types(answer.columns, rows)
        document = {"columns": answer.columns, "types": types, "rows": rows, "as_of": at}
        body = await asyncio.to_thread(_body, form, document, {"truncated": answer.truncated})
        response = _headed(Response(body, media_type=MEDIA[form]), at)
        response.headers["Apportion-Truncated"] = str(answer.truncated).lower()
        return response


class _Place:
    """A place among those who wait for a reader. Raises ``Refusal`` when there is none."""

    def __init__(self, web: _Web) -> None:
        self._web = web

    def __enter__(self) -> None:
        if self._web._waiting >= WAITING_MAX:
            raise Refusal("busy", f"{WAITING_MAX} questions wait already", "ask again in a moment")
        self._web._waiting += 1

    def __exit__(self, *_exc: object) -> None:
        self._web._waiting -= 1


def _known(name: str) -> None:
    try:
        queries.find(name)
    except QueryRefused as refused:
        raise Refusal("unknown", str(refused), "GET /q lists the questions") from None


def _form(request: Request, suffix: str) -> str:
    """Return the form of the answer: by the suffix, else by the first of the Accept header that there is."""
    if suffix:
        if suffix not in MEDIA:
            raise Refusal("form", f"there is no form .{suffix}", f"one of {', '.join('.' + form for form in MEDIA)}")
        return suffix
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "*/*").split(",")]
    for wanted in accepted:
        for form, media in MEDIA.items():
            if wanted in ("*/*", "application/*" if form != "csv" else "text/*", media.partition(";")[0]):
                return form
    there = ", ".join(media.partition(";")[0] for media in MEDIA.values())
    raise Refusal("form", f"nothing of {', '.join(accepted)} is there", f"one of {there}")


def _params(name: str, request: Request) -> dict[str, Any]:
    """Return the parameters in their types. Raises ``Refusal``."""
    own = {} if name in LONG else queries.find(name).parameters
    known = {**own, **_EXTRA.get(name, {}), **_MOMENT}
    params: dict[str, Any] = {}
    for key, value in request.query_params.multi_items():
        parameter = known.get(key)
        if parameter is None or key in params:
            what = f"{name} has no parameter {key!r}" if parameter is None else f"{key} is given twice"
            raise Refusal("usage", what, f"it takes {', '.join(sorted(known))}; GET /q tells their meaning")
        params[key] = _typed(parameter, value)
    return params


def _typed(parameter: Parameter, value: str) -> Any:
    if parameter.kind == "varchar":
        return value
    if parameter.kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if parameter.kind == "bigint" and value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 20:
        return int(value)
    asked = "true or false" if parameter.kind == "boolean" else "a whole number (times in milliseconds since 1970)"
    sample = "true" if parameter.kind == "boolean" else "1"
    raise Refusal("usage", f"{parameter.name}={value[:100]} is not {asked}", f"such as {parameter.name}={sample}")


async def _sql_text(request: Request) -> str:
    """Return the SQL of a request: its body, or ``sql`` of a JSON body."""
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > 2 * SQL_BYTES_MAX:
                raise Refusal("size", f"the SQL is longer than {SQL_BYTES_MAX:,} bytes", "make it shorter")
            chunks.append(chunk)
    except ClientDisconnect:
        raise Refusal("usage", "the request ended before its body did") from None
    body = b"".join(chunks)
    try:
        if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
            return msgspec.json.decode(body, type=dict[str, str])["sql"]
        return body.decode("utf-8")
    except (UnicodeDecodeError, msgspec.DecodeError, KeyError) as error:
        do = 'send one SELECT as text, or {"sql": "select ..."} as JSON'
        raise Refusal("usage", f"the body is no SQL: {error}", do) from None


def _body(form: str, document: dict[str, Any], told: dict[str, Any]) -> bytes:
    """Return the answer in its form. Raises ``Refusal`` for one that is too large, or a package that is missing."""
    columns, rows = document["columns"], document["rows"]
    types = document.get("types") or formats.guessed_types(columns, rows)
    try:
        if form == "json":
            at = _moment(document["as_of"])
            body = msgspec.json.encode({**told, "as_of": at, "columns": columns, "types": types, "rows": rows})
        elif form == "csv":
            body = render.csv_text(columns, rows).encode()
        elif form == "parquet":
            body = formats.parquet_bytes(columns, types, rows)
        else:
            body = formats.arrow_bytes(columns, types, rows)
    except formats.FormatMissing as missing:
        raise Refusal("missing", str(missing), "ask for .parquet, .csv or .json") from None
    if len(body) > ANSWER_BYTES_MAX:
        what = f"the answer has {len(body):,} bytes, more than {ANSWER_BYTES_MAX:,}"
        raise Refusal("size", what, "ask for less: a budget, a time span")
    return body


def _moment(at: dict[str, int]) -> dict[str, Any]:
    return {**at, "time": render.iso(at["time_ms"]) if at["time_ms"] else None}


def _tag(name: str, params: dict[str, Any], form: str) -> str:
    """Return what an answer depends on beside its sequence: the question, its parameters, its form, and this program."""
    text = msgspec.json.encode([name, sorted(params.items()), form, fingerprint()])
    return hashlib.sha256(text).hexdigest()[:16]


def _unchanged(request: Request, tag: str) -> bool:
    given = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    return tag in given or tag.removeprefix("W/") in given


def _headed(response: Response, at: dict[str, int], tag: str = "") -> Response:
    """Return the response with its freshness."""
    response.headers["Apportion-Seq"] = str(at["seq"])
    response.headers["Apportion-Time"] = render.iso(at["time_ms"]) if at["time_ms"] else "-"
    response.headers["Apportion-Lag"] = str(at["lag"])
    response.headers["Apportion-Lag-Ms"] = str(at["lag_ms"])
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Vary"] = "Accept"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if tag:
        response.headers["ETag"] = f'W/"{at["seq"]}-{tag}"'
    return response


def _json(document: Any, at: dict[str, int]) -> Response:
    return _headed(Response(msgspec.json.encode(document), media_type=MEDIA["json"]), at)


def _refused(refusal: Refusal) -> Response:
    error = dict(refusal.document["error"])
    if not error["do"]:  # what a query refuses says both in one sentence
        what, _, do = error["what"].partition("; ")
        error |= {"what": what, "do": do or "GET /q tells what each question takes"}
    headers = {"Retry-After": RETRY_S} if refusal.kind in ("stale", "busy") else {}
    if refusal.kind == "token":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode({"error": error}), STATUS.get(refusal.kind, 500), headers, MEDIA["json"])


async def _no_such_page(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    what = f"{request.method} {request.url.path} is not here"
    document = {"error": {"kind": "unknown", "what": what, "do": "GET / tells what is"}}
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(msgspec.json.encode(document), code, headers, MEDIA["json"])
