"""Finding model servers on this machine, against small servers that answer as the real ones do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress

import pytest

from sidequest.models.bindings import ModelEntry
from sidequest.models.local_answers import LocalModel
from sidequest.models.local_servers import LocalServer, ServerAddress, ServerKind, discover
from sidequest.models.registry import ModelRegistry

OLLAMA_TAGS = {
    "models": [
        {"name": "llama3.2:latest", "model": "llama3.2:latest", "size": 2019393189},
        {"name": "qwen3:8b", "model": "qwen3:8b", "size": 5225388164},
        {"name": "gemma3:4b", "model": "gemma3:4b", "size": 3338801804},
        {"name": "nomic-embed-text:latest", "model": "nomic-embed-text:latest", "size": 274302450},
        {"name": "gpt-oss:120b-cloud", "model": "gpt-oss:120b-cloud", "remote_model": "gpt-oss:120b"},
    ]
}
OLLAMA_PS = {"models": [{"name": "qwen3:8b", "size_vram": 5333539264, "context_length": 16384}]}


def ollama_show(family: str, window: int, parameters: str = "", ability: str = "completion") -> object:
    info = {"general.architecture": family, f"{family}.context_length": window}
    return {"parameters": parameters, "model_info": info, "capabilities": [ability]}


OLLAMA_SHOW = {
    "llama3.2:latest": ollama_show("llama", 131072, 'num_ctx                        8192\nstop "<|eot|>"'),
    "qwen3:8b": ollama_show("qwen3", 40960),
    "gemma3:4b": ollama_show("gemma3", 131072),
    "nomic-embed-text:latest": ollama_show("nomic-bert", 2048, ability="embedding"),
    "gpt-oss:120b-cloud": ollama_show("gptoss", 131072),
}
OLLAMA = {"/api/tags": OLLAMA_TAGS, "/api/ps": OLLAMA_PS, "/api/show": OLLAMA_SHOW}
LM_STUDIO = {
    "/api/v0/models": {
        "object": "list",
        "data": [
            {
                "id": "qwen/qwen3-4b",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 32768,
                "loaded_context_length": 8192,
            },
            {"id": "gemma-3-12b", "type": "vlm", "state": "not-loaded", "max_context_length": 131072},
            {"id": "nomic-embed", "type": "embeddings", "state": "not-loaded", "max_context_length": 2048},
        ],
    }
}
LLAMA_CPP = {
    "/props": {"default_generation_settings": {"n_ctx": 16384}, "total_slots": 1, "model_path": "/m/a.gguf"},
    "/v1/models": {"object": "list", "data": [{"id": "/m/a.gguf", "meta": {"n_ctx_train": 131072}}]},
}
VLLM = {"/v1/models": {"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "max_model_len": 32768}]}}

Routes = Mapping[str, object]


def response(status: str, body: bytes, headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    return head.encode() + body


class FakeServer:
    """Answers `routes` by path; a value in bytes is the whole answer, `/api/show` looks the model up."""

    def __init__(self, routes: Routes, delay_s: float = 0.0) -> None:
        self.routes, self.delay_s = routes, delay_s
        self.seen: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                writer.write(await self.answer(reader))
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split()[0]) if "content-length:" in head else 0
        asked = json.loads(await reader.readexactly(length)) if length else {}
        path = head.split()[1]
        self.seen.append(head)
        await asyncio.sleep(self.delay_s)
        found = self.routes.get(path)
        if isinstance(found, dict) and "model" in asked:
            found = found.get(asked["model"])
        if found is None:
            found = response("404 Not Found", b"no")
        return found if isinstance(found, bytes) else response("200 OK", json.dumps(found).encode())


def look(
    kind: ServerKind, routes: Routes, *, delay_s: float = 0.0, timeout_s: float = 0.4
) -> list[LocalServer]:
    async def run() -> list[LocalServer]:
        server = await asyncio.start_server(FakeServer(routes, delay_s).serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await discover([ServerAddress(kind, f"http://127.0.0.1:{port}")], timeout_s)

    return asyncio.run(run())


def models_of(kind: ServerKind, routes: Routes) -> dict[str, LocalModel]:
    return {model.name: model for model in look(kind, routes)[0].models}


def test_ollama_serves_the_num_ctx_of_the_model_file():
    model = models_of("ollama", OLLAMA)["llama3.2"]
    assert (model.window, model.max_window, model.assumed) == (8_192, 131_072, False)


def test_ollama_serves_a_loaded_model_with_the_window_it_was_loaded_with():
    model = models_of("ollama", OLLAMA)["qwen3:8b"]
    assert (model.window, model.loaded) == (16_384, True)


def test_ollama_is_taken_to_serve_its_small_default_when_nothing_states_more():
    model = models_of("ollama", OLLAMA)["gemma3:4b"]
    assert (model.window, model.max_window, model.assumed) == (4_096, 131_072, True)


def test_a_model_in_ollamas_cloud_has_its_whole_window_and_embedders_are_left_out():
    models = models_of("ollama", OLLAMA)
    assert models["gpt-oss:120b-cloud"].window == 131_072
    assert "nomic-embed-text" not in models


def test_ollama_without_details_still_offers_its_models():
    models = models_of("ollama", {"/api/tags": OLLAMA_TAGS})
    assert models["qwen3:8b"] == LocalModel("qwen3:8b", 4_096, assumed=True)


def test_lm_studio_serves_what_was_loaded_and_its_small_default_otherwise():
    models = models_of("lmstudio", LM_STUDIO)
    assert models == {
        "qwen/qwen3-4b": LocalModel("qwen/qwen3-4b", 8_192, 32_768, loaded=True),
        "gemma-3-12b": LocalModel("gemma-3-12b", 4_096, 131_072, assumed=True),
    }


def test_llama_cpp_serves_the_window_of_a_slot_not_that_of_the_training():
    assert models_of("llamacpp", LLAMA_CPP) == {"a": LocalModel("a", 16_384, 131_072, loaded=True)}


def test_vllm_states_its_window():
    assert models_of("vllm", VLLM)["Qwen/Qwen3-8B"].window == 32_768


@pytest.mark.parametrize(
    "answer",
    [
        response("200 OK", b"<html>hello</html>"),
        response("500 Internal Server Error", b"{}"),
        response("200 OK", b"[" * 100_000),
        response("200 OK", b"\xff\xfe"),
        response("200 OK", b'{"data": "none", "models": [3, null, {"name": 7}]}'),
        b"this is not HTTP\r\n\r\n",
        b"",
    ],
)
@pytest.mark.parametrize("kind", ["ollama", "lmstudio", "llamacpp", "vllm"])
def test_a_server_that_answers_nonsense_gives_no_models_and_a_note(kind: ServerKind, answer: bytes):
    paths = ("/api/tags", "/api/v0/models", "/props", "/v1/models")
    (server,) = look(kind, dict.fromkeys(paths, answer))
    assert server.models == ()
    assert server.note


def test_a_slow_server_is_given_up_within_the_time():
    (server,) = look("vllm", VLLM, delay_s=2.0, timeout_s=0.1)
    assert server.models == ()
    assert "0.1 s" in (server.note or "")


def test_an_answer_without_end_is_cut_off():
    (server,) = look("vllm", {"/v1/models": response("200 OK", b" " * (4 * 1024 * 1024 + 1))}, timeout_s=2.0)
    assert "longer than" in (server.note or "")


def test_a_closed_port_is_nothing():
    assert asyncio.run(discover([ServerAddress("ollama", "http://127.0.0.1:9")])) == []


def test_a_redirect_is_not_followed():
    async def run() -> tuple[list[LocalServer], list[str]]:
        target = FakeServer(VLLM)
        away = await asyncio.start_server(target.serve, "127.0.0.1", 0)
        port = away.sockets[0].getsockname()[1]
        moved = response("302 Found", b"", f"Location: http://127.0.0.1:{port}/v1/models\r\n")
        first = await asyncio.start_server(FakeServer({"/v1/models": moved}).serve, "127.0.0.1", 0)
        async with away, first:
            url = f"http://127.0.0.1:{first.sockets[0].getsockname()[1]}"
            return await discover([ServerAddress("vllm", url)]), target.seen

    found, seen = asyncio.run(run())
    assert (found[0].models, seen) == ((), [])


@pytest.mark.parametrize("url", ["http://192.0.2.1:8000", "https://127.0.0.1", "http://localhost.example:1"])
def test_only_plain_loopback_addresses_are_asked(url: str):
    (server,) = asyncio.run(discover([ServerAddress("vllm", url)]))
    assert (server.models, server.note) == ((), "Not asked: only addresses of this machine are.")


def test_no_key_and_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    assert models_of("vllm", VLLM)


SERVER = LocalServer("ollama", "http://127.0.0.1:11434/v1", (LocalModel("llama3.2", 8_192, 131_072),))


def test_a_discovered_model_becomes_a_binding_that_needs_no_key():
    models = ModelRegistry(env={}).with_servers([SERVER])
    binding = models.resolve("ollama/llama3.2")
    assert (binding.window, binding.window_source, binding.ready) == (8_192, "server", True)
    assert binding.base_url == "http://127.0.0.1:11434/v1"
    assert models.resolve("llama3.2:latest").key == "ollama/llama3.2"
    assert models.default().key == "offline/extractive"


@pytest.mark.parametrize("key", ["ollama/llama3.2", "home/llama3.2"])
def test_the_users_window_beats_the_servers_and_the_servers_fills_what_the_user_left_out(key: str):
    table = {"base_url": SERVER.base_url}
    wide = ModelEntry.model_validate({**table, "context_window": 32_000})
    assert ModelRegistry({key: wide}, {}, servers=[SERVER]).resolve(key).window == 32_000
    left_out = ModelRegistry({key: ModelEntry.model_validate(table)}, {}, servers=[SERVER]).resolve(key)
    assert (left_out.window, left_out.window_source) == (8_192, "server")
