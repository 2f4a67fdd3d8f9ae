"""What a server that the worker starts is told of the worker's environment: what a machine needs
to compute, and no key of anything else.

A server runs code of a model's repository, where its user allows it, and writes logs: whatever it
knows can be said by it. Another name is asked for by `keep_environment`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM",
     "TMPDIR", "TMP", "TEMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
     "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "CC", "CXX", "CFLAGS", "CXXFLAGS",
     "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SYSTEMROOT",
     "DO_NOT_TRACK"}
)  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "GLOO_", "UCX_", "FI_", "HIP_", "ROCR_",
    "ROCM_", "HSA_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "TORCH",
    "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "TRANSFORMERS_",
    "TOKENIZERS_", "SAFETENSORS_", "VLLM_", "SGLANG_", "SGL_",
)  # fmt: skip
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Names of proxy variables, in either case. They may hold a password."""
_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")


def server_environment(
    environ: Mapping[str, str], *, from_hub: bool, keep: Collection[str] = ()
) -> dict[str, str]:
    """Return the part of `environ` that a server gets. `from_hub`: it fetches its model itself, for
    which it may need a token and a proxy. `keep`: further names."""
    return {
        name: value
        for name, value in environ.items()
        if name in keep or _is_needed(name, from_hub=from_hub)
    }


def _is_needed(name: str, *, from_hub: bool) -> bool:
    if name in _HUB_TOKENS or name.upper() in _PROXIES:
        return from_hub
    return (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name)
