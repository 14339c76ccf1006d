from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream.runtime.kafka.commit_order import Entry
from tests.worker.fakes import Book, inbound


def test_a_partition_is_acked_only_up_to_its_first_unfinished_decision() -> None:
    """Given three decisions of which the first is unfinished, when the others finish, then nothing is acked until it does."""
    book = Book()
    order = book.order()
    first, second, third = (order.add(inbound(offset)) for offset in range(3))
    assert order.settle([second, third], generation=1) == 0
    assert book.acked == []
    assert order.settle([first], generation=1) == 3
    assert book.committed() == [0, 1, 2]


def test_partitions_do_not_wait_for_each_other() -> None:
    """Given an unfinished decision on one partition, when another partition's finish, then those are acked."""
    book = Book()
    order = book.order()
    order.add(inbound(0, partition=0))
    other = order.add(inbound(7, partition=1))
    order.settle([other], generation=1)
    assert book.acked == [(1, 7)]


def test_nothing_of_another_generation_is_acked() -> None:
    """Given a decision read before a rebalance, when it finishes after it, then it is let go of and not acked."""
    book = Book()
    order = book.order()
    entry = order.add(inbound(3, generation=1))
    assert order.settle([entry], generation=2) == 0
    assert (book.acked, book.released) == ([], [(0, 3)])


def test_a_partition_that_is_read_again_starts_anew() -> None:
    """Given unfinished decisions of an older generation, when their partition is read again, then the old ones are let go of and finish without effect."""
    book = Book()
    order = book.order()
    old = [order.add(inbound(offset, generation=1)) for offset in (5, 6)]
    new = order.add(inbound(5, generation=2))
    assert book.released == [(0, 5), (0, 6)]
    assert all(entry.released for entry in old)
    order.settle([*old, new], generation=2)
    assert book.committed() == [5]


def test_letting_go_acks_nothing_later() -> None:
    """Given decisions that were let go of, when they finish all the same, then none is acked."""
    book = Book()
    order = book.order()
    entries = [order.add(inbound(offset)) for offset in range(3)]
    assert order.release_all() == 3
    assert order.settle(entries, generation=1) == 0
    assert (book.acked, len(order)) == ([], 0)


@given(
    count=st.integers(1, 30),
    partitions=st.integers(1, 3),
    data=st.data(),
)
def test_acks_are_in_order_and_never_pass_an_unfinished_decision(
    count: int, partitions: int, data: st.DataObject
) -> None:
    """Given decisions that finish in any order and any batches, when they are settled, then each partition's acks are its offsets in order, and all before an acked one are finished."""
    book = Book()
    order = book.order()
    entries: list[Entry] = [order.add(inbound(n // partitions, partition=n % partitions)) for n in range(count)]
    shuffled = data.draw(st.permutations(entries))
    finished: set[tuple[int, int]] = set()
    while shuffled:
        size = data.draw(st.integers(1, len(shuffled)))
        batch, shuffled = shuffled[:size], shuffled[size:]
        finished |= {(entry.record.partition, entry.record.offset) for entry in batch}
        order.settle(batch, generation=1)
        for partition in range(partitions):
            acked = book.committed(partition)
            assert acked == list(range(len(acked)))
            assert {(partition, offset) for offset in acked} <= finished
    assert len(book.acked) == count
    assert len(order) == 0


def test_a_partition_made_anew_is_let_go_of_alone() -> None:
    """Given decisions of two partitions of which one was made anew, when it is let go of and they finish, then none of its own is acked, for their offsets mean others now, and the other partition's are."""
    book = Book()
    order = book.order()
    entries = [order.add(inbound(7, partition=partition)) for partition in (0, 1)]
    order.release_partition(entries[0].record.topic, 0)
    order.release_partition(entries[0].record.topic, 5)
    assert order.settle(entries, generation=1) == 1
    assert (book.acked, book.released) == ([(1, 7)], [(0, 7)])
