#include "parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pyattnorg::cpu {
namespace {

// Long enough apart to cost nothing, even from job to job.
void ask(const Poll& poll) {
    using Clock = std::chrono::steady_clock;
    thread_local Clock::time_point last{};
    const auto now = Clock::now();
    if (now - last < std::chrono::milliseconds(100)) return;
    last = now;
    poll();
}

struct Job {
    std::int64_t n;
    const std::function<void(std::int64_t)>* task;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_mutex;

    void work(const Poll& poll = {}) {
        for (std::int64_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < n;) {
            try {
                if (poll) ask(poll);
                (*task)(i);
            } catch (...) {
                const std::lock_guard lock(error_mutex);
                if (!error) error = std::current_exception();
                failed = true;
            }
        }
    }
};

// As a std::mutex, but a thread that holds it may try it again: what a poll calls may call a kernel.
class Flag {
public:
    bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
    void unlock() { taken_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> taken_{false};
};

// Some tens of microseconds: kernels post one short job after the other, and waking a thread takes longer than many.
template <class Condition>
void spin_until(const Condition& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
}

// Workers sleep until a job is posted. One job runs at a time; a caller that finds the pool busy works alone.
class Pool {
public:
    Flag busy;

    void run(Job& job, int helpers, const Poll& poll) {
        try {
            while (static_cast<int>(workers_.size()) < helpers) workers_.emplace_back([this] { loop(); });
        } catch (const std::system_error&) {
            helpers = static_cast<int>(workers_.size());  // the system gives no more threads: fewer do the same work
        }
        {
            const std::lock_guard lock(mutex_);
            job_ = &job;
            wanted_ = helpers;
        }
        posted_.notify_all();
        job.work(poll);
        {
            const std::lock_guard lock(mutex_);
            wanted_ = 0;  // whoever has not started yet is not needed any more
        }
        spin_until([this] { return running_ == 0; });
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [this] { return running_ == 0; });
        job_ = nullptr;
    }

private:
    void loop() {
        std::unique_lock lock(mutex_);
        for (;;) {
            lock.unlock();
            spin_until([this] { return wanted_ > 0; });
            lock.lock();
            posted_.wait(lock, [this] { return wanted_ > 0; });
            --wanted_;
            ++running_;
            Job* job = job_;
            lock.unlock();
            job->work();
            lock.lock();
            if (--running_ == 0) finished_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable posted_, finished_;
    std::vector<std::thread> workers_;
    Job* job_ = nullptr;
    std::atomic<int> wanted_{0}, running_{0};  // changed under the lock, looked at without
};

// Never destroyed: its threads sleep to the end of the process. After a fork the child has none of them, so it gets a
// pool of its own; the parent's copy is left alone, since its locks may be held by threads that no longer exist.
// No lock guards its creation either, as a fork may come in between.
std::atomic<Pool*> the_pool{nullptr};
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { the_pool = nullptr; });

Pool& pool() {
    Pool* found = the_pool.load(std::memory_order_acquire);
    if (found) return *found;
    auto made = std::make_unique<Pool>();
    return the_pool.compare_exchange_strong(found, made.get()) ? *made.release() : *found;
}

}  // namespace

void parallel_for(std::int64_t n, int threads, const std::function<void(std::int64_t)>& task, const Poll& poll) {
    Job job{.n = n, .task = &task, .next = 0, .failed = false, .error = {}, .error_mutex = {}};
    const int helpers = static_cast<int>(std::min<std::int64_t>(threads, n)) - 1;
    if (helpers > 0) {
        Pool& p = pool();
        if (std::unique_lock lock(p.busy, std::try_to_lock); lock) {
            p.run(job, helpers, poll);
        } else {
            job.work(poll);
        }
    } else {
        job.work(poll);
    }
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace pyattnorg::cpu
