// From a program to strips; see lower.h. Three steps: where columns must be cut (Cuts), which pieces meet (pieces are
// united), and the operations of each strip (StripBuilder).
#include "plan/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

bool reduces_to_finish(const Node& n) {
  return row(n.op).has(kReduceTrait) &&
         (n.attrs.axis == Axis::kN || n.attrs.axis == Axis::kM || n.attrs.axis == Axis::kMN);
}

// Sizes and classes of the graph's values at concrete sizes.
class Shapes {
 public:
  Shapes(const Program& p, const Sizes& sizes) : program(p), graph(p.expanded()), sizes_(sizes) {
    for (const Value& v : graph.values())
      shapes_.push_back({eval(v.type.rows), eval(v.type.groups), eval(v.type.cols)});
  }
  struct RGC {
    std::int64_t rows, groups, cols;
    std::int64_t width() const { return groups * cols; }
  };
  std::int64_t eval(const Dim& d) const { return d.eval(sizes_); }
  const RGC& of(ValueId v) const { return shapes_[idx(v)]; }
  const Type& type(ValueId v) const { return graph.value(v).type; }
  bool per_row(ValueId v) const { return !type(v).rows.is_one(); }
  bool has_columns(ValueId v) const { return !type(v).width().is_one(); }
  bool grouped(ValueId v) const { return !type(v).groups.is_one(); }
  bool finish(ValueId v) const { return program.stage(v) == Stage::kFinish; }
  bool tile(ValueId v) const { return program.stage(v) == Stage::kTile; }

  const Program& program;
  const Graph& graph;

 private:
  Sizes sizes_;
  std::vector<RGC> shapes_;
};

[[noreturn]] void refuse_one_column(const Shapes& s, ValueId v) {
  const std::string& called = s.graph.value(v).name;
  throw Error({fmt::format("program {}{}{}", s.graph.name(), called.empty() ? "" : ", ", called),
               "a value of one column beside the columns of a tile, " + s.type(v).str(), "tiles with a column size",
               "Give the size a name (N, or H groups) and bind it to 1; sum_n and max_n reduce whole rows."});
}

// How columns of one value correspond to columns of another in one operation: position p of the first (counted in
// `unit_a`) is position p of the second (counted in `unit_b`), shifted by `offset_b` columns.
struct Link {
  ValueId a, b;
  std::int64_t unit_a, unit_b;  // one step is so many columns of each
  std::int64_t offset_b = 0;    // where a's columns start in b
};

// The links that an operation makes between values with columns. Values that are the same for every group, and whole
// reductions, make none.
std::vector<Link> links_of(const Shapes& s, const Node& n) {
  std::vector<Link> links;
  auto straight = [&](ValueId a, ValueId b) {
    if (!s.has_columns(a) || !s.has_columns(b)) return;
    if (s.grouped(a) == s.grouped(b) && s.type(a).cols == s.type(b).cols) {
      links.push_back({a, b, 1, 1});
    } else if (s.grouped(a) && s.grouped(b)) {  // one of them has one value per group
      links.push_back({a, b, s.of(a).cols, s.of(b).cols});
    }
  };
  const OpRow& r = row(n.op);
  if (n.op == Op::kMatmul || n.op == Op::kInput) return links;
  if (n.op == Op::kGather) {
    links.push_back({n.results[0], n.operands[0], 1, 1});
    return links;
  }
  if (r.has(kReduceTrait)) {
    if (reduces_to_finish(n) && n.operands.size() == 2) straight(n.operands[0], n.operands[1]);
    if (n.attrs.axis == Axis::kC)
      for (ValueId v : n.results) straight(v, n.operands[0]);
    return links;
  }
  switch (n.op) {
    case Op::kGroup:
    case Op::kFlat: links.push_back({n.results[0], n.operands[0], 1, 1}); return links;
    case Op::kPairs:
      for (ValueId v : n.results) links.push_back({v, n.operands[0], 1, 2});
      return links;
    case Op::kInterleave:
      for (ValueId v : n.operands) links.push_back({v, n.results[0], 1, 2});
      return links;
    case Op::kHalves:
    case Op::kSplit:
    case Op::kConcat: {
      bool joins = n.op == Op::kConcat;
      ValueId whole = joins ? n.results[0] : n.operands[0];
      std::int64_t offset = 0;
      for (ValueId part : joins ? n.operands : n.results) {
        if (s.grouped(whole)) {
          if (s.grouped(part)) links.push_back({part, whole, s.of(part).cols, s.of(whole).cols});
        } else {
          links.push_back({part, whole, 1, 1, offset});
        }
        offset += s.of(part).cols;
      }
      return links;
    }
    default: break;
  }
  // Maps and cis: operands against the result, results against each other.
  for (ValueId v : n.operands) straight(v, n.results[0]);
  for (std::size_t i = 1; i < n.results.size(); ++i) straight(n.results[i], n.results[0]);
  return links;
}

// Column ranges of every value with columns, cut so that each range corresponds to one range of its partners.
class Cuts {
 public:
  explicit Cuts(const Shapes& s) : s_(s), cuts_(s.graph.values().size()) {
    for (std::size_t v = 0; v < cuts_.size(); ++v) cuts_[v] = {0, s.of(static_cast<ValueId>(v)).width()};
    for (const Node& n : s.graph.nodes()) {
      bool on_tile = false;
      for (ValueId v : n.operands) on_tile = on_tile || !s.finish(v);
      if (n.op != Op::kInput && !on_tile && !n.operands.empty()) continue;
      for (const Link& l : links_of(s, n))
        if (!s.finish(l.a) && !s.finish(l.b)) links_.push_back(l);
    }
    settle();
    unite();
  }

  std::size_t pieces(ValueId v) const { return cuts_[idx(v)].empty() ? 0 : cuts_[idx(v)].size() - 1; }
  std::int64_t begin(ValueId v, std::size_t piece) const {
    return *std::next(cuts_[idx(v)].begin(), static_cast<long>(piece));
  }
  std::int64_t width(ValueId v, std::size_t piece) const { return begin(v, piece + 1) - begin(v, piece); }
  // Pieces with the same class lie in one strip.
  int class_of(ValueId v, std::size_t piece) { return find(first_[idx(v)] + static_cast<int>(piece)); }
  std::size_t piece_at(ValueId v, std::int64_t column) const {
    auto it = cuts_[idx(v)].find(column);
    CODA_CHECK(it != cuts_[idx(v)].end(), "no piece of a value starts where its partner's does");
    return idx(std::distance(cuts_[idx(v)].begin(), it));
  }
  // The piece of the other end of a link.
  std::size_t across(const Link& l, std::size_t piece_of_a) const {
    return piece_at(l.b, begin(l.a, piece_of_a) / l.unit_a * l.unit_b + l.offset_b);
  }
  std::size_t back(const Link& l, std::size_t piece_of_b) const {
    return piece_at(l.a, (begin(l.b, piece_of_b) - l.offset_b) / l.unit_b * l.unit_a);
  }

 private:
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Link& l : links_) {
        std::int64_t span = s_.of(l.a).width() / std::max<std::int64_t>(l.unit_a, 1) * l.unit_b;
        for (std::int64_t c : std::vector<std::int64_t>(cuts_[idx(l.a)].begin(), cuts_[idx(l.a)].end()))
          changed |= cut(l.b, c, l.unit_a, l.unit_b, 0, l.offset_b);
        for (std::int64_t c : std::vector<std::int64_t>(cuts_[idx(l.b)].begin(), cuts_[idx(l.b)].end()))
          if (c >= l.offset_b && c <= l.offset_b + span) changed |= cut(l.a, c, l.unit_b, l.unit_a, l.offset_b, 0);
      }
    }
  }

  bool cut(ValueId v, std::int64_t at, std::int64_t unit_from, std::int64_t unit_to, std::int64_t offset_from,
           std::int64_t offset_to) {
    std::int64_t steps = at - offset_from, to = steps / unit_from * unit_to + offset_to;
    bool inside_group = s_.grouped(v) && s_.of(v).cols > 0 && to % s_.of(v).cols != 0;
    if (steps % unit_from != 0 || inside_group)
      throw Error({fmt::format("program {}", s_.graph.name()),
                   fmt::format("a split at column {} inside a group or pair of {} columns", at,
                               inside_group ? s_.of(v).cols : unit_from),
                   "splits between groups and between pairs", "Split at a multiple of the group's width."});
    return cuts_[idx(v)].insert(to).second;
  }

  void unite() {
    int count = 0;
    for (std::size_t v = 0; v < cuts_.size(); ++v) {
      first_.push_back(count);
      count += static_cast<int>(pieces(static_cast<ValueId>(v)));
    }
    parent_.resize(idx(count));
    std::iota(parent_.begin(), parent_.end(), 0);
    for (const Link& l : links_)
      for (std::size_t p = 0; p < pieces(l.a); ++p) {
        int x = find(first_[idx(l.a)] + static_cast<int>(p)),
            y = find(first_[idx(l.b)] + static_cast<int>(across(l, p)));
        parent_[idx(std::max(x, y))] = std::min(x, y);
      }
  }

  int find(int x) {
    while (parent_[idx(x)] != x) x = parent_[idx(x)] = parent_[idx(parent_[idx(x)])];
    return x;
  }

  const Shapes& s_;
  std::vector<std::set<std::int64_t>> cuts_;
  std::vector<Link> links_;
  std::vector<int> first_, parent_;
};

// Instantiates the operations that one strip needs.
class StripBuilder {
 public:
  StripBuilder(const Shapes& s, Cuts& cuts, int strip_class) : s_(s), cuts_(cuts), class_(strip_class) {}

  // The strip's value for a piece of a graph value (piece 0 for values without columns or the same for every group).
  int value(ValueId v, std::size_t piece) {
    bool mine = s_.has_columns(v) && cuts_.pieces(v) > piece && cuts_.class_of(v, piece) == class_;
    auto key = std::make_pair(v, mine ? piece : std::size_t{0});
    if (auto it = made_.find(key); it != made_.end()) return it->second;
    make(v, key.second, mine);
    return made_.at(key);
  }

  Strip finish() {
    std::int64_t units = 0;
    for (const LoweredValue& v : strip_.values)
      if (v.per_unit)
        units = std::gcd(units, v.groups > 1 || grouped_[idx(&v - strip_.values.data())] ? v.groups : v.cols);
    strip_.units = units;
    CODA_CHECK(units > 0, "a strip without columns");
    return std::move(strip_);
  }

  Strip& strip() { return strip_; }

 private:
  int add(ValueId v, std::size_t piece, bool mine) {
    LoweredValue lv;
    lv.elem = s_.type(v).elem;
    lv.per_row = s_.per_row(v) || s_.tile(v);  // a GEMM of one row is still a tile
    lv.per_unit = mine;
    lv.cols = s_.of(v).cols;
    bool grouped = s_.grouped(v);
    if (mine && grouped) {
      lv.groups = lv.cols == 0 ? 0 : cuts_.width(v, piece) / lv.cols;
    } else if (mine) {
      lv.cols = cuts_.width(v, piece);
    } else {
      CODA_CHECK(!grouped, "a grouped value outside of its strip");
    }
    lv.name = s_.graph.value(v).name;
    strip_.values.push_back(lv);
    grouped_.push_back(grouped);
    int id = static_cast<int>(strip_.values.size()) - 1;
    made_[{v, piece}] = id;
    return id;
  }

  void make(ValueId v, std::size_t piece, bool mine) {
    const Node& n = s_.graph.def(v);
    if (s_.tile(v) && !s_.has_columns(v)) refuse_one_column(s_, v);
    for (const Accumulator& acc : s_.program.accumulators())
      if (acc.value == v) return make_lane(acc, piece, mine);
    if (n.op == Op::kHalves || n.op == Op::kSplit || n.op == Op::kConcat)
      if (mine && make_alias(n, v, piece)) return;
    LoweredOp op;
    op.op = n.op;
    op.attrs = n.attrs;
    op.source = n.results[0];
    std::int64_t first = mine ? cuts_.begin(v, piece) : 0;
    if (n.op == Op::kInput || n.op == Op::kCol || n.op == Op::kUniform || n.op == Op::kGather) op.first_col = first;
    if (n.op == Op::kUniform) op.row_width = s_.of(v).width();
    if (n.op == Op::kInput) op.input = input_index(v);
    if (n.op == Op::kGather) op.input = input_index(n.operands[0]);
    if (n.op == Op::kSize) op.attrs.number = static_cast<double>(s_.eval(n.attrs.dims[0]));
    std::vector<Link> links = links_of(s_, n);
    for (std::size_t i = n.op == Op::kGather ? 1 : 0; i < n.operands.size(); ++i)
      op.in.push_back(value(n.operands[i], operand_piece(links, n, v, piece, n.operands[i])));
    for (ValueId result : n.results)
      op.out.push_back(add(result, result_piece(links, v, piece, result), mine_of(result, v, mine)));
    check_columns(op, v);
    strip_.ops.push_back(std::move(op));
  }

  // A tile holds some of a strip's columns: what one number is made of must not be among them.
  void check_columns(const LoweredOp& op, ValueId v) const {
    auto per_unit = [&](int i) { return strip_.values[idx(i)].per_unit; };
    bool narrows = !per_unit(op.out[0]) && std::any_of(op.in.begin(), op.in.end(), per_unit);
    bool widens = op.op == Op::kInterleave && per_unit(op.out[0]) && !per_unit(op.in[0]);
    if (narrows || widens) refuse_one_column(s_, widens ? s_.graph.def(v).operands[0] : v);
  }

  bool mine_of(ValueId result, ValueId v, bool mine) const {
    return result == v ? mine : s_.has_columns(result) && mine;
  }

  // Every product of a GEMM: its terms at concrete K.
  void make_lane(const Accumulator& acc, std::size_t piece, bool mine) {
    if (!mine)
      throw Error({"program " + s_.graph.name(), "a product " + s_.type(acc.value).str() + " repeated for every group",
                   "products as wide as what they meet", "Store the product in one program and load it in the next."});
    Lane lane;
    lane.value = add(acc.value, piece, mine);
    lane.first_col = cuts_.begin(acc.value, piece);
    for (int t : acc.matmul_nodes) {
      const Node& m = s_.graph.nodes()[idx(t)];
      LaneTerm term{input_index(m.operands[0]), input_index(m.operands[1]), m.attrs.a_axis, m.attrs.b_axis, 0};
      const Shapes::RGC& a = s_.of(m.operands[0]);
      term.k = m.attrs.a_axis == 0 ? a.rows : a.cols;
      lane.terms.push_back(term);
    }
    strip_.lanes.push_back(std::move(lane));
  }

  // Column ranges of ungrouped values are pieces: taking them apart or together is renaming.
  bool make_alias(const Node& n, ValueId v, std::size_t piece) {
    bool joins = n.op == Op::kConcat;
    ValueId whole = joins ? n.results[0] : n.operands[0];
    if (s_.grouped(whole)) return false;
    std::int64_t offset = 0, at = cuts_.begin(v, piece);
    for (ValueId part : joins ? n.operands : n.results) {
      std::int64_t width = s_.of(part).cols;
      if (joins && at >= offset && at < offset + width) {
        if (!s_.has_columns(part)) return make_column(n, v, piece, part);
        made_[{v, piece}] = value(part, cuts_.piece_at(part, at - offset));
        return true;
      }
      if (!joins && part == v) {
        made_[{v, piece}] = value(whole, cuts_.piece_at(whole, at + offset));
        return true;
      }
      offset += width;
    }
    throw InternalError(__FILE__, __LINE__, "a piece of a concat belongs to none of its parts");
  }

  // A part of one column, one number a row or one for all, becomes a column of the strip.
  bool make_column(const Node& n, ValueId v, std::size_t piece, ValueId part) {
    LoweredOp op;
    op.op = n.op;
    op.source = n.results[0];
    op.in = {value(part, 0)};
    op.out = {add(v, piece, true)};
    strip_.ops.push_back(std::move(op));
    return true;
  }

  std::size_t operand_piece(const std::vector<Link>& links, const Node& n, ValueId v, std::size_t piece,
                            ValueId operand) const {
    for (const Link& l : links) {
      if (l.a == v && l.b == operand) return cuts_.across(l, piece);
      if (l.a == operand && l.b == v) return cuts_.back(l, piece);
    }
    // Through the first result (results of cis or a map that are not linked to the operand themselves).
    if (v != n.results[0])
      for (const Link& l : links)
        if (l.a == v && l.b == n.results[0])
          return operand_piece(links, n, n.results[0], cuts_.across(l, piece), operand);
    return 0;
  }

  std::size_t result_piece(const std::vector<Link>& links, ValueId v, std::size_t piece, ValueId result) const {
    if (result == v) return piece;
    for (const Link& l : links) {  // results are linked to each other or to one operand in the same way
      if (l.a == v && l.b == result) return cuts_.across(l, piece);
      if (l.a == result && l.b == v) return cuts_.back(l, piece);
    }
    for (const Link& l : links)
      for (const Link& m : links)
        if (l.a == v && m.a == result && l.b == m.b) return cuts_.back(m, cuts_.across(l, piece));
    return 0;
  }

  int input_index(ValueId v) const {
    for (std::size_t i = 0; i < s_.graph.inputs().size(); ++i)
      if (s_.graph.inputs()[i].value == v) return static_cast<int>(i);
    throw InternalError(__FILE__, __LINE__, "not an input");
  }

  const Shapes& s_;
  Cuts& cuts_;
  int class_;
  Strip strip_;
  std::vector<bool> grouped_;
  std::map<std::pair<ValueId, std::size_t>, int> made_;
};

// The finish list: operations on whole vectors once every tile is done.
class FinishBuilder {
 public:
  FinishBuilder(const Shapes& s, LoweredProgram& out) : s_(s), out_(out), made_(s.graph.values().size(), -1) {}

  int value(ValueId v) {
    if (made_[idx(v)] < 0) make(v);
    return made_[idx(v)];
  }

  int add(ValueId v) {
    const Shapes::RGC& shape = s_.of(v);
    LoweredValue lv;
    lv.elem = s_.type(v).elem;
    lv.per_row = s_.per_row(v);
    lv.per_unit = s_.has_columns(v);
    lv.rows = shape.rows;
    lv.groups = shape.groups;
    lv.cols = shape.cols;
    lv.name = s_.graph.value(v).name;
    out_.finish_values.push_back(lv);
    return made_[idx(v)] = static_cast<int>(out_.finish_values.size()) - 1;
  }

 private:
  void make(ValueId v) {
    const Node& n = s_.graph.def(v);
    LoweredOp op;
    op.op = n.op;
    op.attrs = n.attrs;
    op.source = n.results[0];
    if (n.op == Op::kSize) op.attrs.number = static_cast<double>(s_.eval(n.attrs.dims[0]));
    if (n.op == Op::kUniform) op.row_width = s_.of(v).width();
    for (std::size_t i = 0; i < s_.graph.inputs().size(); ++i) {
      ValueId source = s_.graph.inputs()[i].value;
      if ((n.op == Op::kInput && source == v) || (n.op == Op::kGather && source == n.operands[0]))
        op.input = static_cast<int>(i);
    }
    for (std::size_t i = n.op == Op::kGather ? 1 : 0; i < n.operands.size(); ++i) op.in.push_back(value(n.operands[i]));
    for (ValueId result : n.results) op.out.push_back(add(result));
    out_.finish_ops.push_back(std::move(op));
  }

  const Shapes& s_;
  LoweredProgram& out_;
  std::vector<int> made_;
};

class Lowering {
 public:
  Lowering(const Program& p, const Sizes& sizes) : s_(p, sizes), cuts_(s_), finish_(s_, out_) {}

  LoweredProgram run() {
    // Reductions of tile values first: finish values hang on them.
    for (const Node& n : s_.graph.nodes())
      if (reduces_to_finish(n) && is_live_tile_reduction(n)) add_reduction(n);
    for (std::size_t i = 0; i < s_.graph.outputs().size(); ++i) add_output(static_cast<int>(i));
    for (auto& [key, builder] : builders_) {
      builder.strip().rows = key.second;
      out_.strips.push_back(builder.finish());
    }
    for (std::size_t i = 0; i < s_.graph.outputs().size(); ++i) check_over(static_cast<int>(i));
    return std::move(out_);
  }

 private:
  bool is_live_tile_reduction(const Node& n) const {
    return std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return s_.tile(v); });
  }

  // Strips in order of their first piece, so that the order of merging follows the columns.
  StripBuilder& builder(ValueId v, std::size_t piece) {
    if (!s_.has_columns(v)) refuse_one_column(s_, v);
    int c = cuts_.class_of(v, piece);
    auto key = std::make_pair(c, s_.of(v).rows);
    auto it = builders_.find(key);
    if (it == builders_.end()) it = builders_.emplace(key, StripBuilder(s_, cuts_, c)).first;
    return it->second;
  }

  void add_reduction(const Node& n) {
    Reduction r;
    r.op = n.op;
    r.axis = n.attrs.axis;
    r.has_payload = n.operands.size() == 2;
    ValueId v = n.operands[0], payload = r.has_payload ? n.operands[1] : -1;
    if (r.has_payload && !(s_.type(v) == s_.type(payload)))
      throw Error({"program " + s_.graph.name(), "a payload " + s_.type(payload).str() + " for " + s_.type(v).str(),
                   "a payload of the same shape", ""});
    r.rows = s_.of(v).rows;
    r.width = s_.of(v).width();
    for (ValueId result : n.results) r.out.push_back(finish_.add(result));
    int id = static_cast<int>(out_.reductions.size());
    for (std::size_t piece = 0; piece < cuts_.pieces(v); ++piece) {
      StripBuilder& b = builder(v, piece);
      LoweredReduce share{id, b.value(v, piece), -1, cuts_.begin(v, piece)};
      if (r.has_payload) share.payload = b.value(payload, piece);
      b.strip().reduces.push_back(share);
    }
    out_.reductions.push_back(std::move(r));
  }

  void add_output(int i) {
    const Output& o = s_.graph.outputs()[idx(i)];
    if (!s_.tile(o.value)) {
      out_.finish_stores.push_back({i, finish_.value(o.value), 0});
      return;
    }
    for (std::size_t piece = 0; piece < cuts_.pieces(o.value); ++piece) {
      StripBuilder& b = builder(o.value, piece);
      b.strip().stores.push_back({i, b.value(o.value, piece), cuts_.begin(o.value, piece)});
    }
  }

  // `over x`: tiles run in any order, so each may read of x only what it overwrites itself.
  void check_over(int output) const {
    const Output& o = s_.graph.outputs()[idx(output)];
    if (!s_.tile(o.value)) return;  // stored when every tile is done
    auto is_it = [&](const LoweredOp& op) { return op.input >= 0 && s_.graph.inputs()[idx(op.input)].name == o.over; };
    for (const Strip& s : out_.strips) {
      auto per_unit = [&](int v) {
        const LoweredValue& value = s.values[idx(v)];
        return value.per_unit && value.per_row ? value.width() / s.units : 0;
      };
      std::set<std::pair<std::int64_t, std::int64_t>> written;  // first column and columns per unit
      for (const LoweredStore& store : s.stores)
        if (store.output == output) written.insert({store.first_col, per_unit(store.value)});
      for (const LoweredOp& op : s.ops)
        if (is_it(op) && (op.op == Op::kGather || written.count({op.first_col, per_unit(op.out[0])}) == 0))
          throw Error({fmt::format("program {}, output {}", s_.graph.name(), o.name),
                       fmt::format("over {}, of which other tiles still read", o.over),
                       "an input that is read only where it is overwritten", "Give the output memory of its own."});
    }
  }

  Shapes s_;
  Cuts cuts_;
  LoweredProgram out_;
  FinishBuilder finish_;
  std::map<std::pair<int, std::int64_t>, StripBuilder> builders_;
};

}  // namespace

LoweredProgram lower(const Program& p, const Sizes& sizes) {
  // Values are followed from outputs to inputs by recursion; far above any program, far below a stack's end.
  constexpr std::size_t kMostOperations = 4096;
  if (p.expanded().nodes().size() > kMostOperations)
    throw Error({"program " + p.name(), fmt::format("{} operations", p.expanded().nodes().size()),
                 fmt::format("at most {}", kMostOperations), "Cut it into several programs."});
  return Lowering(p, sizes).run();
}

}  // namespace coda
