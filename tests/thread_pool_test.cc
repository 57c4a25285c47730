// The thread pool: every index once and in order of hand-out, exceptions, misuse, and many short jobs (for TSan).
#include "base/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "coda/error.h"

using coda::ThreadPool;

TEST_CASE("every index runs exactly once, for any thread count") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> hits(static_cast<std::size_t>(count), 0);
      std::vector<int> worker_of(static_cast<std::size_t>(count), -1);
      pool.run(count, [&](std::int64_t i, int worker) {
        hits[static_cast<std::size_t>(i)] += 1;
        worker_of[static_cast<std::size_t>(i)] = worker;
      });
      for (std::size_t i = 0; i < hits.size(); ++i) {
        CHECK(hits[i] == 1);
        CHECK(worker_of[i] >= 0);
        CHECK(worker_of[i] < threads);
      }
    }
  }
}

TEST_CASE("indices are handed out in ascending order to each worker") {
  ThreadPool pool(4);
  std::vector<std::int64_t> last(4, -1);
  std::atomic<bool> ascending{true};
  pool.run(2000, [&](std::int64_t i, int worker) {
    std::int64_t& mine = last[static_cast<std::size_t>(worker)];
    if (i <= mine) ascending = false;
    mine = i;
  });
  CHECK(ascending);
}

TEST_CASE("work is shared: two bodies that wait for each other both finish") {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::set<std::thread::id> ids;
  std::mutex mutex;
  pool.run(2, [&](std::int64_t, int) {
    arrived.fetch_add(1);
    auto start = std::chrono::steady_clock::now();
    while (arrived.load() < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
      std::this_thread::yield();
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  CHECK(arrived == 2);
  CHECK(ids.size() == 2);
}

TEST_CASE("many short jobs, with sleeps in between, see each other's writes") {
  ThreadPool pool(3);
  std::vector<std::int64_t> data(64, 0);
  for (int round = 0; round < 3000; ++round) {
    // Element i is written by whichever worker gets i: unsynchronised jobs would lose additions (and TSan would say
    // so).
    pool.run(64, [&](std::int64_t i, int) { data[static_cast<std::size_t>(i)] += i; });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::size_t i = 0; i < 64; ++i) CHECK(data[i] == 3000 * static_cast<std::int64_t>(i));
}

TEST_CASE("the exception of the lowest index propagates after all workers stopped, and the pool stays usable") {
  for (int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> inside{0};
      std::string message;
      try {
        pool.run(100, [&](std::int64_t i, int) {
          inside.fetch_add(1);
          struct Leave {
            std::atomic<int>& n;
            ~Leave() { n.fetch_sub(1); }
          } leave{inside};
          if (i >= 5) throw std::runtime_error("index " + std::to_string(i));
        });
      } catch (const std::runtime_error& e) {
        message = e.what();
      }
      CHECK(message == "index 5");
      CHECK(inside == 0);
      int sum = 0;
      pool.run(1, [&](std::int64_t, int) { sum += 1; });
      CHECK(sum == 1);
    }
  }
}

// Until both bodies of a job of two are inside, or 5 s (then the job was not shared, and the test fails).
static void wait_for_both(const std::atomic<int>& arrived) {
  auto start = std::chrono::steady_clock::now();
  while (arrived.load() < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(5))
    std::this_thread::yield();
}

TEST_CASE("run waits for the slowest worker, and the lowest index that threw wins though it throws last") {
  ThreadPool pool(2);
  std::atomic<int> arrived{0}, left{0};
  std::string message;
  try {
    pool.run(2, [&](std::int64_t i, int worker) {
      arrived.fetch_add(1);
      wait_for_both(arrived);
      if (worker != 0 || i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      left.fetch_add(1);
      throw std::runtime_error("index " + std::to_string(i));
    });
  } catch (const std::runtime_error& e) {
    message = e.what();
  }
  CHECK(left == 2);
  CHECK(message == "index 0");

  std::atomic<int> done{0};
  arrived = 0;
  pool.run(2, [&](std::int64_t, int worker) {
    arrived.fetch_add(1);
    wait_for_both(arrived);
    if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done.fetch_add(1);
  });
  CHECK(done == 2);
}

TEST_CASE("no index is handed out after a failure") {
  ThreadPool pool(1);
  std::int64_t last = -1;
  CHECK_THROWS_AS(pool.run(1000,
                           [&](std::int64_t i, int) {
                             last = i;
                             if (i == 3) throw std::runtime_error("stop");
                           }),
                  std::runtime_error);
  CHECK(last == 3);
}

TEST_CASE("run from inside a body is an internal error, and the pool survives it") {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    auto nested = [&](std::int64_t, int) { pool.run(2, [](std::int64_t, int) {}); };
    CHECK_THROWS_AS(pool.run(4, nested), coda::InternalError);
    std::atomic<int> done{0};
    pool.run(10, [&](std::int64_t, int) { done.fetch_add(1); });
    CHECK(done == 10);
  }
}

TEST_CASE("absurd thread counts are refused") {
  for (int threads : {0, -1, 1025, 1 << 30}) {
    CHECK_THROWS_AS(ThreadPool{threads}, coda::Error);
    try {
      ThreadPool pool(threads);
    } catch (const coda::Error& e) {
      CHECK(e.parts().argument == "threads");
      CHECK(e.parts().found == std::to_string(threads));
    }
  }
}

TEST_CASE("default_thread_count obeys CODA_THREADS") {
  setenv("CODA_THREADS", "7", 1);
  CHECK(coda::default_thread_count() == 7);
  for (const char* bad : {"0", "-3", "two", "3x", "99999", "99999999999999"}) {
    setenv("CODA_THREADS", bad, 1);
    CHECK_THROWS_AS(coda::default_thread_count(), coda::Error);
  }
  unsetenv("CODA_THREADS");
  CHECK(coda::default_thread_count() >= 1);
  CHECK(coda::default_thread_count() <= ThreadPool::kMaxThreads);
}
