"""What Prefect does by itself: ends runs whose node was lost, starts them once more, and tells of trouble."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from flows.names import TAG
from flows.pulse import FAILURE_RATE, STALLED

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from infra.settings import Settings

_SILENT_S = 90
# From a worker's taking a run to its first line of Python: a process needs seconds, a pod may wait for a node, for as
# long as infra/kubernetes lets it (pod_watch_timeout_seconds).
_PROCESS_BEGINS_S = 120
_POD_BEGINS_S = 3600
# For as long a run that crashed is started again no second time, also where it never begins and is not counted.
_ONCE_WITHIN = timedelta(days=7)
_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDED = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
_TAKEN = {f"prefect.flow-run.{state}" for state in ("Pending", "Submitting", "InfrastructurePending")}
_BEGUN = {f"prefect.flow-run.{state}" for state in ("Running", "Cancelling", "Scheduled", "AwaitingRetry")}
_RUN = {"prefect.resource.id": "prefect.flow-run.*"}
_OURS = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
# All but `watch`: it looks every minute, and would tell every minute that the store is away.
_TOLD_OF = {
    "prefect.resource.role": "flow",
    "prefect.resource.name": ["classify", "backfill", "evaluate", "extract", "infer", "maintain"],
}
_DEPLOYED = {"prefect.resource.role": "deployment", "prefect.resource.id": "prefect.deployment.*"}
_BLOCK = "reelabel"
_NOTIFYING = ("reelabel: tell of runs in trouble", "reelabel: tell of failed runs")


def set_automations(client: SyncPrefectClient, settings: Settings) -> list[str]:
    """Create or update the automations; gives their names. Without an address, those that tell of trouble go."""
    is_local = all(pool.type == "process" for pool in client.read_work_pools())
    begins_s = _PROCESS_BEGINS_S if is_local else _POD_BEGINS_S
    wanted = [_end_silent_runs(), _end_runs_not_begun(begins_s), _start_again()]
    if settings.notify.webhook_url:
        wanted += _notifications(_save_block(settings.notify.webhook_url.get_secret_value()))
    for name in {*_NOTIFYING} - {automation.name for automation in wanted}:
        for existing in client.read_automations_by_name(name):
            client.delete_automation(existing.id)
    for automation in wanted:
        existing_ones = client.read_automations_by_name(automation.name)
        if existing_ones:
            client.update_automation(existing_ones[0].id, automation)
        else:
            client.create_automation(automation)
    return [automation.name for automation in wanted]


def _end_silent_runs() -> AutomationCore:
    """End a flow run that beats no more: it would hold its place in the queue for ever."""
    return AutomationCore(
        name="reelabel: end lost runs",
        description=f"A run that gives no sign of life for {_SILENT_S} seconds has lost its node.",
        trigger=_missing({_HEARTBEAT, *_ENDED}, after={_HEARTBEAT}, within_s=_SILENT_S),
        actions=[_crashed(f"No sign of life for {_SILENT_S} seconds: its node was lost.")],
    )


def _end_runs_not_begun(within_s: int) -> AutomationCore:
    """End a flow run that a worker took and that never began, for its node was lost before its first heartbeat."""
    return AutomationCore(
        name="reelabel: end runs that never began",
        description=f"A run that a worker took, and that has not begun within {within_s} seconds, has lost its node.",
        trigger=_missing({*_BEGUN, *_ENDED}, after=_TAKEN, within_s=within_s),
        actions=[_crashed(f"Taken by a worker, and not begun within {within_s} seconds: its node was lost.")],
    )


def _missing(events: set[str], *, after: set[str], within_s: int) -> EventTrigger:
    """Fire for each run of ours that shows none of some events in time after others."""
    return EventTrigger(
        match=_RUN,
        match_related=_OURS,
        after=after,
        expect=events,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=within_s),
    )


def _crashed(message: str) -> ChangeFlowRunState:
    return ChangeFlowRunState(state=StateType.CRASHED, message=message)


def _start_again() -> AutomationCore:
    """Start a crashed flow run again, under its id and with its date, unless this was its second time."""
    return AutomationCore(
        name="reelabel: start lost runs again",
        description="A run that crashed the first time goes on where it was; the second time it stays as it is.",
        trigger=EventTrigger(
            match=_RUN | {"prefect.run-count": ["0", "1"]},
            match_related=[_OURS, _DEPLOYED],
            expect={"prefect.flow-run.Crashed"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=_ONCE_WITHIN,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message="It crashed; it is started again, once.",
            )
        ],
    )


def _notifications(block_id: UUID) -> list[AutomationCore]:
    trouble, failed = _NOTIFYING
    return [
        AutomationCore(
            name=trouble,
            description="Many of a run's jobs fail, or none has ended for long; see the settings notify.*.",
            trigger=EventTrigger(expect={FAILURE_RATE, STALLED}, posture=Posture.Reactive, threshold=1),
            actions=[
                SendNotification(block_document_id=block_id, subject="Reelabel", body="{{ event.payload.message }}")
            ],
        ),
        AutomationCore(
            name=failed,
            description="A run failed, or crashed.",
            trigger=EventTrigger(
                match=_RUN,
                match_related=[_OURS, _TOLD_OF],
                expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
                posture=Posture.Reactive,
                threshold=1,
            ),
            actions=[
                SendNotification(
                    block_document_id=block_id,
                    subject="Reelabel",
                    body="{{ flow_run.name }} {{ flow_run.state.name }}: {{ flow_run.state.message }}",
                )
            ],
        ),
    ]


def _save_block(url: str) -> UUID:
    """Keep the address as a secret of the block: it may hold a token."""
    block = CustomWebhookNotificationBlock(
        name=_BLOCK,
        url="{{url}}",
        json_data={"text": "{{subject}}: {{body}}"},
        secrets={"url": url},
    )
    saved: Any = block.save(_BLOCK, overwrite=True)  # a coroutine only in async code
    return UUID(str(saved))
