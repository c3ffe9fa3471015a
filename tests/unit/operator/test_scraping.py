"""Who may read /metrics, as the API server says."""

from typing import Any

import pytest

from clusterops.kube.errors import Forbidden
from clusterops.operator import scraping
from clusterops.operator.scraping import ALLOWED, DENIED, UNDECIDED, UNKNOWN, Scrapers

USERS = {
    "t-prometheus": {"username": "system:serviceaccount:monitoring:p", "groups": ["g"], "uid": "u"},
    "t-other": {"username": "other"},
}


class Reviewer:
    """An API server that reviews tokens and rights."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forbidden = False
        self.allowed = {"system:serviceaccount:monitoring:p"}

    async def create(self, kind: Any, review: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(kind.kind)
        if self.forbidden:
            raise Forbidden(403, "Forbidden", "cannot create tokenreviews")
        spec = review["spec"]
        if kind == scraping.TOKEN_REVIEWS:
            user = USERS.get(spec["token"])
            told = {"authenticated": True, "user": user} if user else {"error": "unknown"}
            return {**review, "status": told}
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return {**review, "status": {"allowed": spec["user"] in self.allowed}}


@pytest.fixture
def server() -> Reviewer:
    return Reviewer()


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def scrapers(server: Reviewer, clock: list[float]) -> Scrapers:
    return Scrapers(server, lambda: clock[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("token", "status"),
    [("t-prometheus", ALLOWED), ("t-other", DENIED), ("guessed", UNKNOWN), ("", UNKNOWN)],
)
async def test_a_token_gets_what_the_api_server_says(
    scrapers: Scrapers, token: str, status: int
) -> None:
    assert await scrapers.status(token) == status


async def test_an_answer_is_remembered_a_refusal_shorter(
    scrapers: Scrapers, server: Reviewer, clock: list[float]
) -> None:
    for token in ("t-prometheus", "t-other"):
        await scrapers.status(token)
    asked = len(server.asked)
    clock[0] += scraping.REFUSED_SECONDS - 0.1
    assert await scrapers.status("t-other") == DENIED
    assert len(server.asked) == asked
    server.allowed = {"other"}
    clock[0] += 0.2
    assert await scrapers.status("t-other") == ALLOWED
    assert await scrapers.status("t-prometheus") == ALLOWED, "still remembered"
    clock[0] += scraping.ALLOWED_SECONDS
    assert await scrapers.status("t-prometheus") == DENIED


async def test_without_an_answer_nobody_is_let_in_and_nothing_remembered(
    scrapers: Scrapers, server: Reviewer
) -> None:
    server.forbidden = True
    assert await scrapers.status("t-prometheus") == UNDECIDED
    server.forbidden = False
    assert await scrapers.status("t-prometheus") == ALLOWED


async def test_guessed_tokens_do_not_fill_the_memory(scrapers: Scrapers) -> None:
    for number in range(scraping.REMEMBERED + 10):
        assert await scrapers.status(f"guess-{number}") == UNKNOWN
    assert len(scrapers._known) <= scraping.REMEMBERED
