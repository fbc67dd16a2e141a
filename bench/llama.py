"""llama.cpp as a peer of the benchmarks (scripts/llama_cpp.sh builds it)."""
import concurrent.futures
import json
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from measure import MODEL, PEERS, ROOT, call

BIN = PEERS / "llama.cpp" / "build" / "bin"


def available():
    return (BIN / "llama-server").exists() and (BIN / "llama-bench").exists()


def bf16_model():
    """The default target as a BF16 file: the values of its blocks, rounded. None when it cannot be
    made."""
    path = PEERS / "SmolLM2-135M-Instruct.BF16.gguf"
    if not path.exists() and available():
        made = path.with_suffix(".partial")
        run = subprocess.run([BIN / "llama-quantize", "--allow-requantize", MODEL, made, "BF16"],
                             capture_output=True, text=True, cwd=ROOT)
        if run.returncode != 0:
            print(f"  not measured: llama-quantize: {run.stderr.strip()[-300:]}")
            return None
        made.rename(path)
    return path if path.exists() else None


def decode_rate(model, threads, new_tokens, context):
    """Tokens a second of plain decoding behind `context` tokens, by llama-bench."""
    rows = call([BIN / "llama-bench", "-m", model, "-t", threads, "-p", 0, "-n", new_tokens,
                 "-d", context, "-r", 1, "-o", "json"])
    return {"tokens_per_second": rows[0]["avg_ts"]} if rows else None


def prompt_rate(model, threads, tokens):
    rows = call([BIN / "llama-bench", "-m", model, "-t", threads, "-p", tokens, "-n", 0, "-r", 3,
                 "-o", "json"])
    return {"tokens_per_second": rows[0]["avg_ts"]} if rows else None


class Server:
    """llama-server for greedy completions of token ids; `spec` are its options of drafting."""

    def __init__(self, model, threads, slots=1, spec=()):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url, self.slots = f"http://127.0.0.1:{port}", slots
        command = [BIN / "llama-server", "-m", model, "--host", "127.0.0.1", "--port", port,
                   "-t", threads, "-np", slots, "-c", 1024 * slots, *spec]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log,
                                        stderr=self.log)
        self._wait()

    def _wait(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/health").read()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        self.log.seek(0)
        raise RuntimeError("llama-server: " + self.log.read().decode(errors="replace")[-1000:])

    def complete(self, ids, max_new):
        body = {"prompt": list(ids), "n_predict": max_new, "temperature": 0.0, "top_k": 1,
                "cache_prompt": False, "return_tokens": True, "stream": False}
        request = urllib.request.Request(self.url + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())

    def one_by_one(self, prompts, max_new):
        """Decoding alone, as the server times it; tau from its count of accepted drafts."""
        tokens, seconds, passes = 0, 0.0, 0
        for ids in prompts:
            timings = self.complete(ids, max_new)["timings"]
            tokens += timings["predicted_n"] - 1  # the prompt's pass gives the first
            seconds += timings["predicted_ms"] / 1e3
            passes += timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0)
        return {"tokens_per_second": tokens / seconds, "tau": tokens / max(passes, 1)}

    def all_at_once(self, prompts, max_new):
        """Tokens a second of all slots together, prompts included."""
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.slots) as pool:
            answers = list(pool.map(lambda ids: self.complete(ids, max_new), prompts))
        seconds = time.monotonic() - start
        return {"tokens_per_second": sum(a["timings"]["predicted_n"] for a in answers) / seconds}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def exported(program, drafter):
    """The drafter as llama.cpp reads it."""
    path = PEERS / "drafter.gguf"
    path.parent.mkdir(exist_ok=True)
    subprocess.run([program, "export", drafter, "--format", "gguf", "--out", path, "--dtype",
                    "bf16", "--quiet"], check=True, cwd=ROOT, capture_output=True)
    return path
