"""llama.cpp's own server as a peer: target and drafter as GGUF, its `draft-dflash` speculation.

    with LlamaServer("llama-server", "target.gguf", "drafter.gguf", num_drafts=7) as server:
        ids, passes = server.generate(prompt_ids, 64)
"""
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LlamaServer:
    """Greedy, one sequence, f32 cache, no reuse of prompts."""

    def __init__(self, program, target, drafter, num_drafts, threads=1, start_seconds=300):
        self.url = f"http://127.0.0.1:{_free_port()}"
        port = self.url.rsplit(":", 1)[1]
        command = [program, "-m", target, "-md", drafter, "--spec-type", "draft-dflash",
                   "--spec-draft-n-max", num_drafts, "--spec-draft-n-min", 0, "--host", "127.0.0.1",
                   "--port", port, "-t", threads, "-c", 2048, "-np", 1, "-ctk", "f32", "-ctv",
                   "f32", "-ctkd", "f32", "-ctvd", "f32", "--no-warmup"]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log,
                                        stderr=self.log)
        self._wait(start_seconds)

    def _wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise RuntimeError("llama-server: " + self.log.read().decode()[-2000:])
            try:
                urllib.request.urlopen(self.url + "/health").read()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        raise RuntimeError(f"llama-server is not ready after {seconds} s")

    def generate(self, ids, max_new):
        """(ids of the answer with its end token, verify passes)"""
        body = {"prompt": list(ids), "n_predict": max_new, "temperature": 0.0, "seed": 1,
                "top_k": 1, "cache_prompt": False, "return_tokens": True, "stream": False}
        request = urllib.request.Request(self.url + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        answer = json.loads(urllib.request.urlopen(request).read())
        accepted = answer["timings"].get("draft_n_accepted", 0)
        # The prompt's pass gives one token; every other pass its accepted drafts and one more.
        return answer["tokens"], answer["timings"]["predicted_n"] - 1 - accepted

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
