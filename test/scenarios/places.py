"""Where the repository of a story is: in a folder, in S3, or behind HTTP. A story knows it by what every kind of place can do."""

import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path

import layout


class Place:
    """`location` is what fdl is told, `variables` what the environment of every session must hold. A story that is about one kind
    of place asks for its `kind`. `setup` is SQL by which a session without fdl can read there."""

    kind, location, variables, setup = None, None, {}, "SELECT 1"

    def keys(self, under=""):
        """Every object, by its key, those of whoever keeps house there excepted."""
        raise NotImplementedError

    def read(self, key):
        raise NotImplementedError

    def size(self, key):
        return len(self.read(key))

    def text(self, key):
        return self.read(key).decode("utf-8")

    def copy(self, key, target):
        """A copy of an object as a file of this machine."""
        Path(target).write_bytes(self.read(key))
        return target

    def close(self):
        """The story is over."""


class Folder(Place):
    """A repository in a folder."""

    kind = "folder"

    def __init__(self, path):
        self.path = Path(path)
        self.location = str(self.path)

    def keys(self, under=""):
        files = (file for file in self.path.rglob("*") if file.is_file())
        keys = sorted(file.relative_to(self.path).as_posix() for file in files)
        return [key for key in keys if key.startswith(under) and "/.fdl-" not in f"/{key}"]

    def read(self, key):
        return (self.path / key).read_bytes()

    def size(self, key):
        return (self.path / key).stat().st_size


class S3(Place):
    """A repository in a bucket of its own. Looking at it takes no signature: moto does not ask for one."""

    kind = "s3"
    prefix = "some/lake"

    def __init__(self, endpoint, bucket):
        self.endpoint, self.bucket = endpoint, bucket
        self.location = f"s3://{bucket}/{self.prefix}"
        self.variables = {"AWS_ACCESS_KEY_ID": "writer", "AWS_SECRET_ACCESS_KEY": "hush-secret-key", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint}
        self.setup = self.secret()
        self.ask("PUT", f"/{bucket}")

    def secret(self, name="a_secret", endpoint=None, key="writer", secret="hush-secret-key"):
        """The statement with which anybody tells DuckDB how to get there."""
        where = (endpoint or self.endpoint).removeprefix("http://")
        return f"LOAD httpfs; CREATE SECRET {name} (TYPE s3, SCOPE 's3://{self.bucket}', KEY_ID '{key}', SECRET '{secret}', REGION " \
               f"'us-east-1', ENDPOINT '{where}', URL_STYLE 'path', USE_SSL false)"

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.endpoint + path, data=body, method=method, headers={
            # What Python says without it is a form, whose bytes moto does not keep.
            "Content-Type": "application/octet-stream",
            # Names the account; nobody checks it.
            "Authorization": "AWS4-HMAC-SHA256 Credential=looker/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def object(self, key):
        return f"/{self.bucket}/{urllib.parse.quote(f'{self.prefix}/{key}')}"

    def keys(self, under=""):
        found, more = [], ""
        while True:
            page = ET.fromstring(self.ask("GET", f"/{self.bucket}?list-type=2&prefix={urllib.parse.quote(f'{self.prefix}/{under}')}{more}"))
            space = page.tag.removesuffix("ListBucketResult")
            found += [entry.findtext(f"{space}Key").removeprefix(f"{self.prefix}/") for entry in page.iter(f"{space}Contents")]
            token = page.findtext(f"{space}NextContinuationToken")
            if not token:
                return sorted(found)
            more = f"&continuation-token={urllib.parse.quote(token)}"

    def read(self, key):
        return self.ask("GET", self.object(key))

    def write(self, key, content):
        self.ask("PUT", self.object(key), content)


class Http(Place):
    """A repository behind a host, looked at in the folder that the host serves. `variables` hold the token of its writers."""

    kind = "http"
    token = "hush-write-token"

    def __init__(self, host, path, **options):
        self.host, self.folder = host, Folder(path)
        self.folder.path.mkdir(exist_ok=True)
        self.variables = {"FDL_TOKEN": self.token}
        self.setup = "LOAD httpfs"
        self.location = host.serve(self.folder.path, **{"write_token": self.token, **options})

    @property
    def address(self):
        return self.location.removeprefix("http://")

    def keys(self, under=""):
        return self.folder.keys(under)

    def read(self, key):
        return self.folder.read(key)

    def size(self, key):
        return self.folder.size(key)

    def close(self):
        self.host.stop(self.location)


class HostedS3(S3):
    """A repository in a bucket behind a host: its writers know the host and the token, and nothing of S3."""

    kind = "hosted s3"
    token = Http.token

    def __init__(self, endpoint, bucket, host, **options):
        super().__init__(endpoint, bucket)
        self.host, self.behind = host, self.location
        self.variables = {"FDL_TOKEN": self.token}
        self.setup = "LOAD httpfs"
        self.location = host.serve(self.behind, **{"write_token": self.token, **options})

    def close(self):
        self.host.stop(self.location)


class Moto:
    """An S3 in Python, as a process that ends with this one."""

    SCRIPT = '"$1" -H 127.0.0.1 -p 0 2>&1 & server=$!; exec >&-; read -r _; kill $server'

    def __init__(self):
        program = layout.VENV / "bin" / "moto_server"
        assert program.exists(), f"{program} is not there; run `make setup`"
        self.wrapper = subprocess.Popen(["sh", "-c", self.SCRIPT, "sh", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        said = []
        for line in self.wrapper.stdout:
            said.append(line)
            if "Running on " in line:
                self.endpoint = line.split("Running on ")[1].strip()
                break
        else:
            raise AssertionError("moto did not start:\n" + "".join(said))
        # It says a line for each request, which somebody must take.
        self.drain = subprocess.Popen(["cat"], stdin=self.wrapper.stdout, stdout=subprocess.DEVNULL)
        self.buckets = 0

    def bucket(self):
        self.buckets += 1
        return f"bucket-{self.buckets}"

    def close(self):
        self.wrapper.stdin.close()
        self.wrapper.wait(30)
        self.drain.wait(30)


class Host:
    """A process with a DuckDB session that serves folders, and stays until it is closed."""

    CODE = """
import json, sys
from session import connect, rows
session = connect()
for line in sys.stdin:
    try:
        answer = {"rows": rows(session, json.loads(line))}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
"""

    def __init__(self, stderr=None, **environment):
        path = os.pathsep.join([str(layout.ROOT / "test" / "scenarios"), str(layout.ROOT / "scripts")])
        self.process = subprocess.Popen([sys.executable, "-c", self.CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=stderr, env={**os.environ, "PYTHONPATH": path, **environment})

    def __call__(self, sql):
        """Runs a statement in the host's session; gives its rows."""
        self.process.stdin.write(json.dumps(sql) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the host ended with {self.process.wait(30)} at: {sql}"
        answer = json.loads(answer)
        assert "error" not in answer, answer
        return answer["rows"]

    def serve(self, what, address="127.0.0.1:0", **options):
        """Serves a folder or what else fdl_serve takes; gives the URL."""
        from story import call  # which needs DuckDB
        (row,) = self(call("serve", what, address=address, **options))
        return row["url"]

    def stop(self, url):
        if self.process.poll() is None:
            self(f"CALL fdl_stop_serving(address := '{url.removeprefix('http://')}')")

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


# The first is where every story plays; those with the mark `everywhere` play in each of them.
PLACES = ["folder", "s3", "http"]
