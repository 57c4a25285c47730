// Reading and writing safetensors files: eight bytes of header length, a JSON header, the tensors' bytes. Called by the
// model (weights) and the trainer (checkpoints). Invariant: a file that opens is sound: every tensor's bytes lie inside
// it, none shares any, none are left over; everything else is an Error that names the file and what is wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coda {

enum class StoredType : std::uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };
int size_of(StoredType t);
std::string_view name(StoredType t);  // as in the file: "F32", "BF16", "F16", "I32", "I64", "U8"

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape;  // row-major; {} is one number
  std::int64_t offset = 0;          // of its first byte in the file
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * size_of(type); }
  std::string str() const;  // "F32[64,128]"
};

using StoredMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const StoredTensor* find(std::string_view name) const;                 // nullptr if there is none
  const StoredMetadata& metadata() const { return metadata_; }

  void read(const StoredTensor& t, void* dst) const;       // t.bytes() bytes, as stored
  void read_f32(const StoredTensor& t, float* dst) const;  // t.elements() floats from F32, BF16 or F16; else Error

 private:
  void parse_header(const std::string& text, std::int64_t data_start, std::int64_t data_bytes);
  [[noreturn]] void malformed(const std::string& found, const std::string& allowed) const;

  std::string path_;
  int fd_ = -1;
  std::vector<StoredTensor> tensors_;
  StoredMetadata metadata_;
};

struct TensorToStore {
  std::string name;
  StoredType type;
  std::vector<std::int64_t> shape;
  const void* data;  // row-major, contiguous
};

// Atomic: `path` is replaced once all is on the disk. Error for a repeated or reserved name ("__metadata__"), text that
// is not UTF-8, a negative size, a null pointer, or a folder that can't be written.
void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                       const StoredMetadata& metadata);

}  // namespace coda
