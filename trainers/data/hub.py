"""Files of data sets on the Hugging Face Hub, by name.

    hf://OWNER/NAME/PATH/TO/FILE             a file of the main branch
    hf://OWNER/NAME@REVISION/PATH/TO/FILE    of a branch, a tag or a commit
    hf://OWNER/NAME                          the only file that can be read

`huggingface_hub` fetches a file once into its own cache (`HF_HOME`); later reads use the cache,
even without a network. `HF_TOKEN` opens private data sets, `HF_ENDPOINT` selects a mirror.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from loopline.runtime.terminal.safe_text import sanitize
from loopline.trainers.errors import UnreadableData

SCHEME = "hf://"
MAX_FILE_BYTES = 8 * 2**30
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
_FORM = "hf://OWNER/NAME/FILE, or hf://OWNER/NAME@REVISION/FILE"
_SHOWN = 8

T = TypeVar("T")


@dataclass(frozen=True)
class HubFile:
    """A file or, with an empty path, a data set."""

    repository: str
    """`OWNER/NAME`."""
    revision: str
    path: str

    @classmethod
    def parse(cls, target: str) -> Self:
        """Parse an address of the Hub. Raises UnreadableData for another form."""
        owner, _, rest = target.removeprefix(SCHEME).removeprefix("datasets/").partition("/")
        name, _, path = rest.partition("/")
        name, at, revision = name.partition("@")
        parts = path.split("/") if path else []
        if (
            not (_NAME.fullmatch(owner) and _NAME.fullmatch(name))
            or (at and not revision)
            or any(part in ("", ".", "..") for part in parts)
        ):
            raise UnreadableData(f"{sanitize(target)}: not the name of a data set; write {_FORM}")
        return cls(f"{owner}/{name}", revision or "main", path)

    def __str__(self) -> str:
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"{SCHEME}{self.repository}{at}{'/' if self.path else ''}{self.path}"


def is_on_hub(target: str) -> bool:
    """Whether a command line refers to a data set on the Hub."""
    return target.startswith(SCHEME)


def fetch(target: str, endings: Sequence[str]) -> Path:
    """The file in the cache of `huggingface_hub`, fetched if it is missing. Without a path, the
    only file with one of these endings. Raises UnreadableData, which reports the cause: the name,
    the network, the right to read it, its size."""
    file = HubFile.parse(target)
    hub = _hub()
    endpoint = os.environ.get("HF_ENDPOINT") or None
    if not file.path:
        file = _only_file(hub, file, endings, endpoint)
    if not file.path.endswith(tuple(endings)):
        raise UnreadableData(
            f"{file}: unsupported file type; supported endings: {', '.join(endings)}"
        )
    _require_small(hub, file, endpoint)
    path: str = _call(
        file,
        lambda: hub.hf_hub_download(
            file.repository,
            file.path,
            repo_type="dataset",
            revision=file.revision,
            endpoint=endpoint,
        ),
    )
    return Path(path)


def _only_file(hub: Any, file: HubFile, endings: Sequence[str], endpoint: str | None) -> HubFile:
    names: list[str] = _call(
        file,
        lambda: hub.HfApi(endpoint=endpoint).list_repo_files(
            file.repository, repo_type="dataset", revision=file.revision
        ),
    )
    readable = sorted(name for name in names if name.endswith(tuple(endings)))
    if len(readable) == 1:
        return HubFile(file.repository, file.revision, readable[0])
    if not readable:
        raise UnreadableData(f"{file}: the data set has no file that ends in {', '.join(endings)}")
    listed = [str(HubFile(file.repository, file.revision, name)) for name in readable[:_SHOWN]]
    more = f", and {len(readable) - _SHOWN:,} more" if readable[_SHOWN:] else ""
    raise UnreadableData(
        sanitize(f"{file} has {len(readable):,} files; name one of them: {', '.join(listed)}{more}")
    )


def _require_small(hub: Any, file: HubFile, endpoint: str | None) -> None:
    """Check a file's size before it is fetched. Raises UnreadableData. Without a network nothing is
    checked: the file may be in the cache."""
    url = hub.hf_hub_url(
        file.repository,
        file.path,
        repo_type="dataset",
        revision=file.revision,
        endpoint=endpoint,
    )
    try:
        size = hub.get_hf_file_metadata(url).size
    except Exception:  # noqa: BLE001 - the download tells the same, and may have the file cached.
        return
    if size is not None and size > MAX_FILE_BYTES:
        raise UnreadableData(
            f"{file}: its {size:,} bytes exceed the limit of {MAX_FILE_BYTES:,}; use a smaller file"
        )


def _call(file: HubFile, request: Callable[[], T]) -> T:
    """Answer of the Hub. Raises UnreadableData."""
    import httpx
    from huggingface_hub import errors

    try:
        return request()
    except errors.GatedRepoError as error:
        raise UnreadableData(
            f"{file}: its owner restricts access; request it on the page of the data set, and set "
            "HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UnreadableData(f"{file}: the data set has no revision {file.revision!r}") from error
    except errors.RepositoryNotFoundError as error:
        raise UnreadableData(
            f"{file}: the Hub has no such data set, or it is private; for a private one, set "
            "HF_TOKEN"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise _offline_error(file) from error
    except errors.EntryNotFoundError as error:
        raise UnreadableData(
            f"{file}: the data set has no such file; {SCHEME}{file.repository} lists its files"
        ) from error
    except errors.HfHubHTTPError as error:
        raise UnreadableData(f"{file}: the Hub answered: {' '.join(str(error).split())}") from error
    except (errors.OfflineModeIsEnabled, httpx.HTTPError) as error:
        raise _offline_error(file) from error
    except (OSError, ValueError) as error:
        raise UnreadableData(f"{file}: can't be fetched ({error})") from error


def _offline_error(file: HubFile) -> UnreadableData:
    return UnreadableData(
        f"{file}: not in the cache of huggingface_hub, and the Hub can't be reached from here "
        "(HF_HUB_OFFLINE set? a proxy?); download it on a machine with network access (`hf "
        f"download --repo-type dataset {file.repository} {file.path}`) and copy the cache "
        "(HF_HOME), or use a local file"
    )


def _hub() -> Any:
    import huggingface_hub

    return huggingface_hub
