"""The p5 of production requests reaches the prefill signal: the figure, the pages and the people."""

from __future__ import annotations

import pytest

from kvaudit.server.audits.models import CheckState
from kvaudit.server.inquiries.request_logs.production import production_of
from kvaudit.server.notify.models import OutboxMessage
from kvaudit.server.notify.services import create_channel
from tests.factories import a_deployment
from tests.server.inquiries.request_logs.test_importer import brought, line

pytestmark = pytest.mark.django_db


def seconds(prefill, count, tokens=700_000):
    return [line(2, tokens, prefill=prefill) for _ in range(count)]


HONEST = [*seconds("0.5", 60, 5_000), *seconds("2.0", 60, 20_000), *seconds("4.0", 60, 40_000)]
ODD = [*seconds("0.5", 60, 5_000), *seconds("2.0", 60, 20_000), *seconds("0.21", 60, 40_000)]


def test_the_newest_log_with_enough_requests_counts():
    deployment = a_deployment()
    assert production_of(deployment) is None
    log = brought(*seconds("4.0", 59), deployment=deployment)
    brought(*seconds("9.0", 58), deployment=deployment)  # too few to say anything
    brought(*seconds("1.0", 59))  # another deployment's
    found = production_of(deployment)
    assert (found.log, found.imported_at) == (log.pk, log.imported_at)
    (bucket,) = found.buckets
    assert (bucket.low, bucket.high, bucket.n) == (524_288, 1_048_576, 59)
    assert bucket.p5 == pytest.approx(4.0, rel=0.011)


def test_it_takes_one_query(django_assert_num_queries):
    deployment = a_deployment()
    brought(*ODD, deployment=deployment)
    with django_assert_num_queries(1):
        assert [odd.bucket.low for odd in production_of(deployment).odd] == [32_768]


@pytest.fixture
def channel():
    return create_channel(kind="email", name="on call", address="oncall@example.org", actor="system:tests")[0]


def test_what_is_too_fast_is_told_once_with_a_link(channel, settings):
    deployment = a_deployment()
    brought(*HONEST, deployment=deployment)
    assert not OutboxMessage.objects.exists()
    log = brought(*ODD, deployment=deployment)
    brought(*ODD, deployment=deployment)  # the same file
    message = OutboxMessage.objects.get()
    assert (message.channel, message.event) == (channel, "too_fast")
    assert message.subject == (
        f"{deployment.slug}: prompts of 32,768 to 65,535 tokens were prefilled too fast to be true"
    )
    assert message.payload["url"] == (
        f"{settings.BASE_URL}/d/{deployment.slug}/exposure/logs/{log.pk}/#prefill"
    )
    assert "while those of 16,384 to 32,767 took" in message.payload["summary"]
    assert "cached prefix" in message.payload["next"]


def test_the_same_file_of_another_deployment_is_told_too(channel):
    brought(*ODD)
    brought(*ODD)
    assert OutboxMessage.objects.count() == 2


def test_a_channel_that_does_not_hear_of_it_is_not_told():
    create_channel(kind="email", name="fails", address="a@example.org", events=["fail"], actor="system:tests")
    brought(*ODD)
    assert not OutboxMessage.objects.exists()


def test_it_is_no_verdict():
    deployment = a_deployment()
    brought(*ODD, deployment=deployment)
    assert not CheckState.objects.filter(deployment=deployment).exists()
