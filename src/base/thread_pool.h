// A fixed set of threads that run the bodies of parallel loops. Called by the CPU backend (over tiles), attention (over
// heads) and the optimiser (over pieces of a tensor). Invariant: outside run() no worker touches a caller's memory, and
// run() adds no order of its own to results: a body must depend on its index alone, never on `worker`, for its values.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace coda {

class ThreadPool {
 public:
  // `threads` counts the caller of run(), so 1 starts no thread. Error unless in [1, kMaxThreads].
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // body(index, worker) once for each index in [0, count); indices are handed out in ascending order, worker is in
  // [0, size()) and 0 is the caller. Returns when all are done. If bodies throw, no further index is handed out and the
  // exception of the lowest index that threw leaves run() once every worker has stopped. A body that calls run() on the
  // same pool, or two callers at once, is an InternalError.
  void run(std::int64_t count, const std::function<void(std::int64_t index, int worker)>& body);

  static constexpr int kMaxThreads = 1024;

 private:
  void worker_loop(int worker);
  void work(int worker);
  bool join_job();
  void leave_job();
  void stop();

  // The job in progress; written by run() while no worker is inside.
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::mutex error_mutex_;
  std::int64_t error_index_ = 0;
  std::exception_ptr error_;

  alignas(64) std::atomic<std::int64_t> next_{0};  // the next index to hand out
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint32_t> state_{0};  // kOpen while workers may join, plus the number of workers inside
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // counts jobs; workers sleep on it
  std::atomic<bool> busy_{false};
  std::atomic<bool> quit_{false};
  std::vector<std::thread> threads_;
};

// CODA_THREADS if set (Error if it is no number in [1, 1024]), else the cores this process may run on.
int default_thread_count();

}  // namespace coda
