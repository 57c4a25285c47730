#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  struct stat status;
  if (::stat(path_.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    throw Error({path_, "a directory", "the name of a file", "Add a file name."});
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) fail("create a file beside it");
  mode_t mask = ::umask(0);  // mkostemp makes files for the owner alone; a result gets the usual rights
  ::umask(mask);
  ::fchmod(fd_, 0666 & ~mask);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* doing) const {
  throw Error({path_, fmt::format("can't {} ({})", doing, std::strerror(errno)), "",
               fmt::format("Check that {} exists, is yours to write and has room.", folder_of(path_))});
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  CODA_CHECK(fd_ >= 0, "write to a committed file");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t done = ::write(fd_, at, std::min(bytes, std::size_t{1} << 30));
    if (done < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  CODA_CHECK(fd_ >= 0, "commit of a committed file");
  if (::fsync(fd_) != 0) fail("flush");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
  ::close(std::exchange(fd_, -1));
  // The rename itself survives a power cut only once the folder is flushed; file systems that can't are left alone.
  int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

void check_writable(const std::string& dir) {
  std::error_code status;
  fs::create_directories(dir.empty() ? "." : dir, status);
  std::string probe = (fs::path(dir.empty() ? "." : dir) / ".coda-write-test.XXXXXX").string();
  int fd = status ? -1 : ::mkostemp(probe.data(), O_CLOEXEC);
  if (fd < 0) {
    std::string reason = status ? status.message() : std::strerror(errno);
    throw Error({dir, fmt::format("can't be written ({})", reason),
                 "a folder that you may write, or the name of a new one", "Choose another output folder."});
  }
  ::close(fd);
  ::unlink(probe.c_str());
}

}  // namespace coda
