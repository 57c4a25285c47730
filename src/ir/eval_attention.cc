// fp64 definition of causal attention and of its gradient, head by head; in the eager mode scores and probabilities are
// rounded as an unfused framework stores them. See eval.h.
#include <fmt/format.h>

#include <cmath>

#include "coda/error.h"
#include "ir/eval.h"

namespace coda::eval {
namespace {

struct Heads {
  std::int64_t batch, heads, kv_heads, positions, dim;
  double scale;
};

Heads heads_of(const EvalFrame& f) {
  Heads h{};
  h.batch = f.attrs.dims[0].eval(f.sizes);
  h.heads = f.attrs.dims[1].eval(f.sizes);
  h.kv_heads = f.attrs.dims[2].eval(f.sizes);
  const Array& q = *f.in[0];
  if (h.batch < 1 || q.rows % h.batch != 0)
    throw Error({f.called(0), fmt::format("{} rows for a batch of {}", q.rows, h.batch), "batch × positions rows", ""});
  if (h.heads < 1 || h.kv_heads < 1 || h.heads % h.kv_heads != 0)
    throw Error({"attention", fmt::format("{} heads over {} kv heads", h.heads, h.kv_heads),
                 "heads that are a multiple of kv_heads", ""});
  h.positions = q.rows / h.batch;
  h.dim = q.width() / h.heads;
  h.scale = 1 / std::sqrt(static_cast<double>(h.dim));
  return h;
}

// One query row of one head: where its operands lie, and its probabilities.
class QueryRow {
 public:
  QueryRow(const EvalFrame& f, const Heads& h, std::int64_t b, std::int64_t head, std::int64_t i)
      : f_(f),
        dim_(h.dim),
        first_row_(b * h.positions),
        query_(b * h.positions + i),
        keys_(i + 1),
        q_col_(head * h.dim),
        kv_col_(head / (h.heads / h.kv_heads) * h.dim) {
    std::vector<double> scores;
    max_ = -INFINITY;
    for (std::int64_t j = 0; j < keys_; ++j) {
      scores.push_back(tile(h.scale * dot(*f.in[0], query_, q_col_, *f.in[1], key_row(j), kv_col_)));
      if (scores.back() > max_ || std::isnan(scores.back())) max_ = scores.back();
      if (std::isnan(max_)) break;
    }
    scores.resize(static_cast<std::size_t>(keys_), max_);
    Sum sum(f.eager());
    for (double& s : scores) {
      s = std::exp(s - max_);
      sum.add(s);
    }
    sum_ = sum.total();
    for (double s : scores) p_.push_back(tile(s / sum_));
  }

  double tile(double x) const { return f_.eager() ? round_to(f_.options.eager_dtype, x) : x; }
  double dot(const Array& a, std::int64_t ra, std::int64_t ca, const Array& b, std::int64_t rb, std::int64_t cb) const {
    Sum sum(f_.eager());
    for (std::int64_t d = 0; d < dim_; ++d) sum.add(a.at(ra, ca + d) * b.at(rb, cb + d));
    return sum.total();
  }

  std::int64_t keys() const { return keys_; }
  std::int64_t key_row(std::int64_t j) const { return first_row_ + j; }
  std::int64_t query() const { return query_; }
  std::int64_t q_col() const { return q_col_; }
  std::int64_t kv_col() const { return kv_col_; }
  double p(std::int64_t j) const { return p_[static_cast<std::size_t>(j)]; }
  double lse() const { return max_ + std::log(sum_); }

 private:
  const EvalFrame& f_;
  std::int64_t dim_, first_row_, query_, keys_, q_col_, kv_col_;
  double max_ = 0, sum_ = 0;
  std::vector<double> p_;
};

template <class Visit>
void for_each_query(const EvalFrame& f, const Heads& h, Visit visit) {
  for (std::int64_t b = 0; b < h.batch; ++b)
    for (std::int64_t head = 0; head < h.heads; ++head)
      for (std::int64_t i = 0; i < h.positions; ++i) visit(QueryRow(f, h, b, head, i), head);
}

}  // namespace

void attention(EvalFrame& f) {
  Heads h = heads_of(f);
  const Array& v = *f.in[2];
  for_each_query(f, h, [&](const QueryRow& row, std::int64_t head) {
    for (std::int64_t d = 0; d < h.dim; ++d) {
      Sum sum(f.eager());
      for (std::int64_t j = 0; j < row.keys(); ++j) sum.add(row.p(j) * v.at(row.key_row(j), row.kv_col() + d));
      f.out[0].at(row.query(), row.q_col() + d) = sum.total();
    }
    f.out[1].at(row.query(), head) = row.lse();
  });
}

void attention_grad(EvalFrame& f) {
  Heads h = heads_of(f);
  const Array &q = *f.in[0], &k = *f.in[1], &v = *f.in[2], &grad = *f.in[3];
  Array &dq = f.out[0], &dk = f.out[1], &dv = f.out[2];
  auto add = [&](double& sum, double x) {
    sum = f.eager() ? static_cast<double>(static_cast<float>(sum) + static_cast<float>(x)) : sum + x;
  };
  for_each_query(f, h, [&](const QueryRow& row, std::int64_t) {
    std::vector<double> dp;
    Sum mean(f.eager());
    for (std::int64_t j = 0; j < row.keys(); ++j) {
      dp.push_back(row.tile(row.dot(grad, row.query(), row.q_col(), v, row.key_row(j), row.kv_col())));
      mean.add(row.p(j) * dp.back());
    }
    for (std::int64_t j = 0; j < row.keys(); ++j) {
      double ds = row.tile(row.p(j) * (dp[static_cast<std::size_t>(j)] - mean.total())) * h.scale;
      for (std::int64_t d = 0; d < h.dim; ++d) {
        std::int64_t key = row.key_row(j), qc = row.q_col() + d, kc = row.kv_col() + d;
        add(dq.at(row.query(), qc), ds * k.at(key, kc));
        add(dk.at(key, kc), ds * q.at(row.query(), qc));
        add(dv.at(key, kc), row.p(j) * grad.at(row.query(), qc));
      }
    }
  });
}

}  // namespace coda::eval
