// Building graphs and programs in C++. Types are checked at every step, so an ill-typed graph never exists.
//
//   ProgramBuilder b("rmsnorm_linear");
//   Val x = b.input("x", DType::kBF16, {"M", "K"}), w = b.input("w", DType::kBF16, {"N", "K"});
//   Val r = b.input("r", DType::kF32, {"M", 1});
//   b.output("z", DType::kBF16, matmul(x, w) * r);
//   Program p = b.build();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coda/graph.h"
#include "coda/program.h"

namespace coda {

class GraphBuilder;

// A handle on a value of a builder; valid as long as the builder lives.
struct Val {
  GraphBuilder* builder = nullptr;
  ValueId id = -1;
  const Type& type() const;
};

// A size expression in a builder call: a number, a name, or a Dim.
struct DimArg {
  Dim dim;
  DimArg(int n) : dim(n) {}                                    // NOLINT: conversions are the point
  DimArg(const char* name) : dim(Dim::symbol(name)) {}         // NOLINT
  DimArg(const std::string& name) : dim(Dim::symbol(name)) {}  // NOLINT
  DimArg(Dim d) : dim(std::move(d)) {}                         // NOLINT
};

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);
  virtual ~GraphBuilder();
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // `where N = H*hd`: from here on N stands for the expression.
  void where(const std::string& size, const DimArg& value);
  Val input(const std::string& name, DType dtype, const std::vector<DimArg>& dims);
  Val launch_const(const std::string& name, DType dtype);  // f32 or i32
  Val literal(double value);                               // f32
  Val integer(std::int64_t value);                         // i32
  Val size(const DimArg& value);                           // a size as an f32 number

  // One operation by its row in the table. Errors name the operation and what it was given.
  std::vector<Val> apply(Op op, const std::vector<Val>& operands, Attrs attrs = {});
  Val apply1(Op op, const std::vector<Val>& operands, Attrs attrs = {});

  void output(const std::string& name, DType dtype, Val v, bool accumulate = false, const std::string& over = "");
  // Like output, with declared dims that must match the value's type.
  void output(const std::string& name, DType dtype, const std::vector<DimArg>& dims, Val v, bool accumulate = false,
              const std::string& over = "");
  void set_name(Val v, const std::string& name);
  void set_scope(Val v, const std::string& scope);
  void set_reassociate(bool on);

  // The finished graph: unused inner values are dropped, no wildcard sizes remain. The builder is empty afterwards.
  Graph build_graph();

  const Value& value(ValueId v) const;
  const Node& def(ValueId v) const;
  Dim canonical(const Dim& d) const;  // with every `where` and bound wildcard substituted
  const Graph::Data& data() const { return *d_; }

 protected:
  void mark_program();

 private:
  friend struct TypeQuery;
  Dim fresh_wildcard();
  void bind(const std::string& wildcard, const Dim& d);
  ValueId add_value(Type t, int node, int result);
  std::vector<Val> add_node(Op op, const std::vector<ValueId>& operands, Attrs attrs, const std::vector<Type>& types);

  std::unique_ptr<Graph::Data> d_;
  int wildcards_ = 0;
};

class ProgramBuilder : public GraphBuilder {
 public:
  explicit ProgramBuilder(std::string name) : GraphBuilder(std::move(name)) { mark_program(); }
  Program build() { return Program(build_graph()); }
};

// `@`: contracts the one size that both share; with two candidates name the axes (0 rows, 1 columns).
Val matmul(Val a, Val b);
Val matmul(Val a, int a_axis, Val b, int b_axis);

Val operator+(Val a, Val b);
Val operator-(Val a, Val b);
Val operator*(Val a, Val b);
Val operator/(Val a, Val b);
Val operator-(Val a);
Val operator+(Val a, double b);
Val operator-(Val a, double b);
Val operator*(Val a, double b);
Val operator/(Val a, double b);
Val operator+(double a, Val b);
Val operator-(double a, Val b);
Val operator*(double a, Val b);
Val operator/(double a, Val b);

Val unary(Op op, Val a);          // any map of one operand
Val binary(Op op, Val a, Val b);  // any map of two
Val where(Val condition, Val a, Val b);
Val cast(Val a, DType dtype);
Val reduce(Op op, Axis axis, Val a);  // kReduceSum, kReduceMax
Val sum(Axis axis, Val a);
std::vector<Val> pairs(Val a);
std::vector<Val> halves(Val a);
Val interleave(Val a, Val b);
Val concat(const std::vector<Val>& parts);
std::vector<Val> split(Val a, const std::vector<DimArg>& widths);
Val group(Val a, const DimArg& width);
Val flat(Val a);
Val gather(Val table, Val index);

}  // namespace coda
