"""A proxy that the environment names: fdl's own requests go through it, and so do DuckDB's."""

import ssl

import pytest

import tls
import wire
from session import quoted
from story import call

VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy():
    with wire.ForwardProxy() as proxy:
        yield proxy


def agents(proxy):
    """Whose requests came: fdl's, DuckDB's."""
    names = [{name.lower(): value for name, value in request.headers.items()}.get("user-agent", "") for request in proxy.requests]
    return {name.split("/")[0] for name in names}


def test_requests_over_http_go_through(repo, open_session, proxy, monkeypatch):
    with wire.Static(repo.path) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        session = open_session()
        session.fdl("attach", server.url, alias="p")
        assert agents(proxy) == {"fdl-duckdb"} and proxy.hosts() == {server.address}
        assert len(proxy.requests) == len(server.requests)
        # DuckDB's own reads too.
        assert session.value("SELECT count(DISTINCT i) FROM p.t") == 7
        assert agents(proxy) == {"fdl-duckdb", "duckdb"}
        assert len(proxy.requests) == len(server.requests)
        # Without the proxy for this host, both go straight.
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        proxy.requests.clear()
        session = open_session()
        session.fdl("attach", server.url, alias="p", ref="v1")
        assert session.value("SELECT count(DISTINCT i) FROM p.t") == 10
        assert proxy.requests == []


def test_requests_to_s3_go_through(new_place, open_session, proxy, monkeypatch):
    place = new_place("s3")
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    session = open_session()
    session.fdl("init", place.location)
    assert agents(proxy) == {"fdl-duckdb"} and proxy.hosts() == {place.endpoint.removeprefix("http://")}
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(1000)")
    assert agents(proxy) == {"fdl-duckdb", "duckdb"} and [request for request in proxy.requests if "/data/" in request.path]
    count = len(proxy.requests)
    session.publish("one")
    assert len(proxy.requests) > count
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    proxy.requests.clear()
    session = open_session()
    session.fdl("attach", place.location, alias="p")
    assert session.value("SELECT count(DISTINCT a) FROM p.t") == 1000
    assert proxy.requests == []


def test_requests_over_tls_go_through_a_tunnel(repo, open_session, proxy, tmp_path, monkeypatch):
    ca, pem, key = tls.certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with wire.Static(repo.path) as server:
        server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        monkeypatch.setenv("https_proxy", proxy.url)
        session = open_session()
        session(f"LOAD httpfs; SET GLOBAL ca_cert_file = {quoted(ca)}")
        session.fdl("attach", f"https://{server.address}", alias="p")
        assert {(request.method, request.path) for request in proxy.requests} == {("CONNECT", server.address)}
        tunnels = len(proxy.requests)
        assert session.value("SELECT count(DISTINCT i) FROM p.t") == 7
        assert len(proxy.requests) > tunnels, "DuckDB has a tunnel of its own"


def test_a_setting_of_duckdb_is_duckdbs_alone(repo, open_session, proxy):
    """docs/hosting.md says so."""
    with wire.Static(repo.path) as server:
        session = open_session()
        session(f"LOAD httpfs; SET GLOBAL http_proxy = '{proxy.address}'")
        session.fdl("attach", server.url, alias="p")
        assert proxy.requests == []
        assert session.value("SELECT count(DISTINCT i) FROM p.t") == 7
        assert agents(proxy) == {"duckdb"}


def test_a_proxy_that_is_not_there_or_wants_a_password(repo, open_session, monkeypatch):
    with wire.Static(repo.path) as server, wire.ForwardProxy("hush-proxy-password") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://someone:wrong-password@"))
        message = open_session().refused(call("attach", server.url, alias="p"), "FDL-STORE")
        assert "407" in message and "password" not in message, message
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://someone:hush-proxy-password@"))
        session = open_session()
        session.fdl("attach", server.url, alias="p")
        assert session.value("SELECT count(DISTINCT i) FROM p.t") == 7
