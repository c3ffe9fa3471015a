"""Where the volumes of a pod lie on this machine, and which files they hold. Pure.

There is no mount namespace: a volume is a folder, and `Mounts` translates the paths by which the
pod knows it. `volume_files` makes what is planned here.
"""

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clusterops.nodeagent import downward
from clusterops.nodeagent.downward import ConfigError, Pod, Surroundings
from clusterops.nodeagent.environment import Reference, References, expand

DEFAULT_MODE = 0o644
SECRET_MASK = 0o700  # a secret is its owner's, whatever mode the pod asks for


class Unsupported(Exception):
    """The pod needs something that a node of processes does not have. Never tried again."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume; `path` is relative to the volume and leads nowhere else."""

    path: PurePosixPath
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume: the folder or file it is, and what has to be made.

    `create`: make the folder when missing. `files`: the whole content, None when it is not ours to
    write. `host_type`: the type a hostPath must have, "" for any.
    """

    name: str
    path: Path
    create: bool = False
    files: tuple[File, ...] | None = None
    host_type: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of the machine that volumes lie in. `host_path_roots` None: hostPath may be anywhere."""

    pod_volumes: Path
    claims: Path
    host_path_roots: tuple[Path, ...] | None = None


class Mounts:
    """Translates paths inside the container to paths of the machine; the longest mount path wins."""

    def __init__(self, targets: Iterable[tuple[str, str]]) -> None:
        """`targets`: (mount path, path on this machine)."""
        self._targets = sorted(
            ((mount.rstrip("/") or "/", target) for mount, target in targets),
            key=lambda pair: len(pair[0]),
            reverse=True,
        )
        self.sub_folders: list[str] = []
        """Folders inside volumes that a mount's subPath names; made when missing."""

    def translate(self, text: str) -> str:
        """The text, with a mount path that it is or begins with replaced by the real folder."""
        for mount, target in self._targets:
            if text == mount:
                return target
            if mount != "/" and text.startswith(mount + "/"):
                return target + text[len(mount) :]
        return text


def references(pod: Pod) -> list[Reference]:
    """The Secrets and ConfigMaps that environment and volumes of a pod refer to, each once, in order."""
    spec = pod["spec"]
    found: dict[Reference, None] = {}
    for volume in spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if source.get("configMap"):
                found["ConfigMap", source["configMap"].get("name", "")] = None
            if source.get("secret"):
                secret = source["secret"]
                found["Secret", secret.get("secretName") or secret.get("name", "")] = None
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        for source in container.get("envFrom") or ():
            for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                if source.get(key):
                    found[kind, source[key]["name"]] = None
        for entry in container.get("env") or ():
            value_from = entry.get("valueFrom") or {}
            for kind, key in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
                if value_from.get(key):
                    found[kind, value_from[key]["name"]] = None
    return [reference for reference in found if reference[1]]


def plan(pod: Pod, objects: References, places: Places, around: Surroundings) -> list[Volume]:
    """All volumes of a pod.

    Raises:
        ConfigError: a secret, config map or key is missing; it may come.
        Unsupported: a kind of volume that processes cannot have, or a forbidden path.
    """
    return [
        _plan(pod, volume, objects, places, around) for volume in pod["spec"].get("volumes") or ()
    ]


def _plan(
    pod: Pod, volume: Mapping[str, Any], objects: References, places: Places, around: Surroundings
) -> Volume:
    name = _one_name(volume["name"], "volume")
    own = places.pod_volumes / name
    if "hostPath" in volume:
        return _host_path(name, volume["hostPath"], places)
    if "persistentVolumeClaim" in volume:
        claim = _one_name(volume["persistentVolumeClaim"]["claimName"], "claim")
        namespace = _one_name(pod["metadata"]["namespace"], "namespace")
        return Volume(name, places.claims / namespace / claim, create=True)
    if "secret" in volume:
        return Volume(name, own, files=_object_files("Secret", volume["secret"], objects))
    if "configMap" in volume:
        return Volume(name, own, files=_object_files("ConfigMap", volume["configMap"], objects))
    if "downwardAPI" in volume:
        return Volume(name, own, files=_downward_files(pod, volume["downwardAPI"], around, None))
    if "projected" in volume:
        return Volume(name, own, files=_projected_files(pod, volume["projected"], objects, around))
    kinds = sorted(key for key in volume if key not in ("name", "emptyDir"))
    if kinds:
        raise Unsupported(f"volume {name!r} is of kind {kinds[0]}, which this node does not have")
    return Volume(name, own, create=True)


def _host_path(name: str, source: Mapping[str, Any], places: Places) -> Volume:
    path = Path(source["path"])
    if not path.is_absolute() or ".." in path.parts:
        raise Unsupported(f"volume {name!r}: hostPath {str(path)!r} must be absolute, without '..'")
    kind = source.get("type") or ""
    if kind not in HOST_TYPES:
        raise Unsupported(f"volume {name!r}: hostPath type {kind!r} is unknown")
    if places.host_path_roots is not None and not any(
        path.is_relative_to(root) for root in places.host_path_roots
    ):
        raise Unsupported(f"volume {name!r}: hostPath {str(path)!r} is under no allowed root")
    return Volume(name, path, host_type=kind)


HOST_TYPES = frozenset(
    {
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice",
        "BlockDevice",
    }
)  # fmt: skip


def host_type_of(mode: int) -> str:
    """The hostPath type that an existing file of this `st_mode` has."""
    kinds = (
        (stat.S_ISDIR, "Directory"),
        (stat.S_ISREG, "File"),
        (stat.S_ISSOCK, "Socket"),
        (stat.S_ISCHR, "CharDevice"),
        (stat.S_ISBLK, "BlockDevice"),
    )
    return next((name for test, name in kinds if test(mode)), "")


def _object_files(
    kind: str, source: Mapping[str, Any], objects: References, default_mode: int | None = None
) -> tuple[File, ...]:
    name = source.get("secretName") or source.get("name") or ""
    optional = bool(source.get("optional"))
    if default_mode is None:
        default_mode = int(source.get("defaultMode") or DEFAULT_MODE)
    mask = SECRET_MASK if kind == "Secret" else 0o777
    values = objects.values((kind, name), optional=optional)
    if not source.get("items"):
        return tuple(
            File(_inside(key, name), values[key], default_mode & mask) for key in sorted(values)
        )
    files = []
    for item in source["items"]:
        if item["key"] not in values:
            if optional:
                continue
            raise ConfigError(
                f"references non-existent key {item['key']!r} of {kind.lower()} {name!r}"
            )
        mode = default_mode if item.get("mode") is None else int(item["mode"])
        files.append(File(_inside(item["path"], name), values[item["key"]], mode & mask))
    return tuple(files)


def _downward_files(
    pod: Pod, source: Mapping[str, Any], around: Surroundings, default_mode: int | None
) -> tuple[File, ...]:
    if default_mode is None:
        default_mode = int(source.get("defaultMode") or DEFAULT_MODE)
    files = []
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            text = downward.field_file(pod, str(item["fieldRef"].get("fieldPath", "")), around)
        elif item.get("resourceFieldRef"):
            reference = item["resourceFieldRef"]
            text = downward.resource(
                pod, str(reference.get("containerName", "")), reference, around
            )
        else:
            raise ConfigError(f"downward API file {item['path']!r} names no field")
        mode = default_mode if item.get("mode") is None else int(item["mode"])
        files.append(File(_inside(item["path"], "downwardAPI"), text.encode(), mode))
    return tuple(files)


def _projected_files(
    pod: Pod, source: Mapping[str, Any], objects: References, around: Surroundings
) -> tuple[File, ...]:
    default_mode = int(source.get("defaultMode") or DEFAULT_MODE)
    files: dict[PurePosixPath, File] = {}
    for part in source.get("sources") or ():
        made: tuple[File, ...] = ()
        if part.get("secret"):
            made = _object_files("Secret", part["secret"], objects, default_mode)
        elif part.get("configMap"):
            made = _object_files("ConfigMap", part["configMap"], objects, default_mode)
        elif part.get("downwardAPI"):
            made = _downward_files(pod, part["downwardAPI"], around, default_mode)
        elif not part.get("serviceAccountToken"):
            # A cluster puts a service account's token into every pod. Processes run as the agent's
            # user and get none; the other files of that volume are there.
            raise Unsupported(f"projected source {sorted(part)} is not supported on this node")
        files.update({file.path: file for file in made})  # the last one wins
    return tuple(files.values())


def mounts(
    container: Mapping[str, Any],
    volumes: Iterable[Volume],
    variables: Mapping[str, str],
    message_path: str,
) -> Mounts:
    """The translation for one container.

    `variables` serve subPathExpr; `message_path` is where the container's terminationMessagePath
    leads unless that path lies in one of its volumes.

    Raises:
        ConfigError: a mount names a volume that the pod lacks, or a subPath leads outside it.
    """
    by_name = {volume.name: volume for volume in volumes}
    targets = []
    sub_folders = []
    for mount in container.get("volumeMounts") or ():
        volume = by_name.get(mount["name"])
        if volume is None:
            raise ConfigError(f"volumeMount {mount['name']!r} names no volume of the pod")
        sub_path = mount.get("subPath") or ""
        if mount.get("subPathExpr"):
            sub_path = expand(mount["subPathExpr"], variables)
        target = volume.path / _inside(sub_path, volume.name) if sub_path else volume.path
        targets.append((str(mount["mountPath"]), str(target)))
        if sub_path and volume.files is None:
            sub_folders.append(str(target))
    termination = str(container.get("terminationMessagePath") or "/dev/termination-log")
    if Mounts(targets).translate(termination) == termination:
        targets.append((termination, message_path))
    made = Mounts(targets)
    made.sub_folders = sub_folders
    return made


def _inside(path: str, owner: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
        raise ConfigError(f"path {path!r} leads outside its volume ({owner})")
    return pure


def _one_name(name: str, what: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise Unsupported(f"{what} name {name!r} cannot be a folder's name")
    return name
