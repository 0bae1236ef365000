"""For migrations that bring a new event: who was told of everything before is told of it too."""

from collections.abc import Callable, Sequence
from typing import Any

Step = Callable[[Any, Any], None]


def for_who_hears(everything: Sequence[str], event: str) -> tuple[Step, Step]:
    """What `RunPython` takes, forward and back. ``everything`` are the events there were."""

    def tell(apps: Any, schema_editor: Any) -> None:
        for channel in apps.get_model("notify", "Channel").objects.filter(events__contains=everything):
            channel.events = [*channel.events, event]
            channel.save(update_fields=["events"])

    def untell(apps: Any, schema_editor: Any) -> None:
        for channel in apps.get_model("notify", "Channel").objects.filter(events__contains=[event]):
            channel.events = [each for each in channel.events if each != event]
            channel.save(update_fields=["events"])

    return tell, untell
