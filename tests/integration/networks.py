"""Hosts on one machine: network namespaces with their own addresses, joined by a switch."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterable

from hdpvfl_mq.app import cli

_CLONE_NEWNET = 0x40000000


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


class Network:
    """One namespace a host, one for the switch; every name carries the pid of this test."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = {name: number for number, name in enumerate(hosts, start=1)}
        self.tag = f"h{os.getpid()}"
        self.switch = f"{self.tag}-switch"

    def host(self, name: str) -> str:
        return f"{self.tag}-{self.hosts[name]}"

    def address(self, name: str) -> str:
        return f"10.83.0.{self.hosts[name]}"

    def make(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for name, number in self.hosts.items():
            host, port = self.host(name), f"port{number}"
            ip("netns", "add", host)
            ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "eth", "netns", host)
            ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", host, "address", "add", f"{self.address(name)}/24", "dev", "eth")
            ip("-n", host, "link", "set", "eth", "up")
            ip("-n", host, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in (self.switch, *map(self.host, self.hosts)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def enter(self, name: str) -> None:
        """Move the process that calls this to a host."""
        descriptor = os.open(f"/run/netns/{self.host(name)}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), name)

    def link(self, name: str, state: str) -> None:
        """Cut (`down`) or mend (`up`) a host's cable at the switch."""
        ip("-n", self.switch, "link", "set", f"port{self.hosts[name]}", state)


def type_on(network: Network, name: str, words: tuple[str, ...]) -> int:
    """Run a command of `hdpvfl` on a host."""
    network.enter(name)
    return cli.main(words)
