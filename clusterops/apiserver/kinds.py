"""The kinds a server has: the built-in ones, and those made from CustomResourceDefinitions."""

import functools
from typing import Any

from clusterops.apiserver import builtin_columns as columns
from clusterops.apiserver import builtin_rules as rules
from clusterops.apiserver import builtin_schema
from clusterops.apiserver.columns import NAME, Column, age_column
from clusterops.apiserver.crd import accepted_status, check_crd, finish_crd, kind_from_crd
from clusterops.apiserver.kind import ALL_VERBS, CREATE_ONLY, CrdError, Kind
from clusterops.apiserver.metadata import LABEL, LABEL_1035, SUBDOMAIN
from clusterops.apiserver.pod_columns import PODS
from clusterops.apiserver.schema import Extra, Finish, Schema

__all__ = [
    "ALL_VERBS",
    "CREATE_ONLY",
    "CrdError",
    "Kind",
    "accepted_status",
    "builtin_kinds",
    "kind_from_crd",
]

_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"


def _kind(
    kind: str,
    plural: str,
    description: str,
    *,
    group: str = "",
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    shown: tuple[Column, ...] = (NAME, age_column()),
    name_rule: str = SUBDOMAIN,
    finish: Finish | None = None,
    extra: Extra | None = None,
    **others: Any,
) -> Kind:
    definitions = builtin_schema.definitions()
    raw = {**definitions[kind], "description": description}
    return Kind(
        group=group,
        version="v1",
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        list_kind=f"{kind}List",
        namespaced=namespaced,
        schema=Schema(raw, definitions, name_rule=name_rule, finish=finish, extra=extra),
        columns=shown,
        short_names=short,
        builtin=True,
        description=description,
        **others,
    )


def _review(kind: str, group: str, description: str) -> Kind:
    """A kind that is posted, answered, and never kept; it needs no name."""
    return _kind(
        kind,
        f"{kind.lower()}s",
        description,
        group=group,
        namespaced=False,
        name_rule="",
        verbs=CREATE_ONLY,
    )


_STATUS = frozenset({"status"})
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(
        f"involvedObject.{field}"
        for field in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)


@functools.cache
def builtin_kinds() -> tuple[Kind, ...]:
    """Namespace, Pod, Node, Event, ... and the review kinds, in a fixed order."""
    return (*_content_kinds(), *_cluster_kinds(), *_other_kinds(), *_review_kinds())


def _content_kinds() -> tuple[Kind, ...]:
    return (
        _kind(
            "ConfigMap",
            "configmaps",
            "Settings as text, for pods to read.",
            short=("cm",),
            shown=columns.CONFIG_MAPS,
            extra=rules.check_config_map,
        ),
        _kind(
            "Event",
            "events",
            "Something that happened to an object.",
            short=("ev",),
            shown=columns.EVENTS,
            extra=rules.check_event,
            selectable_fields=_EVENT_FIELDS,
        ),
        _kind(
            "Secret",
            "secrets",
            "Content that only those who need it may read.",
            shown=columns.SECRETS,
            finish=rules.finish_secret,
            extra=rules.check_secret,
            selectable_fields=("type",),
        ),
        _kind(
            "ServiceAccount",
            "serviceaccounts",
            "An identity for what runs in pods.",
            short=("sa",),
            shown=columns.SERVICE_ACCOUNTS,
        ),
    )


def _cluster_kinds() -> tuple[Kind, ...]:
    return (
        _kind(
            "Namespace",
            "namespaces",
            "A scope for names.",
            namespaced=False,
            short=("ns",),
            shown=columns.NAMESPACES,
            name_rule=LABEL,
            finish=rules.finish_namespace,
            subresources=_STATUS,
            selectable_fields=("status.phase",),
        ),
        _kind(
            "Node",
            "nodes",
            "A machine that runs pods.",
            namespaced=False,
            short=("no",),
            shown=columns.NODES,
            extra=rules.check_node,
            subresources=_STATUS,
            selectable_fields=("spec.unschedulable",),
        ),
        _kind(
            "Pod",
            "pods",
            "Containers, or processes, that run together on one node.",
            short=("po",),
            shown=PODS,
            finish=rules.finish_pod,
            extra=rules.check_pod,
            categories=("all",),
            subresources=frozenset({"status", "log", "binding", "eviction"}),
            selectable_fields=_POD_FIELDS,
        ),
        _kind(
            "Service",
            "services",
            "A name under which pods are reached.",
            short=("svc",),
            shown=columns.SERVICES,
            name_rule=LABEL_1035,
            finish=rules.finish_service,
            extra=rules.check_service,
            categories=("all",),
            subresources=_STATUS,
            selectable_fields=("spec.clusterIP", "spec.type"),
        ),
    )


def _other_kinds() -> tuple[Kind, ...]:
    return (
        _kind(
            "Lease",
            "leases",
            "Who holds a role at the moment, and until when.",
            group="coordination.k8s.io",
            shown=columns.LEASES,
            extra=rules.check_lease,
        ),
        _kind(
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "A kind that is served because this object describes it.",
            group="apiextensions.k8s.io",
            namespaced=False,
            short=("crd", "crds"),
            shown=columns.CUSTOM_RESOURCE_DEFINITIONS,
            finish=finish_crd,
            extra=check_crd,
            categories=("api-extensions",),
            subresources=_STATUS,
        ),
    )


def _review_kinds() -> tuple[Kind, ...]:
    return (
        _review(
            "SelfSubjectReview", _AUTHENTICATION, "Asks who the server takes the caller to be."
        ),
        _review("TokenReview", _AUTHENTICATION, "Asks whose token this is."),
        _review("SelfSubjectAccessReview", _AUTHORIZATION, "Asks whether the caller may do this."),
        _review("SubjectAccessReview", _AUTHORIZATION, "Asks whether somebody may do this."),
    )
