"""Weights get to servers on other machines by upload: complete or not at all, and once."""

from __future__ import annotations

import asyncio
import http.server
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from loopline.testing.sglang_double import SglangDouble
from loopline.testing.vllm_double import VllmDouble
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.server_settings import UploadSettings
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.engine import SglangEngine
from loopline.workers.engines.vllm.adapters import ServedAdapter
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.upload import Uploads
from tests.bus.serving import until
from tests.workers.engines.asking import ask
from tests.workers.engines.test_torch_whole_models import shaken
from tests.workers.engines.test_vllm_engine import settings
from tests.workers.engines.webdav import WebDav, webdav

SERVER = "http://gpu1.example:8000/v1"


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[WebDav]:
    with webdav(tmp_path / "machine" / "adapters") as dav:
        yield dav


@pytest.fixture
async def double(tiny_model: Path) -> AsyncIterator[VllmDouble]:
    async with VllmDouble(str(tiny_model)) as double:
        yield double


def upload_to(dav: WebDav) -> dict[str, object]:
    return {"url": dav.url, "folder": str(dav.folder)}


async def started(folder: Path, dav: WebDav, *doubles: VllmDouble) -> VllmEngine:
    servers = [double.url for double in doubles[1:]]
    table = {"servers": servers, "plain_check": False, "upload": upload_to(dav)}
    engine = VllmEngine(settings(folder, doubles[0].url, vllm=table, plain_logprobs=False))
    await engine.start()
    return engine


@pytest.fixture
async def engine(tiny_model: Path, dav: WebDav, double: VllmDouble) -> AsyncIterator[VllmEngine]:
    engine = await started(tiny_model, dav, double)
    yield engine
    await engine.close()


@pytest.fixture
def adapter(tmp_path: Path) -> ServedAdapter:
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 20_000)
    (folder / "optimizer.pt").write_bytes(b"not for servers")
    return ServedAdapter("slm/caller@3.1f2e3d4c", str(folder))


@pytest.fixture
async def uploads(dav: WebDav) -> AsyncIterator[Uploads]:
    uploads = Uploads(UploadSettings(url=dav.url, folder="/srv/adapters"), SERVER)
    yield uploads
    await uploads.close()


async def refusal(uploads: Uploads, adapter: ServedAdapter) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await uploads.place(adapter)
    await uploads.close()
    return caught.value


class TestServers:
    async def test_a_server_that_cannot_see_the_workers_folders_answers_with_the_adapter(
        self,
        tiny_model: Path,
        tiny_loras: list[Path],
        engine: VllmEngine,
        double: VllmDouble,
        dav: WebDav,
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        assert all(Path(path).parent == dav.folder for path in double.adapters.values())
        uploaded = await ask(engine, adapter="red")
        sharing = VllmEngine(settings(tiny_model, double.url, plain_logprobs=False))
        await sharing.start()
        await sharing.load_adapter("shared", str(tiny_loras[0]), 1)
        assert uploaded.output_ids == (await ask(sharing, adapter="shared")).output_ids
        await sharing.close()

    async def test_an_unloaded_version_leaves_no_files_behind(
        self, engine: VllmEngine, tiny_loras: list[Path], dav: WebDav
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        await engine.load_adapter("red", str(tiny_loras[1]), 2)
        await until(lambda: len(dav.names) == 1, "only the files of version 2")
        assert dav.names[0].startswith("red@2.")
        await engine.unload_adapter("red")
        await until(lambda: not dav.names, "no files")

    async def test_a_restarted_server_gets_files_again_that_another_worker_has_deleted(
        self, engine: VllmEngine, double: VllmDouble, tiny_loras: list[Path], dav: WebDav
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        before = await ask(engine, adapter="red")
        name = dav.names[0]
        for file in (dav.folder / name).iterdir():
            file.unlink()
        (dav.folder / name).rmdir()
        await double.forget_adapters()
        assert (await ask(engine, adapter="red")).output_ids == before.output_ids
        assert dav.names == [name]

    async def test_files_that_vanish_just_before_the_server_reads_them_are_uploaded_again(
        self, engine: VllmEngine, tiny_loras: list[Path], dav: WebDav, tmp_path: Path
    ) -> None:
        chances = iter([True])

        def take_away_once(method: str, path: str) -> tuple[int, str] | None:
            # The second query for the files finds none: the first upload is moved away after it.
            if method == "DELETE" and "unfinished" in path and next(chances, False):
                (dav.folder / dav.names[0]).rename(tmp_path / "taken")
            return None

        dav.before = take_away_once
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        assert (await ask(engine, adapter="red")).adapter_version == 1
        assert (tmp_path / "taken").exists()

    async def test_an_sglang_server_gets_a_whole_model(
        self, tiny_model: Path, dav: WebDav, tmp_path: Path
    ) -> None:
        other = shaken(tiny_model, tmp_path / "other", 1)
        async with SglangDouble(str(tiny_model)) as double:
            table = {"plain_check": False, "upload": upload_to(dav)}
            fields = {"engine": "sglang", "vllm": {}, "sglang": table, "plain_logprobs": False}
            engine = SglangEngine(settings(tiny_model, double.url, **fields))
            await engine.start()
            before = await ask(engine)
            await engine.load_adapter("slm", str(other), 1)
            assert (await ask(engine, adapter="slm")).output_ids != before.output_ids
            assert len(dav.names) == 1
            await engine.unload_adapter("slm")
            assert (await ask(engine)).output_ids == before.output_ids
            assert not dav.names
            await engine.close()


class TestUploads:
    async def test_the_server_s_path_and_only_the_needed_files(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        assert await uploads.place(adapter) == "/srv/adapters/slm_caller@3.1f2e3d4c"
        folder = dav.folder / "slm_caller@3.1f2e3d4c"
        assert sorted(file.name for file in folder.iterdir()) == sorted(adapter.files)
        for name in adapter.files:
            assert (folder / name).read_bytes() == (Path(adapter.path) / name).read_bytes()

    async def test_weights_that_are_there_are_not_sent_again(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        for _ in range(3):
            await uploads.place(adapter)
        assert len(dav.sent("PUT")) == len(adapter.files)

    async def test_workers_that_upload_at_once_leave_one_complete_copy(
        self, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        workers = [Uploads(UploadSettings(url=dav.url, folder="/srv"), SERVER) for _ in range(4)]
        await asyncio.gather(*(worker.place(adapter) for worker in workers))
        assert dav.names == ["slm_caller@3.1f2e3d4c"]
        assert len(list((dav.folder / dav.names[0]).iterdir())) == len(adapter.files)
        for worker in workers:
            await worker.close()

    @pytest.mark.parametrize("status", [409, 412, 423, 500])
    async def test_a_refused_move_counts_only_if_no_other_worker_has_uploaded_the_weights(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav, status: int
    ) -> None:
        def refuse(method: str, _path: str) -> tuple[int, str] | None:
            return (status, "no") if method == "MOVE" else None

        def lose_the_race(method: str, path: str) -> tuple[int, str] | None:
            if method == "MOVE":
                shutil.copytree(dav.folder / Path(path).name, dav.folder / "slm_caller@3.1f2e3d4c")
            return refuse(method, path)

        dav.before = refuse
        with pytest.raises(EngineError, match=rf"refused MOVE .*\({status}"):
            await uploads.place(adapter)
        assert not dav.names
        dav.before = lose_the_race
        await uploads.place(adapter)
        assert dav.names == ["slm_caller@3.1f2e3d4c"]

    async def test_an_upload_that_fails_leaves_nothing_under_its_name(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        dav.before = lambda method, path: (
            (507, "Insufficient Storage") if method == "PUT" and "model" in path else None
        )
        with pytest.raises(EngineError, match=r"refused PUT .*\(507: its disk is full\)"):
            await uploads.place(adapter)
        assert not dav.names
        dav.before = lambda _method, _path: None
        await uploads.place(adapter)
        assert dav.names == ["slm_caller@3.1f2e3d4c"]

    async def test_what_a_killed_worker_has_left_is_never_read(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        half = dav.folder / "unfinished-0123456789abcdef"
        half.mkdir()
        (half / "adapter_config.json").write_text("{")
        await uploads.place(adapter)
        assert sorted(dav.names) == ["slm_caller@3.1f2e3d4c", half.name]

    async def test_the_host_in_the_address_is_that_of_each_server(self) -> None:
        upload = UploadSettings(url="http://{host}:1/adapters", folder="/srv")
        adapter = ServedAdapter("red@1.0", "/none")
        for host in ("127.0.0.1", "[::1]"):
            error = await refusal(Uploads(upload, f"http://{host}:8000/v1"), adapter)
            assert str(error).startswith(f"the upload folder at {host}:1 does not answer")
            assert error.kind == "unavailable"
            assert error.retryable

    async def test_user_and_password_come_from_the_environment(
        self, tmp_path: Path, adapter: ServedAdapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with webdav(tmp_path / "guarded", user="worker", password="s3cret:word") as dav:
            upload = UploadSettings(url=dav.url, folder="/srv", key_env="UPLOAD_KEY")
            monkeypatch.setenv("UPLOAD_KEY", "worker:s3cret:word")
            uploads = Uploads(upload, SERVER)
            await uploads.place(adapter)
            await uploads.close()
            assert dav.names == ["slm_caller@3.1f2e3d4c"]
            monkeypatch.setenv("UPLOAD_KEY", "worker:wrong-password")
            error = await refusal(Uploads(upload, SERVER), adapter)
            assert "check the key in UPLOAD_KEY" in str(error)
            assert "wrong-password" not in str(error)
            keyless = Uploads(UploadSettings(url=dav.url, folder="/srv"), SERVER)
            assert "set upload.key_env" in str(await refusal(keyless, adapter))

    async def test_a_key_without_a_user_is_a_bearer_token(
        self, adapter: ServedAdapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UPLOAD_KEY", "tok-123")
        credentials: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                credentials.append(self.headers["Authorization"])
                self.send_response(200)
                self.end_headers()

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/a"
            upload = UploadSettings(url=url, folder="/srv", key_env="UPLOAD_KEY")
            uploads = Uploads(upload, SERVER)
            await uploads.place(adapter)
            await uploads.close()
            server.shutdown()
        assert credentials == ["Bearer tok-123"]

    def test_a_missing_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("UPLOAD_KEY", raising=False)
        upload = UploadSettings(url="http://gpu1/a", folder="/srv", key_env="UPLOAD_KEY")
        with pytest.raises(EngineError, match="the environment variable UPLOAD_KEY is not set"):
            Uploads(upload, SERVER)

    async def test_a_folder_that_does_not_exist_is_named(
        self, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        upload = UploadSettings(url=f"{dav.url}/team/adapters", folder="/srv")
        error = await refusal(Uploads(upload, SERVER), adapter)
        assert "/adapters/team/adapters/unfinished-" in str(error)
        assert "does not exist (409)" in str(error)

    @pytest.mark.parametrize("status", [405, 501])
    async def test_a_server_without_webdav_is_named(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav, status: int
    ) -> None:
        dav.before = lambda method, _path: (status, "No") if method == "MKCOL" else None
        error = await refusal(uploads, adapter)
        assert "a WebDAV server that may write there is needed" in str(error)
        assert not error.retryable

    async def test_a_busy_server_may_be_asked_again(
        self, uploads: Uploads, adapter: ServedAdapter, dav: WebDav
    ) -> None:
        dav.before = lambda method, _path: (503, "Busy") if method == "PUT" else None
        assert (await refusal(uploads, adapter)).retryable


class TestSettings:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"url": "gpu1:8080/adapters"}, "upload.url is not the address of a folder"),
            ({"url": "http://gpu1:0/adapters"}, "upload.url is not the address of a folder"),
            ({"url": "http://[::1/adapters"}, "upload.url is not the address of a folder"),
            ({"url": "http://gpu1/adapters?key=1"}, "upload.url is not the address of a folder"),
            ({"url": "http://me:pass-word@gpu1/a"}, "name a variable with both in key_env"),
            ({"folder": "adapters"}, "upload.folder is not an absolute path"),
        ],
    )
    def test_an_unusable_setting_is_refused_without_quoting_a_password(
        self, change: dict[str, str], words: str
    ) -> None:
        with pytest.raises(ValidationError, match=words) as caught:
            UploadSettings.model_validate({"url": "http://gpu1/a", "folder": "/srv", **change})
        assert "pass-word" not in caught.value.errors()[0]["msg"]

    def test_a_managed_server_needs_no_upload(self) -> None:
        upload = {"url": "http://gpu1/a", "folder": "/srv"}
        with pytest.raises(ValidationError, match="a managed server needs none"):
            ModelSettings.model_validate(
                {"engine": "vllm", "model": "m", "vllm": {"upload": upload}}
            )
