// Recursive descent over the tokens of one text, into a GraphBuilder. Called through include/coda/text.h (parser.cc:
// statements, parse_expr.cc: expressions and sizes). Invariant: every Error of the builder leaves as a SourceError at
// the operation that caused it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coda/builder.h"
#include "ir/lexer.h"
#include "ir/source.h"

namespace coda {

// What an expression denotes. A number and a size become values only where one is needed: t == -100 is a comparison of
// integers, and hd in group(x, hd) is no operand.
struct Term {
  enum class Kind : std::uint8_t { kResults, kNumber, kSize };
  Kind kind = Kind::kResults;
  std::vector<Val> results;  // kResults: one, except right after a call with several
  double number = 0;
  bool is_whole = false;  // kNumber: written as digits alone
  Dim size;
  std::size_t at = 0;  // for messages: the operator or the name of the call
  std::string what;    // likewise: "halves(…)"
};

// One `program` or `graph`, from its first word to the next one's.
class UnitParser {
 public:
  // `name_by_position`: values are named "@<offset>" instead of by the text, so that the verifier's messages say where.
  UnitParser(const Source& source, const std::vector<Token>& tokens, std::size_t& next, bool name_by_position);

  Graph parse();
  std::size_t header() const { return header_; }
  // Where the only composite operation is called; the header if there is none or several.
  std::size_t composite_or_header() const { return composites_.size() == 1 ? composites_[0] : header_; }

 private:
  struct Known {
    enum class Kind : std::uint8_t { kInput, kLocal, kSize };
    Kind kind;
    Val value;
    std::size_t at;
  };

  // Tokens.
  const Token& peek(std::size_t ahead = 0) const;
  const Token& take() { return tokens_[next_++]; }
  bool accept(std::string_view symbol);
  const Token& expect(std::string_view symbol, std::string_view after);
  const Token& expect_new_name(std::string_view what);
  std::string found(const Token& t) const;
  [[noreturn]] void mistake(std::size_t at, std::string found, std::string allowed, std::string way_out = "") const;
  // Runs `make`; an Error becomes a SourceError at `at`.
  template <class Make>
  auto guard(std::size_t at, Make make) const {
    try {
      return make();
    } catch (const SourceError&) {
      throw;
    } catch (const Error& e) {
      throw source_error(source_, at, e.parts());
    }
  }

  // Statements (parser.cc).
  void statement();
  void end_statement();
  void where_statement();
  void size_statement();
  void input_statement(bool is_const);
  void output_statement();
  void output_item();
  void assignment();
  struct TypeText {
    DType dtype;
    std::vector<DimArg> dims;
    std::size_t at;
  };
  DType dtype_word();
  TypeText type_text(bool with_dims);
  void define(const Token& name, Known::Kind kind, Val v);
  void check_new(const Token& name) const;
  Graph build();
  void check_inputs(const Graph& g) const;

  // Expressions (parse_expr.cc).
  Term expression(int least_precedence = 0);
  Term prefix(int least_precedence);
  Term postfix();
  Term primary();
  Term number(const Token& t);
  Term call();
  Term named(const Token& t);
  Term infix(const Token& op, Term a, Term b);
  Term apply(std::size_t at, const std::string& what, Op op, std::vector<Val> operands, Attrs attrs = {});
  Term results(std::size_t at, std::string what, std::vector<Val> values);
  Val to_value(const Term& t, bool as_integer = false);
  void arguments_after_operands(const OpRow& r, const std::string& call_usage, Attrs& attrs);
  Term matmul_call(const Token& name, const std::vector<Val>& operands);
  Term special_call(const Token& name);
  int axis_argument();
  [[noreturn]] void unknown_operation(const Token& name) const;
  [[noreturn]] void unknown_name(const Token& name) const;

  // Sizes (parse_expr.cc). `declares`: unknown names are new sizes (types and where), else mistakes.
  Dim size_expression(bool declares, int least_precedence = 0);
  Dim size_factor(bool declares);
  Dim size_infix(const Token& op, const Dim& a, const Dim& b) const;

  // Counts nesting, so that a text cannot exhaust the stack.
  struct Nested {
    Nested(UnitParser& p, const Token& at);
    ~Nested() { --parser.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    UnitParser& parser;
  };

  const Source& source_;
  const std::vector<Token>& tokens_;
  std::size_t& next_;
  bool name_by_position_;
  std::size_t header_ = 0;
  int depth_ = 0;
  std::unique_ptr<GraphBuilder> builder_;
  std::map<std::string, Known, std::less<>> names_;
  std::map<std::string, std::size_t, std::less<>> outputs_;  // where each is declared
  std::vector<std::size_t> composites_;
  std::map<ValueId, std::size_t> open_sized_;  // col(), row(), uniform(): where they are called
};

}  // namespace coda
