"""A writer, or a host, that is killed before each request of a push in turn: what is published stays whole, and the same push goes
through afterwards.

Who is killed at a read leaves what the write before it left, so behind a host it is writes that are counted."""

import threading

import pytest

import places
import wire
from story import call

PUSH = """
from story import *
s = Session()
s("LOAD ducklake"), s("LOAD sqlite_scanner"), s("LOAD httpfs")
say(s.fdl("push", "lake.sqlite"))
"""


class Story:
    """A lake whose table n holds a number and t as many rows, and whose versions are counted."""

    def __init__(self, open_session, location, direct):
        self.session, self.open_session, self.direct = open_session(), open_session, direct
        self.session.fdl("init", location)
        self.session.checkout(location)
        self.session("CREATE TABLE lake.n AS SELECT 0 AS n; CREATE TABLE lake.t (a BIGINT); CREATE TABLE lake.big (a BLOB)")
        self.session.publish("0")
        self.turn = 0

    def commit(self, large=False):
        self.turn += 1
        self.session(f"UPDATE lake.n SET n = {self.turn}; INSERT INTO lake.t VALUES ({self.turn})")
        if large:
            # 9 MiB that nothing makes smaller: S3 takes it in two parts.
            self.session(f"INSERT INTO lake.big SELECT from_hex(string_agg(sha256('{self.turn} ' || range), '')) FROM range(9 * 32768)")
        self.session.fdl("commit", "lake", message=str(self.turn))

    def seen(self):
        """What a reader sees now, read completely. The repository has no fault, but perhaps what a stopped push has left."""
        reader = self.open_session()
        reader.fdl("attach", self.direct, alias="p", ref="main")
        n = reader.value("FROM p.n")
        assert reader.column("FROM p.t ORDER BY a") == list(range(1, n + 1))
        found = reader.table("fsck", self.direct)
        assert {(row["level"], row["code"]) for row in found} <= {("warning", "unfinished"), ("warning", "lag")}, found
        reader.close()
        return n

    def require_unharmed(self):
        """After a kill: the old version or the new one; the same push goes through."""
        now = self.seen()
        assert now in (self.turn - 1, self.turn)
        pushed = self.session.fdl("push", "lake")
        assert pushed["outcome"] in (("pushed", "up to date") if now == self.turn else ("pushed",)), pushed
        return now == self.turn

    def require_end(self):
        assert self.seen() == self.turn
        # Nothing has been taken away since the first kill, so this looks at what each of them left as well.
        assert self.session.table("fsck", self.direct, depth="content") == []
        entries = self.session.table("log", self.direct)
        assert [entry["message"] for entry in entries] == [str(turn) for turn in range(self.turn, -1, -1)]


def writes(request):
    return request.method not in ("GET", "HEAD")


def kill_writers(story, gate, python, **how):
    """One push after another, each killed one request later than the one before, until one ends by itself. Gives how many were
    killed, and how many of those had landed."""
    killed = landed = 0
    while True:
        story.commit()
        gate.close_after(killed)
        child = python.start(PUSH, **how)
        while not gate.reached.wait(0.01) and child.popen.poll() is None:
            pass
        if not gate.reached.is_set():
            gate.open()
            assert child.wait().rows["outcome"] == "pushed"
            return killed, landed
        child.kill()
        gate.open()
        killed += 1
        landed += story.require_unharmed()


def test_a_writer_to_s3_is_killed_at_each_request(new_place, open_session, python):
    place = new_place("s3")
    story, gate = Story(open_session, place.location, place.location), wire.Gate()
    with wire.Proxy(place.endpoint, meddle=gate) as proxy:
        killed, landed = kill_writers(story, gate, python, env={"AWS_ENDPOINT_URL": proxy.url})
    # The settings, the ref, two new data files, six writes and what is read between them.
    assert killed >= 12 and 1 <= landed < killed, (killed, landed)
    story.require_end()


@pytest.fixture
def hosted(new_place, checked_moto, monkeypatch):
    """A bucket behind a host, and in the environment what both need: this process looks at both sides."""
    checked_moto.reset()
    place = new_place("hosted s3")
    for name, value in places.S3(place.endpoint, place.bucket).variables.items():
        monkeypatch.setenv(name, value)
    yield place
    checked_moto.reset()


def test_a_writer_to_a_host_is_killed_at_each_write(hosted, checked_moto, open_session, python):
    """Those to the host and those past it."""
    gate = wire.Gate(writes)
    with wire.Proxy(hosted.location, meddle=gate) as front:
        story = Story(open_session, front.url, hosted.behind)
        checked_moto.first = lambda request: gate(request) if "X-Amz-Signature=" in request.path else None
        killed, landed = kill_writers(story, gate, python)
    # The batch, two new data files past the host, three files of the version, its record, the ref. refs.json is the host's.
    assert (killed, landed) == (8, 0)
    story.require_end()


class Hosts:
    """A host that is started anew whenever it is killed, always at the same address."""

    def __init__(self, place, **variables):
        self.place, self.variables = place, {**places.S3(place.endpoint, place.bucket).variables, **variables}
        self.start("127.0.0.1:0")

    def start(self, address):
        self.process = places.Host(**self.variables)
        self.url = self.process.serve(self.place.behind, write_token=self.place.token, address=address)

    def kill(self):
        self.process.kill()

    def start_again(self):
        self.start(self.url.removeprefix("http://"))


@pytest.mark.parametrize("large", [False, True], ids=["small files", "a file in parts"])
def test_a_host_is_killed_at_each_write(hosted, open_session, tmp_path, large):
    """Whatever it writes to S3. It gives no upload URLs here, so that it writes everything."""
    def no_batches(request):
        if request.method == "POST":
            return 404, [], b""

    gate = wire.Gate(writes)
    with wire.Proxy(hosted.endpoint, meddle=gate) as behind:
        hosts = Hosts(hosted, AWS_ENDPOINT_URL=behind.url, HOME=str(tmp_path))
        try:
            with wire.Proxy(hosts.url, meddle=no_batches) as front:
                story, killed = Story(open_session, front.url, hosted.behind), 0
                # Two or three new data files, three files of the version, its record, the ref, refs.json. A file in parts is begun,
                # sent and put together; what comes after the data is left to the small ones.
                while killed < (6 if large else 8):
                    story.commit(large)
                    gate.close_after(killed)
                    told = []
                    push = threading.Thread(target=lambda: told.append(outcome(story.session)))
                    push.start()
                    while not gate.reached.wait(0.01):
                        assert push.is_alive(), told
                    hosts.kill()
                    gate.open()
                    hosts.start_again()
                    push.join()
                    assert told[0] in ("pushed", "up to date") or "[FDL-" in told[0], told
                    killed += 1
                    story.require_unharmed()
                if large:
                    assert {method for method, parts in PARTS.items() if behind.took(method, parts)} == set(PARTS)
                else:
                    story.commit()
                    gate.close_after(8)
                    assert outcome(story.session) == "pushed" and not gate.reached.is_set(), "there is no ninth write"
                    gate.open()
                story.require_end()
        finally:
            hosts.process.close()


PARTS = {"POST": "uploads", "PUT": "partNumber="}


def outcome(session):
    """How a push ends: the outcome, or the message of the error."""
    try:
        return session.one(call("push", "lake"))["outcome"]
    except Exception as error:
        return str(error)
