// How far a run is, for the person who waits: one line that redraws itself on a terminal, a plain line now and then
// elsewhere. Called by the training loop once a step. Writes to stderr; never throws, never touches results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace coda {

struct ProgressOptions {
  std::int64_t total_steps = 0;
  std::int64_t first_step = 0;  // of this run: > 0 when resumed
  std::int64_t tokens_per_step = 0;
  double plain_interval = 10;    // seconds between lines when stderr is no terminal
  double redraw_interval = 0.1;  // seconds between redraws when it is
  // For tests; by default stderr, whether it is a terminal, its width, and a steady clock in seconds.
  std::function<void(std::string_view)> write;
  std::optional<bool> terminal;
  std::optional<int> columns;
  std::function<double()> clock;
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  // `done` steps of all are done, the last with this loss.
  void update(std::int64_t done, double loss);
  void note(std::string_view text);  // a line of its own above the bar: validation losses, saved files
  void finish();                     // shows the last state and ends the line
  double tokens_per_second() const;  // of the recent steps; 0 before the first

 private:
  std::string line(bool with_bar) const;
  void draw();

  ProgressOptions options_;
  std::int64_t done_ = 0;
  double loss_ = 0;
  double last_drawn_ = 0, seconds_per_step_ = 0, last_update_ = 0;
  bool any_ = false, drawn_ = false, on_line_ = false;
};

std::string format_duration(double seconds);  // "42 s", "3 min 05 s", "2 h 07 min"

}  // namespace coda
