// Safetensors files: what is written is read back, what is malformed is refused by name, and random damage never does
// worse than an Error.
#include "model/safetensors.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "coda/dtype.h"
#include "coda/error.h"
#include "temp_dir.h"

using namespace coda;

namespace {

// A file with this header text and these data bytes.
std::string file_bytes(const std::string& header, const std::string& data) {
  std::uint64_t n = header.size();
  std::string bytes(reinterpret_cast<const char*>(&n), 8);
  return bytes + header + data;
}

std::string message_of(const std::string& path) {
  try {
    SafetensorsFile file(path);
  } catch (const Error& e) {
    CHECK(e.parts().argument == path);
    CHECK_FALSE(e.parts().way_out.empty());
    return e.what();
  }
  return "";
}

void check_refused(const std::string& bytes, const std::string& expected) {
  TempDir dir;
  write_file(dir / "x.safetensors", bytes);
  std::string message = message_of(dir / "x.safetensors");
  INFO(message);
  CHECK(message.find(expected) != std::string::npos);
}

struct Sample {
  std::vector<float> f{1.5f, -2, 3, 4, 5, 6};
  std::vector<BF16> b{to_bf16(1.0f), to_bf16(-0.5f)};
  std::vector<F16> h{to_f16(0.25f)};
  std::vector<std::int64_t> l{-7, 1ll << 40};
  std::vector<std::int32_t> i{3, -4, 5};
  std::vector<std::uint8_t> u{0, 255, 7};
  float number = 42;
  std::vector<TensorToStore> tensors() const {
    return {{"u", StoredType::kU8, {3}, u.data()},       {"f", StoredType::kF32, {2, 3}, f.data()},
            {"b", StoredType::kBF16, {2, 1}, b.data()},  {"h", StoredType::kF16, {1}, h.data()},
            {"l", StoredType::kI64, {2}, l.data()},      {"i", StoredType::kI32, {3}, i.data()},
            {"none", StoredType::kF32, {0, 5}, nullptr}, {"number", StoredType::kF32, {}, &number}};
  }
};

}  // namespace

TEST_CASE("every type and shape comes back, metadata too") {
  TempDir dir;
  Sample s;
  write_safetensors(dir / "a.safetensors", s.tensors(), {{"step", "12"}, {"text", "ünï \"quoted\"\n"}});
  CHECK(dir.file_count() == 1);  // no temporary left
  SafetensorsFile file(dir / "a.safetensors");
  CHECK(file.tensors().size() == 8);
  CHECK(file.metadata() == StoredMetadata{{"step", "12"}, {"text", "ünï \"quoted\"\n"}});
  for (const TensorToStore& t : s.tensors()) {
    INFO(t.name);
    const StoredTensor* found = file.find(t.name);
    REQUIRE(found != nullptr);
    CHECK(found->type == t.type);
    CHECK(found->shape == t.shape);
    std::vector<char> bytes(static_cast<std::size_t>(found->bytes()) + 1, '\x5a');
    file.read(*found, bytes.data());
    if (found->bytes() > 0) CHECK(std::memcmp(bytes.data(), t.data, bytes.size() - 1) == 0);
    CHECK(bytes.back() == '\x5a');
  }
  CHECK(file.find("nothing") == nullptr);
  CHECK(file.find("f")->str() == "F32[2,3]");
  float widened[2];
  file.read_f32(*file.find("b"), widened);
  CHECK(widened[0] == 1.0f);
  CHECK(widened[1] == -0.5f);
  file.read_f32(*file.find("h"), widened);
  CHECK(widened[0] == 0.25f);
  CHECK_THROWS_AS(file.read_f32(*file.find("i"), widened), Error);
}

TEST_CASE("the bytes are the format's") {
  TempDir dir;
  float x[2] = {1, 2};
  write_safetensors(dir / "a.safetensors", {{"w", StoredType::kF32, {2}, x}}, {});
  std::string header = R"({"w":{"data_offsets":[0,8],"dtype":"F32","shape":[2]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  CHECK(read_file(dir / "a.safetensors") == file_bytes(header, std::string(reinterpret_cast<const char*>(x), 8)));
}

TEST_CASE("a file without tensors, and one written by other hands") {
  TempDir dir;
  write_safetensors(dir / "empty.safetensors", {}, {});
  CHECK(SafetensorsFile(dir / "empty.safetensors").tensors().empty());
  // Any order of keys, spaces, and an order in the header that is not that of the data.
  write_file(dir / "b.safetensors", file_bytes(R"( {"b": {"shape":[1],"data_offsets":[4,8],"dtype":"I32"},
                  "a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
                                               std::string("\0\0\x80\x3f\x07\0\0\0", 8)));
  SafetensorsFile file(dir / "b.safetensors");
  CHECK(file.tensors()[0].name == "a");
  std::int32_t b = 0;
  file.read(*file.find("b"), &b);
  CHECK(b == 7);
}

TEST_CASE("malformed files are refused with the file, the finding and the way out") {
  const std::string four(4, 'x'), eight(8, 'x');
  check_refused("", "0 bytes");
  check_refused("1234567", "7 bytes");
  check_refused(std::string(8, '\xff'), "a header of 18446744073709551615 bytes");
  check_refused(file_bytes("{}", "").substr(0, 9), "a header of 2 bytes");
  check_refused(file_bytes("", ""), "no JSON object");
  check_refused(file_bytes("[]", ""), "no JSON object");
  check_refused(file_bytes("{\"a\":", ""), "no JSON object");
  check_refused(file_bytes("{\"\xff\":1}", ""), "no JSON object");
  check_refused(file_bytes(R"({"a":1})", ""), "tensor 'a' without a description");
  auto tensor = [](const std::string& inside) { return R"({"a":{)" + inside + "}}"; };
  check_refused(file_bytes(tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), eight), "dtype F64");
  check_refused(file_bytes(tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,8])"), eight), "dtype no name");
  check_refused(file_bytes(tensor(R"("shape":[1],"data_offsets":[0,8])"), eight), "dtype no name");
  check_refused(file_bytes(tensor(R"("dtype":"F32","data_offsets":[0,4])"), four), "without a shape");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), four), "without a shape");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), four), "without a shape");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":"1","data_offsets":[0,4])"), four), "without a shape");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1])"), four), "without offsets");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), four), "without offsets");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":["0",4])"), four), "without offsets");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), four), "bytes 4 to 0");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), four), "bytes 0 to 8 of 4");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), eight), "F32[3] in 8 bytes");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), ""),
                "in 0 bytes");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), four),
                "shape");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), eight),
                "4 bytes after the last");
  check_refused(file_bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), eight), "a gap before");
  auto pair = [](const std::string& first, const std::string& second, const std::string& offsets) {
    return R"({")" + first + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},")" + second +
           R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}}";
  };
  check_refused(file_bytes(pair("a", "b", "[2,6]"), eight), "inside the bytes of another");
  check_refused(file_bytes(pair("a", "b", "[0,4]"), four), "inside the bytes of another");
  check_refused(file_bytes(pair("a", "a", "[4,8]"), eight), "'a' twice");
  check_refused(file_bytes(R"({"__metadata__":[]})", ""), "metadata that is no object");
  check_refused(file_bytes(R"({"__metadata__":{"k":1}})", ""), "metadata 'k' that is no string");
  TempDir dir;
  CHECK(message_of(dir / "missing").find("can't be opened") != std::string::npos);
  CHECK(message_of(dir.path()).find("no regular file") != std::string::npos);
}

TEST_CASE("a file that shrinks after it was opened is an Error, no crash") {
  TempDir dir;
  Sample s;
  write_safetensors(dir / "a", s.tensors(), {});
  SafetensorsFile file(dir / "a");
  std::filesystem::resize_file(dir / "a", std::filesystem::file_size(dir / "a") - 4);
  const StoredTensor& last = file.tensors().back();
  std::vector<char> bytes(static_cast<std::size_t>(last.bytes()));
  CHECK_THROWS_AS(file.read(last, bytes.data()), Error);
}

TEST_CASE("fuzz: truncations and flipped bits open soundly or are refused") {
  TempDir dir;
  Sample s;
  write_safetensors(dir / "a", s.tensors(), {{"step", "12"}});
  std::string good = read_file(dir / "a");
  std::int64_t data_start = 8 + static_cast<std::int64_t>(*reinterpret_cast<const std::uint64_t*>(good.data()));
  std::mt19937 random(11);
  auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  int refused = 0, opened = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    if (round % 4 == 0) {
      bytes.resize(below(bytes.size()));
    } else {
      std::size_t reach = round % 4 == 1 ? bytes.size() : static_cast<std::size_t>(data_start);
      for (std::size_t flips = 1 + below(3); flips > 0; --flips) {
        char& c = bytes[below(reach)];
        if (below(2) == 0)
          c = static_cast<char>(c ^ static_cast<char>(1 << below(8)));
        else
          c = "0123456789[]{},:\"- "[below(19)];
      }
    }
    write_file(dir / "b", bytes);
    try {
      SafetensorsFile file(dir / "b");
      ++opened;
      std::int64_t total = 0;
      for (const StoredTensor& t : file.tensors()) {
        std::vector<char> content(static_cast<std::size_t>(t.bytes()));
        file.read(t, content.data());
        total += t.bytes();
      }
      CHECK(total <= static_cast<std::int64_t>(bytes.size()));
      CHECK(bytes.size() == good.size());  // nothing truncated may open
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 2000);
  CHECK(opened > 50);
}

TEST_CASE("what can't be written is refused, and the old file stays") {
  TempDir dir;
  float x = 1, y = 2;
  std::string path = dir / "a";
  write_safetensors(path, {{"w", StoredType::kF32, {1}, &x}}, {});
  std::string before = read_file(path);
  auto refused = [&](const std::string& at, const std::vector<TensorToStore>& t, const StoredMetadata& m = {}) {
    CHECK_THROWS_AS(write_safetensors(at, t, m), Error);
    CHECK(read_file(path) == before);
    CHECK(dir.file_count() == 1);
  };
  refused(path, {{"w", StoredType::kF32, {1}, &y}, {"w", StoredType::kF32, {1}, &y}});
  refused(path, {{"__metadata__", StoredType::kF32, {1}, &y}});
  refused(path, {{"w", StoredType::kF32, {-1}, &y}});
  refused(path, {{"w", StoredType::kF32, {1ll << 40, 1ll << 40}, &y}});
  refused(path, {{"w", StoredType::kF32, {1}, nullptr}});
  refused(path, {{"w\xff", StoredType::kF32, {1}, &y}});
  refused(path, {{"w", StoredType::kF32, {1}, &y}}, {{"k", "\xc3("}});
  refused(dir / "no/such/folder/a", {{"w", StoredType::kF32, {1}, &y}});
  refused(path + "/a", {{"w", StoredType::kF32, {1}, &y}});
  refused(dir.path(), {{"w", StoredType::kF32, {1}, &y}});
  refused("/proc/a", {{"w", StoredType::kF32, {1}, &y}});
}

TEST_CASE("an atomic file that is not committed leaves nothing behind") {
  TempDir dir;
  write_file(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new and half");
    CHECK(read_file(dir / "a") == "old");
    CHECK(dir.file_count() == 2);
  }
  CHECK(read_file(dir / "a") == "old");
  CHECK(dir.file_count() == 1);
  AtomicFile file(dir / "a");
  file.write("new");
  file.commit();
  CHECK(read_file(dir / "a") == "new");
  CHECK(dir.file_count() == 1);
}

TEST_CASE("check_writable makes folders and refuses what can't be one") {
  TempDir dir;
  check_writable(dir / "x/y");
  CHECK(std::filesystem::is_directory(dir / "x/y"));
  CHECK(std::filesystem::is_empty(dir / "x/y"));
  write_file(dir / "file", "");
  for (const std::string& bad : {dir / "file", dir / "file/sub", std::string("/proc/coda-test")}) {
    try {
      check_writable(bad);
      FAIL("no error");
    } catch (const Error& e) {
      CHECK(e.parts().argument == bad);
      CHECK_FALSE(e.parts().way_out.empty());
    }
  }
}
