import pytest

from federation.runs import MAX_INDEX, InvalidRuns, Runs, format_array, parse_array, parse_runs


@pytest.mark.parametrize(
    "text, runs",
    [("0-99", ((0, 99),)), ("7", ((7, 7),)), ("1-10,20,30-40:5", ((1, 10), (20, 20), (30, 30),
     (35, 35), (40, 40))), ("5,3,4", ((3, 5),)), ("0-9,5-20", ((0, 20),)),
     ("0-999999", ((0, 999_999),)), (" 1 , 2 ", ((1, 2),)), (f"{MAX_INDEX}", ((MAX_INDEX,) * 2,))],
)  # fmt: skip
def test_expressions_become_sorted_disjoint_runs(text, runs):
    assert parse_runs(text).runs == runs


@pytest.mark.parametrize(
    "text, rule",
    [("", "not an index"), ("a", "not an index"), ("5-3", "backwards"), ("1-5:0", "step of 0"),
     ("0-1000000", "1000000 tasks"), (f"{MAX_INDEX + 1}", "at most"), ("-1", "not an index"),
     ("0-999999:2", "separate ranges"), ("1,,2", "not an index"), (5, "text"), (None, "text"),
     pytest.param("1," * 20_000 + "1", "separate ranges", id="long"), ("١", "not an index")],
)  # fmt: skip
def test_other_expressions_are_refused_naming_the_rule(text, rule):
    with pytest.raises(InvalidRuns) as caught:
        parse_runs(text)
    assert rule in caught.value.rule
    assert len(str(caught.value)) < 300


def test_the_limit_after_a_percent_sign():
    assert parse_array("0-99%10") == (Runs(((0, 99),)), 10)
    assert parse_array("0-99") == (Runs(((0, 99),)), None)
    assert format_array(*parse_array("3,1-2%5")) == "1-3%5"


@pytest.mark.parametrize("text", ["0-9%", "0-9%0", "0-9%-1", "0-9%x", "%5", "0-9%1%2", 10])
def test_a_limit_that_is_none_is_refused(text):
    with pytest.raises(InvalidRuns):
        parse_array(text)


@pytest.mark.parametrize(
    "runs", [((3, 1),), ((0, 5), (5, 9)), ((0, 5), (6, 9)), ((5, 6), (0, 1)), ((-1, 3),)]
)
def test_runs_cannot_be_built_unsorted_touching_or_negative(runs):
    with pytest.raises(InvalidRuns):
        Runs(runs)


def test_a_million_tasks_are_handled_as_a_few_runs():
    whole = parse_runs("0-999999")
    done = Runs.of((start, start + 499) for start in range(0, 1_000_000, 1_000))
    left = whole.difference(done)
    assert left.count == 500_000
    assert len(left.runs) == 1_000
    head, rest = left.take(750)
    assert head.runs == ((500, 999), (1_500, 1_749))
    assert head.count + rest.count == left.count
    assert left.union(done) == whole
    assert not left.intersection(done)


def test_taking_nothing_or_everything():
    runs = parse_runs("1-3,7")
    assert runs.take(0) == (Runs(), runs)
    assert runs.take(4) == (runs, Runs())
    assert runs.take(99) == (runs, Runs())
    assert runs.take(3) == (parse_runs("1-3"), parse_runs("7"))
