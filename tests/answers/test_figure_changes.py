from advisor.answers.figure_changes import change, module_changes
from advisor.records.answer import Group


def group(name: str, *, flops: float, moved: float = 0.0) -> Group:
    return Group(name=name, flops=flops, read_bytes=moved, write_bytes=0.0, op_count=1, flops_ratio=0.0)


def test_a_figure_that_was_nothing_has_no_ratio() -> None:
    assert change("flops", 0.0, 5.0).ratio is None
    assert change("flops", 4.0, 5.0).ratio == 1.25


def test_modules_come_with_the_largest_change_first_and_unchanged_ones_not_at_all() -> None:
    before = [
        group("same", flops=7),
        group("grown", flops=10),
        group("gone", flops=3),
        group("moves", flops=1, moved=5),
    ]
    after = [group("same", flops=7), group("grown", flops=30), group("new", flops=4), group("moves", flops=1, moved=9)]
    # FLOP: grown +20, new +4, gone -3, moves 0 but 4 bytes more.
    changes = module_changes(before, after)
    assert [one.name for one in changes] == ["grown", "new", "gone", "moves"]
    assert (changes[0].flops.ratio, changes[1].flops.ratio, changes[2].flops.after) == (3.0, None, 0.0)
    assert changes[3].moved_bytes.ratio == 1.8
