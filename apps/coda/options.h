// Options that several subcommands share: NAME=VALUE lists, sizes, where JSON goes.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coda/dim.h"
#include "coda/graph.h"

namespace coda::cli {

// "M=64" → {"M", 64}. Error that shows the form for anything else.
Sizes parse_sizes(const std::vector<std::string>& items);
// Error for a size that the program does not have.
void check_sizes_are_known(const Graph& g, const Sizes& sizes);
std::map<std::string, double> parse_numbers(const std::string& option, const std::vector<std::string>& items);
std::map<std::string, std::string> parse_names(const std::string& option, const std::vector<std::string>& items);

// A word as a shell takes it: quoted if it must be.
std::string shell_word(const std::string& word);

// The file is whole or not there. Error if the path cannot be written.
void write_json(const std::string& path, const nlohmann::json& value);
// Before work starts: Error if `path` could not be written later.
void check_json_path(const std::string& path);

}  // namespace coda::cli
