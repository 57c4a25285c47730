#include "train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "coda/error.h"
#include "model/safetensors.h"

namespace coda {
namespace {

constexpr const char* kFormat = "coda checkpoint 1";
constexpr const char* kFirst = "adam.first.";
constexpr const char* kSecond = "adam.second.";
constexpr const char* kHistory[] = {"history.train", "history.validation"};

struct Part {
  std::string name;
  float* data;
};

std::vector<Part> parts_of(const CheckpointTensor& t) {
  return {{t.name, t.weight}, {kFirst + t.name, t.first_moment}, {kSecond + t.name, t.second_moment}};
}

const std::string& metadata(const SafetensorsFile& file, const char* key) {
  auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw Error({file.path(), fmt::format("no '{}' in the metadata", key), "a checkpoint of coda train",
                 "Weights alone can't be resumed: name a checkpoint."});
  return it->second;
}

std::vector<LossPoint> read_history(const SafetensorsFile& file, const std::string& series) {
  const StoredTensor* steps = file.find(series + ".step");
  const StoredTensor* losses = file.find(series + ".loss");
  bool good = steps != nullptr && losses != nullptr && steps->type == StoredType::kI64 &&
              losses->type == StoredType::kF32 && steps->shape.size() == 1 && steps->shape == losses->shape;
  if (!good)
    throw Error({file.path(), fmt::format("no loss history '{}'", series), "I64 steps and F32 losses of one length",
                 "Use another checkpoint."});
  std::vector<std::int64_t> step(static_cast<std::size_t>(steps->elements()));
  std::vector<float> loss(step.size());
  file.read(*steps, step.data());
  file.read(*losses, loss.data());
  std::vector<LossPoint> points;
  for (std::size_t i = 0; i < step.size(); ++i) points.push_back({step[i], loss[i]});
  return points;
}

CheckpointState read_state(const SafetensorsFile& file) {
  if (const std::string& format = metadata(file, "format"); format != kFormat)
    throw Error({file.path(), fmt::format("format '{}'", format), fmt::format("'{}'", kFormat),
                 "Use the version of coda that wrote it."});
  CheckpointState state;
  const std::string& step = metadata(file, "step");
  auto [end, status] = std::from_chars(step.data(), step.data() + step.size(), state.step);
  if (status != std::errc() || end != step.data() + step.size() || state.step < 0)
    throw Error({file.path(), fmt::format("step '{}'", step), "a number ≥ 0", "Use another checkpoint."});
  state.config = metadata(file, "config");
  if (!nlohmann::json::accept(state.config))
    throw Error({file.path(), "a config that is no JSON", "the options of a run as JSON", "Use another checkpoint."});
  state.train = read_history(file, kHistory[0]);
  state.validation = read_history(file, kHistory[1]);
  return state;
}

void check_fits(const SafetensorsFile& file, const std::vector<CheckpointTensor>& tensors) {
  std::set<std::string> expected;
  for (const char* series : kHistory)
    for (const char* what : {".step", ".loss"}) expected.insert(series + std::string(what));
  const char* way_out =
      "Build the model with the checkpoint's own configuration, or start a new run in another folder.";
  for (const CheckpointTensor& t : tensors) {
    for (const Part& part : parts_of(t)) {
      std::string wanted = fmt::format("F32[{}]", fmt::join(t.shape, ","));
      const StoredTensor* found = file.find(part.name);
      if (found == nullptr) throw Error({file.path(), fmt::format("no tensor '{}'", part.name), wanted, way_out});
      if (found->type != StoredType::kF32 || found->shape != t.shape)
        throw Error({file.path(), fmt::format("tensor '{}' is {}", part.name, found->str()), wanted, way_out});
      expected.insert(part.name);
    }
  }
  for (const StoredTensor& t : file.tensors())
    if (expected.count(t.name) == 0)
      throw Error({file.path(), fmt::format("tensor '{}', which this model lacks", t.name),
                   fmt::format("the {} tensors of the model", tensors.size()), way_out});
}

}  // namespace

void save_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                     const CheckpointState& state) {
  CODA_CHECK(nlohmann::json::accept(state.config), "the config of a checkpoint must be JSON");
  std::vector<TensorToStore> stored;
  for (const CheckpointTensor& t : tensors) {
    CODA_CHECK(!t.name.starts_with("adam.") && !t.name.starts_with("history."), "a reserved tensor name: " + t.name);
    for (const Part& part : parts_of(t)) stored.push_back({part.name, StoredType::kF32, t.shape, part.data});
  }
  std::vector<std::int64_t> steps[2];
  std::vector<float> losses[2];
  const std::vector<LossPoint>* series[2] = {&state.train, &state.validation};
  for (int i = 0; i < 2; ++i) {
    for (const LossPoint& p : *series[i]) {
      steps[i].push_back(p.step);
      losses[i].push_back(p.loss);
    }
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(steps[i].size())};
    stored.push_back({kHistory[i] + std::string(".loss"), StoredType::kF32, shape, losses[i].data()});
    stored.push_back({kHistory[i] + std::string(".step"), StoredType::kI64, shape, steps[i].data()});
  }
  write_safetensors(path, stored,
                    {{"format", kFormat}, {"step", fmt::format("{}", state.step)}, {"config", state.config}});
}

CheckpointState read_checkpoint_state(const std::string& path) { return read_state(SafetensorsFile(path)); }

CheckpointState load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  SafetensorsFile file(path);
  CheckpointState state = read_state(file);
  check_fits(file, tensors);
  for (const CheckpointTensor& t : tensors)
    for (const Part& part : parts_of(t)) file.read(*file.find(part.name), part.data);
  return state;
}

}  // namespace coda
