// Random programs: a source (products that share a side, sums of them along K, or loaded tiles), an epilogue of maps
// and shape operations nested in any order, stores, reductions of every kind and their finish. Everything follows from
// the seed. Used to compare a backend with the interpreter.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coda/builder.h"
#include "coda/error.h"

namespace random_program {

using coda::Axis;
using coda::Dim;
using coda::DimArg;
using coda::DType;
using coda::Elem;
using coda::Op;
using coda::Val;

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : bits_(seed), b_("random_" + std::to_string(seed)) {}

  coda::Program make() {
    constexpr DType kStorage[] = {DType::kF32, DType::kBF16, DType::kF16};
    storage_ = kStorage[pick(3)];
    constexpr int kRows[] = {1, 2, 7, 8, 9, 17, 33, 50}, kDepths[] = {0, 1, 5, 16, 40};
    sizes_ = {
        {"M", kRows[pick(8)]}, {"T", kRows[pick(8)]}, {"K", kDepths[pick(5)]}, {"R", 1 + pick(9)}, {"N", 1 + pick(40)}};
    sizes_["S"] = 11;
    source();
    for (int steps = 2 + pick(9); steps > 0; --steps) {
      Val x = tiles_[static_cast<std::size_t>(pick(static_cast<int>(tiles_.size())))];
      try {
        step(x);
      } catch (const coda::Error&) {  // not for these types
      }
    }
    finish();
    return b_.build();
  }

  // Only those the program has.
  coda::Sizes sizes(const coda::Program& p) const {
    coda::Sizes chosen;
    for (const std::string& s : p.expanded().free_sizes()) chosen[s] = sizes_.at(s);
    return chosen;
  }

 private:
  int pick(int n) { return static_cast<int>(bits_() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  std::string fresh(const std::string& stem) { return stem + std::to_string(names_++); }
  DType storage() { return chance(10) ? DType::kF32 : storage_; }

  // A width: whole numbers that divide in many ways, or the size N.
  Dim width() {
    constexpr int kWidths[] = {4, 6, 8, 12, 16, 24, 30, 32, 36, 40, 48, 64, 96};
    return chance(20) ? Dim::symbol("N") : Dim(kWidths[pick(13)]);
  }
  static bool grouped(Val v) { return !v.type().groups.is_one(); }
  std::int64_t value_of(const Dim& d) const { return d.eval(sizes_); }

  Val input(const std::string& stem, const std::vector<Dim>& dims, std::optional<DType> dtype = {}) {
    return b_.input(fresh(stem), dtype ? *dtype : storage(), {dims.begin(), dims.end()});
  }
  void keep(Val v) { tiles_.push_back(v); }
  void used(Val v) { used_[v.id] = true; }
  Val take(Val v) {
    used(v);
    return v;
  }

  void source() {
    switch (pick(5)) {
      case 0: return loads();
      case 1: return right_products();
      default: return left_products();
    }
  }

  void loads() {
    for (int i = 1 + pick(3); i > 0; --i) keep(input("x", {Dim::symbol("M"), width()}));
  }

  // Several products of the same left operands, each a sum of up to three terms.
  void left_products() {
    constexpr const char* kDepths[] = {"K", "R", "K"};
    std::vector<Val> left;
    std::vector<int> axes;
    for (int t = 0, terms = 1 + (chance(40) ? pick(3) : 0); t < terms; ++t) {
      axes.push_back(pick(2));
      Dim rows = Dim::symbol("M"), depth = Dim::symbol(kDepths[t]);
      left.push_back(axes.back() == 1 ? input("a", {rows, depth}) : input("a", {depth, rows}));
    }
    for (int i = 1 + pick(3); i > 0; --i) {
      Dim n = width();
      std::optional<Val> sum;
      for (std::size_t t = 0; t < left.size(); ++t) {
        int axis = pick(2);
        Dim depth = Dim::symbol(kDepths[t]);
        Val w = axis == 1 ? input("w", {n, depth}) : input("w", {depth, n});
        Val product = matmul(left[t], axes[t], w, axis);
        sum = sum ? *sum + product : product;
      }
      keep(*sum);
    }
  }

  // Several products of one right operand: their rows differ.
  void right_products() {
    Val x = input("x", {Dim::symbol("K"), width()});
    for (const char* rows : {"M", "T"})
      if (rows[0] == 'M' || chance(60)) keep(matmul(input("d", {Dim::symbol("K"), Dim::symbol(rows)}), 0, x, 0));
  }

  void step(Val x) {
    switch (pick(20)) {
      case 0:
      case 1: return unary(x);
      case 2: return keep(take(x) * 0.5 + 1.0);
      case 3:
      case 4: return with_another(x);
      case 5: return combine(x, [&] { return input("r", {x.type().rows, Dim(1)}, DType::kF32); });
      case 6: return with_columns(x);
      case 7:
        return combine(x, [&] {
          return grouped(x) ? input("t", {x.type().rows, x.type().groups, x.type().cols})
                            : input("t", {x.type().rows, x.type().cols});
        });
      case 8:
        return combine(x, [&] {
          return chance(50) ? input("s", {Dim(1), Dim(1)}, DType::kF32) : b_.launch_const(fresh("c"), DType::kF32);
        });
      case 9:
      case 10: return regroup(x);
      case 11: return apart(x, Op::kPairs);
      case 12: return apart(x, Op::kHalves);
      case 13: return split_up(x);
      case 14: return join(x);
      case 15: return braid(x);
      case 16: return norm(x);
      case 17: return gathered(x);
      case 18: return select(x);
      default: return indexed(x);
    }
  }

  void unary(Val x) {
    constexpr Op kOps[] = {Op::kNeg, Op::kAbs, Op::kTanh, Op::kSigmoid, Op::kSilu, Op::kRelu, Op::kSquare, Op::kGelu};
    keep(coda::unary(kOps[pick(8)], take(x)));
  }
  Val joined(Val a, Val b) {
    constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax};
    return coda::binary(kOps[pick(5)], a, b);
  }
  template <class Other>
  void combine(Val x, Other other) {
    Val o = other();
    keep(chance(50) ? joined(take(x), o) : joined(o, take(x)));
  }
  std::vector<Val> alike(Val x, bool same_columns) const {
    std::vector<Val> list;
    for (Val v : tiles_)
      if (v.type().rows == x.type().rows && v.type().groups == x.type().groups &&
          (!same_columns || v.type().cols == x.type().cols))
        list.push_back(v);
    return list;
  }
  Val any(const std::vector<Val>& list) { return list[static_cast<std::size_t>(pick(static_cast<int>(list.size())))]; }

  void with_another(Val x) { keep(joined(take(x), take(any(alike(x, true))))); }

  void with_columns(Val x) {
    combine(x, [&] {
      if (!grouped(x)) return input("b", {Dim(1), x.type().cols});
      return chance(50) ? input("b", {Dim(1), Dim(1), x.type().cols})
                        : input("b", {Dim(1), x.type().groups, x.type().cols});
    });
  }

  void regroup(Val x) {
    if (grouped(x)) return keep(flat(take(x)));
    std::int64_t n = value_of(x.type().cols);
    if (!x.type().cols.is_constant()) return;
    std::vector<int> divisors;
    for (int d = 2; d < n; ++d)
      if (n % d == 0) divisors.push_back(d);
    if (!divisors.empty())
      keep(group(take(x), divisors[static_cast<std::size_t>(pick(static_cast<int>(divisors.size())))]));
  }

  bool narrow(Val x, int least) const { return value_of(x.type().cols) < least || !x.type().cols.is_constant(); }

  void apart(Val x, Op op) {
    if (narrow(x, 4) || value_of(x.type().cols) % 2 != 0) return;
    std::vector<Val> parts = b_.apply(op, {take(x)});
    for (Val v : parts) keep(v);
  }

  void split_up(Val x) {
    if (narrow(x, 4)) return;
    int n = static_cast<int>(value_of(x.type().cols)), first = 2 + pick(n - 3);
    for (Val v : split(take(x), {first, n - first})) keep(v);
  }

  void join(Val x) {
    std::vector<Val> parts = {take(x)}, others = alike(x, false);
    for (int i = 1 + pick(2); i > 0; --i) parts.push_back(take(any(others)));
    if (chance(20) && parts.size() == 2)  // a per-column or per-row part
      parts[1] = chance(50) ? input("p", {Dim(1), Dim(4)}) : input("p", {x.type().rows, Dim(4)}, DType::kF32);
    keep(concat(parts));
  }

  void braid(Val x) { keep(interleave(take(x), take(any(alike(x, true))))); }

  // Reductions inside a group, and their values back on its columns.
  void norm(Val x) {
    if (!grouped(x)) return;
    if (chance(30)) return keep(take(x) - reduce(Op::kReduceMax, Axis::kC, x));
    if (chance(30)) return keep(flat(reduce(Op::kReduceSum, Axis::kC, take(x))));
    Val q = reduce(Op::kReduceSum, Axis::kC, take(x) * x);
    keep(x * coda::unary(Op::kRsqrt, q / b_.size(x.type().cols) + 1.0));
  }

  void gathered(Val x) {
    combine(x, [&] {
      Val index = input("i", {x.type().rows, Dim(1)}, DType::kI32);
      return gather(input("table", {Dim::symbol("S"), x.type().cols}), index);
    });
  }

  void select(Val x) {
    Val t = input("i", {x.type().rows, Dim(1)}, DType::kI32), here = b_.apply1(Op::kCol, {});
    keep(where(coda::binary(Op::kEq, here, t), take(x), b_.literal(0)));
  }

  void indexed(Val x) {
    switch (pick(4)) {
      case 0: return keep(take(x) + cast(b_.apply1(Op::kRow, {}), DType::kF32));
      case 1: return keep(take(x) + cast(b_.apply1(Op::kCol, {}), DType::kF32));
      case 2: return keep(cast(take(x), DType::kBF16));
      default: {
        if (grouped(x)) return;
        Val seed = input("i", {Dim(1), Dim(1)}, DType::kI32),
            u = b_.apply1(Op::kUniform, {seed, b_.integer(pick(100))});
        return keep(where(coda::binary(Op::kLt, u, b_.literal(0.75)), take(x), b_.literal(0)));
      }
    }
  }

  // Every value that nothing reads is stored, reduced, or both.
  void finish() {
    std::vector<Val> ends;
    for (Val v : tiles_)
      if (!used_[v.id] || chance(15)) ends.push_back(v);
    for (Val v : ends) {
      bool stored = chance(60);
      if (stored) store(v);
      for (int i = (stored ? 0 : 1) + pick(2); i > 0; --i) reduce_whole(v);
    }
    for (std::size_t i = 0; i < finished_.size() && finished_.size() < 8; ++i)
      if (chance(50)) after(finished_[i]);
    for (Val v : finished_) b_.output(fresh("f"), v.type().elem == Elem::kI32 ? DType::kI32 : DType::kF32, v);
  }

  void store(Val v) {
    bool accumulates = chance(25);
    DType dtype = accumulates || chance(30) ? DType::kF32 : storage_;
    b_.output(fresh("y"), dtype, v, accumulates);
  }

  void reduce_whole(Val v) {
    constexpr Axis kAxes[] = {Axis::kN, Axis::kM, Axis::kMN};
    coda::Attrs attrs;
    attrs.axis = kAxes[pick(3)];
    constexpr Op kOps[] = {Op::kReduceSum, Op::kReduceMax, Op::kLogsumexp, Op::kMoments, Op::kArgmax};
    Op op = kOps[pick(5)];
    if (op == Op::kArgmax && (attrs.axis == Axis::kMN || grouped(v))) op = Op::kReduceSum;
    std::vector<Val> operands = {v};
    if (op == Op::kLogsumexp && chance(40)) operands.push_back(any(alike(v, true)));
    for (Val r : b_.apply(op, operands, attrs)) finished_.push_back(r);
  }

  void after(Val f) {
    if (f.type().elem != Elem::kF32) return;
    bool rows = !f.type().rows.is_one(), columns = !f.type().width().is_one();
    switch (pick(4)) {
      case 0: finished_.push_back(coda::unary(Op::kTanh, f * 0.25)); break;
      case 1:
        if (columns && grouped(f) && !rows) finished_.push_back(reduce(Op::kReduceSum, Axis::kG, f));
        break;
      case 2:
        if (rows != columns) finished_.push_back(reduce(Op::kReduceSum, rows ? Axis::kM : Axis::kN, f * f));
        break;
      default:
        if (rows)
          finished_.push_back(f * input("r", {f.type().rows, Dim(1)}, DType::kF32));
        else if (columns && !grouped(f))
          finished_.push_back(f + input("b", {Dim(1), f.type().cols}));
        else
          finished_.push_back(f + 1.0);
    }
  }

  std::mt19937_64 bits_;
  coda::ProgramBuilder b_;
  DType storage_ = DType::kF32;
  coda::Sizes sizes_;
  std::vector<Val> tiles_, finished_;
  std::map<coda::ValueId, bool> used_;
  int names_ = 0;
};

}  // namespace random_program
