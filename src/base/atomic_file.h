// Files that are whole or not there: written under a temporary name in the same folder, flushed to the disk, then
// renamed. Called by whatever writes a result (weights, checkpoints, curves). Invariant: whatever happens before
// commit() returns, the old file, if any, is untouched; and no temporary stays behind unless the process is killed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coda {

class AtomicFile {
 public:
  // Error if the folder does not exist or can't be written.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);  // Error if the disk is full, …
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();  // once, after the last write

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::string path_, temporary_;
  int fd_ = -1;
};

// Makes `dir` (and its parents) if it is missing and proves by a temporary file that it can be written; Error
// otherwise. For the start of a long run: so that it does not fail at its first save.
void check_writable(const std::string& dir);

}  // namespace coda
