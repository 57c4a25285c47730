// One job at a time. A worker joins a job only while it is open, and run() closes it as soon as the indices are used
// up: so a worker that the system wakes late delays nobody. Waiting is a short spin, then a futex (std::atomic::wait).
#include "base/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;
constexpr int kSpins = 2000;  // some tens of microseconds: longer than the gap between two programs of a plan

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Until `value` differs from `old`; returns what it became.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    throw Error({"threads", fmt::format("{}", threads), fmt::format("1 to {}", kMaxThreads),
                 "Leave it out to use the cores this process may run on."});
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { worker_loop(worker); });
  } catch (const std::system_error& e) {
    std::size_t started = threads_.size() + 1;
    stop();
    throw Error({"threads", fmt::format("the system refused thread {} of {} ({})", started + 1, threads, e.what()),
                 fmt::format("at most {} here", started), "Ask for fewer threads."});
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  quit_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& body) {
  CODA_CHECK(!busy_.exchange(true, std::memory_order_acquire),
             "ThreadPool::run called while the pool runs another loop (from inside a body, or by a second caller)");
  body_ = &body;
  count_ = count;
  error_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  bool shared = count > 1 && !threads_.empty();
  if (shared) {
    state_.store(kOpen, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }
  work(0);
  if (shared) {
    std::uint32_t inside = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while (inside != 0) inside = wait_for_change(state_, inside);
  }
  std::exception_ptr error = std::exchange(error_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::work(int worker) {
  while (!failed_.load(std::memory_order_relaxed)) {
    std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count_) return;
    try {
      (*body_)(index, worker);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_ || index < error_index_) {
        error_ = std::current_exception();
        error_index_ = index;
      }
      failed_.store(true, std::memory_order_relaxed);
    }
  }
}

bool ThreadPool::join_job() {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  while (state & kOpen)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
  return false;
}

void ThreadPool::leave_job() {
  if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();  // closed, and the last one out
}

void ThreadPool::worker_loop(int worker) {
  std::uint32_t epoch = 0;
  while (true) {
    epoch = wait_for_change(epoch_, epoch);
    if (quit_.load(std::memory_order_relaxed)) return;
    if (!join_job()) continue;
    work(worker);
    leave_job();
  }
}

int default_thread_count() {
  if (const char* text = std::getenv("CODA_THREADS"); text != nullptr && *text != '\0') {
    int threads = 0;
    const char* end = text + std::strlen(text);
    auto [stop, status] = std::from_chars(text, end, threads);
    if (status != std::errc() || stop != end || threads < 1 || threads > ThreadPool::kMaxThreads)
      throw Error({"CODA_THREADS", fmt::format("'{}'", text),
                   fmt::format("a number from 1 to {}", ThreadPool::kMaxThreads),
                   "Unset it to use the cores this process may run on."});
    return threads;
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int found = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores)
                                                              : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(found, 1, ThreadPool::kMaxThreads);
}

}  // namespace coda
