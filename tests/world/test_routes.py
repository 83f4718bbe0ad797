"""Addresses by routing: what the kernel says, on loopback."""

from __future__ import annotations

import psutil
import pytest

from farandole.errors import StartError
from farandole.world.routes import address_towards, interface_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "localhost"])
def test_the_way_to_this_very_host_is_loopback(host: str) -> None:
    assert address_towards(host) == "127.0.0.1"


def test_own_addresses_lead_to_themselves() -> None:
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family.name == "AF_INET" and not each.address.startswith("127."):
                assert address_towards(each.address) == each.address


def test_no_way_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(StartError, match=r"no way to no-such-host\.invalid .*FARANDOLE_ADDRESS"):
        address_towards("no-such-host.invalid")


def test_the_device_of_an_address() -> None:
    devices = psutil.net_if_addrs()
    name = interface_of("127.0.0.1")
    assert "127.0.0.1" in {each.address for each in devices[name]}
    assert interface_of("203.0.113.77") == ""
