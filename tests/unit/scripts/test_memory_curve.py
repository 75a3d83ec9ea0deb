"""The tables of a large run: thinned for the picture, its peaks and stages for the page."""

from __future__ import annotations

from scripts.benches import memory_curve

HEAD = "seconds,process,phase,Private_Clean,Private_Dirty,Anonymous,Rss\n"
STAGES = (("", 100), ("aligning", 300), ("agreeing", 250), ("training", 900), ("closed", 200))


def write(path):
    with path.open("w") as file:
        file.write(HEAD)
        for turn, (phase, private) in enumerate(STAGES):
            for step in range(20):
                for process, factor in (("active", 1), ("passive-1", 2), ("coordinator", 9)):
                    seconds = 60 * turn + 3 * step
                    cells = (seconds, process, phase, 1, 1, factor * private + step % 7, 2000)
                    file.write(",".join(map(str, cells)) + "\n")
    return path


def test_the_page_has_the_peaks_and_minutes_of_every_party(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{memory_curve.BEGIN}\nold\n{memory_curve.END}\nafter\n")
    table = memory_curve.peaks([("5 rows", write(tmp_path / "run.csv"))])
    for _ in range(2):
        memory_curve.write_peaks(page, table)
    lines = page.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "| 5 rows | active | 906 | 2000 | 1 min | 1 min | 1 min | 1 min | closed |" in lines
    assert "| 5 rows | passive-1 | 1806 | 2000 | 1 min | 1 min | 1 min | 1 min | closed |" in lines
    assert "old" not in lines


def test_the_picture_has_a_point_every_few_seconds(tmp_path):
    rows = memory_curve.thinned("5 rows", write(tmp_path / "run.csv"))
    times = [float(row["seconds"]) for row in rows if row["process"] == "active"]
    assert times == [15.0 * step for step in range(20)]
    memory_curve.draw(rows, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
