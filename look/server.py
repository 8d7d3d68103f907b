"""JupyterLab as `make lab` starts it in a fresh clone: it has nobody's settings, and trusts no notebook."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from look.lessons import ROOT

SERVED = "--preferred-dir=notebooks"  #: as `make lab` starts it (a test compares): figures/ can be reached
SECONDS = 60  #: to start, and again to end

SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none", "scrollPastEnd": False},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension:sessionDialogs": {"skipKernelRestartDialog": True},
}


@contextmanager
def jupyterlab() -> Iterator[str]:
    """The address of a JupyterLab, which ends with the block."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for name in ("notebooks", "figures"):
            shutil.copytree(ROOT / name, home / "clone" / name)
        settings = home / "config" / "labconfig" / "default_setting_overrides.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(SETTINGS))
        with (home / "log").open("w") as log, started(home, port := free_port(), log) as process:
            wait_for(port, process, home / "log")
            yield f"http://127.0.0.1:{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(home: Path) -> dict[str, str]:
    """Everything that Jupyter and IPython read or write lies in `home`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    own = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return inherited | own | {"IPYTHONDIR": str(home / "ipython")}


@contextmanager
def started(home: Path, port: int, log) -> Iterator[subprocess.Popen]:
    """The server's process, in a session of its own: Ctrl-C ends it here, with its kernels."""
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    options += ["--no-browser", "--allow-root", "--LabApp.expose_app_in_browser=True"]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", SERVED, *options],
        cwd=home / "clone",
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
