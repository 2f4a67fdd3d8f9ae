"""Reads the configuration layer by layer, and records the source of each key.

Lowest first: the defaults in the code, the profile (and what it `extends`), the environment
(`LOOPLINE_BUS__LEASE_SECONDS=5`), `--set bus.lease_seconds=5`. Each layer is checked for unknown
keys *before* the layers are merged, so that an error can name the file, variable or option with the
typo.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from loopline.runtime.config import PROFILE_DIR, profile_names
from loopline.runtime.errors import ConfigError
from loopline.workers.process_lifetime import PARENT_VARIABLE

ENV_PREFIX = "LOOPLINE_"
ENV_DELIMITER = "__"

URL_VARIABLE = f"{ENV_PREFIX}BUS{ENV_DELIMITER}REDIS_URL"

ENV_OUTSIDE_CONFIG = frozenset(
    {
        "LOOPLINE_STATE",
        "LOOPLINE_DATA",
        "LOOPLINE_VLLM_PYTHON",
        "LOOPLINE_PROFILE",
        "LOOPLINE_REDIS_PASSWORD",
        PARENT_VARIABLE,
    }
)
"""Variables with our prefix that are not configuration keys: the places of state and data sets, the
profile, variables of `compose.yaml`, and values that a supervisor passes to its workers."""

MAX_EXTENDS = 8
MAX_CONFIG_BYTES = 1 << 20

Tree = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """One source: `origin` names it in errors (`file.toml`, `environment`, `--set`)."""

    origin: str
    data: Tree
    names: Mapping[str, str] | None = None
    """The user's spelling of each dotted key, if it differs (environment variables)."""

    def spell_key(self, path: tuple[str, ...]) -> str:
        dotted = ".".join(path)
        return (self.names or {}).get(dotted, dotted)

    def respell_key(self, dotted: str) -> str:
        """Return a valid key in the spelling of this layer."""
        if self.names is None:
            return dotted
        return ENV_PREFIX + dotted.replace(".", ENV_DELIMITER).upper()


def profile_layers(profile: str) -> list[Layer]:
    """Return a profile (a name or a TOML file) and the profiles that it `extends`, lowest first.

    Raises `ConfigError` if a profile can't be found, isn't TOML, or extends itself.
    """
    layers: list[Layer] = []
    wanted: str | None = profile
    folder = Path.cwd()
    while wanted is not None:
        path = _profile_path(wanted, folder)
        if len(layers) == MAX_EXTENDS:
            raise ConfigError(
                f"{path}: a profile extends more than {MAX_EXTENDS} others",
                hint="is there a cycle of `extends`? Remove one of them.",
            )
        data = read_toml(path)
        extends: Any = data.pop("extends", None)
        if extends is not None and not isinstance(extends, str):
            raise ConfigError(f'{path}: extends must name a profile, as in extends = "micro"')
        wanted = extends
        _resolve_prompt_paths(data, path.parent)
        layers.insert(0, Layer(origin=_display_path(path), data=data))
        folder = path.parent
    return layers


def _resolve_prompt_paths(data: Tree, folder: Path) -> None:
    """Resolve prompt files relative to the profile's folder, since they are copied together."""
    prompts = data.get("prompts")
    if isinstance(prompts, dict):
        for name, file in cast(Tree, prompts).items():
            if isinstance(file, str):
                prompts[name] = str(folder / os.path.expanduser(file))


def absolute_profile(profile: str) -> str:
    """Return a name for a profile that is valid in every directory: its name, or the absolute path
    of its file."""
    return profile if _is_name(profile) else os.path.abspath(os.path.expanduser(profile))


def _is_name(profile: str) -> bool:
    return "/" not in profile and not profile.endswith(".toml")


def _profile_path(wanted: str, folder: Path) -> Path:
    shipped = PROFILE_DIR / f"{wanted}.toml"
    if _is_name(wanted):
        if shipped.is_file():
            return shipped
        nearest = difflib.get_close_matches(wanted, profile_names(), n=1)
        guess = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(
            f"there is no profile {wanted!r}",
            hint=f"{guess}Profiles: {', '.join(profile_names())}; or the path of a .toml file.",
        )
    # Unlike `Path.expanduser`, it leaves the name of an unknown user as it is.
    path = folder / os.path.expanduser(wanted)
    if not path.is_file():
        raise ConfigError(
            f"configuration file not found: {_display_path(path)}",
            hint=f"give an existing .toml file or one of: {', '.join(profile_names())}",
        )
    return path


def read_toml(path: Path) -> Tree:
    """Read a TOML file. Raises `ConfigError` if it isn't TOML, and `OSError`."""
    raw = path.read_bytes()
    if len(raw) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: {len(raw)} bytes is too long for a configuration file")
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:  # also for an integer with thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _display_path(path: Path) -> str:
    return f"profile {path.stem}" if path.parent == PROFILE_DIR else str(path)


def environment_layer(settings: type[BaseSettings], environ: Mapping[str, str]) -> Layer:
    """Return the layer of all `LOOPLINE_*` variables. A variable that doesn't match a configuration
    key is kept, so that the check for unknown keys finds it."""
    names: dict[str, str] = {}
    stray: Tree = {}
    for name in environ:
        if not name.startswith(ENV_PREFIX) or name in ENV_OUTSIDE_CONFIG:
            continue
        path = name.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)
        names[".".join(path)] = name
        if path[0] not in settings.model_fields:
            stray[path[0]] = {}
            names[path[0]] = name
    source = _Environment(settings, environ)
    try:
        data = source()
    except Exception as error:
        cause = error.__cause__ or error
        raise ConfigError(f"environment: {error}: {cause}") from error
    return Layer(origin="environment", data={**data, **stray}, names=names)


class _Environment(EnvSettingsSource):
    """pydantic-settings' reader for a given mapping instead of the process's environment."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in environ.items()}
        super().__init__(
            settings,
            case_sensitive=False,
            env_prefix=ENV_PREFIX,
            env_nested_delimiter=ENV_DELIMITER,
        )

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._given


def override_layer(assignments: Iterable[str]) -> Layer:
    """Return the layer of the `--set key=value` options. A value that starts with `[` or `{` is
    JSON, `null` is None, and everything else is text that the key's type parses."""
    data: Tree = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            raise ConfigError(
                f"--set {assignment}: expected key=value", hint="as in --set workers.slm.count=4"
            )
        node = data
        for part in path[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--set {key}: {part} was already set to a plain value")
        node[path[-1]] = _value(key, text)
    return Layer(origin="--set", data=data)


def _value(key: str, text: str) -> Any:
    if text == "null":
        return None
    if text[:1] not in {"[", "{"}:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # Without the text, which may contain a secret.
        raise ConfigError(f"--set {key}: not valid JSON: {error}") from error


def unknown_keys(model: type[BaseModel], layer: Layer) -> Iterator[str]:
    """Yield one sentence for each key of the layer that the model doesn't have."""
    yield from _unknown_in_table(model, model, layer, layer.data, ())


def _unknown_in_table(
    root: type[BaseModel], model: type[BaseModel], layer: Layer, data: Tree, path: tuple[str, ...]
) -> Iterator[str]:
    for key, value in data.items():
        here = (*path, key)
        field = model.model_fields.get(key)
        if field is None:
            nearest = _nearest_key(root, model, here)
            yield f"{layer.origin}: unknown key {layer.spell_key(here)!r}" + (
                f"; did you mean {layer.respell_key(nearest)}?"
                if nearest
                else f"; valid here: {', '.join(sorted(model.model_fields))}"
            )
        elif isinstance(value, dict):
            yield from _unknown_in_field(root, field, layer, cast(Tree, value), here)


def _unknown_in_field(
    root: type[BaseModel], field: FieldInfo, layer: Layer, data: Tree, path: tuple[str, ...]
) -> Iterator[str]:
    kind, inner = _nested_model(field.annotation)
    if inner is None:
        return
    if kind == "model":
        yield from _unknown_in_table(root, inner, layer, data, path)
        return
    for name, entry in data.items():
        if isinstance(entry, dict):
            yield from _unknown_in_table(root, inner, layer, cast(Tree, entry), (*path, name))


def _nested_model(annotation: Any) -> tuple[str, type[BaseModel] | None]:
    """Return whether a field contains a model or a table of models, and which model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "model", annotation
    if get_origin(annotation) is dict:
        value = get_args(annotation)[1]
        if isinstance(value, type) and issubclass(value, BaseModel):
            return "table", value
        return "", None
    for part in get_args(annotation):
        kind, inner = _nested_model(part)
        if inner is not None:
            return kind, inner
    return "", None


def _nearest_key(
    root: type[BaseModel], model: type[BaseModel], path: tuple[str, ...]
) -> str | None:
    """Return the closest valid key of the same table, or else the closest of any table."""
    same_table = difflib.get_close_matches(path[-1], list(model.model_fields), n=1, cutoff=0.6)
    if same_table:
        return ".".join((*path[:-1], same_table[0]))
    everywhere = list(key_paths(root))
    elsewhere = [key for key in everywhere if key.rpartition(".")[2] == path[-1]]
    elsewhere = elsewhere or difflib.get_close_matches(".".join(path), everywhere, n=1, cutoff=0.75)
    return elsewhere[0] if elsewhere else None


def key_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key; names in a table of models are written `<name>`."""
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{name}"
        kind, inner = _nested_model(field.annotation)
        if inner is None:
            yield dotted
        else:
            yield from key_paths(inner, f"{dotted}." if kind == "model" else f"{dotted}.<name>.")


def key_descriptions(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every dotted key with its type and meaning."""
    for name, field in model.model_fields.items():
        kind, inner = _nested_model(field.annotation)
        if inner is None:
            description = " ".join((field.description or "").split())
            yield f"{prefix}{name}", _type_text(field.annotation), description
        else:
            below = f"{prefix}{name}." if kind == "model" else f"{prefix}{name}.<name>."
            yield from key_descriptions(inner, below)


def _type_text(annotation: Any) -> str:
    """Return a type as written in an annotation, without its validators."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if not arguments:
        return "None" if annotation is NoneType else getattr(annotation, "__name__", "...")
    if origin is Literal:
        return " | ".join(map(json.dumps, arguments))
    inner = [_type_text(argument) for argument in arguments]
    if origin in (Union, UnionType):
        return " | ".join(inner)
    return f"{origin.__name__}[{', '.join(inner)}]"


def merge_layers(layers: Iterable[Layer]) -> Tree:
    """Merge layers key by key: later layers win, and lists are replaced as a whole."""
    result: Tree = {}
    for layer in layers:
        _merge_into(result, layer.data)
    return result


def _merge_into(target: Tree, data: Tree) -> None:
    for key, value in data.items():
        present = target.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge_into(cast(Tree, present), cast(Tree, value))
        elif isinstance(value, dict):
            fresh: Tree = {}
            _merge_into(fresh, cast(Tree, value))
            target[key] = fresh
        else:
            target[key] = value


def origin_of(layers: Iterable[Layer], path: tuple[str, ...]) -> str:
    """Return the highest layer that wrote `path` (or the table above it), in that layer's
    spelling."""
    for layer in reversed(list(layers)):
        node: Any = layer.data
        for part in path:
            if not isinstance(node, dict) or part not in node:
                break
            node = cast(Tree, node)[part]
        else:
            return f"{layer.origin}: {layer.spell_key(path)}"
    return ".".join(path)


def toml_lines(table: Tree, path: tuple[str, ...] = ()) -> list[str]:
    """Write a tree of JSON values as TOML. A comment that the key is not set replaces None, which
    TOML lacks."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines: list[str] = []
    if path and (plain or not table):
        lines.append(f"\n[{'.'.join(map(_toml_key, path))}]")
    for key, value in plain.items():
        unset = value is None
        lines.append(f"# {key}: not set" if unset else f"{_toml_key(key)} = {_toml_value(value)}")
    for key, value in table.items():
        if isinstance(value, dict):
            lines += toml_lines(cast(Tree, value), (*path, key))
    return lines


def _toml_key(name: str) -> str:
    """Quote a name that contains anything but letters, digits, `_` and `-`, as TOML requires."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        inner = cast(Tree, value).items()
        pairs = (f"{_toml_key(key)} = {_toml_value(item)}" for key, item in inner)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, cast(list[Any], value)))}]"
    # A JSON text is also a TOML text, except for escaped surrogates and a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
