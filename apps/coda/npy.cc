// .npy files; see npy.h. Format: magic, version, length of a header that is a Python dict, then the elements.
#include "npy.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

#include "base/atomic_file.h"
#include "coda/dtype.h"
#include "coda/error.h"

namespace coda::cli {
namespace {

[[noreturn]] void bad(const std::string& path, const std::string& found, const std::string& allowed) {
  throw Error({path, found, allowed, "numpy.save writes such files."});
}

template <class T>
double element(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return static_cast<double>(x);
}

struct ElementType {
  const char* code;
  std::size_t size;
  double (*read)(const char*);
};
const ElementType kTypes[] = {
    {"<f4", 4, element<float>},
    {"<f8", 8, element<double>},
    {"<f2", 2,
     [](const char* p) {
       return static_cast<double>(to_float(F16{static_cast<std::uint16_t>(element<std::uint16_t>(p))}));
     }},
    {"<i4", 4, element<std::int32_t>},
    {"<i8", 8, element<std::int64_t>},
    {"<u4", 4, element<std::uint32_t>},
    {"<i2", 2, element<std::int16_t>},
    {"<u2", 2, element<std::uint16_t>},
    {"|u1", 1, element<std::uint8_t>},
    {"|i1", 1, element<std::int8_t>},
};

}  // namespace

Array read_npy(const std::string& path) {
  if (std::filesystem::is_directory(path)) bad(path, "a directory", "a .npy file");
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
    bad(path, "a device or pipe", "a .npy file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error({path, std::strerror(errno), "a readable .npy file", ""});
  std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  if (bytes.size() < 12 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) bad(path, "no .npy file", "a .npy file");
  bool wide = bytes[6] >= 2;
  std::size_t length = wide ? static_cast<std::size_t>(element<std::uint32_t>(&bytes[8]))
                            : static_cast<std::size_t>(element<std::uint16_t>(&bytes[8]));
  std::size_t start = (wide ? 12 : 10) + length;
  if (start > bytes.size()) bad(path, "a truncated header", "a whole .npy file");
  std::string header(bytes.begin() + (wide ? 12 : 10), bytes.begin() + static_cast<long>(start));
  std::smatch m;
  if (!std::regex_search(header, m, std::regex("'descr': *'([^']*)'")))
    bad(path, "a header without a plain element type", "a plain array");
  const ElementType* type = nullptr;
  for (const ElementType& t : kTypes)
    if (m[1] == t.code) type = &t;
  if (type == nullptr) bad(path, "elements of type " + m[1].str(), "float16/32/64 and integers, little endian");
  if (std::regex_search(header, std::regex("'fortran_order': *True"))) bad(path, "a Fortran-ordered array", "C order");
  if (!std::regex_search(header, m, std::regex("'shape': *\\(([0-9, ]*)\\)")))
    bad(path, "a header without a shape", "an array");
  std::vector<std::int64_t> shape;
  std::string text = m[1];
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    if (it->length() > 12) bad(path, "an absurd shape (" + text + ")", "an array that fits in memory");
    shape.push_back(std::stoll(it->str()));
  }
  if (shape.size() > 3) bad(path, fmt::format("{} dimensions", shape.size()), "1 to 3");
  std::int64_t count = 1;
  for (std::int64_t d : shape) {
    if (d != 0 && count > static_cast<std::int64_t>(bytes.size()) / d + 1)
      bad(path, "a shape larger than the file", "a whole .npy file");
    count *= d;
  }
  if (bytes.size() - start != static_cast<std::size_t>(count) * type->size)
    bad(path, fmt::format("{} bytes of elements for shape ({})", bytes.size() - start, text),
        fmt::format("{}", static_cast<std::size_t>(count) * type->size));
  Array a(shape.size() < 2 ? 1 : shape[0], shape.size() == 3 ? shape[1] : 1, shape.empty() ? 1 : shape.back());
  for (std::int64_t i = 0; i < count; ++i)
    a.data[static_cast<std::size_t>(i)] = type->read(&bytes[start + static_cast<std::size_t>(i) * type->size]);
  return a;
}

void write_npy(const std::string& path, const Array& a, bool integers) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                                   integers ? "<i4" : "<f4", a.rows, a.width());
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  std::uint16_t length = static_cast<std::uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), 2).append(header);
  for (double x : a.data) {
    float f = static_cast<float>(x);
    std::int32_t i = integers ? static_cast<std::int32_t>(x) : 0;
    bytes.append(integers ? reinterpret_cast<const char*>(&i) : reinterpret_cast<const char*>(&f), 4);
  }
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace coda::cli
