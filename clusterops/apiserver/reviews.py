"""Review kinds: questions about users and their rights, answered and never stored."""

from collections.abc import Callable
from typing import Any

from clusterops.apiserver.access import Tokens as KnownTokens
from clusterops.apiserver.access import User
from clusterops.apiserver.answers import send_body
from clusterops.apiserver.refusals import no_such_path
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.stored import encode
from clusterops.apiserver.writes import body_object

ALLOWED = "every user of this server may do everything"

JsonObject = dict[str, Any]


class Reviews:
    """Answers to POST of the review kinds."""

    def __init__(self, tokens: KnownTokens) -> None:
        self._tokens = tokens
        self._statuses: dict[str, Callable[[JsonObject, User], JsonObject]] = {
            "selfsubjectreviews": self._who_am_i,
            "selfsubjectaccessreviews": self._may_i,
            "subjectaccessreviews": self._may_they,
            "localsubjectaccessreviews": self._may_they,
            "selfsubjectrulesreviews": self._my_rules,
            "tokenreviews": self._whose_token,
        }

    async def answer(self, request: Request, target: Target) -> None:
        """The review that was sent, with its status."""
        status_of = self._statuses.get(target.kind.plural)
        if status_of is None:
            raise no_such_path()
        review = await body_object(request)
        spec = review.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        metadata = review.get("metadata")
        answer = {
            "kind": target.kind.kind,
            "apiVersion": target.kind.api_version,
            "metadata": metadata if isinstance(metadata, dict) else {},
            "spec": {name: value for name, value in spec.items() if name != "token"},
            "status": status_of(spec, request.user),
        }
        await send_body(request.send, 201, encode(answer))

    def _who_am_i(self, _spec: JsonObject, user: User) -> JsonObject:
        return {"userInfo": user.info()}

    def _may_i(self, _spec: JsonObject, _user: User) -> JsonObject:
        return {"allowed": True, "reason": ALLOWED}

    def _may_they(self, spec: JsonObject, _user: User) -> JsonObject:
        if self._tokens.known(str(spec.get("user", ""))):
            return {"allowed": True, "reason": ALLOWED}
        return {"allowed": False, "reason": "this server has no such user"}

    def _my_rules(self, _spec: JsonObject, _user: User) -> JsonObject:
        return {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }

    def _whose_token(self, spec: JsonObject, _user: User) -> JsonObject:
        user = self._tokens.user(str(spec.get("token", "")))
        if user is None:
            return {"authenticated": False, "error": "unknown token"}
        return {"authenticated": True, "user": user.info()}
