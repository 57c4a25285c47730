// SourceErrors and suggestions; see source.h.
#include "ir/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace coda {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

// The line as it can be shown: one printable character a column, so that the caret stands right; a window of a long
// line.
std::string excerpt(std::string_view line, std::size_t column) {
  std::vector<std::string> characters;
  for (char c : line) {
    auto byte = static_cast<unsigned char>(c);
    if (continues_character(c) && !characters.empty())
      characters.back() += c;
    else
      characters.emplace_back(1, c == '\t' ? ' ' : byte < 0x20 || byte == 0x7f ? '?' : c);
  }
  constexpr std::size_t kBefore = 70, kAfter = 40;
  std::size_t first = column > kBefore ? column - kBefore : 0, last = std::min(characters.size(), column + kAfter);
  std::string text = first > 0 ? "…" : "";
  for (std::size_t i = first; i < last; ++i) text += characters[i];
  if (last < characters.size()) text += "…";
  return fmt::format("\n  {}\n  {:>{}}", text, "^", column - first + 1 + (first > 0 ? 1 : 0));
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = utf8_length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t i) {
  auto lead = static_cast<unsigned char>(text[i]);
  std::size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (i + length > text.size()) return 0;
  for (std::size_t j = 1; j < length; ++j)
    if (!continues_character(text[i + j])) return 0;
  return length;
}

SourceError source_error(const Source& source, std::size_t offset, ErrorParts parts) {
  std::string_view before = source.text.substr(0, offset);
  auto line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  std::size_t end = std::min(source.text.find('\n', offset), source.text.size());
  std::string_view in_line = before.substr(start);
  auto column = static_cast<std::size_t>(
      std::count_if(in_line.begin(), in_line.end(), [](char c) { return !continues_character(c); }));

  std::string_view whole_line = source.text.substr(start, end - start);
  if (whole_line.ends_with('\r')) whole_line.remove_suffix(1);
  std::string shown = is_utf8(whole_line) ? excerpt(whole_line, column) : std::string();
  if (!parts.argument.empty()) parts.found = parts.argument + ": " + parts.found;
  parts.argument = fmt::format("{}:{}:{}", source.file, line, column + 1);
  (parts.way_out.empty() ? parts.allowed.empty() ? parts.found : parts.allowed : parts.way_out) += shown;
  return SourceError(std::move(parts), line, static_cast<int>(column) + 1);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::vector<std::pair<std::size_t, std::string>> near;
  if (word.size() > 64) return {};  // no typing mistake; and the distance costs |a|·|b|
  for (const std::string& c : candidates)
    if (std::size_t d = distance(word, c); d <= std::max<std::size_t>(1, word.size() / 3)) near.emplace_back(d, c);
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  if (near.size() > 3) near.resize(3);
  std::string text;
  for (std::size_t i = 0; i < near.size(); ++i)
    text += (i == 0 ? "" : i + 1 == near.size() ? " or " : ", ") + near[i].second;
  return text;
}

}  // namespace coda
