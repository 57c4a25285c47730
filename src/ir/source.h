// A text with its file name, and mistakes in it: SourceErrors that show file:line:column, the source line and a caret.
// Used by lexer and parser; positions are byte offsets, columns count characters (UTF-8 code points) from 1.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coda/text.h"

namespace coda {

struct Source {
  std::string file;
  std::string_view text;
};

// Bytes of the UTF-8 character at `i`; 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t i);

// `parts.argument` (may be empty) is kept as the beginning of what was found.
SourceError source_error(const Source& source, std::size_t offset, ErrorParts parts);

// The candidates closest to `word` by edit distance, at most three, as "a, b or c"; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace coda
