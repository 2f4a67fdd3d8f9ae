"""One attempt at a delivery: its handler runs, and every exception leads to a retry, a dead letter
or another worker, never to silence."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable

import structlog

from loopline.bus import scripts
from loopline.bus.connection import is_outage, retry_during_outage
from loopline.bus.dead_letters import add_dead_letter
from loopline.bus.delivery import Delivery
from loopline.bus.errors import (
    BusUnavailable,
    LeaseLost,
    MessageTooLarge,
    NoRoom,
    NotDelivered,
    OtherVersion,
    Reject,
    Retry,
    RunEnded,
)
from loopline.bus.unfinished import hand_back, return_uncounted, schedule_retry, wait_for_room

log = structlog.get_logger("loopline.bus.consumer")

Handler = Callable[[Delivery], Awaitable[None]]


async def earlier_failures(delivery: Delivery) -> int | None:
    """Earlier failures of this message, in retries and in attempts that never finished; None if
    another worker has it."""
    lease, before = delivery.lease, 0
    if lease.count > 1:
        keys = [lease.stream, delivery.shard.begun(delivery.stream)]
        args: list[scripts.Value] = [lease.group, lease.entry, lease.consumer, lease.count]
        before = await retry_during_outage(
            "begin", lambda: scripts.call(delivery.bus.redis, "begin", keys, args)
        )
    return None if before < 0 else delivery.envelope.attempt + before


async def attempt(delivery: Delivery, handler: Handler, body: bytes, failures: int) -> None:
    """Run the handler of a delivery, and settle the message if the handler did not. `failures`:
    earlier ones, as `earlier_failures` counts them."""
    try:
        await _run(handler, delivery)
    except NotDelivered as error:
        log.debug("early start discarded", run_id=delivery.envelope.run_id, error=str(error))
    except LeaseLost as error:
        delivery.bus.observer.lease_lost(delivery.stream)
        log.warning("lease lost", error=str(error))
        await return_uncounted(delivery)
    except RunEnded:
        # The sweeper ends a run whose deadline has passed; nothing is left to do for this
        # message.
        await delivery.drop()
    except OtherVersion as error:
        again = delivery.envelope.model_copy(update={"attempt": failures})
        await hand_back(
            delivery.bus, delivery.shard, delivery.stream, delivery.lease, again, body, str(error)
        )
    except (Reject, MessageTooLarge) as error:
        await add_dead_letter(
            delivery.bus, delivery.shard, delivery.stream, delivery.lease, body, str(error),
            envelope=delivery.envelope,
        )  # fmt: skip
    except NoRoom as error:
        await wait_for_room(delivery, error, failures)
    except Retry as error:
        count = failures + error.counted
        await schedule_retry(delivery, body, str(error), "", error.delay, count)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is the message's fate
        if isinstance(error, BusUnavailable) or is_outage(error):
            # Not the message's fault: the attempt does not count. A handler's own OSError does
            # count, or a missing file would be retried until the run's deadline.
            await schedule_retry(delivery, body, str(error), "", None, failures)
            return
        log.error("handler failed", error=str(error), kind=type(error).__name__)
        reason = f"{type(error).__name__}: {error}"
        await schedule_retry(delivery, body, reason, traceback.format_exc(), None, failures + 1)


async def _run(handler: Handler, delivery: Delivery) -> None:
    observer, begun = delivery.bus.observer, time.monotonic()
    observer.begun(delivery.stream, max(0.0, delivery.bus.clock.now() - delivery.published))
    try:
        await handler(delivery)
    except NotDelivered:
        raise
    except Exception:
        await delivery.held()  # the outcome goes to the stream: the lease must be held
        raise
    finally:
        observer.handled(delivery.stream, time.monotonic() - begun)
