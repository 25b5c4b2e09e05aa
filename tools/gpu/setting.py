"""Where a run takes place: the package, the device, the Python with JAX, and the sizes of a card or of its stand-in."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

GPT2_SMALL = dict(model_type="gpt2", n_layer=2, n_embd=64, n_head=4, vocab_size=512, n_positions=64)
LLAMA_SMALL = dict(model_type="llama", num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=128, vocab_size=512, tie_word_embeddings=True)
POLICIES = ["none", "dots", "dots_with_no_batch_dims", "names(qkv, attn)", "offload_names(qkv, attn)", "nothing"]

# The card's sizes are those of docs/FITTING.md.
CARD = dict(
    product=8192, every=11, properties=None, jobs=8, property_limit=240, search_seconds=60,
    step=dict(layers=8, width=512, heads=8, hidden=2048, sequence=512, batch=32, vocabulary=8192), step_dtypes=["f32", "bf16"],
    models={"gpt2": dict(batch=16, context=1024), "llama-1b": dict(batch=8, context=2048)},
    policies=POLICIES, peer_policies=POLICIES, peer_dtypes=["f32", "bf16"], torch=dict(batch=16, context=1024), steps=10,
    compared=dict(batch=1, context=256, steps=3), long_steps=1000, searched=["none", "nothing", "offload_names(qkv, attn)"],
    searched_models=["gpt2", "llama-1b"], tries=4,
    text_steps=2000, stopped_steps=400, model_limit=300,
)
STAND_IN = dict(
    # The suite itself runs on XLA:CPU among the tests; here a part of it, quickly.
    product=256, every=2003, properties=["errors_agree", "many_random_numbers_agree", "nan_wins_between_devices"], jobs=2, property_limit=60,
    search_seconds=2,
    step=dict(layers=1, width=16, heads=2, hidden=32, sequence=16, batch=2, vocabulary=64), step_dtypes=["f32"],
    models={"gpt2": dict(batch=2, context=32), "llama-1b": dict(batch=2, context=32)},
    policies=["none", "offload_names(qkv, attn)", "nothing"], peer_policies=["offload_names(qkv, attn)"], peer_dtypes=["f32"],
    torch=dict(batch=1, context=16, layers=1), steps=2, compared=dict(batch=1, context=16, steps=2), long_steps=60,
    searched=["nothing"], searched_models=["gpt2"], tries=2, text_steps=20, stopped_steps=40, model_limit=60,
)


def plain(policy):
    """The words of a policy, in whichever way and order it was typed or printed."""
    return sorted(re.findall(r"[a-z]+", policy.lower().replace("_", "")))


def packaged():
    """The folder with `bin`, `peers` and `text`: that which this script is in, or what was built into the build folder."""
    if (HERE.parent / "bin").is_dir():
        return HERE.parent
    root = HERE.parent.parent
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "gpu"


def plugin_of_python(python):
    """JAX's plugin for CUDA, by the import system of a Python; nothing if it has none."""
    code = "import importlib.util as u; s = u.find_spec('jax_plugins.xla_cuda13'); print(s.submodule_search_locations[0] if s else '')"
    try:
        said = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    file = Path(said) / "xla_cuda_plugin.so"
    return str(file) if said and file.is_file() else None


def version(python, module):
    """The version of a peer that a Python can import; nothing if it has none."""
    try:
        said = subprocess.run([python, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def card():
    """The name, the driver and the memory of the first card, by `nvidia-smi`; nothing without one."""
    fields = "name,driver_version,memory.total"
    try:
        said = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "-i", "0"], capture_output=True, text=True,
                              timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    values = [value.strip() for value in said.stdout.strip().splitlines()[0].split(",")] if said.returncode == 0 and said.stdout.strip() else []
    return dict(zip(("name", "driver", "memory"), values)) if values else None


class Setting:
    """What all stages share."""

    def __init__(self, options):
        self.is_stand_in = options.stand_in
        self.package = Path(options.package or packaged()).resolve()
        self.results = Path(options.results).resolve()
        self.device = options.device or ("xla-cpu" if self.is_stand_in else "cuda:0")
        self.sizes = dict(STAND_IN if self.is_stand_in else CARD)
        if options.python:
            self.python = options.python
        else:
            beside = Path(os.environ.get("REMAT_PEERS", HERE.parent.parent / "target" / "peers")) / "bin" / "python"
            self.python = str(beside) if beside.is_file() else sys.executable
        self.peers = {module: version(self.python, module) for module in ("jax", "torch")}
        self.card = card()
        self.environment = {"TF_CPP_MIN_LOG_LEVEL": "1"}
        self.found_by = "remat itself"
        # Of the card's memory, for all processes of a stage together.
        self.share = float(os.environ.get("REMAT_CUDA_MEMORY_FRACTION", "0.9"))
        self.models = {name: name for name in self.sizes["models"]}
        if self.is_stand_in:
            # Compiling takes most of the time.
            self.environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
            self._small_models()
        self.warm = options.warm
        self.peer_environment = {name: value for name, value in self.environment.items() if name == "XLA_FLAGS"}
        if self.warm:
            # JAX keeps what it compiles, as remat does.
            self.peer_environment |= {"JAX_COMPILATION_CACHE_DIR": str(self.results / "jax-cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                                      "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}

    def _small_models(self):
        for name, config in (("gpt2", GPT2_SMALL), ("llama-1b", LLAMA_SMALL)):
            path = self.results / "models" / name / "config.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(config))
            self.models[name] = str(path)

    def program(self, name):
        return self.package / "bin" / name

    def peer(self, name):
        return [self.python, self.package / "peers" / name]

    def chip(self):
        """The name of the card in `remat fit --target`."""
        name = (self.card or {}).get("name", "")
        found = next((chip for chip in ("h100", "h200", "b200") if chip.upper() in name), None)
        return "xla-cpu" if self.is_stand_in else found or "h100"

    def find_plugin(self):
        """Where remat does not find JAX's plugin itself, because its `python3` is a script or another one, it is told the file."""
        if self.is_stand_in or os.environ.get("REMAT_PJRT_PLUGIN_CUDA"):
            return
        try:
            said = subprocess.run([str(self.program("remat")), "plugin", "list"], capture_output=True, text=True, timeout=120).stdout
        except (OSError, subprocess.TimeoutExpired):
            # The first stage says so.
            return
        rows = [line.split() for line in said.splitlines() if line.startswith("cuda")]
        if rows and len(rows[0]) > 1 and rows[0][1] not in ("-", "?"):
            return
        file = plugin_of_python(self.python)
        if file:
            self.environment["REMAT_PJRT_PLUGIN_CUDA"] = file
            self.found_by = f"the script: {file}"

    def described(self):
        """What a reader of the results has to know."""
        manifest = self.package / "manifest.json"
        return dict(
            revision=json.loads(manifest.read_text()).get("revision") if manifest.is_file() else None,
            date=time.strftime("%Y-%m-%d"), device=self.device, stand_in=self.is_stand_in, card=self.card, **self.peers, python=self.python,
            glibc=" ".join(platform.libc_ver()), cores=os.cpu_count(), plugin_found_by=self.found_by,
            has_smi=shutil.which("nvidia-smi") is not None,
        )
