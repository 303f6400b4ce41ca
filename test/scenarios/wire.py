"""What goes over the wire: a proxy in front of a server that writes down every request, and can meddle with it; a plain server of a
folder, such as any static hosting."""

import base64
import http.client
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Request:
    """A request and when it was under way. `answer` is (status, headers, body), as the client got it."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.began, self.ended, self.answer = time.monotonic(), None, None

    def __repr__(self):
        return f"{self.method} {self.path} -> {self.answer and self.answer[0]}"


class Listening(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # A client that is killed is what some tests are about.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Server:
    """A server in threads of this process. `requests` are all that came, in order."""

    def __init__(self, handler):
        self.requests = []
        self.server = Listening(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        # Who is killed in the middle of a request is no news.
        self.server.handle_error = lambda *_: None
        self.server.request_queue_size = 128
        self.server.owner = self
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def took(self, method, *parts):
        """The requests of that method whose path holds all the parts."""
        return [request for request in self.requests if request.method == method and all(part in request.path for part in parts)]


class Quiet:
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_):
        pass

    def keep(self):
        """Reads the request and writes it down."""
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client went away in the middle of its request")
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        self.server.owner.requests.append(request)
        return request

    def reply(self, request, status, headers, body):
        request.ended, request.answer = time.monotonic(), (status, headers, body)
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Proxy(Server):
    """Passes requests on to `target`. `delay` is how long each takes at least. `meddle(request)` may change the request's headers
    in place, or give an answer (status, headers, body) of its own; `after(request, status)` may give one in place of the server's;
    `rewrite(request, answer)` gives the answer that the client gets for the server's."""

    def __init__(self, target, delay=0.0, meddle=None, after=None, rewrite=None):
        self.target, self.delay, self.meddle, self.after, self.rewrite = urlsplit(target).netloc, delay, meddle, after, rewrite
        super().__init__(Passing)

    def depth(self, last):
        """How many requests had to be answered one after another until this one was, itself counted."""
        before = [request for request in self.requests if request.ended and request.ended <= last.began]
        return 1 + max((self.depth(request) for request in before), default=0)


class Gate:
    """Lets a number of requests through and holds whatever comes after them, whichever servers it stands before, until `open` is
    called; what was held is never passed on. `counts(request)` says which requests are meant; others pass."""

    def __init__(self, counts=lambda request: True):
        self.counts, self.lock, self.left = counts, threading.Lock(), None
        self.reached, self.opened = threading.Event(), threading.Event()

    def close_after(self, number):
        self.reached, self.opened, self.left = threading.Event(), threading.Event(), number

    def open(self):
        self.left = None
        self.opened.set()

    def __call__(self, request):
        opened, reached = self.opened, self.reached
        if not self.counts(request):
            return None
        with self.lock:
            if self.left is None:
                return None
            if self.left > 0:
                self.left -= 1
                return None
        reached.set()
        opened.wait(60)
        raise ConnectionError("whoever asked is gone")


class Passing(Quiet, BaseHTTPRequestHandler):
    def pass_on(self):
        request, owner = self.keep(), self.server.owner
        time.sleep(owner.delay)
        answer = owner.meddle(request) if owner.meddle else None
        if answer is None:
            # The name that the client has signed stays.
            server = http.client.HTTPConnection(owner.target, timeout=60)
            server.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in HOP:
                    server.putheader(name, value)
            server.putheader("Content-Length", str(len(request.body)))
            server.endheaders(request.body)
            got = server.getresponse()
            body = got.read()
            headers = [(name, value) for name, value in got.getheaders()
                       if name.lower() not in HOP or (request.method == "HEAD" and name.lower() == "content-length")]
            answer = (got.status, headers, body)
            server.close()
        answer = (owner.after(request, answer[0]) if owner.after else None) or answer
        answer = owner.rewrite(request, answer) if owner.rewrite else answer
        self.reply(request, *answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = pass_on


class ForwardProxy(Server):
    """A proxy such as a company has: takes `GET http://host/path` and passes it on, and connects to whom CONNECT names. `requests`
    are those with their whole URL, and the CONNECTs. With `password` it asks for it."""

    def __init__(self, password=None):
        self.password = password
        super().__init__(Forwarding)

    def hosts(self):
        return {urlsplit(request.path).netloc or request.path for request in self.requests}


class Forwarding(Quiet, BaseHTTPRequestHandler):
    def allowed(self, request):
        wanted = self.server.owner.password
        given = (self.headers.get("Proxy-Authorization") or "").removeprefix("Basic ")
        if wanted is None or base64.b64decode(given).decode().endswith(f":{wanted}"):
            return True
        self.reply(request, 407, [("Proxy-Authenticate", "Basic realm=x")], b"")
        return False

    def forward(self):
        request = self.keep()
        if not self.allowed(request):
            return
        target = urlsplit(self.path)
        server = http.client.HTTPConnection(target.netloc, timeout=60)
        names = HOP | {"proxy-authorization", "proxy-connection", "host", "accept-encoding"}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in names}
        server.request(self.command, target.path + (f"?{target.query}" if target.query else ""), request.body or None,
                       {**headers, "Host": request.headers.get("Host", target.netloc), "Content-Length": str(len(request.body))})
        got = server.getresponse()
        body = got.read()
        keep = [(name, value) for name, value in got.getheaders()
                if name.lower() not in HOP or (self.command == "HEAD" and name.lower() == "content-length")]
        server.close()
        self.reply(request, got.status, keep, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def do_CONNECT(self):
        request = self.keep()
        if not self.allowed(request):
            return
        name, port = self.path.split(":")
        with socket.create_connection((name, int(port)), timeout=30) as server:
            request.answer = (200, [], b"")
            self.send_response_only(200)
            self.end_headers()
            back = threading.Thread(target=pipe, args=(server, self.connection), daemon=True)
            back.start()
            pipe(self.connection, server)
            back.join(30)
        self.close_connection = True


def pipe(source, target):
    """Passes bytes on until there are no more."""
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Answering(Server):
    """Answers every request by `answer(request)`."""

    def __init__(self, answer):
        self.answer = answer
        super().__init__(Scripted)


class Scripted(Quiet, BaseHTTPRequestHandler):
    def answer(self):
        request = self.keep()
        self.reply(request, *self.server.owner.answer(request))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = answer


class Static(Server):
    """Serves a folder as any web server does: GET and HEAD, one range, 404; nothing else and no listing."""

    def __init__(self, folder):
        self.folder = folder
        super().__init__(Plain)


class Plain(Quiet, SimpleHTTPRequestHandler):
    def __init__(self, request, client, server):
        super().__init__(request, client, server, directory=str(server.owner.folder))

    def do_GET(self):
        request = self.keep()
        try:
            with open(self.translate_path(self.path), "rb") as file:
                body = file.read()
        except OSError:
            return self.reply(request, 404, [], b"there is nothing")
        range_ = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        headers = [("Accept-Ranges", "bytes")]
        if not range_ or range_.groups() == ("", ""):
            return self.reply(request, 200, headers, body)
        first, last = range_.groups()
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(int(last), len(body) - 1) if first and last else len(body) - 1
        if start > end:
            return self.reply(request, 416, [("Content-Range", f"bytes */{len(body)}")], b"")
        return self.reply(request, 206, [*headers, ("Content-Range", f"bytes {start}-{end}/{len(body)}")], body[start:end + 1])

    do_HEAD = do_GET


def ask(url, method="GET", body=None, **headers):
    """(status, headers, body) of one request; headers with `_` for `-`."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def raw(address, content, seconds=5, end=False):
    """What a host sends back to these bytes, until it closes or says no more. With `end` it hears that no more will come."""
    name, port = address.split(":")
    with socket.create_connection((name, int(port)), timeout=seconds) as connection:
        answer = b""
        try:
            connection.sendall(content)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            pass
        return answer
