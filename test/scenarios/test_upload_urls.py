"""A host in front of a bucket: data files go straight from the writer to S3, by URLs that are good for nothing else."""

import json
import urllib.parse
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import places
import presigned
import wire
from story import call

READ = "hush-read-token"
PARQUET = "application/vnd.apache.parquet"
ID = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10"


@pytest.fixture
def s3(checked_moto):
    """The S3 that the host and its URLs lead to."""
    checked_moto.reset()
    yield checked_moto
    checked_moto.reset()


@pytest.fixture
def place(new_place, s3, open_session):
    """A repository behind the host, just started. The environment knows the token of its writers."""
    place = new_place("hosted s3")
    open_session().fdl("init", place.location)
    s3.reset()
    return place


@pytest.fixture
def writer(place, open_session):
    session = open_session()
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    return session


def is_signed(request):
    return request.method == "PUT" and "X-Amz-Signature=" in request.path


def batch(url, *files, token=places.Http.token):
    """What a host answers of files: (status, the answers)."""
    body = json.dumps({"files": [{"key": key, "size": size, "content_type": "text/html"} for key, size in files]}).encode()
    status, _, answer = wire.ask(url + "/?batch", "POST", body, Authorization=f"Bearer {token}")
    return status, json.loads(answer).get("files")


def put(granted, content, url=None, method="PUT", **changed):
    """Sends content by what the host gave; a header that is changed to None is left out. Gives the status."""
    headers = {name: value for name, value in {**granted["headers"], **changed}.items() if value is not None}
    return wire.ask(url or granted["url"], method, content, **headers)[0]


def test_data_goes_past_the_host(place, s3, open_session, bare):
    """The writer has the host's URL and its token, no key of S3. Whatever is a data file goes to S3 alone, the rest through the host."""
    with wire.Proxy(place.location) as front:
        session = open_session()
        session.checkout(front.url)
        session("CREATE TABLE lake.t AS SELECT range AS a FROM range(1000)")
        session("CREATE SCHEMA lake.\"ス\"; CREATE TABLE lake.\"ス\".p (k VARCHAR, n BIGINT); ALTER TABLE lake.\"ス\".p SET PARTITIONED BY (k)")
        session("INSERT INTO lake.\"ス\".p VALUES ('a/b', 1), ('50% [x]', 2), ('町', 3), ('+&=?#', 4), ('a b', 5)")
        session("DELETE FROM lake.t WHERE a = 7")
        pushed = session.publish("one")
        data = place.keys("data/")
        assert pushed["files_uploaded"] == len(data) == 7 and pushed["bytes_uploaded"] == sum(map(place.size, data))
        # On the wire: each data file once, by a signed URL, without the token or any other word of ours.
        uploads = [request for request in s3.requests if request.method in ("PUT", "POST") and "/data/" in request.path]
        assert len(uploads) == 7 and all(is_signed(request) for request in uploads), uploads
        keys = {urllib.parse.unquote(request.path.partition("?")[0]).removeprefix(f"/{place.bucket}/{place.prefix}/") for request in uploads}
        assert keys == set(data)
        for request in uploads:
            headers = {name.lower(): value for name, value in request.headers.items()}
            assert "authorization" not in headers and place.token not in str(headers) and place.token not in request.path
            assert (headers["if-none-match"], headers["content-type"], int(headers["content-length"])) == ("*", PARQUET, len(request.body))
        assert not front.took("PUT", "/data/") and len(front.took("POST", "?batch")) == 1
        through = {request.path.split("/")[-1] for request in front.requests if request.method == "PUT"}
        # HEAD: once a day a push tries whether the store heeds conditions, by one that does not hold.
        assert through == {"ducklake.duckdb", "dataset.json", "files.json", "version.json", "main", "HEAD"}
        # Everything can be read, by whoever knows the host alone.
        reader = open_session()
        reader.fdl("attach", place.location, alias="p")
        assert reader.value("SELECT count(*) FROM p.t") == 999
        assert reader.column("SELECT k FROM p.\"ス\".p ORDER BY n") == ["a/b", "50% [x]", "町", "+&=?#", "a b"]
        # No URL and no signature stays anywhere.
        assert "X-Amz" not in str(pushed)
        for file in bare.rglob("*"):
            assert not file.is_file() or b"X-Amz-" not in file.read_bytes(), file
        # A rebuild sends nothing; a second push sends what is new.
        del front.requests[:], s3.requests[:]
        session("INSERT INTO lake.t VALUES (1000)")
        assert session.publish("two")["files_uploaded"] == 1
        assert len([request for request in s3.requests if is_signed(request)]) == 1


def test_a_url_writes_one_object_once(place, s3):
    """Nothing can be replaced by it, and nothing but that object written: not longer, of no other type, and not for long."""
    key, content = "data/main/t/k=a%2Fb/new.parquet", b"PAR1 of 16 bytes"
    (status, (granted,)) = batch(place.location, (key, len(content)))
    assert status == 200 and granted["key"] == key
    assert granted["headers"] == {"content-length": "16", "content-type": PARQUET, "if-none-match": "*"}, "the type is the key's"
    # 15 minutes, by the host's clock, which is this machine's.
    url, names = granted["url"], urllib.parse.parse_qs(urllib.parse.urlsplit(granted["url"]).query)
    assert url.startswith(f"{s3.url}/{place.bucket}/{place.prefix}/data/main/t/k%3Da%252Fb/new.parquet?")
    assert names["X-Amz-Expires"] == ["900"] and names["X-Amz-SignedHeaders"] == ["content-length;content-type;host;if-none-match"]
    ends = datetime.strptime(names["X-Amz-Date"][0] + "+0000", "%Y%m%dT%H%M%SZ%z") + timedelta(minutes=15)
    assert timedelta() <= datetime.fromisoformat(granted["expires"]) - ends < timedelta(seconds=1)

    other = url.replace("new.parquet", "other.parquet")
    for refused in (put(granted, content, url=other), put(granted, content, url=url.replace("X-Amz-Expires=900", "X-Amz-Expires=9000")),
                    put(granted, content, url=url.replace("/data/", "/versions/")), put(granted, content, url=url.replace("/data/main/t/k%3Da%252Fb/new.parquet", "/HEAD")),
                    put(granted, content + b"x", **{"content-length": None}), put(granted, content[:-1], **{"content-length": None}),
                    put(granted, content, **{"content-type": "text/html"}), put(granted, content, **{"if-none-match": None}),
                    put(granted, content, **{"if-none-match": '"x"'}),
                    *(put(granted, None, method=method, **{"content-length": None}) for method in ("DELETE", "GET", "POST"))):
        assert refused == 403
    s3.ahead = timedelta(minutes=16)
    assert put(granted, content) == 403
    s3.ahead = timedelta(minutes=14)
    assert put(granted, content) == 200
    s3.ahead = timedelta()
    # Written: there it stays, whatever else is sent by the same URL.
    for again in (b"another 16 bytes", content):
        assert put(granted, again) == 412
        assert place.read(key) == content
    assert place.keys("data/") == [key]
    assert batch(place.location, (key, len(content)))[1] == [{"key": key, "exists": True}]
    assert batch(place.location, (key, 17))[1] == [{"key": key, "status": 409}]


def test_who_is_given_a_url_and_for_what(place, s3, s3_host):
    """Only whoever holds the write token, and only for data files that are not there."""
    (status, answers) = batch(place.location, *((key, 1) for key in (
        f"versions/{ID}/version.json", f"versions/{ID}/ducklake.duckdb", f"versions/{ID}/files.json", "sources/" + "0" * 64,
        "HEAD", "fdl.json", "refs.json", "refs/heads/main", f"versions/{ID}/expired.json", "data/../HEAD", "/etc/passwd", "elsewhere/x",
        "data/", "data/a//b", "data/main/t/\u0000", "data/k=..%2F..%2FHEAD/x", "x" * 2000)))
    assert status == 200 and all("url" not in answer for answer in answers), answers
    assert [answer["status"] for answer in answers[:9]] == [413] * 4 + [403] * 5
    assert all(answer["status"] in (400, 404) for answer in answers[9:]), answers
    # What S3 does not take in one request, or the host not at all, goes through the host.
    url = s3_host.serve(place.behind, write_token=place.token, read_token=READ, max_upload=10 << 30)
    sizes = (5 << 30, (5 << 30) + 1, (10 << 30) + 1)
    answers = batch(url, *((f"data/main/t/{size}.parquet", size) for size in sizes))[1]
    assert ["url" in answer for answer in answers] == [True, False, False] and answers[1]["status"] == answers[2]["status"] == 413
    for token, expected in ((READ, 403), ("wrong", 401)):
        status, files = batch(url, ("data/main/t/x.parquet", 1), token=token)
        assert (status, files) == (expected, None)
    s3_host.stop(url)


def test_what_came_in_the_meantime_is_left_alone(place, s3, writer):
    """Somebody else's object of that name came between the host's answer and the upload: the same size is the same file, another is an error."""
    writer.publish("one")
    old = place.text("refs/heads/main")

    def sneak(change):
        def first(request):
            if is_signed(request):
                place.write(urllib.parse.unquote(request.path.partition("?")[0]).removeprefix(f"/{place.bucket}/{place.prefix}/"), change(request.body))

        return first

    writer("INSERT INTO lake.t VALUES (10)")
    s3.first = sneak(lambda body: body + b" ")
    message = writer.refused(call("push", "lake", message="two"), "FDL-CORRUPT")
    assert "data/main/t/ducklake-" in message and "bytes, not" in message and "X-Amz" not in message, message
    assert place.text("refs/heads/main") == old
    writer("CREATE TABLE lake.u AS SELECT 1 AS a")
    s3.first = sneak(lambda body: body)
    writer.checkout(place.location, force=True)
    writer("INSERT INTO lake.t VALUES (11)")
    pushed = writer.publish("three")
    assert (pushed["files_uploaded"], pushed["files_skipped"]) == (0, 2)
    assert writer.value("SELECT count(*) FROM lake.t") == 11


def test_a_url_that_has_ended_is_renewed(place, s3, writer):
    """S3 answers 403 to each first upload: the writer asks for another URL, of that file alone."""
    writer("CREATE TABLE lake.u AS SELECT 1 AS a")
    seen = set()

    def once(request):
        path = request.path.partition("?")[0]
        if is_signed(request) and path not in seen:
            seen.add(path)
            return presigned.denied("AccessDenied", "Request has expired")

    s3.first = once
    with wire.Proxy(place.location) as front:
        writer.checkout(front.url, alias="other", path="other.sqlite")
        writer("CREATE TABLE other.t AS SELECT 1 AS a; CREATE TABLE other.u AS SELECT 2 AS a")
        assert writer.publish("one", lake="other")["files_uploaded"] == 2
        asked = [len(json.loads(request.body)["files"]) for request in front.took("POST", "?batch")]
        assert asked == [2, 1, 1], asked
        assert len([request for request in s3.requests if is_signed(request)]) == 4
        # An hour before everybody else's, the clock of S3 takes no URL at all.
        s3.reset()
        s3.ahead = timedelta(hours=1)
        writer("INSERT INTO other.t VALUES (2)")
        message = writer.refused(call("push", "other", message="two"), "FDL-PERMISSION")
        assert "AccessDenied" in message and len([request for request in s3.requests if is_signed(request)]) == 4, message
        for secret in ("X-Amz", "Signature", place.token, s3.url):
            assert secret not in message, message
        s3.ahead = timedelta()
        assert writer.fdl("push", "other")["outcome"] == "pushed"


@pytest.mark.parametrize("status, code", [(400, "FDL-STORE"), (403, "FDL-PERMISSION"), (404, "FDL-STORE")])
def test_no_message_shows_a_url(place, s3, writer, status, code):
    def gossip(request):
        if is_signed(request):
            shown = request.path.replace("&", "&amp;")
            return status, [("Content-Type", "application/xml")], f"<Error><Code>Odd</Code><Message>You sent {shown}</Message></Error>".encode()

    s3.first = gossip
    message = writer.refused(call("push", "lake", message="one"), code)
    assert "Odd" in message and str(status) in message, message
    for secret in ("X-Amz", "Signature", "You sent", place.token, s3.url):
        assert secret not in message, message
    assert place.keys("refs/") == []
    for file in Path.cwd().rglob("*"):
        assert not file.is_file() or b"X-Amz-" not in file.read_bytes(), file


def test_a_host_without_keys_takes_everything_itself(place, moto, open_session, tmp_path):
    """A bucket that asks for no signature: there is nothing to sign URLs with, and the push works all the same."""
    def let_in(request):
        # moto lets nobody in without a name.
        request.headers.setdefault("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x")

    with wire.Proxy(moto.endpoint, meddle=let_in) as open_s3:
        host = places.Host(AWS_ACCESS_KEY_ID="", AWS_ENDPOINT_URL=open_s3.url, AWS_REGION="us-east-1", HOME=str(tmp_path))
        try:
            url = host.serve(place.behind, write_token=place.token)
            assert batch(url, ("data/main/t/x.parquet", 1))[1] == [{"key": "data/main/t/x.parquet", "status": 413}]
            session = open_session()
            session.checkout(url)
            session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
            assert session.publish("one")["files_uploaded"] == 1
            assert [request.headers["Authorization"][:30] for request in open_s3.took("PUT", "/data/")] == ["AWS4-HMAC-SHA256 Credential=x/"]
        finally:
            host.close()
