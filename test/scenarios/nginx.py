"""The real nginx, with the configurations of docs/hosting.md, as a process of its own on a free port."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

import layout

DOCUMENT = layout.ROOT / "docs" / "hosting.md"

MAIN = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 256; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{blocks}
}}
"""


def program():
    """The program, which Debian puts where only the administrator looks."""
    found = shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"]))
    if found:
        return found
    # The project's CI installs it.
    assert not os.environ.get("CI"), "there is no nginx; .ci/run installs it"
    pytest.skip("needs nginx (apt-get install nginx-light)")


def configurations():
    """The configurations that the document shows, in their order."""
    return re.findall(r"^```nginx\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)


def changed(text, *pairs):
    """A configuration with what is one machine's own replaced. Each must be there, so that the document is what is tested."""
    for old, new in pairs:
        assert old in text, f"docs/hosting.md has no {old!r}"
        text = text.replace(old, new)
    return text


def free_port():
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


class Nginx:
    """Serves by these blocks of `http { … }` until it is closed. `port` is where they must listen."""

    def __init__(self, folder, port, blocks):
        self.folder, self.port, self.url = Path(folder), port, f"http://127.0.0.1:{port}"
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nginx.conf"
        config.write_text(MAIN.format(folder=self.folder, blocks=blocks), encoding="utf-8")
        with open(self.folder / "said.txt", "w", encoding="utf-8") as said:
            self.process = subprocess.Popen([program(), "-c", str(config), "-p", str(self.folder), "-e", str(self.folder / "error.log")],
                                            stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        end = time.monotonic() + 30
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)

    def answers(self):
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self):
        return "\n".join(file.read_text() for file in (self.folder / "said.txt", self.folder / "error.log") if file.exists())

    def requests(self):
        """(method, path, status) of the requests so far."""
        lines = (self.folder / "access.log").read_text(encoding="utf-8")
        return [(method, path, int(status)) for method, path, status in re.findall(r'"([A-Z]+) (\S+) HTTP/[\d.]+" (\d+)', lines)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
