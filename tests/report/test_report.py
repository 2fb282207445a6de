"""The report and the episode viewer: what is in the page, that nothing gets out of its text, and that a real browser
shows it.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.baselines.reference import Reference, write_references
from a2tgpo.cli import main
from a2tgpo.config import StudySettings
from a2tgpo.display.curves import Line, Panel, Point
from a2tgpo.errors import ConfigError
from a2tgpo.report import svg, tables, write_report, write_viewer
from a2tgpo.report.page import data_block
from a2tgpo.studies.study import load_study
from tests.support.browser import Browser, chromium
from tests.support.finished_study import EVIL, finished_study

FOUR = StudySettings(algorithms=("a2tgpo", "igpo", "gigpo", "grpo"), seeds=(0, 1, 2), ablate=("a2tgpo",))


def test_report_holds_everything_and_loads_nothing(tmp_path: Path) -> None:
    study = finished_study(tmp_path, FOUR, skill=lambda label, _: 0.8 if label == "a2tgpo" else 0.3, episodes=16)
    written = write_report(study)
    text = written.html.read_text()
    headings = (
        "What can",
        "Ablation",
        "Questions won and lost",
        "Learning curves",
        "Exact match by hops",
        "Training",
        "Information gain per turn",
        "Clip ranges",
        "Searches",
        "Time",
        "Protocol",
        "Published figures",
    )
    for heading in headings:
        assert f"<h2>{heading}" in text, heading
    assert "a2tgpo − grpo: +" in text
    assert "better" in text
    assert "a2tgpo-no-turn-groups − a2tgpo: −" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)|@import|url\(""", text)
    assert "default-src 'none'" in text
    assert EVIL not in text
    assert (study / "table.md").read_text().startswith("| algorithm | seeds |")
    assert r"$\pm$" in (study / "table.tex").read_text()


def test_everything_that_is_measured_is_drawn(tmp_path: Path) -> None:
    text = write_report(finished_study(tmp_path, replace(FOUR, ablate=()))).html.read_text()
    titles = re.findall(r'class="chart" [^>]*aria-label="([^"]*)"', text)
    for title in (
        "exact match, held out",
        "exact match, sampled, held out",
        "exact match, training questions",
        "exact match, 1 hop",
        "exact match, 2 hops",
        "exact match, sampled, in training",
        "entropy (nats per token)",
        "share of tokens that the clip stops",
        "distance to the policy before the step (nats)",
        "share of invalid turns",
        "engine against trainer (mean nats per token)",
    ):
        assert title in titles, title
    assert "distance to the reference policy (nats)" not in titles  # it is 0 throughout
    drawn = text[text.index('aria-label="exact match, held out"') :]
    assert drawn[: drawn.index("</svg>")].count('class="run ') == 4 * 3  # every seed of four contenders
    assert "turn 1, 10" in text
    assert "turn 2, " not in text  # one step of three has it


def test_shares_open_no_axis_below_zero() -> None:
    panel = Panel("t", "x", {"a": Line((Point(0, 0.1, -3.0, 3.2), Point(1, 0.2, -2.0, 2.4)))}, zero=True)
    assert "-1" not in re.findall(r">(-?[0-9.]+)</text>", svg.lines(panel))
    assert "-2" in re.findall(r">(-?[0-9.]+)</text>", svg.lines(replace(panel, zero=False)))


def test_a_single_run_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(3,)), episodes=8)
    run = study / "a2tgpo-s3"
    assert main(["report", str(run)]) == 0
    text = (run / "report.html").read_text()
    assert "<h1>Run a2tgpo-s3</h1>" in text
    assert "One contender, so there is nothing to compare." in text
    assert "Questions won and lost" not in text
    assert "nan" not in (run / "table.md").read_text()
    (run / "finished").unlink()
    assert main(["report", str(run)]) == 2
    assert "a2tgpo-s3: not finished: step 10 of 10" in " ".join(capsys.readouterr().err.split())


def test_from_a_comparison_to_its_questions(tmp_path: Path) -> None:
    chromium()
    study = finished_study(tmp_path, FOUR, skill=lambda label, _: 0.9 if label == "a2tgpo" else 0.2)
    with Browser(tmp_path / "profile") as browser:
        browser.open(write_report(study).html)
        assert browser.run("document.querySelectorAll('details[open]').length") == 0
        browser.run("[...document.querySelectorAll('td a')].find((a) => a.textContent === 'a2tgpo − grpo').click()")
        browser.wait("document.querySelectorAll('details[open]').length === 1")
        assert browser.run("document.querySelector('details[open] summary').textContent").startswith("a2tgpo − grpo: ")
        box = "document.getElementById('questions-a2tgpo-grpo')"
        assert browser.run(f"{box}.getBoundingClientRect().top < innerHeight")
        first = browser.run(f"{box}.querySelector('tbody tr').innerText")
        assert first.startswith("Who is number ")
        assert EVIL.rstrip() in first
        assert "✓ right, ✓ right, ✓ right" in first
        assert browser.run("window.hacked") is None
        assert browser.errors == []


def test_data_block_cannot_be_left() -> None:
    hostile = {"text": "</script><script>alert(1)</script><!-- & \u2028"}
    block = data_block("x", hostile)
    inner = block.removeprefix('<script type="application/json" id="data-x">').removesuffix("</script>")
    assert not set("<>&\u2028") & set(inner)
    assert json.loads(inner) == hostile


def test_one_seed_says_what_cannot_be_said(tmp_path: Path) -> None:
    text = write_report(
        finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0,)))
    ).html.read_text()
    assert "one seed, so nothing can be said about the algorithms" in text
    assert "With one seed, luck of the seed and merit of the algorithm cannot be told apart" in text


def test_crashed_unfinished_and_broken_runs_are_listed_and_left_out(tmp_path: Path) -> None:
    study = finished_study(
        tmp_path,
        StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1, 2, 3, 4)),
        skill=lambda _label, seed: 0.2 + 0.1 * seed,
    )
    (study / "grpo-s0" / "finished").unlink()
    (study / "grpo-s0" / "crashed").write_text("Traceback …\nNumericalError: loss: got nan <b>\n")
    (study / "grpo-s1" / "metrics.jsonl").write_text("")
    (study / "grpo-s2" / "metrics.jsonl").write_text('{"kind": "evaluation", "step": 10, "em": null}\n')
    (study / "grpo-s3" / "finished").unlink()
    text = write_report(study).html.read_text()
    assert "grpo-s0: crashed: NumericalError: loss: got nan &lt;b&gt;" in text
    assert "grpo-s1: finished, but metrics.jsonl has no evaluation" in text
    assert "grpo-s2: finished, but its last evaluation has no number for em" in text
    assert "grpo-s3: not finished: step 10 of 10" in text
    assert "6 of 10 runs used" in text
    assert "(1 seed × 40 questions)" in text


def test_pages_run_no_code_that_a_folder_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0,)), episodes=8)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nclass Mine: pass\n")
    for path in (study / "a2tgpo-s0" / "config.toml", study / "study.toml"):
        named = path.read_text().replace('algorithm = "a2tgpo"', f'algorithm = "{trap}:Mine"')
        named = named.replace('reward = "em"', f'reward = "{trap}:Mine"')
        assert named != path.read_text()
        path.write_text(named)
    assert main(["view", str(study / "a2tgpo-s0")]) == 0
    assert main(["report", str(study)]) == 0
    assert not (tmp_path / "sprung").exists()
    assert "z and clip ranges are left out: the algorithm" in (study / "a2tgpo-s0" / "episodes.html").read_text()


def test_nan_metrics_draw_no_line() -> None:
    nothing, gap = Line((Point(0, math.nan),)), Line((Point(0, 1.0), Point(1, math.nan), Point(2, 2.0)))
    assert "no data" in svg.lines(Panel("t", "x", {"a": nothing}))
    assert svg.lines(Panel("t", "x", {"a": gap})).count("nan") == 0
    assert "no data" in svg.bars({"1": {"a": math.nan}}, "t", "x")


def test_mixed_manifests_are_refused_with_the_list_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1)))
    path = study / "grpo-s1" / "manifest.json"
    changed = json.loads(path.read_text())
    changed["settings"]["environment"]["top_k"] = 5
    path.write_text(json.dumps(changed))
    assert main(["report", str(study)]) == 2
    assert "settings.environment.top_k: 3 in a2tgpo-s0, 5 in grpo-s1" in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(study), "--allow", "settings.environment.top_k"]) == 0
    assert "which was allowed by hand" in (study / "report.html").read_text()
    path.unlink()
    with pytest.raises(ConfigError, match="no readable"):
        write_report(study)


def test_latex_and_markdown_escape() -> None:
    rows = [["a_b", "50 %"], ["x|y", "−1 ± 2"]]
    assert r"a\_b & 50 \% \\" in tables.latex(rows, "c")
    assert r"x|y & $-$1 $\pm$ 2 \\" in tables.latex(rows, "c")
    assert r"| x\|y |" in tables.markdown(rows)


def test_a_single_run_is_reported_as_a_study_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished_study(tmp_path, StudySettings(algorithms=("grpo", "igpo"), seeds=(0, 1)), episodes=8) / "grpo-s1"
    recipe, jobs = load_study(run)
    assert [(job.name, job.label, job.recipe.seed) for job in jobs] == [("grpo-s1", "grpo", 1)]
    assert recipe.study.baseline == "grpo"
    assert main(["report", str(run)]) == 0
    assert "with 8 episodes" in capsys.readouterr().out
    assert "igpo" not in (run / "table.md").read_text()


def test_no_study_no_run_no_episodes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has neither study\.toml nor config\.toml"):
        write_report(tmp_path)
    with pytest.raises(ConfigError, match=r"has no config\.toml"):
        write_viewer(tmp_path, tmp_path / "x.html")
    study = finished_study(tmp_path, StudySettings(algorithms=("grpo",), seeds=(0,)))
    with pytest.raises(ConfigError, match="no recorded episode"):
        write_viewer(study / "grpo-s0", tmp_path / "x.html")


def test_ten_thousand_episodes_are_cut_to_whole_groups(tmp_path: Path) -> None:
    study = finished_study(tmp_path, StudySettings(algorithms=("grpo",), seeds=(0,)), episodes=10_000)
    collection = write_viewer(study / "grpo-s0", tmp_path / "view.html", limit=1002)
    assert len(collection.episodes) == 1000
    assert collection.left_out == 9000
    assert (tmp_path / "view.html").stat().st_size < 3_000_000


def test_viewer_in_a_browser(tmp_path: Path) -> None:
    chromium()
    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo",), seeds=(0,)), episodes=1000)
    assert main(["view", str(study / "a2tgpo-s0")]) == 0
    with Browser(tmp_path / "profile") as browser:
        browser.open(study / "a2tgpo-s0" / "episodes.html")
        browser.wait("document.getElementById('v-count').textContent.startsWith('1000 episodes in 250 groups')")
        assert browser.run("document.querySelectorAll('#v-space .row').length") < 60  # only what is in view is built
        assert browser.run("document.querySelectorAll('article.episode').length") == 4
        assert EVIL in browser.run("document.querySelector('.masked').textContent")
        assert browser.run("window.hacked") is None
        assert browser.run("document.querySelectorAll('#viewer script, #viewer img').length") == 0
        numbers = browser.run("document.querySelector('.numbers').textContent")
        assert "0.018 → 0.223" in numbers  # e^-4 and e^(-4 + 2.5)
        assert "gain+2.50" in numbers
        assert "clip range0.9967 … 1.0044" in numbers  # 1 − 1.1·0.003 and 1 + 1.1·0.004
        choose(browser, "v-filter", "truncated")
        assert browser.run("document.getElementById('v-count').textContent").startswith("333 episodes")
        choose(browser, "v-filter", "correct")
        assert browser.run("document.getElementById('v-count').textContent").startswith("500 episodes")
        choose(browser, "v-filter", "all episodes")
        browser.run(
            "document.getElementById('v-search').value = 'Question 203: wrong';"
            " document.getElementById('v-search').dispatchEvent(new Event('input'))"
        )
        browser.wait("document.getElementById('v-count').textContent.startsWith('2 episodes in 1 groups')")
        browser.key("Enter")
        assert browser.run("document.querySelectorAll('.single article.episode').length") == 1
        browser.key("Escape")
        assert browser.run("document.querySelectorAll('.single').length") == 0
        browser.key("m")
        assert browser.run("document.querySelectorAll('.masked').length") == 0
        browser.screenshot(tmp_path / "viewer.png")
        assert browser.errors == []


@pytest.mark.parametrize("width", [1200, 400])
def test_pages_open_at_the_top_with_the_question_in_view(tmp_path: Path, width: int) -> None:
    chromium()
    study = finished_study(tmp_path, FOUR, episodes=64)
    write_viewer(study / "a2tgpo-s0", tmp_path / "view.html")
    pages = write_report(study).html, tmp_path / "view.html"
    with Browser(tmp_path / "profile", width=width) as browser:
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        for page in pages:
            browser.open(page)
            browser.wait("document.querySelectorAll('article.episode').length === 4")
            assert browser.run("[scrollX, scrollY]") == [0, 0]
            assert browser.run("['v-list', 'v-main'].map((id) => document.getElementById(id).scrollTop)") == [0, 0]
            assert browser.run("document.getElementById('v-main').scrollLeft") == 0
            assert browser.run(VISIBLE.format("#v-main .head h3"))
            assert "Question 0" in browser.run("document.querySelector('#v-main .head h3').textContent")
            assert browser.run(VISIBLE.format("#v-main .head p"))
            assert "gold: right" in browser.run("document.querySelector('#v-main .head p').textContent")
            assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        browser.key("ArrowRight")
        browser.key("ArrowRight")
        assert browser.run("scrollY") == 0  # moving between episodes moves the pane, not the page
        assert browser.run("document.getElementById('v-main').scrollTop") == 0
        assert browser.errors == []


VISIBLE = """(() => {{
  const nodes = [document.querySelector('{0}'), document.getElementById('v-main')];
  const [inner, outer] = nodes.map((node) => node.getBoundingClientRect());
  return inner.height > 0 && inner.top >= outer.top && inner.bottom <= outer.bottom && inner.left >= outer.left;
}})()"""


def test_tables_never_break_a_number(tmp_path: Path) -> None:
    chromium()
    with Browser(tmp_path / "profile", width=400) as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=True)
        browser.open(write_report(finished_study(tmp_path, FOUR)).html)
        heights = browser.run(
            "[...document.querySelectorAll('tr:not(:has(.long)) > *')].map((c) => c.getBoundingClientRect().height)"
        )
        assert len(heights) > 100
        assert max(heights) < 2 * min(height for height in heights if height)


def test_report_in_a_browser(tmp_path: Path) -> None:
    chromium()
    written = write_report(finished_study(tmp_path, FOUR, episodes=8))
    with Browser(tmp_path / "profile") as browser:
        browser.open(written.html)
        assert browser.run("document.querySelectorAll('svg.chart').length") >= 12
        assert browser.run("document.querySelectorAll('article.episode').length") == 4
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.errors == []


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(
        f"document.getElementById('{name}').value = {json.dumps(value)};"
        f" document.getElementById('{name}').dispatchEvent(new Event('change'))"
    )


def test_reference_agents_are_labelled_rows_of_their_own(tmp_path: Path) -> None:
    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1)))
    assert "Reference agents" not in write_report(study).html.read_text()
    row = {"question_id": "q0", "em": 1.0, "f1": 0.5, "searches": 2, "turns": 3, "tokens": 7, "stop": "answered"}
    write_references([Reference("lexical", "one <b>search</b>", (row, {**row, "em": 0.0}) * 32)], study)
    text = write_report(study).html.read_text()
    section = text[text.index("Reference agents") :]
    # EM 1/2 over 64 questions; half width 1.96·√(0.25/63) = 0.1235
    for cell in ("lexical", "one &lt;b&gt;search&lt;/b&gt;", "50.0", "12.3", "2.00", "3.00", "7.00"):
        assert cell in section
    write_references([Reference("lexical", "", (row,))], study)  # too few questions for an interval
    assert "<td>100.0</td><td>–</td><td>50.0</td>" in write_report(study).html.read_text()
