// Statements of the text form and the entry points of include/coda/text.h; see parser.h and docs/language.md.
#include "ir/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace coda {

UnitParser::UnitParser(const Source& source, const std::vector<Token>& tokens, std::size_t& next, bool name_by_position)
    : source_(source), tokens_(tokens), next_(next), name_by_position_(name_by_position) {}

const Token& UnitParser::peek(std::size_t ahead) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }

bool UnitParser::accept(std::string_view symbol) {
  if (!peek().is(symbol)) return false;
  take();
  return true;
}

std::string UnitParser::found(const Token& t) const {
  if (t.kind == TokenKind::kEnd) return "the end of the text";
  if (t.kind == TokenKind::kLineEnd) return "the end of the line";
  return fmt::format("`{}`", t.text);
}

void UnitParser::mistake(std::size_t at, std::string what, std::string allowed, std::string way_out) const {
  throw source_error(source_, at, {"", std::move(what), std::move(allowed), std::move(way_out)});
}

const Token& UnitParser::expect(std::string_view symbol, std::string_view after) {
  if (!peek().is(symbol)) mistake(peek().at, found(peek()), fmt::format("`{}` {}", symbol, after));
  return take();
}

const Token& UnitParser::expect_new_name(std::string_view what) {
  const Token& t = peek();
  if (t.kind != TokenKind::kName) mistake(t.at, found(t), std::string(what));
  if (is_reserved(t.text))
    mistake(t.at, fmt::format("the reserved word `{}` as a name", t.text), std::string(what), "Choose another name.");
  return take();
}

void UnitParser::check_new(const Token& name) const {
  auto it = names_.find(name.text);
  if (it == names_.end()) return;
  auto line =
      std::count(source_.text.begin(), source_.text.begin() + static_cast<std::ptrdiff_t>(it->second.at), '\n') + 1;
  constexpr std::string_view kWhat[] = {"an input", "a value", "a size"};
  mistake(name.at,
          fmt::format("`{}` defined twice; it is {} since line {}", name.text, kWhat[static_cast<int>(it->second.kind)],
                      line),
          "one definition a name", "Choose another name.");
}

void UnitParser::define(const Token& name, Known::Kind kind, Val v) {
  check_new(name);
  names_.emplace(std::string(name.text), Known{kind, v, name.at});
  if (kind == Known::Kind::kLocal && !name_by_position_ && v.builder->value(v.id).name.empty())
    builder_->set_name(v, std::string(name.text));
}

Graph UnitParser::parse() {
  const Token& kind = take();
  if (!kind.is_word("program") && !kind.is_word("graph"))
    mistake(kind.at, found(kind), "`program NAME` or `graph NAME`");
  const Token& name = expect_new_name(fmt::format("the name of the {}", kind.text));
  header_ = name.at;
  if (kind.text == "program")
    builder_ = std::make_unique<ProgramBuilder>(std::string(name.text));
  else
    builder_ = std::make_unique<GraphBuilder>(std::string(name.text));
  end_statement();
  while (peek().kind != TokenKind::kEnd && !peek().is_word("program") && !peek().is_word("graph")) statement();
  return build();
}

void UnitParser::end_statement() {
  const Token& t = peek();
  if (t.kind == TokenKind::kEnd) return;
  if (t.kind != TokenKind::kLineEnd)
    mistake(t.at, found(t), "the end of the statement",
            "A statement ends with its line; inside brackets and after an operator it goes on.");
  take();
}

void UnitParser::statement() {
  const Token& t = peek();
  if (t.kind != TokenKind::kName)
    mistake(t.at, found(t), "a statement: in, const, where, size, reassociate, out, or NAME = …");
  if (is_reserved(t.text) && t.text != "_") {
    if (peek(1).is("=") || peek(1).is(","))
      mistake(t.at, fmt::format("the reserved word `{}` as a name", t.text), "a name", "Choose another name.");
    take();
    if (t.text == "in" || t.text == "const")
      input_statement(t.text == "const");
    else if (t.text == "out")
      output_statement();
    else if (t.text == "where")
      where_statement();
    else if (t.text == "size")
      size_statement();
    else if (t.text == "reassociate")
      builder_->set_reassociate(true);
    else
      mistake(t.at, found(t), "a statement: in, const, where, size, reassociate, out, or NAME = …");
  } else {
    assignment();
  }
  end_statement();
}

void UnitParser::where_statement() {
  do {
    const Token& name = expect_new_name("the name of a size");
    // A size that types above already mention gets its value now; anything else of that name is a mistake.
    auto it = names_.find(name.text);
    if (it == names_.end() || it->second.kind != Known::Kind::kSize) define(name, Known::Kind::kSize, {});
    expect("=", "after the size");
    Dim d = size_expression(true);
    guard(name.at, [&] { builder_->where(std::string(name.text), d); });
  } while (accept(","));
}

void UnitParser::size_statement() {
  do {
    const Token& name = expect_new_name("the name of a size");
    auto it = names_.find(name.text);
    if (it == names_.end() || it->second.kind != Known::Kind::kSize) define(name, Known::Kind::kSize, {});
  } while (accept(","));
}

DType UnitParser::dtype_word() {
  const Token& t = peek();
  if (t.kind != TokenKind::kName) mistake(t.at, found(t), "a dtype: f32, bf16, f16, i32");
  DType dtype = guard(t.at, [&] { return parse_dtype(t.text); });
  take();
  return dtype;
}

UnitParser::TypeText UnitParser::type_text(bool with_dims) {
  TypeText type;
  type.dtype = dtype_word();
  type.at = peek().at;
  if (!with_dims) {
    if (peek().is("["))
      mistake(type.at, "a const with dimensions", "const NAME: f32 or i32", "A tensor is an input: in NAME: f32[1,1].");
    return type;
  }
  expect("[", "after the dtype: f32[M,N]");
  do type.dims.emplace_back(size_expression(true));
  while (accept(","));
  expect("]", "to end the dimensions");
  if (type.dims.size() != 2 && type.dims.size() != 3)
    mistake(type.at, fmt::format("{} dimension{}", type.dims.size(), type.dims.size() == 1 ? "" : "s"),
            "2 or 3: [rows,columns] or [rows,groups,columns]",
            "A vector is [M,1] per row or [1,N] per column, a number [1,1].");
  return type;
}

void UnitParser::input_statement(bool is_const) {
  do {
    std::vector<const Token*> group;
    do group.push_back(&expect_new_name(is_const ? "the name of a const" : "the name of an input"));
    while (accept(","));
    expect(":", "before the type");
    TypeText type = type_text(!is_const);
    for (const Token* name : group) {
      check_new(*name);
      Val v = guard(name->at, [&] {
        return is_const ? builder_->launch_const(std::string(name->text), type.dtype)
                        : builder_->input(std::string(name->text), type.dtype, type.dims);
      });
      if (name_by_position_) builder_->set_name(v, fmt::format("@{}", name->at));
      define(*name, Known::Kind::kInput, v);
    }
  } while (accept(","));
}

void UnitParser::output_statement() {
  do output_item();
  while (accept(","));
}

void UnitParser::output_item() {
  const Token& name = expect_new_name("the name of an output");
  if (auto it = outputs_.find(name.text); it != outputs_.end())
    mistake(name.at, fmt::format("output `{}` declared twice", name.text), "one declaration a name");
  outputs_.emplace(std::string(name.text), name.at);
  expect(":", "before the type of the output");
  TypeText type = type_text(true);
  std::size_t detail = type.at;
  std::string over;
  if (peek().is_word("over")) {
    detail = take().at;
    over = std::string(expect_new_name("the name of an input").text);
  }
  bool accumulate = peek().is("+=");
  if (accumulate) detail = peek().at;
  Val v;
  if (accumulate || peek().is("=")) {
    take();
    v = to_value(expression());
    // An input keeps its name; `out y: … += y` stores the local of that name.
    auto it = names_.find(name.text);
    bool known = it != names_.end() && (it->second.kind == Known::Kind::kInput ||
                                        (it->second.kind == Known::Kind::kLocal && it->second.value.id == v.id));
    if (!known) define(name, Known::Kind::kLocal, v);
  } else {
    auto it = names_.find(name.text);
    if (it == names_.end())
      mistake(name.at, fmt::format("output `{}`, but no value of that name", name.text),
              "the name of a value above, or an expression: out y: f32[M,N] = …");
    Term t = named(name);
    v = to_value(t);
  }
  try {
    builder_->output(std::string(name.text), type.dtype, type.dims, v, accumulate, over);
  } catch (const Error& e) {
    bool about_shape = e.parts().found.starts_with("declared");
    throw source_error(source_, about_shape ? type.at : detail, e.parts());
  }
}

void UnitParser::assignment() {
  std::vector<const Token*> targets;
  do {
    const Token& t = peek();
    targets.push_back(t.is_word("_") ? &take() : &expect_new_name("a name to define"));
  } while (accept(","));
  const Token& equals =
      expect("=", targets.size() == 1 ? "after the name: NAME = expression" : "after the names: a, b = …");
  std::vector<Term> terms;
  do terms.push_back(expression());
  while (accept(","));
  std::vector<Val> values;
  if (terms.size() == 1 && terms[0].kind == Term::Kind::kResults) {
    values = terms[0].results;
  } else {
    for (const Term& t : terms) values.push_back(to_value(t));
  }
  if (values.size() != targets.size())
    mistake(equals.at,
            fmt::format("{} name{} for {} value{}", targets.size(), targets.size() == 1 ? "" : "s", values.size(),
                        values.size() == 1 ? "" : "s"),
            "one name for each value", values.size() > targets.size() ? "_ discards a result." : "");
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (targets[i]->text != "_") define(*targets[i], Known::Kind::kLocal, values[i]);
}

Graph UnitParser::build() {
  if (outputs_.empty()) mistake(header_, "no outputs", "at least one `out`", "Store something: out y: f32[M,N] = …");
  for (const auto& [id, at] : open_sized_)
    for (const Dim* d : {&builder_->value(id).type.rows, &builder_->value(id).type.cols})
      if (builder_->canonical(*d).as_symbol().starts_with('?'))
        mistake(at, "a call whose size nothing fixes", "a map with a tile, or an output of declared size");
  Graph g = guard(header_, [&] { return builder_->build_graph(); });
  check_inputs(g);
  return g;
}

void UnitParser::check_inputs(const Graph& g) const {
  std::vector<bool> used(g.values().size(), false);
  for (const Node& n : g.nodes())
    for (ValueId v : n.operands) used[static_cast<std::size_t>(v)] = true;
  for (const Output& o : g.outputs()) used[static_cast<std::size_t>(o.value)] = true;
  for (const Input& i : g.inputs()) {
    bool reused =
        std::any_of(g.outputs().begin(), g.outputs().end(), [&](const Output& o) { return o.over == i.name; });
    if (!used[static_cast<std::size_t>(i.value)] && !reused)
      mistake(names_.at(i.name).at,
              fmt::format("{} `{}`, which no output depends on", i.is_const ? "const" : "input", i.name),
              "inputs that are used", "Remove it, or use it.");
  }
}

// Entry points -------------------------------------------------------------------------------------------------------

namespace {

// Where the verifier's mistake is: the unit is built once more with values named by their position. Only values inside
// a composite's expansion have no such name.
std::size_t find_mistake(const Source& source, const std::vector<Token>& tokens, std::size_t begin,
                         std::size_t otherwise) {
  UnitParser again(source, tokens, begin, true);
  try {
    Program verified(again.parse());
  } catch (const Error& e) {
    const std::string& argument = e.parts().argument;
    std::size_t at = argument.find('@');
    if (at != std::string::npos && at + 1 < argument.size() && argument[at + 1] >= '0' && argument[at + 1] <= '9')
      return std::stoul(argument.substr(at + 1));
  }
  return otherwise;
}

}  // namespace

std::vector<Graph> parse(std::string_view text, const std::string& file) {
  Source source{file, text};
  std::vector<Token> tokens = lex(source);
  if (tokens.front().kind == TokenKind::kEnd)
    throw source_error(source, 0,
                       {"", "an empty text", "`program NAME` or `graph NAME`", "docs/language.md shows one."});
  std::vector<Graph> graphs;
  for (std::size_t next = 0; tokens[next].kind != TokenKind::kEnd;) {
    std::size_t begin = next;
    UnitParser unit(source, tokens, next, false);
    graphs.push_back(unit.parse());
    if (!graphs.back().is_program()) continue;
    try {
      Program verified(graphs.back());
    } catch (const Error& e) {
      throw source_error(source, find_mistake(source, tokens, begin, unit.composite_or_header()), e.parts());
    }
  }
  for (std::size_t i = 0; i < graphs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (graphs[i].name() == graphs[j].name())
        throw Error({file, "two programs named " + graphs[i].name(), "one program of a name", "Rename the second."});
  return graphs;
}

std::vector<Graph> parse_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error({path, "a directory", "a text file of programs", "Name the file in it."});
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw Error({path, "a device or pipe", "a text file of programs", "Save the text in a file first."});
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error({path, "cannot be read", "a readable text file of programs", "Check the path."});
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::string text(kLargest + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kLargest) throw Error({path, "more than 16 MiB", "a text file of programs", ""});
  return parse(text, path);
}

namespace {

Program only_program(const std::vector<Graph>& graphs, const std::string& file) {
  if (graphs.size() != 1) throw Error({file, fmt::format("{} programs", graphs.size()), "exactly one", ""});
  if (!graphs[0].is_program())
    throw Error(
        {file, fmt::format("graph {}", graphs[0].name()), "a program", "One kernel begins with `program NAME`."});
  return Program(graphs[0]);
}

}  // namespace

Program parse_program(std::string_view text, const std::string& file) { return only_program(parse(text, file), file); }
Program load_program(const std::string& path) { return only_program(parse_file(path), path); }

}  // namespace coda
