// The plans of a Llama; see llama_plan.h. Numbers of the comments: P0 to P7 are the programs of programs/README.md.
#include "model/llama_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "coda/error.h"
#include "plan/program_library.h"

namespace coda {
namespace {

using Refs = std::map<std::string, BufferRef>;

Dim size(const char* s) { return Dim::symbol(s); }
Dim query_width() { return size("H") * size("hd"); }
Dim key_width() { return size("G") * size("hd"); }

struct Parameters {  // of one layer, or their gradients
  BufferId norm1 = -1, wq = -1, wk = -1, wv = -1, wo = -1, norm2 = -1, wg = -1, wu = -1, w2 = -1;
};

struct Qkv {
  BufferId q = -1, k = -1, v = -1;
};

// What a norm leaves behind: the stream it read, the operand of the next product (before r), and r.
struct Normed {
  BufferId x = -1, h = -1, r = -1;
};

struct Block {  // what the middle of a layer keeps
  BufferId y = -1;
  Normed middle;  // x1
  BufferId g = -1, u = -1;
};

struct Layer {
  Normed in;  // the stream that enters, with norm1
  Qkv qkv;
  BufferId lse = -1;
  Block block;
};

class LlamaPlan {
 public:
  LlamaPlan(const std::string& name, const LlamaConfig& c) : plan_(name), c_(c) {
    check_llama(c);
    pos_ = plan_.buffer("pos", DType::kI32, "M", 1, BufferRole::kInput);
    cos_ = plan_.buffer("cos", DType::kF32, "S", size("hd") / 2, BufferRole::kInput);
    sin_ = plan_.buffer("sin", DType::kF32, "S", size("hd") / 2, BufferRole::kInput);
  }

  Plan layer_forward() {
    prefix_ = "";
    kept_ = BufferRole::kOutput;
    Parameters p = layer_parameters("");
    BufferId y = tensor("y", "M", query_width(), BufferRole::kInput), x0 = tensor("x0", "M", "d", BufferRole::kInput);
    Normed out;
    block_forward(p, y, x0, p.norm1, out);
    qkv_forward(p, out);
    return std::move(plan_);
  }

  Plan layer_backward() {
    prefix_ = "";
    auto given = [&](const char* name, const DimArg& cols) { return tensor(name, "M", cols, BufferRole::kInput); };
    auto row = [&](const char* name) { return plan_.buffer(name, DType::kF32, "M", 1, BufferRole::kInput); };
    Parameters p = layer_parameters(""), grad = layer_gradients("grad.");
    Block b{given("y", query_width()),
            {given("x1", "d"), c_.keep_mlp_operand ? given("h1", "d") : -1, row("r1")},
            given("g", "F"),
            given("u", "F")};
    Normed out{given("x2", "d"), -1, row("r2")};
    Qkv qkv{given("q", query_width()), given("k", key_width()), given("v", key_width())};
    Qkv dqkv{given("dq", query_width()), given("dk", key_width()), given("dv", key_width())};
    BufferId dx = given("dx", "d");
    plan_.begin_backward();
    dx = qkv_backward(p, grad, qkv, dqkv, out, dx, "dx2", BufferRole::kTemp);
    block_backward(p, grad, b, dx, "dx0", "dy", BufferRole::kOutput);
    return std::move(plan_);
  }

  Plan whole(bool backward, bool zero_gradients) {
    kept_ = BufferRole::kTemp;
    ids_ = plan_.buffer("ids", DType::kI32, "M", 1, BufferRole::kInput);
    targets_ = plan_.buffer("targets", DType::kI32, "M", 1, BufferRole::kInput);
    for (const LlamaParameter& p : llama_parameters(c_))
      plan_.buffer(p.name, c_.storage, p.rows, p.cols, BufferRole::kInput);
    if (backward) {
      dloss_ = plan_.buffer("dloss", DType::kF32, "M", 1, BufferRole::kInput);
      OpaqueStep zero{OpaqueKind::kZero, {}, {}, {}};
      for (const LlamaParameter& p : llama_parameters(c_))
        zero.outputs.emplace_back(plan_.buffer("grad." + p.name, DType::kF32, p.rows, p.cols, BufferRole::kInOut));
      if (zero_gradients) plan_.call(zero, "gradients");
    }
    std::vector<Layer> layers;
    Normed last = forward(layers);
    if (backward) this->backward(layers, last);
    return std::move(plan_);
  }

 private:
  // --- buffers
  BufferId find(const std::string& name) const {
    BufferId b = plan_.find(name);
    CODA_CHECK(b >= 0, "no buffer " + name);
    return b;
  }
  BufferId tensor(const std::string& name, const DimArg& rows, const DimArg& cols, BufferRole role) {
    return plan_.buffer(prefix_ + name, c_.storage, rows, cols, role);
  }
  BufferId kept(const std::string& name, const DimArg& cols) { return tensor(name, "M", cols, kept_); }
  BufferId kept_rows(const std::string& name) { return plan_.buffer(prefix_ + name, DType::kF32, "M", 1, kept_); }
  BufferId temp(const std::string& name, const DimArg& cols) { return tensor(name, "M", cols, BufferRole::kTemp); }
  BufferId temp_rows(const std::string& name) {
    return plan_.buffer(prefix_ + name, DType::kF32, "M", 1, BufferRole::kTemp);
  }

  // The parameters of one layer that the layer plans have as inputs (norm1, wq, wk, wv belong to the layer after).
  Parameters layer_parameters(const std::string& before) {
    return layer_buffers(before, c_.storage, BufferRole::kInput);
  }
  Parameters layer_gradients(const std::string& before) {
    return layer_buffers(before, DType::kF32, BufferRole::kInOut);
  }
  Parameters layer_buffers(const std::string& before, DType dtype, BufferRole role) {
    auto make = [&](const char* name, const DimArg& rows, const DimArg& cols) {
      return plan_.buffer(before + name, dtype, rows, cols, role);
    };
    Parameters p;
    p.wo = make("wo", "d", query_width());
    p.norm2 = make("norm2", 1, "d");
    p.wg = make("wg", "F", "d");
    p.wu = make("wu", "F", "d");
    p.w2 = make("w2", "d", "F");
    p.norm1 = make("norm1", 1, "d");
    p.wq = make("wq", query_width(), "d");
    p.wk = make("wk", key_width(), "d");
    p.wv = make("wv", key_width(), "d");
    return p;
  }

  Parameters parameters_of(std::size_t layer, const std::string& before) const {
    auto named = [&](const char* name) { return find(fmt::format("{}layer{}.{}", before, layer, name)); };
    return {named("norm1"), named("wq"), named("wk"), named("wv"), named("wo"),
            named("norm2"), named("wg"), named("wu"), named("w2")};
  }

  // --- steps
  void run(const std::string& program, const std::string& scope, Refs in, Refs out,
           std::map<std::string, double> consts = {}, const std::vector<std::string>& accumulated = {}) {
    plan_.run({library_program(program, c_.storage, accumulated), std::move(in), std::move(out), std::move(consts), {}},
              prefix_ + scope);
  }

  // P0: adds y wᵀ to the stream; `gamma` is the next norm's.
  Normed residual(const std::string& scope, BufferId y, BufferId w, BufferId x0, BufferId gamma, const char* x,
                  BufferId h, const char* r) {
    Normed n{kept(x, "d"), h, kept_rows(r)};
    run("residual_rmsnorm_partial", scope, {{"y", y}, {"w", w}, {"x0", x0}, {"gamma", gamma}},
        {{"x1", n.x}, {"h", n.h}, {"r", n.r}}, {{"eps", c_.eps}});
    return n;
  }

  // P4.
  Qkv qkv_forward(const Parameters& p, const Normed& n) {
    Qkv o{kept("q", query_width()), kept("k", key_width()), kept("v", key_width())};
    run("rmsnorm_rope", "qkv",
        {{"x", n.h}, {"wq", p.wq}, {"wk", p.wk}, {"wv", p.wv}, {"r", n.r}, {"pos", pos_}, {"cos", cos_}, {"sin", sin_}},
        {{"q", o.q}, {"k", o.k}, {"v", o.v}});
    return o;
  }

  // P0(Wo), P2(Wg, Wu), P0(W2) with the norm that follows.
  Block block_forward(const Parameters& p, BufferId y, BufferId x0, BufferId next_norm, Normed& out) {
    Block b;
    b.y = y;
    b.middle =
        residual("wo", y, p.wo, x0, p.norm2, "x1", c_.keep_mlp_operand ? kept("h1", "d") : temp("h1", "d"), "r1");
    b.g = kept("g", "F");
    b.u = kept("u", "F");
    BufferId o = temp("o", "F");
    run("rmsnorm_swiglu", "mlp", {{"x", b.middle.h}, {"wg", p.wg}, {"wu", p.wu}, {"r", b.middle.r}},
        {{"g", b.g}, {"u", b.u}, {"o", o}});
    out = residual("w2", o, p.w2, b.middle.x, next_norm, "x2", temp("h2", "d"), "r2");
    return b;
  }

  // From attention's dq, dk, dv to the gradient of the stream that entered the norm before q, k, v; `dx_in` joins.
  BufferId qkv_backward(const Parameters& p, const Parameters& grad, const Qkv& f, const Qkv& d, const Normed& n,
                        BufferId dx_in, const char* dx_name, BufferRole role) {
    BufferId dzq = temp("dzq", query_width()), dzk = temp("dzk", key_width()), s = temp_rows("s_qkv");
    run("rope_backward", "rope.backward",
        {{"q", f.q},
         {"dq", d.q},
         {"k", f.k},
         {"v", f.v},
         {"dk", d.k},
         {"dv", d.v},
         {"pos", pos_},
         {"cos", cos_},
         {"sin", sin_}},
        {{"dzq", dzq}, {"dzk", dzk}, {"s", s}});
    BufferId dx = tensor(dx_name, "M", "d", role), h = temp("h_qkv", "d");
    run("residual_rmsnorm_backward_qkv", "qkv.backward",
        {{"dq", dzq},
         {"dk", dzk},
         {"dv", d.v},
         {"wq", p.wq},
         {"wk", p.wk},
         {"wv", p.wv},
         {"x1", n.x},
         {"gamma", p.norm1},
         {"r", n.r},
         {"s", s},
         {"dx_in", dx_in}},
        {{"dx", dx}, {"h", h}, {"dgamma", grad.norm1}}, {}, {"dgamma"});
    run("weight_gradient_qkv", "qkv.weights", {{"dq", dzq}, {"dk", dzk}, {"dv", d.v}, {"x", h}},
        {{"dwq", grad.wq}, {"dwk", grad.wk}, {"dwv", grad.wv}});
    return dx;
  }

  // From the gradient of x2 (whole) to that of x0, the return value, and of y.
  BufferId block_backward(const Parameters& p, const Parameters& grad, const Block& b, BufferId dx2,
                          const char* dx_name, const char* dy_name, BufferRole role) {
    BufferId dg = temp("dg", "F"), du = temp("du", "F"), o = temp("o_again", "F"), s = temp_rows("s_mlp");
    // P7 and P6 in the first form, which makes the operand of dWg and dWu again, or in the second, which has it kept.
    const bool is_kept = c_.keep_mlp_operand;
    Refs in{{"dy", dx2}, {"w", p.w2}, {"g", b.g}, {"u", b.u}};
    if (is_kept) in["r"] = b.middle.r;
    run(is_kept ? "swiglu_backward_scaled" : "swiglu_backward", "mlp.backward", in,
        {{"dg", dg}, {"du", du}, {"o", o}, {"s", s}});
    run("weight_gradient", "w2.weights", {{"dz", dx2}, {"x", o}}, {{"dw", grad.w2}});
    BufferId dx = tensor(dx_name, "M", "d", role), h = is_kept ? b.middle.h : temp("h_mlp", "d");
    Refs out{{"dx", dx}, {"dgamma", grad.norm2}};
    if (!is_kept) out["h"] = h;
    run(is_kept ? "residual_rmsnorm_backward_glu_scaled" : "residual_rmsnorm_backward_glu", "norm2.backward",
        {{"dg", dg},
         {"du", du},
         {"wg", p.wg},
         {"wu", p.wu},
         {"x1", b.middle.x},
         {"gamma", p.norm2},
         {"r", b.middle.r},
         {"s", s},
         {"dx_in", dx2}},
        out, {}, {"dgamma"});
    run("weight_gradient_glu", "mlp.weights", {{"dg", dg}, {"du", du}, {"x", h}}, {{"dwg", grad.wg}, {"dwu", grad.wu}});
    BufferId dy = tensor(dy_name, "M", query_width(), role);
    run("data_gradient", "wo.backward", {{"dz", dx}, {"w", p.wo}}, {{"dx", dy}});
    run("weight_gradient", "wo.weights", {{"dz", dx}, {"x", b.y}}, {{"dw", grad.wo}});
    return dx;
  }

  std::vector<Dim> attention_sizes() const { return {size("B"), size("H"), size("G")}; }

  // --- the whole model
  Normed forward(std::vector<Layer>& layers) {
    Normed stream{kept("x", "d"), temp("h", "d"), kept_rows("r")};
    run("embedding_rmsnorm_partial", "embedding",
        {{"ids", ids_}, {"table", find("embedding")}, {"gamma", find("layer0.norm1")}},
        {{"x", stream.x}, {"h", stream.h}, {"r", stream.r}}, {{"eps", c_.eps}});
    for (std::size_t l = 0; l < static_cast<std::size_t>(c_.layers); ++l) {
      prefix_ = fmt::format("layer{}.", l);
      Parameters p = parameters_of(l, "");
      Layer layer;
      layer.in = stream;
      layer.qkv = qkv_forward(p, stream);
      BufferId y = kept("y", query_width());
      layer.lse = plan_.buffer(prefix_ + "lse", DType::kF32, "M", "H", kept_);
      plan_.call({OpaqueKind::kAttention, {layer.qkv.q, layer.qkv.k, layer.qkv.v}, {y, layer.lse}, attention_sizes()},
                 prefix_ + "attention");
      bool is_last = l + 1 == static_cast<std::size_t>(c_.layers);
      BufferId next_norm = is_last ? find("norm") : find(fmt::format("layer{}.norm1", l + 1));
      layer.block = block_forward(p, y, stream.x, next_norm, stream);
      layers.push_back(layer);
    }
    prefix_ = "";
    BufferId loss = plan_.buffer("loss", DType::kF32, "M", 1, BufferRole::kOutput);
    m_ = kept_rows("m");
    l_ = kept_rows("l");
    run("rmsnorm_cross_entropy", "head", {{"x", stream.h}, {"w", head()}, {"r", stream.r}, {"t", targets_}},
        {{"m", m_}, {"l", l_}, {"loss", loss}}, {{"ignore", static_cast<double>(c_.ignore)}});
    return stream;
  }

  BufferId head() const { return find(c_.tied ? "embedding" : "head"); }
  BufferId head_gradient() const { return find(c_.tied ? "grad.embedding" : "grad.head"); }

  std::int64_t head_chunk() const {
    constexpr std::int64_t kBytes = 32 << 20;
    if (c_.head_chunk > 0) return c_.head_chunk;
    return std::clamp<std::int64_t>(kBytes / (c_.vocab * size_of(c_.storage)), 64, 8192) / 64 * 64;
  }

  // The head and the last norm by chunks of rows: logits again, dz, then its three products.
  BufferId head_backward(const Normed& last) {
    std::int64_t chunk = head_chunk();
    BufferId dz = tensor("dz", Dim(chunk), "V", BufferRole::kTemp),
             h = tensor("h_head", Dim(chunk), "d", BufferRole::kTemp);
    BufferId s = plan_.buffer("s_head", DType::kF32, Dim(chunk), 1, BufferRole::kTemp), dx = temp("dx_head", "d");
    auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
    plan_.begin_rows(size("M"), chunk);
    run("rmsnorm_linear_cross_entropy_backward", "head.backward",
        {{"x", part(last.h)},
         {"w", head()},
         {"r", part(last.r)},
         {"t", part(targets_)},
         {"m", part(m_)},
         {"l", part(l_)},
         {"g", part(dloss_)}},
        {{"dz", part(dz)}, {"s", part(s)}}, {{"ignore", static_cast<double>(c_.ignore)}});
    run("rmsnorm_backward_head", "norm.backward",
        {{"dz", part(dz)},
         {"w", head()},
         {"x1", part(last.x)},
         {"gamma", find("norm")},
         {"r", part(last.r)},
         {"s", part(s)}},
        {{"dx", part(dx)}, {"h", part(h)}, {"dgamma", find("grad.norm")}}, {}, {"dgamma"});
    run("weight_gradient", "head.weights", {{"dz", part(dz)}, {"x", part(h)}}, {{"dw", head_gradient()}});
    plan_.end_rows();
    return dx;
  }

  void backward(const std::vector<Layer>& layers, const Normed& last) {
    plan_.begin_backward();
    BufferId dx = head_backward(last);
    for (std::size_t l = layers.size(); l-- > 0;) {
      prefix_ = fmt::format("layer{}.", l);
      Parameters p = parameters_of(l, ""), grad = parameters_of(l, "grad.");
      const Layer& f = layers[l];
      dx = block_backward(p, grad, f.block, dx, "dx1", "dy", BufferRole::kTemp);
      BufferId dy = find(prefix_ + "dy");
      Qkv d{temp("dq", query_width()), temp("dk", key_width()), temp("dv", key_width())};
      plan_.call({OpaqueKind::kAttentionGrad,
                  {f.qkv.q, f.qkv.k, f.qkv.v, f.block.y, f.lse, dy},
                  {d.q, d.k, d.v},
                  attention_sizes()},
                 prefix_ + "attention.backward");
      dx = qkv_backward(p, grad, f.qkv, d, f.in, dx, "dx0", BufferRole::kTemp);
    }
    prefix_ = "";
    plan_.call({OpaqueKind::kScatterSum, {dx, ids_}, {find("grad.embedding")}, {}}, "embedding.backward");
  }

  Plan plan_;
  const LlamaConfig c_;
  std::string prefix_;  // of buffers and scopes: the layer
  BufferRole kept_ = BufferRole::kTemp;
  BufferId pos_ = -1, cos_ = -1, sin_ = -1, ids_ = -1, targets_ = -1, dloss_ = -1, m_ = -1, l_ = -1;
};

LlamaConfig of_shape(const LlamaShape& shape) {
  LlamaConfig c;
  c.storage = shape.dtype;
  c.eps = shape.eps;
  c.keep_mlp_operand = shape.keep_mlp_operand;
  return c;
}

}  // namespace

Sizes llama_layer_sizes(std::int64_t tokens, std::int64_t d, std::int64_t ff, std::int64_t heads,
                        std::int64_t kv_heads) {
  LlamaConfig c;
  c.layers = 1;
  c.dim = d;
  c.ff = ff;
  c.heads = heads;
  c.kv_heads = kv_heads;
  if (heads > 0 && d % heads != 0)
    throw Error({"heads", fmt::format("{} for a stream of {}", heads, d), "a divisor of d", ""});
  c.head_dim = heads > 0 ? d / heads : 0;
  c.context = std::max<std::int64_t>(tokens, 1);
  check_llama(c);
  Sizes sizes = llama_sizes(c, 1, tokens);
  sizes.erase("B");
  sizes.erase("V");
  return sizes;
}

Plan llama_layer_forward(const LlamaShape& shape) {
  return LlamaPlan("llama_layer_forward", of_shape(shape)).layer_forward();
}
Plan llama_layer_backward(const LlamaShape& shape) {
  return LlamaPlan("llama_layer_backward", of_shape(shape)).layer_backward();
}
Plan llama_forward(const LlamaConfig& c) { return LlamaPlan("llama_forward", c).whole(false, false); }
Plan llama_forward_backward(const LlamaConfig& c, bool zero_gradients) {
  return LlamaPlan("llama_forward_backward", c).whole(true, zero_gradients);
}

}  // namespace coda
