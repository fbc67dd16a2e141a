// The verb that predicts a training run.
#pragma once

namespace dflash::cli {

int run_plan(int argc, char** argv);

}  // namespace dflash::cli
