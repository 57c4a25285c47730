// The printer: the text that a person would write for a graph. Called through include/coda/text.h and for messages.
// Invariants: the printed text parses to a graph of the same hash, and printing that one gives the same text. So what
// is a statement of its own depends on the graph alone: named values, several results, several uses, and what would
// make a line too long.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "coda/text.h"
#include "ir/lexer.h"
#include "ir/syntax.h"

namespace coda {
namespace {

constexpr std::size_t kLineWidth = 100;   // inputs and outputs share a line up to here …
constexpr std::size_t kInlineWidth = 88;  // … and an inner expression has no name of its own up to here

template <class Texts>
std::string join(const Texts& texts, std::string_view between) {
  std::string all;
  for (const std::string& t : texts) {
    if (!all.empty()) all += between;
    all += t;
  }
  return all;
}

class Printer {
 public:
  explicit Printer(const Graph& g)
      : g_(g), uses_(g.values().size(), 0), stored_by_(g.values().size(), nullptr), pieces_(g.values().size()) {
    for (const Node& n : g.nodes())
      for (ValueId v : n.operands) ++uses_[index(v)];
    for (const Output& o : g.outputs()) {
      ++uses_[index(o.value)];
      stored_by_[index(o.value)] = &o;
    }
    reserve_names();
  }

  std::string text() {
    for (const Node& n : g_.nodes()) node(n);
    header();
    inputs();
    text_ += body_;
    outputs();
    return std::move(text_);
  }

 private:
  // An expression as text: what a value is called where it is used.
  struct Piece {
    std::string text;
    int precedence = precedence::kAtom;
    std::optional<Dim> size;  // what the parser would fold: an unnamed size or whole number
    bool stored = false;      // the expression of an `out`, no statement
  };

  static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
  Piece& piece(ValueId v) { return pieces_[index(v)]; }

  // Names --------------------------------------------------------------------------------------------------------

  void reserve_names() {
    for (const Input& i : g_.inputs()) taken_.insert(i.name);
    for (const std::string& s : g_.free_sizes()) taken_.insert(s);
    for (const Where& w : g_.wheres()) taken_.insert(w.size);
    for (const Output& o : g_.outputs()) output_names_.insert(o.name);
    for (const Value& v : g_.values()) written_.insert(v.name);
  }

  bool is_free(const std::string& name, ValueId v) const {
    if (!is_name(name) || is_reserved(name) || taken_.count(name)) return false;
    return !output_names_.count(name) || g_.find_output(name)->value == v;
  }

  // The written name, the name of the output that stores it, or a new one.
  std::string name_for(ValueId v) {
    std::string wanted = g_.value(v).name;
    if (wanted.empty())
      for (const Output& o : g_.outputs())
        if (o.value == v && is_free(o.name, v) && !written_.count(o.name)) wanted = o.name;
    // A made-up name is nobody's written one, so that those stay.
    auto usable = [&](const std::string& s) { return is_free(s, v) && (s == wanted || !written_.count(s)); };
    std::string name = wanted;
    for (int i = 2; is_name(wanted) && !usable(name); ++i) name = fmt::format("{}_{}", wanted, i);
    while (!usable(name)) name = fmt::format("t{}", next_++);
    taken_.insert(name);
    return name;
  }

  // Sizes --------------------------------------------------------------------------------------------------------

  // A size defined by `where` stands for its expression and for multiples of it: N, N/2.
  std::string size_text(const Dim& d) const {
    if (d.terms().empty() || d.is_one()) return d.str();
    for (const Where& w : g_.wheres())
      if (d == w.value) return w.size;
    for (const Where& w : g_.wheres()) {
      if (w.value.is_constant() || w.value.terms().size() != 1) continue;
      Dim multiple = d / w.value;
      if (multiple.is_constant() && multiple.terms().begin()->second.num > 0)
        return (Dim::symbol(w.size) * multiple).str();
    }
    return d.str();
  }

  Piece size_value(const Dim& d) const {
    Piece p;
    p.text = size_text(d);
    if (!is_folded_size(d)) {
      p.text = fmt::format("size({})", p.text);
      return p;
    }
    p.size = d;
    if (p.text.find('/') != std::string::npos) p.text = d.str();  // N/2 as arithmetic is a quotient of numbers
    p.precedence = p.text.find('+') != std::string::npos   ? precedence::kSum
                   : p.text.find('*') != std::string::npos ? precedence::kProduct
                                                           : precedence::kAtom;
    return p;
  }

  // Expressions --------------------------------------------------------------------------------------------------

  std::string within(ValueId v, int least_precedence) {
    const Piece& p = piece(v);
    // Nobody should have to remember that @ binds tighter than *.
    if (p.precedence == precedence::kMatmul &&
        (least_precedence == precedence::kProduct || least_precedence == precedence::kMinus))
      least_precedence = precedence::kAtom;
    return p.precedence < least_precedence ? fmt::format("({})", p.text) : p.text;
  }

  // A number beside a value of integers needs no type; alone it does.
  bool is_plainly_integer(const Node& user, std::size_t operand) {
    if (user.op == Op::kUniform) return true;
    if (user.op == Op::kCrossEntropy) return operand == 2;
    if (!row(user.op).has(kMapTrait)) return false;
    for (std::size_t i = 0; i < user.operands.size(); ++i) {
      ValueId v = user.operands[i];
      bool is_number = g_.def(v).op == Op::kLiteral && !is_statement(g_.def(v));
      if (i != operand && g_.value(v).type.elem == Elem::kI32 && !is_number) return true;
    }
    return false;
  }

  Piece literal(const Node& n) {
    Piece p;
    double x = n.attrs.number;
    p.text = std::isnan(x) ? "nan" : fmt::format("{}", x);
    if (std::signbit(x) && !std::isnan(x)) p.precedence = precedence::kMinus;
    bool digits = std::all_of(p.text.begin(), p.text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && x < 0x1p30) p.size = Dim(static_cast<std::int64_t>(x));
    return p;
  }

  static Piece call(std::string_view name, const std::vector<std::string>& arguments) {
    return {fmt::format("{}({})", name, join(arguments, ", ")), precedence::kAtom, std::nullopt, false};
  }

  Piece infix(const Node& n, const Infix& entry) {
    ValueId a = n.operands[0], b = n.operands[1];
    const std::optional<Dim>&x = piece(a).size, &y = piece(b).size;
    if (x && y && fold_sizes(n.op, *x, *y)) return call(row(n.op).name, {piece(a).text, piece(b).text});
    bool compares = entry.precedence == precedence::kCompare;
    std::string left = within(a, entry.precedence + (compares ? 1 : 0)), right = within(b, entry.precedence + 1);
    bool tight = entry.precedence == precedence::kProduct && (left + right).find(' ') == std::string::npos;
    return {fmt::format(fmt::runtime(tight ? "{}{}{}" : "{} {} {}"), left, entry.symbol, right), entry.precedence,
            std::nullopt, false};
  }

  Piece matmul(const Node& n) {
    const Type &a = g_.value(n.operands[0]).type, &b = g_.value(n.operands[1]).type;
    int shared = 0;
    for (const Dim* x : {&a.rows, &a.cols})
      for (const Dim* y : {&b.rows, &b.cols}) shared += *x == *y ? 1 : 0;
    if (shared == 1) return infix(n, *find_infix(Op::kMatmul));
    return call("matmul", {piece(n.operands[0]).text, piece(n.operands[1]).text, std::to_string(n.attrs.a_axis),
                           std::to_string(n.attrs.b_axis)});
  }

  Piece expression(const Node& n) {
    const OpRow& r = row(n.op);
    if (n.op == Op::kLiteral) return literal(n);
    if (n.op == Op::kSize) return size_value(n.attrs.dims[0]);
    for (std::size_t i = 0; i < n.operands.size(); ++i) {
      const Node& operand = g_.def(n.operands[i]);
      Piece& p = piece(n.operands[i]);
      bool integer = operand.op == Op::kLiteral && operand.attrs.dtype == DType::kI32 && !is_statement(operand);
      if (integer && !is_plainly_integer(n, i)) p = call("literal", {p.text, "i32"});
    }
    if (n.op == Op::kMatmul) return matmul(n);
    if (n.op == Op::kGather) {
      std::string table = within(n.operands[0], precedence::kAtom);
      return {fmt::format("{}[{}]", table, piece(n.operands[1]).text), precedence::kAtom, std::nullopt, false};
    }
    if (const Infix* i = find_infix(n.op)) return infix(n, *i);
    if (n.op == Op::kNot)
      return {fmt::format("not {}", within(n.operands[0], precedence::kNot)), precedence::kNot, std::nullopt, false};
    const Op operand_op = n.op == Op::kNeg ? g_.def(n.operands[0]).op : n.op;
    if (n.op == Op::kNeg && !(operand_op == Op::kLiteral && !is_statement(g_.def(n.operands[0]))))
      return {fmt::format("-{}", within(n.operands[0], precedence::kMinus)), precedence::kMinus, std::nullopt, false};
    std::vector<std::string> arguments;
    for (ValueId v : n.operands) arguments.push_back(piece(v).text);
    for (const Dim& d : n.attrs.dims) arguments.push_back(size_text(d));
    if (n.op == Op::kCast) arguments.emplace_back(name(n.attrs.dtype));
    std::string called(r.name);
    if (r.has(kReduceTrait)) called += fmt::format("_{}", suffix(n.attrs.axis));
    return call(called, arguments);
  }

  // Statements ---------------------------------------------------------------------------------------------------

  bool is_statement(const Node& n) const {
    if (n.results.size() != 1) return true;
    ValueId v = n.results[0];
    if (uses_[index(v)] != 1) return true;
    const Output* o = stored_by_[index(v)];
    return o != nullptr ? !is_stored_expression(v) : !g_.value(v).name.empty();
  }

  bool is_stored_expression(ValueId v) const {
    const Output* o = stored_by_[index(v)];
    const std::string& written = g_.value(v).name;
    if (o == nullptr || uses_[index(v)] != 1) return false;
    // `out y = …` defines y: not possible where y is another value's name.
    return written == o->name || written.empty();
  }

  void node(const Node& n) {
    if (n.op == Op::kInput) {
      piece(n.results[0]).text = g_.as_input(n.results[0])->name;
      return;
    }
    Piece p = expression(n);
    if (!is_statement(n)) {
      ValueId v = n.results[0];
      bool too_long = p.text.size() > kInlineWidth;
      if (stored_by_[index(v)] != nullptr || !too_long) {
        p.stored = stored_by_[index(v)] != nullptr;
        piece(v) = std::move(p);
        return;
      }
    }
    statement(n, p);
  }

  void statement(const Node& n, const Piece& p) {
    std::vector<std::string> names;
    for (ValueId v : n.results) {
      bool discarded = uses_[index(v)] == 0 && g_.value(v).name.empty();
      names.push_back(discarded ? "_" : name_for(v));
      piece(v) = {};
      piece(v).text = names.back();
    }
    bool integer = n.op == Op::kLiteral && n.attrs.dtype == DType::kI32;
    body_ += fmt::format("{} = {}\n", join(names, ", "), integer ? call("literal", {p.text, "i32"}).text : p.text);
  }

  // Declarations -------------------------------------------------------------------------------------------------

  bool is_read(const Input& i) const {
    return uses_[index(i.value)] > 0 ||
           std::any_of(g_.outputs().begin(), g_.outputs().end(), [&](const Output& o) { return o.over == i.name; });
  }

  void header() {
    std::string title = g_.name();
    if (!is_name(title))
      for (char& c : title) c = is_name(std::string{'x', c}) ? c : '_';
    if (!is_name(title) || is_reserved(title)) title.insert(0, "unnamed_");
    text_ += fmt::format("{} {}\n", g_.is_program() ? "program" : "graph", title);
    if (g_.reassociate()) text_ += "reassociate\n";
    for (const Where& w : g_.wheres()) text_ += fmt::format("where {} = {}\n", w.size, w.value.str());
    std::set<std::string> declared, mentioned;
    for (const Where& w : g_.wheres())
      for (const std::string& s : w.value.symbols()) declared.insert(s);
    for (const Input& i : g_.inputs())
      for (const Dim& d : i.dims)
        for (const std::string& s : d.symbols())
          if (is_read(i)) declared.insert(s);
    for (const Node& n : g_.nodes())
      for (const Dim& d : n.attrs.dims)
        for (const std::string& s : d.symbols())
          if (!declared.count(s)) mentioned.insert(s);
    if (!mentioned.empty()) text_ += fmt::format("size {}\n", join(mentioned, ", "));
  }

  std::string dims_text(const std::vector<Dim>& dims) const {
    std::vector<std::string> parts;
    for (const Dim& d : dims) parts.push_back(size_text(d));
    return fmt::format("[{}]", join(parts, ","));
  }

  void inputs() {
    std::string line, last;
    for (const Input& i : g_.inputs()) {
      bool reused =
          std::any_of(g_.outputs().begin(), g_.outputs().end(), [&](const Output& o) { return o.over == i.name; });
      if (uses_[index(i.value)] == 0 && !reused) continue;  // the parser refuses it, and the hash does not see it
      std::string type(name(i.dtype));
      if (!i.is_const) type += dims_text(i.dims);
      std::string like = (i.is_const ? "const " : "in ") + type;
      if (like == last && line.size() + i.name.size() + 2 < kLineWidth) {
        line.insert(line.size() - type.size() - 3, fmt::format(", {}", i.name));
      } else {
        text_ += line;
        line = fmt::format("{} {}: {}\n", i.is_const ? "const" : "in", i.name, type);
      }
      last = like;
    }
    text_ += line;
  }

  void outputs() {
    std::string line;
    for (const Output& o : g_.outputs()) {
      const Type& t = g_.value(o.value).type;
      std::vector<Dim> dims = {t.rows, t.cols};
      if (!t.groups.is_one()) dims.insert(dims.begin() + 1, t.groups);
      std::string item = fmt::format("{}: {}{}", o.name, name(o.dtype), dims_text(dims));
      if (!o.over.empty()) item += fmt::format(" over {}", o.over);
      const Piece& p = piece(o.value);
      if (o.accumulate || p.text != o.name) item += fmt::format(" {} {}", o.accumulate ? "+=" : "=", stored_text(o, p));
      if (!line.empty() && line.size() + item.size() + 2 <= kLineWidth) {
        line += fmt::format(", {}", item);
      } else {
        if (!line.empty()) text_ += line + "\n";
        line = fmt::format("out {}", item);
      }
    }
    text_ += line + "\n";
  }

  std::string stored_text(const Output& o, const Piece& p) const {
    const Node& n = g_.def(o.value);
    bool integer = p.stored && n.op == Op::kLiteral && n.attrs.dtype == DType::kI32;
    return integer ? call("literal", {p.text, "i32"}).text : p.text;
  }

  const Graph& g_;
  std::vector<int> uses_;
  std::vector<const Output*> stored_by_;
  std::vector<Piece> pieces_;
  std::set<std::string> taken_, output_names_, written_;
  int next_ = 0;
  std::string text_, body_;
};

}  // namespace

std::string print(const Graph& g) { return Printer(g).text(); }

}  // namespace coda
