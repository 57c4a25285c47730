// Expressions and sizes of the text form; see parser.h and docs/language.md.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "ir/parser.h"
#include "ir/syntax.h"

namespace coda {

UnitParser::Nested::Nested(UnitParser& p, const Token& at) : parser(p) {
  constexpr int kDeepest = 200;
  if (p.depth_ >= kDeepest)
    p.mistake(at.at, fmt::format("more than {} levels of nesting", kDeepest), "less", "Give inner values names.");
  ++p.depth_;
}

// Precedence climbing: operands of an operator bind tighter, the right one strictly.
Term UnitParser::expression(int least_precedence) {
  Nested nested(*this, peek());
  Term left = prefix(least_precedence);
  bool compared = false;
  for (;;) {
    const Token& op = peek();
    const Infix* infix_row =
        op.kind == TokenKind::kSymbol || op.kind == TokenKind::kName ? find_infix(op.text) : nullptr;
    if (infix_row == nullptr || infix_row->precedence < least_precedence) return left;
    if (infix_row->precedence == precedence::kCompare) {
      if (compared) mistake(op.at, "comparisons in a row", "one comparison", "Join them: a < b and b < c.");
      compared = true;
    }
    take();
    Term right = expression(infix_row->precedence + 1);
    left = infix(op, std::move(left), std::move(right));
  }
}

Term UnitParser::prefix(int least_precedence) {
  const Token& t = peek();
  bool minus = t.is("-");
  if (!minus && !t.is_word("not")) return postfix();
  int own = minus ? precedence::kMinus : precedence::kNot;
  if (least_precedence > own)
    mistake(t.at, fmt::format("`{}` right after a tighter operator", t.text), "parentheses around it",
            minus ? "Write a @ (-b)." : "Write (not c).");
  take();
  Term operand = expression(own);
  if (minus && operand.kind == Term::Kind::kNumber) {
    operand.number = -operand.number;
    operand.is_whole = false;
    operand.at = t.at;
    return operand;
  }
  return apply(t.at, std::string(t.text), minus ? Op::kNeg : Op::kNot, {to_value(operand)});
}

Term UnitParser::postfix() {
  Term t = primary();
  while (peek().is("[")) {
    std::size_t at = take().at;
    Term index = expression();
    expect("]", "after the index of a table");
    t = apply(at, "table[index]", Op::kGather, {to_value(t), to_value(index)});
  }
  return t;
}

Term UnitParser::primary() {
  const Token& t = peek();
  if (t.kind == TokenKind::kNumber || t.is_word("inf") || t.is_word("nan")) return number(take());
  if (t.is("(")) {
    take();
    Term inner = expression();
    expect(")", "after an expression in parentheses");
    return inner;
  }
  if (t.kind == TokenKind::kName) {
    if (peek(1).is("(") && (!is_reserved(t.text) || t.text == "where" || t.text == "size")) return call();
    if (!is_reserved(t.text)) return named(take());
  }
  mistake(t.at, found(t), "an expression: a name, a number, a call or ( )");
}

Term UnitParser::number(const Token& t) {
  Term term;
  term.kind = Term::Kind::kNumber;
  term.at = t.at;
  term.what = std::string(t.text);
  term.is_whole = t.is_whole_number();
  if (t.kind == TokenKind::kName) {
    term.number = t.text == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return term;
  }
  auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), term.number);
  if (error != std::errc() || end != t.text.data() + t.text.size() || term.number > std::numeric_limits<float>::max())
    mistake(t.at, fmt::format("the number {}", t.text), "numbers that fit f32: up to 3.4e38",
            "Infinity is written inf.");
  return term;
}

Term UnitParser::named(const Token& t) {
  auto it = names_.find(t.text);
  if (it == names_.end()) unknown_name(t);
  Term term;
  term.at = t.at;
  term.what = std::string(t.text);
  if (it->second.kind == Known::Kind::kSize) {
    term.kind = Term::Kind::kSize;
    term.size = Dim::symbol(std::string(t.text));
  } else {
    term.results = {it->second.value};
  }
  return term;
}

void UnitParser::unknown_name(const Token& t) const {
  if (t.text == "_") mistake(t.at, "`_`, which only discards a result", "the name of a value");
  std::vector<std::string> known;
  for (const auto& [name, entry] : names_) known.push_back(name);
  std::string near = nearest(t.text, known);
  const OpRow* operation = find_op(t.text);
  std::string way_out = operation != nullptr && operation->op != Op::kInput
                            ? fmt::format("An operation is called: {}.", usage(*operation, t.text))
                        : near.empty() ? "Names are defined before their use."
                                       : fmt::format("Did you mean {}?", near);
  mistake(t.at, fmt::format("unknown name `{}`", t.text), "an input, a const, a size or a value defined above",
          way_out);
}

void UnitParser::unknown_operation(const Token& t) const {
  std::vector<std::string> candidates;
  std::string axes;
  for (const std::string& name : op_names()) {
    const OpRow* r = find_op(name);
    if (r == nullptr || !r->has(kReduceTrait)) {
      candidates.push_back(name);
      continue;
    }
    for (Axis a : {Axis::kC, Axis::kG, Axis::kN, Axis::kM, Axis::kMN}) {
      std::string full = fmt::format("{}_{}", r->name, suffix(a));
      if (r->name == t.text) axes += (axes.empty() ? "" : ", ") + full;
      candidates.push_back(std::move(full));
    }
  }
  std::string near = nearest(t.text, candidates);
  std::string way_out = !axes.empty()  ? fmt::format("A reduction names its axis: {}. ", axes)
                        : near.empty() ? ""
                                       : fmt::format("Did you mean {}? ", near);
  mistake(t.at, fmt::format("unknown operation `{}`", t.text), "an operation of the table",
          way_out + "All are listed in docs/language.md, Operations.");
}

Val UnitParser::to_value(const Term& t, bool as_integer) {
  if (t.kind == Term::Kind::kNumber)
    return guard(t.at, [&] {
      bool whole = t.number == std::trunc(t.number) && std::fabs(t.number) < 0x1p31;
      return as_integer && whole ? builder_->integer(static_cast<std::int64_t>(t.number)) : builder_->literal(t.number);
    });
  if (t.kind == Term::Kind::kSize) return guard(t.at, [&] { return builder_->size(t.size); });
  if (t.results.size() != 1)
    mistake(t.at, fmt::format("{} gives {} results, used as one value", t.what, t.results.size()), "one value",
            "Name them first: a, b = …; _ discards one.");
  return t.results[0];
}

Term UnitParser::results(std::size_t at, std::string what, std::vector<Val> values) {
  Term t;
  t.at = at;
  t.what = std::move(what);
  if (name_by_position_)
    for (Val v : values) builder_->set_name(v, fmt::format("@{}", at));
  t.results = std::move(values);
  return t;
}

Term UnitParser::apply(std::size_t at, const std::string& what, Op op, std::vector<Val> operands, Attrs attrs) {
  return results(at, what, guard(at, [&] { return builder_->apply(op, operands, std::move(attrs)); }));
}

Term UnitParser::infix(const Token& op, Term a, Term b) {
  const Infix& infix_row = *find_infix(op.text);
  auto as_size = [](const Term& t) -> std::optional<Dim> {
    if (t.kind == Term::Kind::kSize) return t.size;
    if (t.kind == Term::Kind::kNumber && t.is_whole && t.number < 0x1p30)
      return Dim(static_cast<std::int64_t>(t.number));
    return std::nullopt;
  };
  if (std::optional<Dim> x = as_size(a), y = as_size(b); x && y) {
    auto folded =
        guard(op.at, [&] { return fold_sizes(infix_row.op, builder_->canonical(*x), builder_->canonical(*y)); });
    if (folded) {
      Term t;
      t.kind = Term::Kind::kSize;
      t.size = *folded;
      t.at = op.at;
      t.what = folded->str();
      return t;
    }
  }
  std::string what(op.text);
  Val left = to_value(a), right = to_value(b);
  if (infix_row.op == Op::kMatmul) return results(op.at, what, {guard(op.at, [&] { return matmul(left, right); })});
  return apply(op.at, what, infix_row.op, {left, right});
}

Term UnitParser::call() {
  const Token& name = take();
  if (name.text == "size" || name.text == "literal") return special_call(name);
  const OpRow* r = find_op(name.text);
  if (r == nullptr || r->op == Op::kInput) unknown_operation(name);
  take();  // (
  std::string call_usage = usage(*r, name.text);
  auto most = static_cast<std::size_t>(r->operands + r->optional_operands);
  std::vector<Val> operands;
  bool variadic = r->has(kVariadicTrait);
  // Sizes, dtypes and axes follow the operands; only concat takes expressions to its end.
  while (!peek().is(")") && (variadic || operands.size() < most)) {
    if (!operands.empty() && !accept(",")) break;
    bool integer = r->op == Op::kUniform || (r->op == Op::kCrossEntropy && operands.size() == 2);
    operands.push_back(to_value(expression(), integer));
  }
  const Token& end = peek();
  if (operands.size() < static_cast<std::size_t>(r->operands) && (end.is(")") || end.is(",")))
    mistake(name.at, fmt::format("{} with {} operand{}", name.text, operands.size(), operands.size() == 1 ? "" : "s"),
            call_usage, r->op == Op::kMax || r->op == Op::kMin ? "max_n(x) is the largest of a row." : "");
  std::string what = fmt::format("{}(…)", name.text);
  if (r->op == Op::kMatmul) return matmul_call(name, operands);
  Attrs attrs;
  if (r->has(kReduceTrait)) attrs.axis = axis_of(*r, name.text);
  arguments_after_operands(*r, call_usage, attrs);
  if (peek().is(",")) mistake(peek(1).at, fmt::format("one more argument for {}", name.text), call_usage);
  expect(")", fmt::format("to end {}(…)", name.text));
  Term t = apply(name.at, what, r->op, operands, attrs);
  if (r->has(kCompositeTrait)) composites_.push_back(name.at);
  if (r->op == Op::kRow || r->op == Op::kCol || r->op == Op::kUniform) open_sized_.emplace(t.results[0].id, name.at);
  return t;
}

void UnitParser::arguments_after_operands(const OpRow& r, const std::string& call_usage, Attrs& attrs) {
  auto next = [&] {
    if (!accept(",")) mistake(peek().at, found(peek()), call_usage);
  };
  if (r.op == Op::kCast) {
    next();
    attrs.dtype = dtype_word();
  }
  for (int i = 0; i < sizes_after_operands(r.op); ++i) next(), attrs.dims.push_back(size_expression(false));
  while (r.op == Op::kSplit && accept(",")) attrs.dims.push_back(size_expression(false));
}

int UnitParser::axis_argument() {
  if (!accept(",")) mistake(peek().at, found(peek()), "matmul(a, b) or matmul(a, b, a_axis, b_axis)");
  const Token& t = take();
  if (t.text != "0" && t.text != "1") mistake(t.at, found(t), "the axis to contract: 0 (rows) or 1 (columns)");
  return t.text == "1" ? 1 : 0;
}

Term UnitParser::matmul_call(const Token& name, const std::vector<Val>& operands) {
  if (accept(")"))
    return results(name.at, "matmul(…)", {guard(name.at, [&] { return matmul(operands[0], operands[1]); })});
  int a = axis_argument(), b = axis_argument();
  expect(")", "to end matmul(…)");
  return results(name.at, "matmul(…)", {guard(name.at, [&] { return matmul(operands[0], a, operands[1], b); })});
}

// size(N/2) and literal(1, i32): what arithmetic and plain numbers would not say.
Term UnitParser::special_call(const Token& name) {
  take();  // (
  if (name.text == "size") {
    Dim d = size_expression(false);
    expect(")", "to end size(…)");
    return results(name.at, "size(…)", {guard(name.at, [&] { return builder_->size(d); })});
  }
  Term value = expression();
  if (value.kind != Term::Kind::kNumber) mistake(value.at, "an expression", "literal(number, f32 or i32)");
  expect(",", "in literal(number, dtype)");
  const Token& type = peek();
  DType dtype = dtype_word();
  if (dtype != DType::kF32 && dtype != DType::kI32) mistake(type.at, found(type), "f32 or i32");
  expect(")", "to end literal(…)");
  Val v = to_value(value, dtype == DType::kI32);
  if ((v.type().elem == Elem::kI32) != (dtype == DType::kI32))
    mistake(value.at, value.what, "a whole number of 32 bits");
  return results(name.at, "literal(…)", {v});
}

// Sizes --------------------------------------------------------------------------------------------------------------

Dim UnitParser::size_expression(bool declares, int least_precedence) {
  Nested nested(*this, peek());
  Dim left = size_factor(declares);
  for (;;) {
    const Token& op = peek();
    int own = op.is("+") || op.is("-") ? precedence::kSum : op.is("*") || op.is("/") ? precedence::kProduct : 0;
    if (own == 0 || own < least_precedence) return left;
    take();
    Dim right = size_expression(declares, own + 1);
    left = size_infix(op, left, right);
  }
}

Dim UnitParser::size_infix(const Token& op, const Dim& a, const Dim& b) const {
  return guard(op.at, [&] {
    Dim d = op.is("+") ? a + b : op.is("-") ? a - b : op.is("*") ? a * b : a / b;
    if (is_too_large(d) || is_too_large(builder_->canonical(d)))
      mistake(op.at, "a size expression with too many or too large terms",
              "up to 32 terms, 16 factors and numbers up to 2^30");
    return d;
  });
}

Dim UnitParser::size_factor(bool declares) {
  const Token& t = take();
  if (t.is("-")) {
    Nested nested(*this, t);
    return Dim(-1) * size_factor(declares);
  }
  if (t.is("(")) {
    Dim inner = size_expression(declares);
    expect(")", "after a size in parentheses");
    return inner;
  }
  if (t.kind == TokenKind::kNumber) {
    std::int64_t n = 0;
    auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), n);
    if (!t.is_whole_number()) mistake(t.at, fmt::format("the size {}", t.text), "a whole number");
    if (error != std::errc() || n > (std::int64_t{1} << 30))
      mistake(t.at, fmt::format("the size {}", t.text), "numbers up to 2^30", "A larger size has a name.");
    return Dim(n);
  }
  if (t.kind != TokenKind::kName || is_reserved(t.text))
    mistake(t.at, found(t), "a size: a name, a number, + - * / and ( )");
  auto it = names_.find(t.text);
  if (it != names_.end() && it->second.kind != Known::Kind::kSize)
    mistake(t.at, fmt::format("the value `{}` as a size", t.text), "a size",
            "Give the value or the size another name.");
  if (it == names_.end()) {
    std::vector<std::string> sizes;
    for (const auto& [name, entry] : names_)
      if (entry.kind == Known::Kind::kSize) sizes.push_back(name);
    std::string near = nearest(t.text, sizes);
    if (!declares)
      mistake(t.at, fmt::format("unknown size `{}`", t.text), "a size of a type or `where` above",
              near.empty() ? fmt::format("`size {}` declares one that no type mentions.", t.text)
                           : fmt::format("Did you mean {}?", near));
    define(t, Known::Kind::kSize, {});
  }
  return Dim::symbol(std::string(t.text));
}

}  // namespace coda
