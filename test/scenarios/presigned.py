"""What S3 checks of a request that comes by a signed URL. moto takes it for one that nobody signed, so this stands in front of it."""

import hashlib
import hmac
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote

import wire


def denied(code, message="no"):
    return 403, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


class Checked(wire.Proxy):
    """A proxy in front of moto that takes a signed URL only for what was signed, and only in its time. `secrets` are those of the keys.
    `first(request)` may give an answer before anything is checked; `ahead` is how far its clock is before everybody else's."""

    def __init__(self, target, secrets):
        self.secrets, self.first, self.ahead = secrets, None, timedelta()
        super().__init__(target, meddle=self.look)

    def reset(self):
        self.first, self.ahead = None, timedelta()
        del self.requests[:]

    def look(self, request):
        return (self.first(request) if self.first else None) or self.check(request)

    def check(self, request):
        path, _, query = request.path.partition("?")
        pairs = [pair.partition("=")[::2] for pair in query.split("&")]
        given = {name: unquote(value) for name, value in pairs}
        if "X-Amz-Signature" not in given:
            return None
        headers = {name.lower(): value.strip() for name, value in request.headers.items()}
        names = given["X-Amz-SignedHeaders"].split(";")
        key, *scope = given["X-Amz-Credential"].split("/")
        if key not in self.secrets or any(name not in headers for name in names):
            return denied("AccessDenied")
        canonical = "\n".join([
            request.method, path, "&".join(sorted(f"{name}={value}" for name, value in pairs if name != "X-Amz-Signature")),
            *(f"{name}:{headers[name]}" for name in names), "", ";".join(names), "UNSIGNED-PAYLOAD"])
        text = "\n".join(["AWS4-HMAC-SHA256", given["X-Amz-Date"], "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + self.secrets[key]).encode()
        for part in scope:
            secret = hmac.new(secret, part.encode(), "sha256").digest()
        if hmac.new(secret, text.encode(), "sha256").hexdigest() != given["X-Amz-Signature"]:
            # The real one repeats what it was asked.
            return denied("SignatureDoesNotMatch", canonical.replace("&", "&amp;"))
        ends = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc) + timedelta(seconds=int(given["X-Amz-Expires"]))
        if datetime.now(timezone.utc) + self.ahead > ends:
            return denied("AccessDenied", "Request has expired")
        return None
