// Shared options; see options.h.
#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "coda/error.h"

namespace coda::cli {
namespace {

std::pair<std::string, std::string> halves_of(const std::string& option, const std::string& item) {
  auto eq = item.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == item.size())
    throw Error({option, "'" + item + "'", "NAME=VALUE",
                 fmt::format("For example {} {}.", option, option == "--size" ? "M=64" : "x=value")});
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
    if (!numbers.emplace(name, value).second) throw Error({option + " " + name, "given twice", "once", ""});
  }
  return numbers;
}

std::map<std::string, std::string> parse_names(const std::string& option, const std::vector<std::string>& items) {
  std::map<std::string, std::string> names;
  for (const std::string& item : items) {
    auto [name, text] = halves_of(option, item);
    if (!names.emplace(name, text).second) throw Error({option + " " + name, "given twice", "once", ""});
  }
  return names;
}

void check_sizes_are_known(const Graph& g, const Sizes& sizes) {
  std::vector<std::string> known = g.free_sizes();
  for (const Where& w : g.wheres()) known.push_back(w.size);
  for (const auto& [name, value] : sizes)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error({"--size " + name, "no size of " + g.name(), fmt::format("{}", fmt::join(known, ", ")), ""});
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void check_json_path(const std::string& path) {
  if (path.empty()) return;
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path directory = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  if (fs::is_directory(path, none)) throw Error({"--json", "'" + path + "', a directory", "the name of a file", ""});
  if (fs::exists(path, none) && !fs::is_regular_file(path, none))
    throw Error({"--json", "'" + path + "', a device or pipe", "the name of a file", ""});
  if (!fs::is_directory(directory, none))
    throw Error({"--json", "'" + path + "', in a directory that does not exist", "a path in an existing directory",
                 "Create it first."});
  check_writable(directory.string());
}

void write_json(const std::string& path, const nlohmann::json& value) {
  AtomicFile file(path);
  file.write(value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  file.commit();
}

}  // namespace coda::cli
