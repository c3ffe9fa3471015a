"""Orders for an agent of the site's: asked by annotation, answered by annotation, over when it is late."""

import asyncio
import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.api import names
from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import Execute
from clusterops.operator.executor_annotation import AnnotationOrders, ByRung, answer
from clusterops.operator.nodes_executor import DryRun, Programs

NUMBERS = itertools.count()
ORDER = Execute("xid-79-a/b1/reset_gpu", Rung.RESET_GPU, "xid-79-a", "b1", ("GPU-1",), None)


@pytest.fixture
async def node(client):
    name = f"agent-{next(NUMBERS)}"
    await client.create(
        names.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    )
    return name


def orders(client, **more) -> AnnotationOrders:
    return AnnotationOrders(
        [Rung.RESET_GPU], lambda: 1000.0, client=client, look_seconds=0.02, **more
    )


async def annotations(client, node):
    return (await client.get(names.NODES, None, node))["metadata"].get("annotations") or {}


async def the_wish(client, node):
    """What an agent reads, as soon as it is there."""
    async with asyncio.timeout(30):
        while names.ANNOTATION_ORDER not in (found := await annotations(client, node)):  # noqa: ASYNC110 - an agent polls too
            await asyncio.sleep(0.01)
    return json.loads(found[names.ANNOTATION_ORDER])


async def answered(client, node, told):
    text = told if isinstance(told, str) else json.dumps(told)
    patch = {"metadata": {"annotations": {names.ANNOTATION_ANSWER: text}}}
    await client.patch(names.NODES, None, node, patch)


@contextlib.asynccontextmanager
async def executing(client, node, order=ORDER, seconds=60.0):
    task = asyncio.create_task(orders(client).execute(node, order, seconds))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("state", "done"), [("Succeeded", True), ("Failed", False)])
@pytest.mark.embedded
async def test_the_agent_reads_the_wish_and_its_answer_is_the_result(client, node, state, done):
    async with executing(client, node) as task:
        wish = await the_wish(client, node)
        assert wish == {
            "key": ORDER.key, "action": "reset_gpu", "gpus": ["GPU-1"], "incident": "xid-79-a",
            "bootId": "b1", "expires": "1970-01-01T00:17:40+00:00",
        }  # fmt: skip
        await answered(client, node, {"key": wish["key"], "state": state, "message": "as told"})
        async with asyncio.timeout(30):
            assert await task is done
    left = await annotations(client, node)
    assert names.ANNOTATION_ORDER not in left
    assert names.ANNOTATION_ANSWER not in left


@pytest.mark.embedded
async def test_answers_to_other_wishes_and_nonsense_are_no_answers(client, node):
    await answered(client, node, {"key": ORDER.key, "state": "Succeeded"})
    async with executing(client, node) as task:
        await the_wish(client, node)
        for told in (
            {"key": "xid-13-b/b0/reset_gpu", "state": "Succeeded"},
            {"key": ORDER.key, "state": "Accepted"},
            "[" * 5000,
        ):
            await answered(client, node, told)
            await asyncio.sleep(0)
            assert not task.done()
        await answered(client, node, {"key": ORDER.key, "state": "Failed"})
        async with asyncio.timeout(30):
            assert await task is False


@pytest.mark.embedded
async def test_a_wish_that_nobody_answers_is_taken_back_and_has_failed(client, node):
    assert await orders(client).execute(node, ORDER, 0.3) is False
    assert names.ANNOTATION_ORDER not in await annotations(client, node)


@pytest.mark.embedded
async def test_a_wish_that_another_one_replaced_is_left_alone(client, node):
    async with executing(client, node):
        await the_wish(client, node)
        other = {"metadata": {"annotations": {names.ANNOTATION_ORDER: "another"}}}
        await client.patch(names.NODES, None, node, other)
    assert (await annotations(client, node))[names.ANNOTATION_ORDER] == "another"


@pytest.mark.embedded
async def test_a_node_that_goes_has_not_been_repaired(client, node):
    async with executing(client, node) as task:
        await the_wish(client, node)
        await client.delete(names.NODES, None, node)
        async with asyncio.timeout(30):
            assert await task is False


def test_an_order_never_outlives_its_own_expiry():
    order = Execute("k", Rung.RESET_GPU, "i", "b1", (), expires=1007.0)
    assert '"expires": "1970-01-01T00:16:47+00:00"' in orders(None)._wish(order, 600.0)


def test_without_a_connection_and_for_other_rungs_nothing_can_be_done():
    assert not orders(None).can(Rung.RESET_GPU)
    assert not orders(object()).can(Rung.REBOOT_NODE)


async def test_of_several_executors_the_first_that_can_is_asked(tmp_path):
    programs = Programs({Rung.REBOOT_NODE: ["/bin/sh", "-c", f"touch {tmp_path}/done", "{node}"]})
    both = ByRung(DryRun(), programs)
    assert both.can(Rung.REBOOT_NODE)
    assert not both.can(Rung.RESET_GPU)
    reboot = Execute("k", Rung.REBOOT_NODE, "i", "b1", (), None)
    assert await both.execute("n1", reboot, 60.0)
    assert (tmp_path / "done").exists()


values = st.recursive(
    st.none() | st.text() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@given(
    st.text(max_size=200) | values.map(json.dumps) | st.binary().map(lambda b: b.decode("latin1"))
)
def test_any_annotation_is_an_answer_to_this_wish_or_none(text):
    found = answer({"metadata": {"annotations": {names.ANNOTATION_ANSWER: text}}}, "k")
    assert found is None or found[0] in ("Succeeded", "Failed")
