"""A page in a browser reads a repository from a host of another origin, by the requests that DuckDB makes there: HEAD, ranges, the
refs. The browser decides what the page gets to see."""

import hashlib
import json
import os
import shutil
import subprocess
import time

import pytest

import wire

PAGE = """<!doctype html><title>a page of another origin</title><script>
const hex = bytes => Array.from(new Uint8Array(bytes), byte => byte.toString(16).padStart(2, "0")).join("");
const named = ["accept-ranges", "cache-control", "content-length", "content-range", "etag", "fdl-version"];
async function ask(what, path, options) {
  try {
    const answer = await fetch(HOST + path, {cache: "no-store", ...options});
    const body = await answer.arrayBuffer();
    const headers = Object.fromEntries(named.map(name => [name, answer.headers.get(name)]));
    return {what, status: answer.status, headers, length: body.byteLength, sha256: await digest(body), text: body.byteLength < 9000 ? new TextDecoder().decode(body) : null};
  } catch (error) {
    return {what, error: String(error)};
  }
}
async function digest(body) { return hex(await crypto.subtle.digest("SHA-256", body)); }
async function run() {
  const said = [];
  said.push(await ask("HEAD", "/HEAD"));
  said.push(await ask("ref", "/" + said[0].text.trim().replace("ref: ", "")));
  const version = "/versions/" + said[1].text.trim();
  said.push(await ask("version.json", version + "/version.json"));
  said.push(await ask("not there", version + "/expired.json"));
  const catalog = version + "/ducklake.duckdb";
  said.push(await ask("size", catalog, {method: "HEAD"}));
  said.push(await ask("whole", catalog));
  said.push(await ask("start", catalog, {headers: {Range: "bytes=0-99"}}));
  said.push(await ask("end", catalog, {headers: {Range: "bytes=-100"}}));
  said.push(await ask("beyond", catalog, {headers: {Range: "bytes=999999999-"}}));
  const etag = said[5].headers.etag;
  said.push(await ask("same", catalog, {headers: {Range: "bytes=100-199", "If-Match": etag}}));
  said.push(await ask("latest", "/ducklake.duckdb"));
  said.push(await ask("with a token", "/refs.json", {headers: {Authorization: "Bearer " + TOKEN}}));
  said.push(await ask("a write", "/data/main/t/page.parquet", {method: "PUT", body: "x", headers: {Authorization: "Bearer " + TOKEN}}));
  said.push(await ask("a delete", "/refs/tags/v1", {method: "DELETE", headers: {Authorization: "Bearer " + TOKEN}}));
  await fetch("/done", {method: "POST", body: JSON.stringify(said)});
}
run();
</script>"""


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    # The project's CI installs it.
    assert not os.environ.get("CI"), "there is no Chromium; .ci/run installs it"
    pytest.skip("needs Chromium (apt-get install chromium)")


@pytest.mark.parametrize("closed", [False, True], ids=["open", "with a read token"])
def test_a_page_reads_and_does_not_write(new_place, open_session, host, tmp_path, closed):
    program, token = browser(), "hush-write-token"
    place = new_place("http")
    session = open_session()
    session.fdl("init", place.location)
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    version = session.publish("one", tag="v1")["new_version"]
    url = host.serve(place.folder.path, read_token="hush-read-token", write_token=token) if closed else place.location
    keys = place.keys()

    def answer(request):
        text = PAGE.replace("TOKEN", json.dumps(token)).replace("HOST", json.dumps(url))
        return 200, [("Content-Type", "text/html; charset=utf-8")], text.encode() if request.path == "/" else b""

    with wire.Answering(answer) as pages:
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--no-proxy-server", "--enable-logging=stderr", f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", pages.url + "/"]
        with open(tmp_path / "log.txt", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                end = time.monotonic() + 60
                while not pages.took("POST", "/done"):
                    assert process.poll() is None and time.monotonic() < end, (tmp_path / "log.txt").read_text()[-3000:]
                    time.sleep(0.05)
            finally:
                process.terminate()
                process.wait(30)
        said = {answer.pop("what"): answer for answer in json.loads(pages.took("POST", "/done")[0].body)}
    if closed:
        host.stop(url)
        # The page sees why it is refused, and what it reads with a token.
        assert said["HEAD"]["status"] == 401 and json.loads(said["HEAD"]["text"])["error"] == "FDL-PERMISSION"
        assert said["with a token"]["status"] == 200
        assert "error" in said["a write"] and "error" in said["a delete"]
        return
    catalog = place.read(f"versions/{version}/ducklake.duckdb")
    size = str(len(catalog))
    assert (said["HEAD"]["status"], said["HEAD"]["text"]) == (200, "ref: refs/heads/main\n")
    assert (said["ref"]["status"], said["ref"]["text"]) == (200, version + "\n")
    assert said["HEAD"]["headers"]["cache-control"] == said["ref"]["headers"]["cache-control"] == "no-store"
    assert said["version.json"]["status"] == 200 and json.loads(said["version.json"]["text"])["id"] == version
    assert said["not there"]["status"] == 404
    assert (said["size"]["status"], said["size"]["headers"]["content-length"], said["size"]["headers"]["accept-ranges"]) == (200, size, "bytes")
    assert (said["whole"]["status"], said["whole"]["sha256"]) == (200, hashlib.sha256(catalog).hexdigest())
    for what, start, end in (("start", 0, 100), ("end", len(catalog) - 100, len(catalog)), ("same", 100, 200)):
        assert (said[what]["status"], said[what]["length"]) == (206, 100), said[what]
        assert said[what]["sha256"] == hashlib.sha256(catalog[start:end]).hexdigest()
        assert said[what]["headers"]["content-range"] == f"bytes {start}-{end - 1}/{size}"
        assert said[what]["headers"]["etag"] == said["whole"]["headers"]["etag"] == said["size"]["headers"]["etag"] is not None
    assert (said["beyond"]["status"], said["beyond"]["headers"]["content-range"]) == (416, f"bytes */{size}")
    assert (said["latest"]["status"], said["latest"]["headers"]["fdl-version"], said["latest"]["length"]) == (200, version, len(catalog))
    assert said["with a token"]["status"] == 200
    # Other origins may read, and not write, whatever token a page has got hold of.
    assert "error" in said["a write"] and "error" in said["a delete"]
    assert place.keys() == keys
