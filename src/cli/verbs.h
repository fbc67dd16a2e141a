// The verbs of the program. One file a verb; the only place where modules are wired together.
#pragma once

#include <span>

namespace dflash::cli {

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);  // argv[0] is the verb; returns the exit code
};

std::span<const Verb> verbs();

int run_quickstart(int argc, char** argv);
int run_regenerate(int argc, char** argv);
int run_prepare(int argc, char** argv);
int run_capture(int argc, char** argv);
int run_train(int argc, char** argv);
int run_eval(int argc, char** argv);
int run_generate(int argc, char** argv);
int run_chat(int argc, char** argv);
int run_serve(int argc, char** argv);
int run_export(int argc, char** argv);
int run_import(int argc, char** argv);
int run_runs(int argc, char** argv);
int run_inspect(int argc, char** argv);
int run_doctor(int argc, char** argv);

/// The whole program: dispatch, help, and the one place where errors become exit codes.
int run_program(int argc, char** argv);

}  // namespace dflash::cli
