"""Discovery and OpenAPI: what kubectl reads before it does anything."""

import msgspec
import pytest
from support.apiserver_kinds import widget_kind

from clusterops.apiserver.discovery import Discovery
from clusterops.apiserver.kinds import builtin_kinds
from clusterops.apiserver.openapi import OpenApi

KINDS = (*builtin_kinds(), widget_kind())
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


def content(document):
    return msgspec.json.decode(document.body)


def test_aggregated_discovery_in_the_version_asked_for():
    discovery = Discovery(KINDS)
    document = discovery.groups(AGGREGATED)
    assert document.content_type == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    groups = {g["metadata"]["name"]: g for g in content(document)["items"]}
    assert "policy" in groups
    (widgets,) = groups["example.io"]["versions"][0]["resources"]
    assert widgets["shortNames"] == ["wg"]
    assert widgets["scope"] == "Namespaced"
    assert widgets["subresources"][0]["subresource"] == "status"
    older = discovery.groups(AGGREGATED.replace("v=v2;", "v=v9;"))
    assert "v=v2beta1" in older.content_type


@pytest.mark.parametrize(
    "accept", ["", "application/json", "*/*", "application/json," + AGGREGATED]
)
def test_the_plain_form_is_the_fallback(accept):
    discovery = Discovery(KINDS)
    assert content(discovery.core(accept))["versions"] == ["v1"]
    names = [g["name"] for g in content(discovery.groups(accept))["groups"]]
    assert names == sorted(names)
    assert "example.io" in names
    assert "" not in names


def test_core_resources_name_the_subresources_of_pods():
    resources = content(Discovery(KINDS).resources("", "v1"))["resources"]
    found = {r["name"]: r for r in resources}
    assert found["pods/eviction"]["group"] == "policy"
    assert found["pods/eviction"]["kind"] == "Eviction"
    assert found["pods/log"]["verbs"] == ["get"]
    assert found["nodes"]["namespaced"] is False
    core = content(Discovery(KINDS).core(AGGREGATED))["items"][0]["versions"][0]
    assert "pods" in {r["resource"] for r in core["resources"]}


def test_reviews_can_only_be_created():
    resources = content(Discovery(KINDS).resources("authorization.k8s.io", "v1"))["resources"]
    assert {tuple(r["verbs"]) for r in resources} == {("create",)}


def test_unknown_groups_and_versions_are_none():
    discovery = Discovery(KINDS)
    assert discovery.group("nowhere.io") is None
    assert discovery.resources("example.io", "v9") is None
    assert discovery.resources("policy", "v1") is not None
    assert content(discovery.group("example.io"))["preferredVersion"]["version"] == "v1"


def test_etags_follow_the_content():
    first, second = Discovery(KINDS), Discovery(KINDS)
    assert first.groups("").etag == second.groups("").etag
    assert first.groups("").etag != Discovery(builtin_kinds()).groups("").etag


def test_openapi_v2_is_the_smallest_that_works():
    document = OpenApi(KINDS).v2()
    assert document.body == bytes.fromhex("0a03322e30")
    assert document.content_type == ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf")


def test_the_index_names_each_document_by_its_hash():
    openapi = OpenApi(KINDS)
    paths = content(openapi.index())["paths"]
    assert set(paths) >= {"api/v1", "apis/example.io/v1", "apis/coordination.k8s.io/v1"}
    tag = openapi.document("apis/example.io/v1").etag.strip('"')
    assert paths["apis/example.io/v1"]["serverRelativeURL"] == (
        f"/openapi/v3/apis/example.io/v1?hash={tag}"
    )
    assert openapi.document("apis/nowhere.io/v1") is None


def test_a_document_has_what_validation_and_explain_need():
    document = content(OpenApi(KINDS).document("apis/example.io/v1"))
    path = "/apis/example.io/v1/namespaces/{namespace}/widgets/{name}"
    patch = document["paths"][path]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "example.io",
        "version": "v1",
        "kind": "Widget",
    }
    assert "fieldValidation" in {p["name"] for p in patch["parameters"]}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    schemas = document["components"]["schemas"]
    widget = schemas["io.example.v1.Widget"]
    assert widget["x-kubernetes-group-version-kind"][0]["kind"] == "Widget"
    assert widget["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/ObjectMeta"}
    ]
    assert "ObjectMeta" in schemas


def test_every_reference_in_a_document_leads_somewhere():
    openapi = OpenApi(KINDS)
    for path in content(openapi.index())["paths"]:
        document = content(openapi.document(path))
        schemas = document["components"]["schemas"]

        def references(value):
            if isinstance(value, dict):
                if isinstance(value.get("$ref"), str):
                    yield value["$ref"]
                for item in value.values():
                    yield from references(item)
            elif isinstance(value, list):
                for item in value:
                    yield from references(item)

        missing = {r for r in references(document) if r.rpartition("/")[2] not in schemas}
        assert missing == set()
