"""sticky: an IPAM plugin in Python. A container gets the same address each time, if this address is free.

The host keeps the leases, and releases them if an ADD fails.
"""

import hashlib
import ipaddress
import json
import os
import sys

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import leases


def preferred(subnet: str) -> str:
    """Chooses an address of the network by a hash of container and interface: never the first two or the last."""
    network = ipaddress.ip_network(subnet)
    owner = os.environ["CNI_CONTAINERID"] + "/" + os.environ["CNI_IFNAME"]
    number = int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], "big")
    return str(network[2 + number % (network.num_addresses - 3)])


def add(config: dict) -> dict:
    subnet = config["ipam"]["subnet"]
    ranges = [[leases.LeaseRange(subnet, None, None, None)]]
    try:
        got = leases.reserve(ranges, [preferred(subnet)])
    except Err:
        got = leases.reserve(ranges, [])
    ips = [{"address": one.address} | ({"gateway": one.gateway} if one.gateway else {}) for one in got]
    return {"cniVersion": config["cniVersion"], "ips": ips}


def check(_config: dict) -> None:
    if not leases.held():
        raise ValueError("this attachment has no address")


VERBS = {
    "ADD": add,
    "CHECK": check,
    "DEL": lambda _config: leases.release(),
    "GC": lambda _config: leases.retain() and None,
    "STATUS": lambda _config: None,
    "VERSION": lambda _config: {"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]},
}


class Run(exports.Run):
    def run(self) -> None:
        config = {}
        try:
            config = json.load(sys.stdin)
            result = VERBS[os.environ["CNI_COMMAND"]](config)
        except Exception as error:
            # A refusal of the host has a message.
            reason = error.value.message if isinstance(error, Err) else f"{type(error).__name__}: {error}"
            version = config.get("cniVersion", "1.0.0") if isinstance(config, dict) else "1.0.0"
            print(json.dumps({"cniVersion": version, "code": 100, "msg": f"sticky: {reason}"}))
            raise Err(None)
        if result is not None:
            print(json.dumps(result))
