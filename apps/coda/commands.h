// The subcommands of `coda`. Each adds itself to the parser and runs when chosen; a failure throws, main() turns it
// into a message and an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace coda::cli {

void add_train(CLI::App& app);
void add_run(CLI::App& app);
void add_explain(CLI::App& app);
void add_check(CLI::App& app);
void add_bench(CLI::App& app, const std::string& command);  // `command`: as it was typed; kept with the results

// Thrown by a command that has already said what failed (check): the process ends with this code.
struct ExitCode {
  int code;
};

}  // namespace coda::cli
