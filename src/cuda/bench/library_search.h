// Where a CUDA library may lie: the order in which files are tried. Called by whoever opens one at run time.
#pragma once

#include <string>
#include <vector>

namespace coda::cuda {

struct LibraryName {
  std::string variable;                    // CODA_CUBLAS: the file itself; nothing else is tried then
  std::vector<std::string> sonames;        // libcublas.so.13, libcublas.so.12: the best first
  std::vector<std::string> wheel_folders;  // below site-packages: nvidia/cu13/lib
};

// Sonames as the loader finds them; then existing files: below CUDA_HOME and CUDA_PATH, in the Python wheels of
// $VIRTUAL_ENV, of the python3 on PATH and of the system, in /usr/local/cuda*.
std::vector<std::string> library_files(const LibraryName& name);

// The first of them that opens, with its name; Error that lists what was tried, `purpose` its way out.
struct OpenLibrary {
  void* handle = nullptr;
  std::string file;
};
OpenLibrary open_library(const LibraryName& name, const std::string& purpose);

}  // namespace coda::cuda
