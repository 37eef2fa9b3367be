"""A real Matrix server for the tests of the Matrix transport: Synapse on loopback, on SQLite.

It is installed from pinned hashes into an environment of its own in the user's cache, which
nothing of the product ever sees, and is kept there for the next run. Rate limits are off, and
nobody else's server is ever asked for anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_LOCK = Path(__file__).with_name("synapse.lock")
_START_SECONDS_MAX = 120.0
_PR_SET_PDEATHSIG = 1
_CONFIG = """\
server_name: "localhost"
pid_file: {home}/synapse.pid
report_stats: false
trusted_key_servers: []
signing_key_path: {home}/signing.key
media_store_path: {home}/media
macaroon_secret_key: "{secret}"
form_secret: "{secret}"
registration_shared_secret: "{secret}"
enable_registration: false
suppress_key_server_warning: true
listeners:
  - port: {port}
    type: http
    tls: false
    bind_addresses: ["127.0.0.1"]
    resources: [{{names: [client], compress: false}}]
database:
  name: sqlite3
  args: {{database: {home}/homeserver.db}}
rc_message: {{per_second: 1000, burst_count: 1000}}
rc_login:
  address: {{per_second: 1000, burst_count: 1000}}
  account: {{per_second: 1000, burst_count: 1000}}
rc_joins:
  local: {{per_second: 1000, burst_count: 1000}}
rc_invites:
  per_room: {{per_second: 1000, burst_count: 1000}}
  per_user: {{per_second: 1000, burst_count: 1000}}
"""


class User(NamedTuple):
    """An account: its full id (`@name:localhost`), and an access token of a device of its own."""

    id: str
    token: str


class Synapse(NamedTuple):
    """A running server. `url`: its client API."""

    url: str
    secret: str

    def register(self, name: str, password: str | None = None) -> User:
        """A new account through the shared-secret admin API."""
        path = "/_synapse/admin/v1/register"
        nonce = _json(f"{self.url}{path}")["nonce"]
        password = password or secrets.token_urlsafe(16)
        said = b"\0".join(part.encode() for part in (nonce, name, password, "notadmin"))
        body = {
            "nonce": nonce,
            "username": name,
            "password": password,
            "admin": False,
            "mac": hmac.new(self.secret.encode(), said, hashlib.sha1).hexdigest(),
        }
        made = _json(f"{self.url}{path}", body)
        return User(made["user_id"], made["access_token"])

    def whoami(self, token: str) -> str | None:
        """Whose access token it is; None: nobody's."""
        request = urllib.request.Request(
            f"{self.url}/_matrix/client/v3/account/whoami",
            headers={"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(json.load(answer)["user_id"])
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return None


def environment() -> Path:
    """The interpreter of the server's environment, installed first where it is not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huginn"
    cache.mkdir(parents=True, exist_ok=True)
    pinned = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = cache / f"synapse-{pinned}"
    python = home / "bin" / "python"
    with (cache / "synapse.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if (home / "complete").exists():
            return python
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([str(python), *words, "-r", str(_LOCK)], check=True)
        (home / "complete").touch()
    return python


# The server; on Linux it ends with the process that began it, however that one ends.
_SERVER = f"""
import ctypes, runpy, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)})
runpy.run_module("synapse.app.homeserver", run_name="__main__", alter_sys=True)
"""


@contextmanager
def running(home: Path) -> Iterator[Synapse]:
    """A server with its data in `home`, ready; stopped, and waited for, at the end."""
    python = environment()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    secret = secrets.token_urlsafe(24)
    config = home / "homeserver.yaml"
    config.write_text(_CONFIG.format(home=home, port=port, secret=secret))
    words = [str(python), "-c", _SERVER, "-c", str(config)]
    subprocess.run([*words, "--generate-keys"], check=True, cwd=home, capture_output=True)
    with (home / "synapse.log").open("wb") as log:
        server = subprocess.Popen(words, cwd=home, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, server, home / "synapse.log")
            yield Synapse(url, secret)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while server.poll() is None and time.monotonic() < deadline:
        try:
            _json(f"{url}/_matrix/client/versions")
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the Matrix server did not start:\n{log.read_text()[-2000:]}")


def _json(url: str, body: Any = None) -> Any:
    """The JSON answer of a GET, or of a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.load(answer)
