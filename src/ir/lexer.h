// Tokens of the text form (docs/language.md, lexical form). Called by the parser alone. Brackets come out balanced, and
// a line end is a token only where it ends a statement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/source.h"

namespace coda {

enum class TokenKind : std::uint8_t { kName, kNumber, kSymbol, kLineEnd, kEnd };

struct Token {
  TokenKind kind;
  std::string_view text;  // into the source
  std::size_t at;         // byte offset

  bool is(std::string_view symbol) const { return kind == TokenKind::kSymbol && text == symbol; }
  bool is_word(std::string_view word) const { return kind == TokenKind::kName && text == word; }
  bool is_whole_number() const;
};

// Ends with a kEnd token. Throws SourceError.
std::vector<Token> lex(const Source& source);

// Words that cannot name a value, a size or a program.
bool is_reserved(std::string_view word);
// Letters, digits, _ and, inside, dots: x1, layer3.norm1.gamma.
bool is_name(std::string_view word);

}  // namespace coda
