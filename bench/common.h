// What the benches on a target share: the median of a few rounds and the command line.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "nn/compute.h"

namespace dflash {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [model.gguf or folder] [f32|bf16|auto] [context rows] -> run(path, compute, context). The exit
/// code.
template <typename Run>
int run_on_target(int argc, char** argv, const Run& run) {
  try {
    const std::string path = argc > 1 ? argv[1] : "assets/SmolLM2-135M-Instruct.Q4_1.gguf";
    run(path, nn::parse_compute(argc > 2 ? argv[2] : "auto"), argc > 3 ? std::stol(argv[3]) : 256);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace dflash
