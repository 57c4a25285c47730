// Checkpoints: bit for bit what was saved, and nothing else is ever loaded.
#include "train/checkpoint.h"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check_error.h"
#include "coda/error.h"
#include "temp_dir.h"

using namespace coda;

namespace {

struct Weights {
  std::vector<float> data;
  std::vector<CheckpointTensor> tensors;
  explicit Weights(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& shapes, unsigned seed) {
    std::size_t total = 0;
    for (const auto& [name, shape] : shapes) {
      std::size_t n = 3;
      for (std::int64_t s : shape) n *= static_cast<std::size_t>(s);
      total += n;
    }
    data.resize(total);
    std::mt19937 random(seed);
    for (float& x : data) x = std::normal_distribution<float>()(random);
    float* at = data.data();
    for (const auto& [name, shape] : shapes) {
      std::int64_t n = 1;
      for (std::int64_t s : shape) n *= s;
      tensors.push_back({name, shape, at, at + n, at + 2 * n});
      at += 3 * n;
    }
  }
};

const std::vector<std::pair<std::string, std::vector<std::int64_t>>> kShapes{
    {"embed", {7, 4}}, {"layers.0.wq", {4, 4}}, {"norm", {4}}};

}  // namespace

TEST_CASE("checkpoint: what is loaded is bit for bit what was saved") {
  TempDir dir;
  std::string path = dir / "c.safetensors";
  Weights saved(kShapes, 1), loaded(kShapes, 2);
  saved.data[3] = -0.0f;
  saved.data[4] = std::numeric_limits<float>::denorm_min();
  CheckpointState state{
      .step = 17, .config = R"({"d":4,"text":"ü"})", .train = {{1, 5.5f}, {2, 1.0f / 3}}, .validation = {{2, 4.0f}}};
  save_checkpoint(path, saved.tensors, state);
  CHECK(dir.file_count() == 1);
  CheckpointState peek = read_checkpoint_state(path), full = load_checkpoint(path, loaded.tensors);
  CHECK(same_bits(saved.data, loaded.data));
  for (const CheckpointState& s : {peek, full}) {
    CHECK(s.step == 17);
    CHECK(s.config == state.config);
    REQUIRE(s.train.size() == 2);
    REQUIRE(s.validation.size() == 1);
    CHECK(s.train[1].step == 2);
    CHECK(s.train[1].loss == 1.0f / 3);
    CHECK(s.validation[0].loss == 4.0f);
  }
  save_checkpoint(path, saved.tensors,
                  {.step = 18, .config = "{}", .train = {}, .validation = {}});  // replaces, and empty history works
  CHECK(load_checkpoint(path, loaded.tensors).step == 18);
  CHECK(dir.file_count() == 1);
}

TEST_CASE("checkpoint: of another model, named by tensor, found and expected; nothing is loaded") {
  TempDir dir;
  std::string path = dir / "c.safetensors";
  Weights saved(kShapes, 1);
  save_checkpoint(path, saved.tensors, {.step = 1, .config = "{}", .train = {}, .validation = {}});
  auto refused = [&](std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes, const std::string& found,
                     const std::string& allowed) {
    Weights other(shapes, 2);
    std::vector<float> before = other.data;
    try {
      load_checkpoint(path, other.tensors);
      FAIL_CHECK("no error");
    } catch (const Error& e) {
      INFO(std::string(e.what()));
      CHECK(e.parts().argument == path);
      CHECK(e.parts().found == found);
      CHECK(e.parts().allowed == allowed);
      CHECK_FALSE(e.parts().way_out.empty());
    }
    CHECK(same_bits(other.data, before));
  };
  refused({{"embed", {7, 4}}, {"layers.0.wq", {4, 8}}, {"norm", {4}}}, "tensor 'layers.0.wq' is F32[4,4]", "F32[4,8]");
  refused({{"embed", {28}}, {"layers.0.wq", {4, 4}}, {"norm", {4}}}, "tensor 'embed' is F32[7,4]", "F32[28]");
  refused({{"embed", {7, 4}}, {"layers.0.wq", {4, 4}}, {"norm", {4}}, {"layers.1.wq", {4, 4}}},
          "no tensor 'layers.1.wq'", "F32[4,4]");
  refused({{"embed", {7, 4}}, {"norm", {4}}}, "tensor 'layers.0.wq', which this model lacks",
          "the 2 tensors of the model");
}

TEST_CASE("checkpoint: truncated anywhere, or none at all") {
  TempDir dir;
  std::string path = dir / "c.safetensors", cut = dir / "cut.safetensors";
  Weights saved(kShapes, 1), other(kShapes, 2);
  save_checkpoint(path, saved.tensors, {.step = 1, .config = "{}", .train = {{1, 2.0f}}, .validation = {}});
  std::string bytes = read_file(path);
  std::vector<float> before = other.data;
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    write_file(cut, bytes.substr(0, length));
    CHECK_THROWS_AS(load_checkpoint(cut, other.tensors), Error);
    CHECK_THROWS_AS(read_checkpoint_state(cut), Error);
  }
  CHECK(same_bits(other.data, before));
  auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    REQUIRE(from.size() == to.size());
    REQUIRE(changed.find(from) != std::string::npos);
    changed.replace(changed.find(from), from.size(), to);
    write_file(cut, changed);
    return [&] { read_checkpoint_state(cut); };
  };
  check_error(cut, "step '-'", with(R"("step":"1")", R"("step":"-")"));
  check_error(cut, "no 'step'", with(R"("step":"1")", R"("stop":"1")"));
  check_error(cut, "format 'coda checkpoint 7'", with("checkpoint 1", "checkpoint 7"));
  check_error(cut, "no JSON", with(R"("config":"{}")", R"("config":"{{")"));
  check_error(cut, "no loss history 'history.train'", with("history.train.step", "history.train.stop"));
}

TEST_CASE("checkpoint: a folder that can't be written is an error, the old file stays") {
  TempDir dir;
  Weights saved(kShapes, 1);
  CheckpointState state{.step = 1, .config = "{}", .train = {}, .validation = {}};
  CHECK_THROWS_AS(save_checkpoint(dir / "no/c.safetensors", saved.tensors, state), Error);
  CHECK_THROWS_AS(save_checkpoint("/proc/c.safetensors", saved.tensors, state), Error);
  CHECK(dir.file_count() == 0);
}
