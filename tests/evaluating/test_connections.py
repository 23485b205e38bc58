"""What lies between the client and an endpoint: proxies, TLS, redirects, the package itself."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys

import pytest

from gem_core.errors import GemError, MissingDependencyError
from gem_core.evaluation.contenders import EndpointModel
from gem_core.policies.endpoint import http_client
from gem_core.policies.endpoint.address import find_proxy
from gem_core.policies.endpoint.http_client import HttpClient, HttpError
from gem_core.policies.endpoint.policy import EndpointConfig

from .common import GAME
from .proxy import Proxy
from .server import GOOD, Server, http


def post(url, count=1, headers=None):
    """Post a few times; return the last answer."""

    async def posts():
        client = HttpClient(url, headers or {})
        try:
            for _ in range(count):
                answer = await client.post("/chat/completions", b"{}")
            return answer
        finally:
            await client.close()

    return asyncio.run(posts())


def evaluate(url, **environ):
    """Run the command in a process of its own, as a user does."""
    command = [sys.executable, "-m", "gem_core.cli", "eval", GAME, "--tasks", "3", "--json"]
    command += ["--model", "m", "--base-url", url, "--attempts", "1"]
    environ = {**os.environ, "OPENAI_API_KEY": "the-key", **environ}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that nobody trusts, and a server's context with it."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
    options = "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    try:
        subprocess.run(
            [*command.split(), *options.split()], cwd=folder, check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


# -- proxies -------------------------------------------------------------------------------------


def test_an_evaluation_goes_through_the_proxy_of_the_environment():
    with Server(lambda n, body: [GOOD]) as server, Proxy() as proxy:
        address = f"http://me:word@127.0.0.1:{proxy.port}"
        code, said, errors = evaluate(server.url, HTTP_PROXY=address)
    assert (code, json.loads(said)["items"]) == (0, 3), errors
    assert len(server.bodies) >= 3 and proxy.heads
    for head in proxy.heads:
        assert head.startswith(f"POST {server.url}/chat/completions HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic bWU6d29yZA==\r\n" in head
        assert "authorization: Bearer the-key\r\n" in head


def test_tls_goes_through_a_tunnel_of_the_proxy_which_sees_no_key(certificate):
    trusted, context = certificate
    with Server(lambda n, body: [GOOD], context) as server, Proxy() as proxy:
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(trusted)}
        code, said, errors = evaluate(server.url, **environ)
    assert (code, json.loads(said)["items"]) == (0, 3), errors
    assert proxy.heads and all(head.startswith("CONNECT 127.0.0.1:") for head in proxy.heads)
    assert not any("the-key" in head for head in proxy.heads)
    assert all("authorization: Bearer the-key\r\n" in head for head in server.heads)


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("http://host/v1", {}, None),
        ("http://host/v1", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://host/v1", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("https://host/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://host/v1", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("http://host:8000/v1", {"HTTP_PROXY": "http://p:1", "NO_PROXY": "other,host"}, None),
        ("http://127.0.0.1:80/v1", {"HTTP_PROXY": "http://p:1", "NO_PROXY": "127.0.0.1"}, None),
    ],
)
def test_the_environment_names_the_proxy(monkeypatch, url, environ, expected):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(url) == expected


def test_a_proxy_that_is_not_of_http_is_refused_before_anything_is_played(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "socks5://me:secret@p:1")
    with pytest.raises(GemError, match="name an HTTP proxy") as raised:
        EndpointModel(EndpointConfig(base_url="http://h/v1", model="m"))
    assert "secret" not in str(raised.value)


def test_an_error_of_the_proxy_has_no_password(monkeypatch):
    with Proxy() as proxy:
        pass
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
    with pytest.raises(HttpError, match="Proxy") as raised:
        post("http://127.0.0.1:1/v1")
    assert "secret" not in str(raised.value)


def test_netrc_is_not_read(monkeypatch, tmp_path):
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login me password secret\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    with Server(lambda n, body: [GOOD]) as server:
        assert post(server.url, headers={"authorization": "Bearer k"}).status == 200
        assert post(server.url).status == 200
    assert "authorization: Bearer k\r\n" in server.heads[0]
    assert "authorization" not in server.heads[1].lower()


# -- the connection ------------------------------------------------------------------------------


def test_a_certificate_that_is_not_trusted_is_refused(certificate):
    with (
        Server(lambda n, body: [GOOD], certificate[1]) as server,
        pytest.raises(HttpError, match="certificate verify failed"),
    ):
        post(server.url, headers={"authorization": "Bearer k"})
    assert server.heads == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_is_not_followed(status):
    with Server(lambda n, body: [GOOD]) as other:
        moved = http(status, b"", f"location: {other.url}/chat/completions")
        with Server(lambda n, body: [moved]) as server:
            assert post(server.url, headers={"authorization": "Bearer k"}).status == status
    assert len(server.bodies) == 1 and other.connections == 0


def test_cookies_are_not_kept():
    with Server(lambda n, body: [http(200, {}, "set-cookie: a=b")]) as server:
        post(server.url, count=2)
    assert "cookie" not in server.heads[1].lower()


@pytest.mark.parametrize("marked", [True, False])
def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch, marked):
    monkeypatch.setattr(http_client, "MAX_BODY", 10_000)
    length = "content-length: 90000000\r\n" if marked else ""
    head = f"HTTP/1.1 200 OK\r\n{length}\r\n".encode()
    with (
        Server(lambda n, body: [head, b"x" * 20_000, 30.0]) as server,
        pytest.raises(HttpError, match="more than 10000 bytes"),
    ):
        post(server.url)


def test_a_cancelled_request_closes_its_connection():
    with Server(lambda n, body: [30.0] if n == 0 else [GOOD]) as server:

        async def cancelled_and_another():
            client = HttpClient(server.url, {})
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.post("/chat/completions", b"{}"), 0.3)
            answer = await client.post("/chat/completions", b"{}")
            await client.close()
            return answer.status

        assert asyncio.run(cancelled_and_another()) == 200
    assert server.connections == 2


# -- the package ---------------------------------------------------------------------------------

WITHOUT = """
import sys
from importlib.machinery import PathFinder


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "aiohttp" else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from gem_core.cli import main

sys.exit(main(sys.argv[1:]))
"""


def test_without_the_package_the_command_names_the_extra_and_plays_nothing(tmp_path):
    words = ["eval", GAME, "--tasks", "2", "--out", str(tmp_path / "e")]
    endpoint = ["--model", "m", "--base-url", "http://127.0.0.1:1/v1"]
    command = [sys.executable, "-c", WITHOUT, *words]
    done = subprocess.run([*command, *endpoint], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "gem-core: An endpoint needs aiohttp: pip install 'gem-core[endpoint]'."
    ]
    assert not (tmp_path / "e").exists()
    player = subprocess.run([*command, "--player", "expert"], capture_output=True, text=True)
    assert player.returncode == 0, player.stderr


def test_the_error_of_a_missing_package_is_typed(monkeypatch):
    monkeypatch.setattr(http_client, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"gem-core\[endpoint\]"):
        HttpClient("http://h/v1", {})
