"""Every Redis name of the routing side that is not part of a feed.

======================================  ===========================================
``sluice:snapshot#body``                the last published snapshot, JSON
``sluice:snapshot#revision``            its ``<epoch>:<revision>``, written after it
``sluice:snapshot#notices``             pub/sub: a new revision was written
``sluice:gateway:<id>``                 JSON ``GatewayRecord``, expires
``sluice:gateway:<id>#metrics``         its figures, for whichever gateway is asked
``sluice:gateway:<id>#inflight``        its open requests (``cluster.health.inflight``)
``sluice:gateway:<id>#draws``           its draws (``contracts.draws``), expires
``sluice:gateways``                     sorted set of gateway ids by last renewal
``sluice:gateways#last``                hash gateway id → its record as the control
                                        plane saw it last (``services.sources``)
``sluice:acks:<epoch>:<revision>``      hash gateway id → Unix time of application
``sluice:acks#notices``                 pub/sub: a gateway applied a revision
``sluice:outcomes``                     stream of batches of outcomes, bounded
``sluice:outcomes#bytes``               how many bytes of lines it holds
``sluice:outcomes#epoch``               a random mark, set by whoever finds none: a
                                        change means that Redis lost its data
``sluice:outcomes#acks``                hash gateway id → last outcome in the database
``sluice:counts:<id>``                  a gateway's counts (``contracts.counts``)
``sluice:counts#gateways``              set of gateway ids that have such counts
``sluice:counts#acks``                  hash gateway id → last write in the database
``sluice:ingest#trouble``               why the database did not take what was read
======================================  ===========================================
"""

from __future__ import annotations

SNAPSHOT_BODY = "sluice:snapshot#body"
SNAPSHOT_REVISION = "sluice:snapshot#revision"
SNAPSHOT_NOTICES = "sluice:snapshot#notices"
GATEWAYS = "sluice:gateways"
GATEWAYS_LAST = "sluice:gateways#last"
ACK_NOTICES = "sluice:acks#notices"
OUTCOMES = "sluice:outcomes"
OUTCOMES_BYTES = "sluice:outcomes#bytes"
OUTCOMES_EPOCH = "sluice:outcomes#epoch"
OUTCOMES_ACKS = "sluice:outcomes#acks"
COUNTS_GATEWAYS = "sluice:counts#gateways"
COUNTS_ACKS = "sluice:counts#acks"
INGEST_TROUBLE = "sluice:ingest#trouble"

# A gateway that has not renewed its record for this long counts as gone.
GATEWAY_LEASE_S = 5
ACKS_KEPT_S = 7 * 86_400


def gateway(gateway_id: str) -> str:
    return f"sluice:gateway:{gateway_id}"


def gateway_metrics(gateway_id: str) -> str:
    return f"sluice:gateway:{gateway_id}#metrics"


def gateway_draws(gateway_id: str) -> str:
    return f"sluice:gateway:{gateway_id}#draws"


def acks(epoch: int, revision: int) -> str:
    return f"sluice:acks:{epoch}:{revision}"


def counts(gateway_id: str) -> str:
    return f"sluice:counts:{gateway_id}"
