"""Every strategy on 1, 2, 3 and 50 replicas, with the randomness of the test."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from routing.balance.candidates import Candidates
from routing.balance.consistent_hash import LOAD_FACTOR, consistent_hash
from routing.balance.hashing import MASK, chain_of, hash_of, mixed
from routing.balance.least_inflight import least_inflight
from routing.balance.picked import Choose, Picked
from routing.balance.power_of_two import power_of_two
from routing.balance.prefix_affinity import prefix_affinity
from routing.balance.prefixes import BLOCKS, TTL_S, Prefixes
from routing.balance.queue_aware import STALE_S, queue_aware
from routing.balance.round_robin import round_robin
from routing.balance.router import Replica
from routing.balance.state import ReplicaState, Scrape, Standing
from routing.balance.strategies import STRATEGIES
from routing.contracts.outcome import Why
from routing.contracts.route import RouteSettings, Strategy
from tests.balance.test_candidates import route_of

COUNTS = (1, 2, 3, 50)


def replicas_of(count: int) -> list[Replica]:
    found = []
    for number in range(count):
        state = ReplicaState(f"m-v1-{number}")
        state.standing = Standing.ELIGIBLE
        found.append(Replica(state.id, "http://x:1", state))
    return found


def picks(
    strategy: Choose, replicas: list[Replica], n: int, now: float = 0.0
) -> Counter[str]:
    """How often each is chosen by ``n`` requests, none of which stays open."""
    rng = random.Random(n)
    return Counter(
        strategy(replicas, rng, now, (hash_of(b"%d" % number),)).replica.id
        for number in range(n)
    )


def test_every_strategy_there_is_has_a_function() -> None:
    assert STRATEGIES.keys() == set(Strategy)


@pytest.mark.parametrize("strategy", STRATEGIES.values())
@pytest.mark.parametrize("count", COUNTS)
def test_equal_replicas_get_equal_parts(strategy: Choose, count: int) -> None:
    each = 400
    found = picks(strategy, replicas_of(count), each * count)
    assert len(found) == count
    # Six standard deviations of a binomial count.
    assert all(abs(n - each) <= 6 * each**0.5 for n in found.values())


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_the_only_replica_is_taken_whatever_it_has_to_do(
    strategy: Choose,
) -> None:
    (alone,) = replicas_of(1)
    alone.state.in_flight = 100
    assert strategy([alone], random.Random(1), 0.0, (7,)) == Picked(alone, Why.ONLY)


@pytest.mark.parametrize("strategy", STRATEGIES.values())
@pytest.mark.parametrize("count", [2, 3, 50])
def test_a_slow_start_gets_less_than_its_part(strategy: Choose, count: int) -> None:
    """Where requests stay open for a while: of those before it."""
    replicas = replicas_of(count)
    fresh = replicas[0]
    fresh.state.slow_since = 100.0
    rng = random.Random(5)
    opened: list[Replica] = []
    found: Counter[str] = Counter()
    for number in range(200 * count):
        chosen = strategy(replicas, rng, 103.0, (hash_of(b"%d" % number),)).replica
        found[chosen.id] += 1
        chosen.state.in_flight += 1
        opened.append(chosen)
        if len(opened) > 10 * count:
            opened.pop(0).state.in_flight -= 1
    assert 0 < found[fresh.id] < 100


# One after another -----------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 50])
def test_every_replica_has_had_its_turn_before_one_has_its_second(count: int) -> None:
    replicas = replicas_of(count)
    rng = random.Random(1)
    for _round in range(3):
        chosen = [round_robin(replicas, rng, 0.0) for _ in range(count)]
        assert {one.replica.id for one in chosen} == {r.id for r in replicas}
        assert {one.why for one in chosen} == {Why.TURN}


def test_replicas_that_come_and_go_disturb_nobodys_turn() -> None:
    replicas = replicas_of(4)
    rng = random.Random(1)
    first = [round_robin(replicas, rng, 0.0).replica for _ in range(2)]
    # One that had its turn goes, and one that had not; the rest goes on.
    rest = [r for r in replicas if r not in (first[0], replicas[3])]
    assert round_robin(rest, rng, 0.0).replica is replicas[2]
    assert round_robin(replicas, rng, 0.0).replica is replicas[3]
    assert round_robin(replicas, rng, 0.0).replica is first[0]


# The least of all --------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 50])
def test_the_least_busy_of_all_is_taken_and_the_next_one_named(count: int) -> None:
    replicas = replicas_of(count)
    for number, replica in enumerate(replicas):
        replica.state.in_flight = number + 1
    chosen = least_inflight(replicas, random.Random(2), 0.0)
    assert chosen == Picked(replicas[0], Why.LEAST, 2, replicas[1], 3)


def test_fresh_failures_make_a_replica_dearer_not_cheaper() -> None:
    failing, busy = replicas_of(2)
    busy.state.in_flight = 1
    failing.state.breaker.bad(10.0)
    failing.state.breaker.bad(10.1)
    for strategy in (least_inflight, power_of_two):
        chosen = strategy([failing, busy], random.Random(3), 10.2)
        assert chosen.replica is busy


# By what the engines say -------------------------------------------------------------


def scraped(*scrapes: Scrape | None) -> list[Replica]:
    replicas = replicas_of(len(scrapes))
    for replica, scrape in zip(replicas, scrapes, strict=True):
        replica.state.scrape = scrape
    return replicas


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Scrape(0.0, running=4), Scrape(0.0, running=5)),
        (Scrape(0.0, running=4), Scrape(0.0, running=4, waiting=1)),
        (Scrape(0.0, running=4, kv_cache=0.5), Scrape(0.0, running=4, kv_cache=0.6)),
        (Scrape(0.0, running=8), Scrape(0.0, running=4, kv_cache=0.9)),
        (Scrape(0.0, waiting=500, kv_cache=1.0), None),
        (Scrape(0.0, running=9), Scrape(-STALE_S)),
    ],
    ids=["running", "waiting", "cache", "cache over count", "unknown", "stale"],
)
def test_the_engine_with_more_room_is_taken(
    one: Scrape | None, other: Scrape | None
) -> None:
    roomy, full = scraped(one, other)
    for seed in range(10):
        for pair in ([roomy, full], [full, roomy]):
            chosen = queue_aware(pair, random.Random(seed), 1.0)
            assert (chosen.replica, chosen.why) == (roomy, Why.LOWER_PRESSURE)


def test_own_requests_count_where_the_engine_does_not_know_them_yet() -> None:
    one, other = scraped(Scrape(0.0, running=2), Scrape(0.0, running=3))
    one.state.in_flight = 9
    assert queue_aware([one, other], random.Random(1), 1.0).replica is other


# By a hash -------------------------------------------------------------------------


def stays(replicas: list[Replica], keys: int) -> dict[int, str]:
    rng = random.Random(0)
    return {
        key: consistent_hash(replicas, rng, 0.0, (hash_of(b"%d" % key),)).replica.id
        for key in range(keys)
    }


@pytest.mark.parametrize("count", [2, 3, 50])
def test_the_same_hash_leads_to_the_same_replica_in_any_order(count: int) -> None:
    replicas = replicas_of(count)
    assert stays(replicas, 500) == stays(replicas[::-1], 500)


@pytest.mark.parametrize("count", [3, 50])
def test_who_goes_takes_only_its_own_and_who_comes_takes_an_even_part(
    count: int,
) -> None:
    replicas = replicas_of(count)
    before = stays(replicas, 2000)
    gone = replicas[1]
    after = stays([r for r in replicas if r is not gone], 2000)
    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key, where in before.items() if where == gone.id}
    assert abs(len(moved) - 2000 / count) < 6 * (2000 / count) ** 0.5


@pytest.mark.parametrize("count", [2, 3, 50])
def test_what_is_too_much_for_one_goes_to_the_next_in_its_order(count: int) -> None:
    replicas = replicas_of(count)
    rng, key = random.Random(1), (hash_of(b"everybody"),)
    found = []
    for _request in range(20 * count):
        chosen = consistent_hash(replicas, rng, 0.0, key)
        found.append(chosen)
        chosen.replica.state.in_flight += 1
        in_flight = sum(replica.state.in_flight for replica in replicas)
        most = LOAD_FACTOR * in_flight / count
        assert chosen.replica.state.in_flight <= max(1, most + 1)
    assert found[0].why is Why.HASH
    assert {one.why for one in found} == {Why.HASH, Why.OVERFLOW}
    # The order is the request's own: the second one is where it goes without the first.
    for replica in replicas:
        replica.state.in_flight = 0
    rest = [r for r in replicas if r is not found[0].replica]
    second = next(one for one in found if one.replica is not found[0].replica)
    assert second.replica is consistent_hash(rest, rng, 0.0, key).replica


def test_without_a_hash_requests_are_spread() -> None:
    replicas, rng = replicas_of(3), random.Random(6)
    found = Counter(consistent_hash(replicas, rng, 0.0).replica.id for _ in range(900))
    assert all(abs(n - 300) < 6 * 300**0.5 for n in found.values())


def test_one_bit_more_or_less_moves_about_half_of_the_bits() -> None:
    rng = random.Random(7)
    flips = [
        (mixed(value) ^ mixed(value ^ (1 << rng.randrange(64)))).bit_count()
        for value in (rng.getrandbits(64) for _ in range(2000))
    ]
    assert 31 < sum(flips) / len(flips) < 33
    assert hash_of(b"a") <= MASK and hash_of(b"a") != hash_of(b"b")


# By the beginning of the prompt ----------------------------------------------------


def chain(text: str) -> tuple[int, ...]:
    """Blocks of a letter each."""
    return chain_of(text.encode(), block=1)


def test_prompts_that_begin_alike_have_the_first_hashes_in_common() -> None:
    one, other = chain("abcd"), chain("abxd")
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])
    assert chain_of(b"x" * 511) == () and len(chain_of(b"x" * 1500)) == 2
    assert len(chain_of(b"x" * 1_000_000)) == 64


@pytest.mark.parametrize("count", [2, 3, 50])
def test_a_conversation_goes_on_where_it_began(count: int) -> None:
    replicas, rng = replicas_of(count), random.Random(1)
    for number in range(100):
        text = f"{number:03}"
        where = prefix_affinity(replicas, rng, 0.0, chain(text)).replica
        for turn in range(1, 4):
            text += f"{turn}" * 3
            again = prefix_affinity(replicas, rng, float(turn), chain(text))
            assert again == Picked(where, Why.PREFIX)


def test_the_longest_beginning_wins_and_of_equal_ones_the_less_busy() -> None:
    replicas, rng = replicas_of(3), random.Random(1)
    replicas[0].state.prefixes.add(chain("ab"), 0.0)
    replicas[1].state.prefixes.add(chain("abc"), 0.0)
    assert prefix_affinity(replicas, rng, 1.0, chain("abcd")).replica is replicas[1]
    replicas[0].state.prefixes.add(chain("abcd"), 1.0)
    replicas[0].state.in_flight = 1
    replicas[2].state.in_flight = 2
    assert prefix_affinity(replicas, rng, 1.0, chain("abcd")).replica is replicas[1]


def test_what_is_too_busy_or_long_ago_does_not_count() -> None:
    replicas, rng = replicas_of(3), random.Random(1)
    replicas[0].state.prefixes.add(chain("abc"), 0.0)
    replicas[0].state.in_flight = 9
    chosen = prefix_affinity(replicas, rng, 1.0, chain("abc"))
    assert chosen.replica is not replicas[0]
    replicas[0].state.in_flight = 0
    assert replicas[0].state.prefixes.length(chain("abc"), TTL_S - 1) == 3
    assert replicas[0].state.prefixes.length(chain("abc"), TTL_S) == 0
    replicas[0].state.prefixes.add(chain("abc"), 0.0)
    replicas[0].state.prefixes.clear()
    assert replicas[0].state.prefixes.length(chain("abc"), 0.0) == 0


def test_the_memory_of_a_replica_is_bounded_and_keeps_the_latest() -> None:
    prefixes = Prefixes()
    for number in range(BLOCKS + 10):
        prefixes.add((number,), 0.0)
        prefixes.add((0,), 0.0)
    assert prefixes.length((0,), 0.0) == 1
    assert prefixes.length((5,), 0.0) == 0
    assert prefixes.length((BLOCKS + 9,), 0.0) == 1


def test_a_prompt_without_a_whole_block_goes_by_load() -> None:
    busy, free = replicas_of(2)
    busy.state.in_flight = 3
    chosen = prefix_affinity([busy, free], random.Random(1), 0.0)
    assert (chosen.replica, chosen.why) == (free, Why.LOWER_COST)


# In a route --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_a_retry_goes_to_another_replica_under_every_strategy(
    strategy: Strategy,
) -> None:
    route = route_of({"v1": (10_000, 3)}, settings=RouteSettings(strategy=strategy))
    candidates = Candidates(route, random.Random(8), affinity=(hash_of(b"x"),))
    tried = [candidates.next(now=100.0) for _ in range(3)]
    assert len({one.replica.id for one in tried if one}) == 3
    assert candidates.next(now=100.0) is None
