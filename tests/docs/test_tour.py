"""The notebook of the tour, executed from its first cell to its last, with a smaller budget."""

import nbformat
from nbclient import NotebookClient

from dreamracer import ROOT

SMALL = {"FRAMES": 1_200, "UPDATES": 6, "THREADS": 1}


def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pictures in the notebook, not in windows
    tour = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    (parameters,) = (c for c in tour.cells if "parameters" in c.metadata.get("tags", []))
    assert [line.split(" = ")[0] for line in parameters.source.splitlines()] == list(SMALL)
    parameters.source = "\n".join(f"{name} = {value}" for name, value in SMALL.items())
    NotebookClient(
        tour, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in tour.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    text = "".join(output.get("text", "") for output in outputs)
    assert len(pictures) == 4
    assert "of a lap in" in text and "checkpoint=" in text
