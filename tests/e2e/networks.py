"""Machines on a network of their own: network namespaces on a bridge.

Needs root. Everything has a name and addresses of this process's own, and is
removed at the end; the addresses are of the range for tests of network devices.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


def unusable() -> str:
    """Why namespaces cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no command ip here"
    name = f"sl{os.getpid()}x"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


class Network:
    """``gateway`` is this machine's own address on it, ``range`` all of them."""

    def __init__(self, machines: Sequence[str]) -> None:
        mark = os.getpid()
        stem = f"198.18.{mark % 250}"
        self.gateway, self.range = f"{stem}.1", f"{stem}.0/24"
        self.bridge = f"sl{mark}"
        self.machines = {
            name: (f"sl{mark}{name}", f"{stem}.{number}")
            for number, name in enumerate(machines, start=11)
        }

    def address(self, machine: str) -> str:
        return self.machines[machine][1]

    def inside(self, machine: str) -> list[str]:
        """The words before a command that is to run on the machine."""
        return ["ip", "netns", "exec", self.machines[machine][0]]

    def cut(self, machine: str) -> None:
        """Pull the plug: nobody is told anything."""
        _ip("link", "set", self.machines[machine][0], "down")

    def mend(self, machine: str) -> None:
        _ip("link", "set", self.machines[machine][0], "up")

    def make(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for name, address in self.machines.values():
            _ip("netns", "add", name)
            _ip(*f"link add {name} type veth peer name eth0 netns {name}".split())
            _ip("link", "set", name, "master", self.bridge, "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name, _address in self.machines.values():
            for words in (("link", "del", name), ("netns", "del", name)):
                with suppress(subprocess.CalledProcessError):
                    _ip(*words)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self.bridge)


@contextmanager
def network(*machines: str) -> Iterator[Network]:
    net = Network(machines)
    try:
        net.make()
        yield net
    finally:
        net.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
