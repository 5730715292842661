"""Prefect automations: end runs whose node was lost, restart them once, and notify."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from flows.run.heartbeat import FAILURE_RATE, STALLED
from flows.run.names import TAG

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from infra.settings import Settings

_HEARTBEAT_TIMEOUT_S = 90
# From a worker's claiming a run to its first line of Python: a process needs seconds, a pod may wait for a node as
# long as infra/kubernetes allows (pod_watch_timeout_seconds).
_PROCESS_START_S = 120
_POD_START_S = 3600
# Within this time, a crashed run is restarted only once, even if it never begins and its run count stays 0.
_RESTART_ONCE_WITHIN = timedelta(days=7)
_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDED = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
_TAKEN = {f"prefect.flow-run.{state}" for state in ("Pending", "Submitting", "InfrastructurePending")}
_BEGUN = {f"prefect.flow-run.{state}" for state in ("Running", "Cancelling", "Scheduled", "AwaitingRetry")}
_RUN = {"prefect.resource.id": "prefect.flow-run.*"}
_OURS = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
# All but `watch`: it runs every minute, and would notify every minute while the store is unavailable.
_NOTIFY_OF = {
    "prefect.resource.role": "flow",
    "prefect.resource.name": ["classify", "describe", "backfill", "evaluate", "extract", "infer", "maintain"],
}
_DEPLOYED = {"prefect.resource.role": "deployment", "prefect.resource.id": "prefect.deployment.*"}
_BLOCK = "reelabel"
_NOTIFYING = ("reelabel: notify of runs in trouble", "reelabel: notify of failed runs")


def planned_changes(client: SyncPrefectClient, settings: Settings) -> list[str]:
    """Return a line for each automation that a deploy will add or remove; it rewrites the others unchanged."""
    desired = {each.name for each in _always(client)} | ({*_NOTIFYING} if settings.notify.webhook_url else set())
    there = {name for name in (*desired, *_NOTIFYING) if client.read_automations_by_name(name)}
    changes = [(name, "new") for name in desired - there] + [(name, "removed") for name in there - desired]
    return [f"automation {name}: {change}" for name, change in sorted(changes)]


def apply_automations(client: SyncPrefectClient, settings: Settings) -> list[str]:
    """Create or update the automations; return their names. Without a webhook URL, remove the notifications."""
    desired = _always(client)
    if settings.notify.webhook_url:
        desired += _notifications(_save_block(settings.notify.webhook_url.get_secret_value()))
    for name in {*_NOTIFYING} - {automation.name for automation in desired}:
        for existing in client.read_automations_by_name(name):
            client.delete_automation(existing.id)
    for automation in desired:
        existing_ones = client.read_automations_by_name(automation.name)
        if existing_ones:
            client.update_automation(existing_ones[0].id, automation)
        else:
            client.create_automation(automation)
    return [automation.name for automation in desired]


def _always(client: SyncPrefectClient) -> list[AutomationCore]:
    is_local = all(pool.type == "process" for pool in client.read_work_pools())
    start_timeout_s = _PROCESS_START_S if is_local else _POD_START_S
    return [_end_silent_runs(), _end_unstarted_runs(start_timeout_s), _restart()]


def _end_silent_runs() -> AutomationCore:
    """End a flow run without a heartbeat: it would hold its slot in the queue forever."""
    return AutomationCore(
        name="reelabel: end lost runs",
        description=f"A run without a heartbeat for {_HEARTBEAT_TIMEOUT_S} seconds has lost its node.",
        trigger=_missing({_HEARTBEAT, *_ENDED}, after={_HEARTBEAT}, within_s=_HEARTBEAT_TIMEOUT_S),
        actions=[_crashed(f"No heartbeat for {_HEARTBEAT_TIMEOUT_S} seconds: the node was lost.")],
    )


def _end_unstarted_runs(within_s: int) -> AutomationCore:
    """End a flow run that a worker claimed but never started: its node was lost before the first heartbeat."""
    return AutomationCore(
        name="reelabel: end runs that never started",
        description=f"A run that a worker claimed but did not start within {within_s} seconds has lost its node.",
        trigger=_missing({*_BEGUN, *_ENDED}, after=_TAKEN, within_s=within_s),
        actions=[_crashed(f"Claimed by a worker, but not started within {within_s} seconds: the node was lost.")],
    )


def _missing(events: set[str], *, after: set[str], within_s: int) -> EventTrigger:
    """Fire for each of our runs that emits none of `events` within `within_s` after one of `after`."""
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


def _restart() -> AutomationCore:
    """Restart a crashed flow run, with its id and scheduled date, unless it has been restarted before."""
    return AutomationCore(
        name="reelabel: restart lost runs",
        description="A run that crashes is restarted once and resumes where it was; a second crash is final.",
        trigger=EventTrigger(
            match=_RUN | {"prefect.run-count": ["0", "1"]},
            match_related=[_OURS, _DEPLOYED],
            expect={"prefect.flow-run.Crashed"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=_RESTART_ONCE_WITHIN,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message="The run crashed and is being restarted, once.",
            )
        ],
    )


def _notifications(block_id: UUID) -> list[AutomationCore]:
    trouble, failed = _NOTIFYING
    return [
        AutomationCore(
            name=trouble,
            description="Many of a run's jobs fail, or none has ended for a long time; see the settings notify.*.",
            trigger=EventTrigger(expect={FAILURE_RATE, STALLED}, posture=Posture.Reactive, threshold=1),
            actions=[
                SendNotification(block_document_id=block_id, subject="Reelabel", body="{{ event.payload.message }}")
            ],
        ),
        AutomationCore(
            name=failed,
            description="A run failed or crashed.",
            trigger=EventTrigger(
                match=_RUN,
                match_related=[_OURS, _NOTIFY_OF],
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
    """Save the webhook URL as a secret of a Prefect block, since it may hold a token."""
    block = CustomWebhookNotificationBlock(
        name=_BLOCK,
        url="{{url}}",
        json_data={"text": "{{subject}}: {{body}}"},
        secrets={"url": url},
    )
    saved: Any = block.save(_BLOCK, overwrite=True)  # a coroutine only in async code
    return UUID(str(saved))
