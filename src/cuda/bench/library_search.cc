// The search for CUDA libraries; see library_search.h.
#include "cuda/bench/library_search.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "coda/error.h"

namespace coda::cuda {
namespace {

namespace fs = std::filesystem;

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Folders in `parent` whose name starts with `prefix`, the last in order (the newest version) first.
std::vector<fs::path> folders(const fs::path& parent, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<fs::path> toolkit_folders(const fs::path& root) {
  return {root / "lib64", root / "targets/x86_64-linux/lib", root / "lib"};
}

// Prefixes of Python installations: their packages are in lib/python3.x/.
std::vector<fs::path> python_prefixes() {
  std::vector<fs::path> prefixes;
  if (std::string venv = environment("VIRTUAL_ENV"); !venv.empty()) prefixes.emplace_back(venv);
  std::istringstream path(environment("PATH"));
  std::error_code error;
  for (std::string folder; std::getline(path, folder, ':');)
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) {
      prefixes.push_back(fs::path(folder).parent_path());
      break;
    }
  prefixes.emplace_back("/usr/local");
  return prefixes;
}

std::vector<fs::path> search_folders(const LibraryName& name) {
  std::vector<fs::path> list;
  auto add = [&](const std::vector<fs::path>& more) { list.insert(list.end(), more.begin(), more.end()); };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = environment(variable); !root.empty()) add(toolkit_folders(root));
  for (const fs::path& prefix : python_prefixes())
    for (const fs::path& python : folders(prefix / "lib", "python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const std::string& wheel : name.wheel_folders) list.push_back(python / packages / wheel);
  for (const fs::path& root : folders("/usr/local", "cuda")) add(toolkit_folders(root));
  return list;
}

}  // namespace

std::vector<std::string> library_files(const LibraryName& name) {
  if (std::string file = environment(name.variable); !file.empty()) return {file};
  std::vector<std::string> files = name.sonames;
  std::error_code error;
  for (const fs::path& folder : search_folders(name))
    for (const std::string& soname : name.sonames)
      if (std::string file = (folder / soname).string();
          fs::exists(file, error) && std::find(files.begin(), files.end(), file) == files.end())
        files.push_back(file);
  return files;
}

OpenLibrary open_library(const LibraryName& name, const std::string& purpose) {
  std::vector<std::string> tried;
  for (const std::string& file : library_files(name)) {
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, file};
    tried.emplace_back(dlerror());
  }
  throw Error({name.sonames[0], fmt::format("not found ({})", fmt::join(tried, "; ")),
               "a file named by " + name.variable + ", or one that the loader, CUDA_HOME or a Python wheel has",
               purpose});
}

}  // namespace coda::cuda
