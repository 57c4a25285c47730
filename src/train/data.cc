#include "train/data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "coda/error.h"

namespace coda {
namespace {

std::vector<char> read_whole(const std::string& path) {
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) ::close(fd);
    }
  } file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  auto refuse = [&](const std::string& found) {
    throw Error({path, found, "a text file, or a .bin file of token ids", "Check the path."});
  };
  if (file.fd < 0) refuse(fmt::format("can't be opened ({})", std::strerror(errno)));
  struct stat status;
  if (::fstat(file.fd, &status) != 0) refuse(fmt::format("can't be read ({})", std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) refuse("a directory");
  std::vector<char> bytes;
  // Not by st_size alone: a pipe or a file in /proc has none.
  std::size_t chunk = std::max<std::size_t>(static_cast<std::size_t>(std::max<off_t>(status.st_size, 0)) + 1, 1 << 16);
  for (std::size_t used = 0;;) {
    bytes.resize(used + chunk);
    ssize_t got = ::read(file.fd, bytes.data() + used, chunk);
    if (got < 0 && errno != EINTR) refuse(fmt::format("can't be read ({})", std::strerror(errno)));
    used += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    bytes.resize(used);
    if (got == 0) return bytes;
    chunk = 1 << 20;
  }
}

bool is_ids(const std::string& path) { return path.size() >= 4 && path.compare(path.size() - 4, 4, ".bin") == 0; }

// A well mixed number for each (seed, step, row): two rounds of a 64-bit finaliser.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::int64_t random_below(std::int64_t n, std::uint64_t seed, std::int64_t step, std::int64_t row) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  std::uint64_t x = mix(seed + kGolden);
  x = mix(x + (static_cast<std::uint64_t>(step) + 1) * kGolden);
  x = mix(x + (static_cast<std::uint64_t>(row) + 1) * kGolden);
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<std::int64_t>((static_cast<Wide>(x) * static_cast<Wide>(n)) >> 64);
}

void check_options(const DataOptions& o) {
  constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 31) - 1;
  if (o.sequence < 1) throw Error({"sequence length", fmt::format("{}", o.sequence), "at least 1", ""});
  if (o.vocab < 0 || o.vocab > kMaxVocab)
    throw Error({"vocab", fmt::format("{}", o.vocab), fmt::format("0 (find out) to {}", kMaxVocab), ""});
  if (o.id_bytes != 0 && o.id_bytes != 2 && o.id_bytes != 4)
    throw Error({"bytes per token id", fmt::format("{}", o.id_bytes), "2, 4, or 0 (by vocab)", ""});
  if (!(o.validation > 0 && o.validation < 1))
    throw Error({"validation share", fmt::format("{}", o.validation), "a number between 0 and 1", "Try 0.1."});
}

}  // namespace

TokenData::TokenData(const DataOptions& o) : path_(o.path), sequence_(o.sequence), vocab_(o.vocab) {
  check_options(o);
  bytes_ = read_whole(path_);
  if (bytes_.empty()) throw Error({path_, "an empty file", "a text file, or a .bin file of token ids", ""});
  if (is_ids(path_)) {
    width_ = o.id_bytes != 0 ? o.id_bytes : o.vocab > 65536 ? 4 : 2;
    if (bytes_.size() % static_cast<std::size_t>(width_) != 0)
      throw Error({path_, fmt::format("{} bytes", bytes_.size()),
                   fmt::format("a whole number of {}-byte token ids", width_),
                   "Set the bytes per token id, or rename the file if it is text."});
  } else {
    if (vocab_ != 0 && vocab_ < 256)
      throw Error(
          {"vocab", fmt::format("{}", vocab_), "at least 256 for text, whose bytes are the tokens", "Leave it out."});
    if (vocab_ == 0) vocab_ = 256;
    const void* nul = o.allow_binary ? nullptr : std::memchr(bytes_.data(), 0, bytes_.size());
    if (nul != nullptr)
      throw Error({path_,
                   fmt::format("a NUL byte at offset {}: no text file", static_cast<const char*>(nul) - bytes_.data()),
                   "text", "Name a file of token ids .bin, or pass --allow-binary to train on the bytes as they are."});
  }
  size_ = static_cast<std::int64_t>(bytes_.size()) / width_;
  std::int64_t needed = sequence_ + 1;  // of each part: a sequence and the token after it
  std::int64_t validation =
      std::max(static_cast<std::int64_t>(std::llround(static_cast<double>(size_) * o.validation)), needed);
  train_size_ = size_ - validation;
  if (train_size_ < needed)
    throw Error({path_, fmt::format("{} tokens", size_),
                 fmt::format("at least {}: a sequence of {} and its next token, to train and to validate on",
                             2 * needed, sequence_),
                 "Use a longer file or a shorter sequence."});
  check_tokens();
}

void TokenData::check_tokens() {
  if (width_ == 1) return;
  std::int64_t largest = 0, where = 0;
  for (std::int64_t i = 0; i < size_; ++i) {
    std::uint32_t id = 0;
    std::memcpy(&id, bytes_.data() + i * width_, static_cast<std::size_t>(width_));
    if (id > largest) largest = id, where = i;
  }
  std::int64_t limit = vocab_ != 0 ? vocab_ : (std::int64_t{1} << 31) - 1;
  if (largest >= limit)
    throw Error({path_, fmt::format("token id {} at position {}", largest, where), fmt::format("ids below {}", limit),
                 "Set the vocab and the bytes per token id that the file was made with."});
  if (vocab_ == 0) vocab_ = largest + 1;
}

std::int32_t TokenData::token(std::int64_t i) const {
  if (width_ == 1) return static_cast<unsigned char>(bytes_[static_cast<std::size_t>(i)]);
  std::int32_t id = 0;
  std::memcpy(&id, bytes_.data() + i * width_, static_cast<std::size_t>(width_));
  return id;
}

void TokenData::copy(std::int64_t start, std::int32_t* inputs, std::int32_t* targets) const {
  for (std::int64_t i = 0; i < sequence_; ++i) inputs[i] = token(start + i);
  for (std::int64_t i = 0; i < sequence_; ++i) targets[i] = token(start + i + 1);
}

void TokenData::train_batch(std::uint64_t seed, std::int64_t step, std::int64_t batch, std::int32_t* inputs,
                            std::int32_t* targets) const {
  for (std::int64_t row = 0; row < batch; ++row)
    copy(random_below(train_size_ - sequence_, seed, step, row), inputs + row * sequence_, targets + row * sequence_);
}

std::int64_t TokenData::validation_sequences() const { return (size_ - train_size_ - 1) / sequence_; }

void TokenData::validation_batch(std::int64_t index, std::int64_t count, std::int64_t batch, std::int32_t* inputs,
                                 std::int32_t* targets) const {
  CODA_CHECK(index >= 0 && index < count, "no such validation batch");
  std::int64_t sequences = validation_sequences(), wanted = count * batch;
  for (std::int64_t row = 0; row < batch; ++row) {
    std::int64_t number = index * batch + row;
    // Whole sequences apart when there are enough of them, all of them when there are not.
    std::int64_t at = wanted <= sequences ? number * sequences / wanted : number % sequences;
    copy(train_size_ + at * sequence_, inputs + row * sequence_, targets + row * sequence_);
  }
}

}  // namespace coda
