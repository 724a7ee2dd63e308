"""The scoreboard's picture shows each figure at its place, and what nobody measured not at all."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from scoreboard import plot

SVG = "{http://www.w3.org/2000/svg}"
BODY: dict[str, Any] = {
    "simulated": True,
    "ways": ["bare", "ours", "mps"],
    "figures": [
        {
            "name": "held <by> one process",
            "claim": "Held",
            "best": 1.0,
            "values": {"bare": 34.9, "ours": 0.996},
            "of_bare": {"bare": 1.0, "ours": 0.0285},
        },
        {
            "name": "cuLaunchKernel",
            "claim": "What it costs",
            "best": None,
            "values": {"bare": 700.0, "ours": 1400.0},
            "of_bare": {"bare": 1.0, "ours": 2.0},
        },
        {"name": "requests", "claim": "Late", "best": None, "values": {}, "of_bare": {}},
    ],
}


def test_a_claim_is_drawn_as_its_part_of_the_best_and_a_cost_beside_the_bare_drivers() -> None:
    claim, cost, _ = BODY["figures"]

    assert (plot.place(claim, "bare"), plot.place(claim, "ours")) == (34.9, 0.996)
    assert plot.place(cost, "ours") == 2.0
    assert plot.place(cost, "mps") is None


def test_each_figure_that_was_measured_is_in_the_picture_and_no_other() -> None:
    picture = ElementTree.fromstring(plot.drawn(BODY))

    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"held <by> one process", "34.9", "0.996", "cuLaunchKernel", "x 2"} <= {*words}
    assert "requests" not in words
    assert "mps" not in words
    circles = [float(dot.attrib["cx"]) for dot in picture.iter(f"{SVG}circle")]
    assert len(circles) == 3  # one in the head
    assert circles[1] > circles[2]  # 34.9 is right of 1


def test_what_is_beyond_the_scale_is_at_its_end_and_the_picture_holds_all() -> None:
    picture = ElementTree.fromstring(
        plot.drawn({**BODY, "figures": [{**BODY["figures"][0], "values": {"bare": 0.0}}]})
    )

    _, dot = picture.iter(f"{SVG}circle")
    assert float(dot.attrib["cx"]) == plot.LEFT
    wide, high = map(int, picture.attrib["viewBox"].split()[2:])
    for text in picture.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < wide
        assert 0 < float(text.attrib["y"]) < high
