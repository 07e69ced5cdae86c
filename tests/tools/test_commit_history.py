"""What past commits say about which files belong together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from travois.tools.commit_history import score_co_changes, score_recent_changes

PATHS = st.sampled_from(["a.py", "b.py", "c.py", "d.py"])
COMMITS = st.lists(st.lists(PATHS, min_size=1, max_size=4, unique=True), max_size=12)


def test_what_changed_later_and_oftener_is_more_recent() -> None:
    scores = score_recent_changes([["old.py"], ["often.py"], ["often.py"], ["last.py"]])
    assert sorted(scores, key=lambda path: -scores[path]) == ["often.py", "last.py", "old.py"]


def test_a_change_of_long_ago_does_not_count() -> None:
    assert "old.py" not in score_recent_changes([["old.py"], *[["new.py"]] * 200])


def test_companions_count_by_how_often_they_came_along() -> None:
    commits = [["a.py", "test_a.py"], ["a.py", "test_a.py"], ["a.py", "notes.md"], ["b.py"]]
    scores = score_co_changes(commits, {"a.py": 1.0})
    assert scores["test_a.py"] > scores["notes.md"] > 0
    assert scores.keys() == {"test_a.py", "notes.md"}


@given(COMMITS)
def test_a_companion_never_counts_more_than_the_file_that_it_came_with(
    commits: list[list[str]],
) -> None:
    scores = score_co_changes(commits, {"a.py": 2.0})
    assert all(0 < score < 2.0 for score in scores.values())
