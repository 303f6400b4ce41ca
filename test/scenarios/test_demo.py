"""`make demo`: the main job on real data, as a newcomer runs it."""

import re
import subprocess
import time

import layout


def cells(line):
    """The cells of a row that the shell drew."""
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_demo_tells_the_whole_story_in_under_a_minute():
    left = layout.BUILD / "demo" / "nyc" / "left-by-another-run"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    start = time.monotonic()
    done = subprocess.run(["bash", str(layout.ROOT / "scripts" / "demo.sh")], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    assert not left.exists(), "the demo starts afresh"
    rows = [cells(line) for line in done.stdout.splitlines() if line.startswith("│")]
    # Step 11: the rows of both versions; 8,255 flights never left.
    assert ["flights", "336776", "328521", "-8255"] in rows
    for table, count in (("airlines", 16), ("airports", 1458), ("planes", 3322), ("weather", 26115)):
        assert [table, str(count), str(count), "0"] in rows
    # Step 12: the two airports that were mended.
    assert {row[0] for row in rows if len(row) == 4 and re.fullmatch(r"-?\d+\.\d+", row[2])} == {"DVT", "MYF"}
    # Step 14: plain DuckDB reads v1.
    by_origin = {row[0]: row[1:] for row in rows if row[0] in ("EWR", "JFK", "LGA")}
    assert by_origin == {"EWR": ["120835", "117596"], "JFK": ["111279", "109416"], "LGA": ["104662", "101509"]}
