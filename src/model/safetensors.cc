#include "model/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/atomic_file.h"
#include "coda/dtype.h"
#include "coda/error.h"

namespace coda {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is the code");

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::int64_t kMaxHeader = 100'000'000;  // the format's own limit

constexpr StoredType kTypes[] = {StoredType::kF32, StoredType::kBF16, StoredType::kF16,
                                 StoredType::kI32, StoredType::kI64,  StoredType::kU8};

std::optional<StoredType> parse_type(std::string_view text) {
  for (StoredType t : kTypes)
    if (name(t) == text) return t;
  return std::nullopt;
}

// Product of the sizes times the element's bytes; nothing if that leaves 63 bits.
std::optional<std::int64_t> byte_count(const std::vector<std::int64_t>& shape, StoredType type) {
  std::int64_t bytes = size_of(type);
  for (std::int64_t n : shape)
    if (n == 0) return 0;
  for (std::int64_t n : shape)
    if (__builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  return bytes;
}

// The header as JSON. The parser itself would let the last of several equal names win.
Json parse_json(const std::string& text, std::string* repeated) {
  std::vector<std::set<std::string>> names;
  auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      *repeated = parsed.get<std::string>();
    return true;
  };
  return Json::parse(text, watch, false);  // discarded if it is no JSON
}

std::optional<std::int64_t> as_size(const Json& j) {
  if (!j.is_number_unsigned()) return std::nullopt;
  std::uint64_t n = j.get<std::uint64_t>();
  if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(n);
}

std::optional<std::vector<std::int64_t>> as_sizes(const Json& parent, const char* key) {
  auto it = parent.find(key);
  if (it == parent.end() || !it->is_array()) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Json& j : *it) {
    std::optional<std::int64_t> n = as_size(j);
    if (!n) return std::nullopt;
    sizes.push_back(*n);
  }
  return sizes;
}

void read_exactly(int fd, const std::string& path, std::int64_t offset, void* dst, std::int64_t bytes) {
  char* at = static_cast<char*>(dst);
  while (bytes > 0) {
    ssize_t got = ::pread(fd, at, static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 30)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error({path, got < 0 ? fmt::format("a read error ({})", std::strerror(errno)) : "an end that came too soon",
                   "a file that stays as it was when it was opened", "Use another copy of the file."});
    at += got;
    offset += got;
    bytes -= got;
  }
}

}  // namespace

int size_of(StoredType t) {
  switch (t) {
    case StoredType::kF32:
    case StoredType::kI32: return 4;
    case StoredType::kBF16:
    case StoredType::kF16: return 2;
    case StoredType::kI64: return 8;
    case StoredType::kU8: return 1;
  }
  return 0;
}

std::string_view name(StoredType t) {
  constexpr std::string_view kNames[] = {"F32", "BF16", "F16", "I32", "I64", "U8"};
  return kNames[static_cast<int>(t)];
}

std::int64_t StoredTensor::elements() const {
  std::int64_t n = 1;
  for (std::int64_t s : shape) {
    if (s == 0) return 0;
    n *= s;
  }
  return n;
}

std::string StoredTensor::str() const { return fmt::format("{}[{}]", coda::name(type), fmt::join(shape, ",")); }

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0)
    throw Error(
        {path_, fmt::format("can't be opened ({})", std::strerror(errno)), "a safetensors file", "Check the path."});
  try {
    struct stat status;
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) malformed("no regular file", "a safetensors file");
    std::int64_t size = status.st_size;
    if (size < 8) malformed(fmt::format("{} bytes", size), "at least the 8 bytes of the header's length");
    std::uint64_t length = 0;
    read_exactly(fd_, path_, 0, &length, 8);
    std::int64_t longest = std::min(size - 8, kMaxHeader);
    if (length > static_cast<std::uint64_t>(longest))
      malformed(fmt::format("a header of {} bytes in a file of {}", length, size), fmt::format("at most {}", longest));
    std::string text(length, '\0');
    read_exactly(fd_, path_, 8, text.data(), static_cast<std::int64_t>(length));
    std::int64_t start = 8 + static_cast<std::int64_t>(length);
    parse_header(text, start, size - start);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::close(fd_); }

void SafetensorsFile::malformed(const std::string& found, const std::string& allowed) const {
  throw Error({path_, found, allowed, "The file is damaged or no safetensors file: use another copy."});
}

void SafetensorsFile::parse_header(const std::string& text, std::int64_t data_start, std::int64_t data_bytes) {
  std::string repeated;
  Json header = parse_json(text, &repeated);
  if (!header.is_object()) malformed("a header that is no JSON object", "a JSON object of tensors by name");
  if (!repeated.empty()) malformed(fmt::format("'{}' twice in the header", repeated), "each name once");
  for (const auto& [key, entry] : header.items()) {
    if (key == kMetadataKey) {
      if (!entry.is_object()) malformed("metadata that is no object", "an object of strings");
      for (const auto& [k, v] : entry.items()) {
        if (!v.is_string()) malformed(fmt::format("metadata '{}' that is no string", k), "strings");
        metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    StoredTensor t;
    t.name = key;
    if (!entry.is_object())
      malformed(fmt::format("tensor '{}' without a description", key), "dtype, shape, data_offsets");
    auto dtype = entry.find("dtype");
    std::string type_name = dtype != entry.end() && dtype->is_string() ? dtype->get<std::string>() : "no name";
    std::optional<StoredType> type = parse_type(type_name);
    if (!type) malformed(fmt::format("tensor '{}' with dtype {}", key, type_name), "F32, BF16, F16, I32, I64, U8");
    t.type = *type;
    auto shape = as_sizes(entry, "shape"), offsets = as_sizes(entry, "data_offsets");
    if (!shape) malformed(fmt::format("tensor '{}' without a shape", key), "a list of sizes");
    if (!offsets || offsets->size() != 2)
      malformed(fmt::format("tensor '{}' without offsets", key), "a pair [begin, end]");
    t.shape = *shape;
    std::int64_t begin = (*offsets)[0], end = (*offsets)[1];
    std::optional<std::int64_t> bytes = byte_count(t.shape, t.type);
    if (begin > end || end > data_bytes)
      malformed(fmt::format("tensor '{}' at bytes {} to {} of {}", key, begin, end, data_bytes),
                "a place inside the file");
    if (!bytes || *bytes != end - begin)
      malformed(fmt::format("tensor '{}' of shape {} in {} bytes", key, t.str(), end - begin),
                "as many bytes as it takes");
    t.offset = data_start + begin;
    tensors_.push_back(std::move(t));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes() < b.bytes();
  });
  std::int64_t at = data_start;
  for (const StoredTensor& t : tensors_) {
    if (t.offset < at)
      malformed(fmt::format("tensor '{}' inside the bytes of another", t.name), "tensors side by side");
    if (t.offset > at) malformed(fmt::format("a gap before tensor '{}'", t.name), "tensors side by side");
    at += t.bytes();
  }
  if (at != data_start + data_bytes)
    malformed(fmt::format("{} bytes after the last tensor", data_start + data_bytes - at), "none");
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

void SafetensorsFile::read(const StoredTensor& t, void* dst) const {
  read_exactly(fd_, path_, t.offset, dst, t.bytes());
}

void SafetensorsFile::read_f32(const StoredTensor& t, float* dst) const {
  if (t.type == StoredType::kF32) return read(t, dst);
  if (t.type != StoredType::kBF16 && t.type != StoredType::kF16)
    throw Error({path_, fmt::format("tensor '{}' is {}", t.name, t.str()), "F32, BF16 or F16", ""});
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(t.elements()));
  read(t, bits.data());
  for (std::size_t i = 0; i < bits.size(); ++i)
    dst[i] = t.type == StoredType::kBF16 ? to_float(BF16{bits[i]}) : to_float(F16{bits[i]});
}

namespace {

std::string header_text(const std::string& path, const std::vector<TensorToStore>& tensors,
                        const StoredMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::int64_t at = 0;
  for (const TensorToStore& t : tensors) {
    auto refuse = [&](const std::string& found, const std::string& allowed) {
      throw Error({path, fmt::format("tensor '{}' {}", t.name, found), allowed, ""});
    };
    if (t.name == kMetadataKey || header.contains(t.name)) refuse("has a name that is taken", "names of their own");
    for (std::int64_t n : t.shape)
      if (n < 0) refuse("has a negative size", "sizes ≥ 0");
    std::optional<std::int64_t> bytes = byte_count(t.shape, t.type);
    if (!bytes) refuse("has more elements than can be counted", "fewer than 2^63 bytes");
    if (t.data == nullptr && *bytes > 0) refuse("has no data", "a pointer to its elements");
    header[t.name] = {{"dtype", name(t.type)}, {"shape", t.shape}, {"data_offsets", {at, at + *bytes}}};
    at += *bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error&) {
    throw Error({path, "a tensor's name or metadata that is not UTF-8", "UTF-8 text", ""});
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data are aligned
  if (static_cast<std::int64_t>(text.size()) > kMaxHeader)
    throw Error({path, fmt::format("a header of {} bytes", text.size()), fmt::format("at most {}", kMaxHeader),
                 "Shorten the metadata."});
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                       const StoredMetadata& metadata) {
  std::string text = header_text(path, tensors, metadata);
  AtomicFile file(path);
  std::uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text);
  for (const TensorToStore& t : tensors) {
    std::int64_t bytes = *byte_count(t.shape, t.type);
    file.write(t.data, static_cast<std::size_t>(bytes));
  }
  file.commit();
}

}  // namespace coda
