// Options that several subcommands share: NAME=VALUE lists, sizes, where JSON goes.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coda/dim.h"

namespace coda::cli {

// "M=64" → {"M", 64}. Error that shows the form for anything else.
Sizes parse_sizes(const std::vector<std::string>& items);
std::map<std::string, double> parse_numbers(const std::string& option, const std::vector<std::string>& items);
std::map<std::string, std::string> parse_names(const std::string& option, const std::vector<std::string>& items);

// Writes atomically (temporary name, then rename). Error if the path cannot be written.
void write_json(const std::string& path, const nlohmann::json& value);
// Before work starts: Error if `path` could not be written later.
void check_json_path(const std::string& path);

}  // namespace coda::cli
