// Shared options; see options.h.
#include "options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coda/error.h"

namespace coda::cli {
namespace {

std::pair<std::string, std::string> halves_of(const std::string& option, const std::string& item) {
  auto eq = item.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == item.size())
    throw Error({option, "'" + item + "'", "NAME=VALUE", fmt::format("For example {} {}.", option, option == "--size" ? "M=64" : "x=value")});
  return {item.substr(0, eq), item.substr(eq + 1)};
}

}  // namespace

Sizes parse_sizes(const std::vector<std::string>& items) {
  Sizes sizes;
  for (const std::string& item : items) {
    auto [name, text] = halves_of("--size", item);
    char* end = nullptr;
    errno = 0;
    long long value = std::strtoll(text.c_str(), &end, 10);
    if (*end != '\0' || errno != 0 || value < 0 || value > (1LL << 40))
      throw Error({"--size " + name, "'" + text + "'", "a whole number from 0 to 2^40", ""});
    if (!sizes.emplace(name, value).second) throw Error({"--size " + name, "given twice", "once", ""});
  }
  return sizes;
}

std::map<std::string, double> parse_numbers(const std::string& option, const std::vector<std::string>& items) {
  std::map<std::string, double> numbers;
  for (const std::string& item : items) {
    auto [name, text] = halves_of(option, item);
    char* end = nullptr;
    double value = std::strtod(text.c_str(), &end);
    if (*end != '\0') throw Error({option + " " + name, "'" + text + "'", "a number", ""});
    numbers[name] = value;
  }
  return numbers;
}

std::map<std::string, std::string> parse_names(const std::string& option, const std::vector<std::string>& items) {
  std::map<std::string, std::string> names;
  for (const std::string& item : items) names.insert(halves_of(option, item));
  return names;
}

void check_json_path(const std::string& path) {
  if (path.empty()) return;
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (std::filesystem::is_directory(path)) throw Error({"--json", "'" + path + "', a directory", "the name of a file", ""});
  if (!directory.empty() && !std::filesystem::is_directory(directory))
    throw Error({"--json", "'" + path + "', in a directory that does not exist", "a path in an existing directory", "Create it first."});
  std::string probe = path + ".tmp";
  std::ofstream out(probe);
  if (!out) throw Error({"--json", fmt::format("'{}': {}", path, std::strerror(errno)), "a writable path", ""});
  out.close();
  std::filesystem::remove(probe);
}

void write_json(const std::string& path, const nlohmann::json& value) {
  std::string temporary = path + ".tmp";
  {
    std::ofstream out(temporary);
    out << value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    if (!out) throw Error({"--json", fmt::format("'{}': {}", path, std::strerror(errno)), "a writable path", ""});
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace coda::cli
