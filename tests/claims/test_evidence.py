"""What a claim gets to see."""

from __future__ import annotations

from claims.synthetic import accuracy, exhibit, result
from vitreous.claims import readings
from vitreous.claims.evidence import Evidence


def test_what_holds_without_images_is_seen_beside_any_images() -> None:
    exact = result("identities", [{"measure": "sum", "value": 1.0}])
    evidence = Evidence([exhibit("vit", accuracy(90)), exhibit("identities", exact, data="")])
    data, look = evidence.look("SYN-C")
    assert data == "cifar10"
    assert readings.identity(look("identities"), "sum").each.tolist() == [1.0]
    assert not look.missing


def test_what_holds_without_images_does_not_say_how_large_a_study_is() -> None:
    exact = exhibit("identities", result("identities", [{"measure": "sum", "value": 1.0}]), data="")
    for task in ("", "SYN-B"):
        data, look = Evidence([exact, exhibit("vit", accuracy(90), data="SYN-B")]).look(task)
        assert (data, look.scale) == ("SYN-B", "sanity")
