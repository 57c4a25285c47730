// The lexer; see lexer.h.
#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>

namespace coda {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::string_view kSymbols[] = {"+=", "==", "!=", "<=", ">=", "+", "-", "*", "/", "@",
                                         "=",  "<",  ">",  "(",  ")",  "[", "]", ",", ":"};

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text) {}

  std::vector<Token> run() {
    check_encoding();
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // a byte order mark
    while (at_ < text_.size()) step();
    if (!open_.empty()) {
      std::string_view bracket = text_.substr(open_.back(), 1);
      mistake(open_.back(), fmt::format("`{}` is never closed", bracket),
              bracket == "(" ? "a matching )" : "a matching ]");
    }
    end_line();
    tokens_.push_back({TokenKind::kEnd, text_.substr(text_.size()), text_.size()});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void mistake(std::size_t at, std::string found, std::string allowed, std::string way_out = "") const {
    throw source_error(source_, at, {"", std::move(found), std::move(allowed), std::move(way_out)});
  }

  // UTF-8 without control characters: whatever else is no text, and would only give puzzling messages later.
  void check_encoding() const {
    for (std::size_t i = 0; i < text_.size();) {
      auto lead = static_cast<unsigned char>(text_[i]);
      std::size_t length = utf8_length(text_, i);
      bool control = (lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r') || lead == 0x7f;
      if (length == 0 || control)
        mistake(i, fmt::format("byte 0x{:02x}, which is no UTF-8 text", lead), "a text file", "Is this a .coda file?");
      i += length;
    }
  }

  void step() {
    char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\n') {
      if (open_.empty()) end_line();
      ++at_;
    } else if (is_letter(c)) {
      name();
    } else if (is_digit(c)) {
      number();
    } else {
      symbol();
    }
  }

  void push(TokenKind kind, std::size_t length) {
    tokens_.push_back({kind, text_.substr(at_, length), at_});
    at_ += length;
  }

  // A line that ends with an operator or a comma goes on in the next one.
  void end_line() {
    if (tokens_.empty() || tokens_.back().kind == TokenKind::kLineEnd) return;
    const Token& last = tokens_.back();
    if (last.kind == TokenKind::kSymbol && !last.is(")") && !last.is("]")) return;
    if (last.is_word("and") || last.is_word("or") || last.is_word("not")) return;
    tokens_.push_back({TokenKind::kLineEnd, text_.substr(at_, 0), at_});
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size()) {
      bool dot = text_[end] == '.' && end + 1 < text_.size() && is_letter(text_[end + 1]);
      if (!is_letter(text_[end]) && !is_digit(text_[end]) && !dot) break;
      ++end;
    }
    push(TokenKind::kName, end - at_);
  }

  void number() {
    std::size_t end = at_;
    auto digits = [&] {
      while (end < text_.size() && is_digit(text_[end])) ++end;
    };
    auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    digits();
    if (end < text_.size() && text_[end] == '.' && digit_at(end + 1)) ++end, digits();
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      std::size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) end += 1 + sign, digits();
    }
    if (end < text_.size() && (is_letter(text_[end]) || text_[end] == '.'))
      mistake(at_, fmt::format("`{}`", text_.substr(at_, end + 1 - at_)), "a number such as 2, 0.5 or 1e-5",
              text_[end] == '.' ? "A digit follows the point." : "A product needs its *: 2*N.");
    push(TokenKind::kNumber, end - at_);
  }

  void symbol() {
    std::string_view rest = text_.substr(at_);
    for (std::string_view s : kSymbols) {
      if (!rest.starts_with(s)) continue;
      if (s == "(" || s == "[") open_.push_back(at_);
      if (s == ")" || s == "]") close(s);
      push(TokenKind::kSymbol, s.size());
      return;
    }
    std::size_t length = 1;
    while (length < rest.size() && (static_cast<unsigned char>(rest[length]) & 0xc0u) == 0x80) ++length;
    mistake(at_, fmt::format("the character `{}`", rest.substr(0, length)),
            "names, numbers and + - * / @ = += == != < <= > >= ( ) [ ] , :",
            "Names are of letters, digits and _; a comment begins with #.");
  }

  void close(std::string_view bracket) {
    std::string_view opens = bracket == ")" ? "(" : "[";
    if (open_.empty()) mistake(at_, fmt::format("`{}` without its `{}`", bracket, opens), "balanced brackets");
    if (text_.substr(open_.back(), 1) != opens)
      mistake(at_, fmt::format("`{}` closes a `{}`", bracket, text_.substr(open_.back(), 1)), "balanced brackets");
    open_.pop_back();
  }

  const Source& source_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::size_t> open_;  // offsets of the brackets that wait for their partner
  std::vector<Token> tokens_;
};

}  // namespace

bool Token::is_whole_number() const {
  return kind == TokenKind::kNumber && std::all_of(text.begin(), text.end(), is_digit);
}

std::vector<Token> lex(const Source& source) { return Lexer(source).run(); }

bool is_reserved(std::string_view word) {
  constexpr std::string_view kWords[] = {"program", "graph", "reassociate", "where", "size", "in",  "const", "out",
                                         "over",    "and",   "or",          "not",   "inf",  "nan", "_"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

bool is_name(std::string_view word) {
  if (word.empty() || !is_letter(word[0])) return false;
  for (std::size_t i = 1; i < word.size(); ++i) {
    bool dot = word[i] == '.' && i + 1 < word.size() && is_letter(word[i + 1]);
    if (!is_letter(word[i]) && !is_digit(word[i]) && !dot) return false;
  }
  return true;
}

}  // namespace coda
