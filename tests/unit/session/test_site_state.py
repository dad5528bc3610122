"""What the site's people decided lies in one file that survives everything."""

import pytest

from regional_agent import site_state as st


def test_a_decision_is_read_back_as_it_was_written(tmp_path):
    def decide(before):
        drained = st.draining(before, 5, 900, 60, "move")
        one = st.evicting(drained, 6, ("j1-1",), 30, "")
        return st.banned(one, 7, "eve", "mining")

    written = st.change_site_state(tmp_path, decide)
    assert st.read_site_state(tmp_path) == written
    assert written.state == "draining" and written.deadline_ms == 900
    assert written.evictions["j1-1"].grace_s == 30 and "eve" in written.bans
    assert (tmp_path / st.FILE).stat().st_mode & 0o777 == 0o600


def test_resume_opens_and_keeps_bans(tmp_path):
    st.change_site_state(tmp_path, lambda s: st.banned(s, 1, "eve", ""))
    st.change_site_state(tmp_path, lambda s: st.evicting(s, 2, (), 60, "fire"))
    closed = st.read_site_state(tmp_path)
    assert closed.everything_goes(3) and closed.text == "fire, everything is evicted"
    opened = st.change_site_state(tmp_path, lambda s: st.resumed(s, 3))
    assert (opened.state, opened.evict_all, list(opened.bans)) == ("open", False, ["eve"])
    with pytest.raises(KeyError):
        st.unbanned(opened, "bob")


def test_lesson_49_a_drain_has_a_deadline_after_which_everything_goes():
    drained = st.draining(st.SiteState(), 5, 900, 60, "")
    assert not drained.everything_goes(899) and drained.everything_goes(900)


def test_a_drain_that_is_called_again_keeps_its_deadline():
    first = st.draining(st.SiteState(), 1_000, 5_000, 60, "cooling")
    again = st.draining(first, 2_000, None, None, "")
    assert again == first, "to look at what is left changes nothing"
    later = st.draining(first, 2_000, 9_000, 30, "power")
    assert (later.deadline_ms, later.grace_s, later.reason) == (9_000, 30, "power")
    usual = st.draining(st.SiteState(), 1_000, None, None, "")
    assert (usual.deadline_ms, usual.grace_s) == (1_000 + 86_400_000, 300)
    paused_before = st.draining(st.paused(first, 2_000, "x"), 3_000, None, None, "")
    assert paused_before.deadline_ms == 3_000 + 86_400_000, "a drain that is over is no drain"


def test_a_file_that_cannot_be_read_pauses_the_site(tmp_path):
    (tmp_path / st.FILE).write_text("{")
    read = st.read_site_state(tmp_path)
    assert read.state == "paused" and "cannot be read" in read.reason
    assert st.change_site_state(tmp_path, lambda s: st.resumed(s, 1)).state == "open"
