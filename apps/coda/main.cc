// The coda command line: parses, runs one subcommand, and maps failures to exit codes: 0 success, 1 the command found
// something wrong, 2 a mistake in what it was given, 3 a bug of ours.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "coda/error.h"
#include "commands.h"
#include "options.h"

namespace {

std::string command_line(int argc, char** argv) {
  std::string text = "coda";
  for (int i = 1; i < argc; ++i) text += " " + coda::cli::shell_word(argv[i]);
  return text;
}

void check_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (c->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + c->get_name();
  }
  throw coda::Error({"subcommand", fmt::format("'{}'", argv[1]), names, "`coda --help` describes them."});
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("coda"));
  spdlog::set_pattern("%v");
  CLI::App app{"coda: the training computation of transformer blocks as GEMM-plus-epilogue programs."};
  app.require_subcommand(1);
  app.set_version_flag("--version", CODA_VERSION);
  app.set_help_all_flag("--help-all", "Help of every subcommand");
  coda::cli::add_train(app);
  coda::cli::add_run(app);
  coda::cli::add_explain(app);
  coda::cli::add_check(app);
  coda::cli::add_bench(app, command_line(argc, argv));
  try {
    check_subcommand(app, argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    int code = app.exit(e);
    return code == 0 ? 0 : 2;
  } catch (const coda::cli::ExitCode& e) {
    return e.code;
  } catch (const coda::Error& e) {
    fmt::print(stderr, "coda: {}\n", e.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "coda: sizes: more than fits in memory; allowed: what this machine can hold. Choose smaller ones.\n");
    return 2;
  } catch (const std::filesystem::filesystem_error& e) {
    fmt::print(stderr, "coda: {}: {}\n", e.path1().string(), e.code().message());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "coda: {}\n", e.what());
    return 3;
  }
}
