#include "train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <utility>

namespace coda {
namespace {

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    ssize_t done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done < 0 && errno != EINTR) return;  // a closed stderr must not end the run
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(done, 0)));
  }
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_rate(double tokens) {
  if (tokens >= 1e6) return fmt::format("{:.2f}M tok/s", tokens / 1e6);
  if (tokens >= 1e3) return fmt::format("{:.1f}k tok/s", tokens / 1e3);
  return fmt::format("{:.0f} tok/s", tokens);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e12)));
  if (whole < 3600) return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)), done_(options_.first_step) {
  if (!options_.write) options_.write = write_stderr;
  if (!options_.terminal) options_.terminal = ::isatty(STDERR_FILENO) == 1;
  if (!options_.columns) options_.columns = terminal_columns();
  if (!options_.clock) options_.clock = steady_seconds;
  last_update_ = options_.clock();
}

void Progress::update(std::int64_t done, double loss) {
  double now = options_.clock();
  if (done > done_) {
    double each = (now - last_update_) / static_cast<double>(done - done_);
    // The mean of the first steps, then a memory of about twenty: pauses for validation fade, drift is followed.
    double steps = static_cast<double>(done - options_.first_step);
    double weight = std::max(0.05, std::min(1.0, static_cast<double>(done - done_) / steps));
    seconds_per_step_ += weight * (each - seconds_per_step_);
  }
  last_update_ = now;
  done_ = done;
  loss_ = loss;
  any_ = true;
  double interval = *options_.terminal ? options_.redraw_interval : options_.plain_interval;
  if (!drawn_ || now - last_drawn_ >= interval) draw();
}

double Progress::tokens_per_second() const {
  return seconds_per_step_ > 0 ? static_cast<double>(options_.tokens_per_step) / seconds_per_step_ : 0;
}

std::string Progress::line(bool with_bar) const {
  std::int64_t total = std::max<std::int64_t>(options_.total_steps, 1);
  double left = static_cast<double>(std::max<std::int64_t>(total - done_, 0)) * seconds_per_step_;
  std::string numbers = fmt::format("{}/{}  loss {:.4f}  {}  {} left", done_, options_.total_steps, loss_,
                                    format_rate(tokens_per_second()), format_duration(left));
  if (!with_bar) return numbers;
  int room = std::min(30, *options_.columns - static_cast<int>(numbers.size()) - 5);
  if (room < 5) return numbers.substr(0, static_cast<std::size_t>(std::max(*options_.columns - 1, 1)));
  double share = std::clamp(static_cast<double>(done_) / static_cast<double>(total), 0.0, 1.0);
  int full = static_cast<int>(share * room);
  return fmt::format("[{}{}] {}", std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(room - full), '.'), numbers);
}

void Progress::draw() {
  if (*options_.terminal) {
    options_.write("\r\x1b[K" + line(true));
    on_line_ = true;
  } else {
    options_.write(line(false) + "\n");
  }
  drawn_ = true;
  last_drawn_ = options_.clock();
}

void Progress::note(std::string_view text) {
  std::string clear = on_line_ ? "\r\x1b[K" : "";
  options_.write(clear + std::string(text) + "\n");
  on_line_ = false;
  if (*options_.terminal && any_) draw();
}

void Progress::finish() {
  if (!any_) return;
  draw();
  if (on_line_) options_.write("\n");
  on_line_ = any_ = false;
}

}  // namespace coda
