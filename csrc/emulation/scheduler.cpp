// A grid, block by block: fibers run until each waits at a barrier, then the barriers that all have come to open.
// Compiled without -fsanitize=thread, as fiber.cpp is.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulation.hpp"
#include "fiber.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace pyattnorg::emulation {
namespace {

bool same(const Site& a, const Site& b) {
    return a.line == b.line && !std::strcmp(a.file, b.file);
}
std::string name(const Site& s) {
    return std::string(s.file) + ":" + std::to_string(s.line);
}

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "emulated CUDA: %s [block %u,%u,%u, thread %u,%u,%u]\n", what.c_str(), blockIdx.x, blockIdx.y,
                 blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    std::abort();
}

// What a barrier orders. Two tokens in turn: what a fast thread releases at the next barrier must not reach a slow one
// that is still leaving this one.
struct Edges {
    char token[2] = {0, 0};
    int phase = 0;
    void* now() { return &token[phase % 2]; }
};

enum class Wait { none, block, warp };

struct Thread : Fiber {
    uint3 index;
    int lane, warp;
    bool done = false;
    Wait wait = Wait::none;
    Site site;
    unsigned mask = 0;
};
struct Warp {
    std::uint64_t slot[warpSize];
    unsigned lanes = 0;  // those that there are
    Edges edges;
};
struct Block {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Edges edges;
    void* dynamic_shared = nullptr;
    std::map<const void*, void*> static_shared;
    char shared_token = 0;
};
struct Grid {  // shared memory is freed at the end, so that no two blocks of a grid have the same
    const std::function<void()>* body = nullptr;
    std::vector<std::unique_ptr<char[]>> memory;
    std::mt19937 random{7};
    char begin = 0, end = 0;
};

// Odd and even blocks run on different ground, so that ThreadSanitizer sees one and the next as unordered.
std::vector<Ground> grounds[2];
Grid* grid = nullptr;
Block* block = nullptr;
Thread* self = nullptr;

void* fresh_shared(std::size_t bytes) {
    grid->memory.emplace_back(new char[bytes]);
    std::memset(grid->memory.back().get(), 0xff, bytes);  // floats and doubles of these bytes are NaN
    return grid->memory.back().get();
}

void thread_main() {
    self->entered();
    acquire(&grid->begin);
    (*grid->body)();
    release(&grid->end);
    self->done = true;
    self->leave();
}

void stop_and_wait(Wait wait, Site site, void* token) {
    Thread* me = self;
    release(token);
    me->site = site;
    me->wait = wait;
    me->pause();
    acquire(token);
}

// Opens the warp barriers that all lanes of their mask have come to; whether there were any.
bool open_warps() {
    bool opened = false;
    for (std::size_t w = 0; w < block->warps.size(); ++w) {
        const auto first = block->threads.begin() + static_cast<std::ptrdiff_t>(w) * warpSize;
        const auto last = first + std::min<std::ptrdiff_t>(warpSize, block->threads.end() - first);
        const Thread* one = nullptr;
        unsigned waiting = 0, gone = 0;
        for (auto t = first; t != last; ++t) {
            if (t->done) gone |= 1u << t->lane;
            if (t->wait != Wait::warp) continue;
            threadIdx = t->index;
            if (one && !(same(one->site, t->site) && one->mask == t->mask))
                fail("lanes of one warp wait at different places: " + name(one->site) + " and " + name(t->site));
            one = &*t;
            waiting |= 1u << t->lane;
        }
        if (!one) continue;
        if (one->mask & gone) fail("the mask names a lane that has returned: " + name(one->site));
        if (waiting != one->mask) continue;
        block->warps[w].edges.phase++;
        for (auto t = first; t != last; ++t)
            if (t->wait == Wait::warp) t->wait = Wait::none;
        opened = true;
    }
    return opened;
}

void open_block() {
    const Thread* one = nullptr;
    for (const Thread& t : block->threads) {
        threadIdx = t.index;
        // A GPU counts a thread that has returned as come. A return above a barrier is most often a mistake: refused.
        if (t.done) fail("a thread has returned while others wait at a barrier");
        if (t.wait == Wait::warp) fail("lanes of the mask never came: " + name(t.site));
        if (one && !same(one->site, t.site))
            fail("threads of one block wait at different barriers: " + name(one->site) + " and " + name(t.site));
        one = &t;
    }
    block->edges.phase++;
    for (Thread& t : block->threads) t.wait = Wait::none;
}

void make_threads(unsigned n, std::vector<Ground>& on) {
    block->threads.resize(n);
    block->warps.resize((n + warpSize - 1) / warpSize);
    while (on.size() < n) on.push_back(new_ground());
    for (unsigned i = 0; i < n; ++i) {
        Thread& t = block->threads[i];
        t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        t.lane = static_cast<int>(i) % warpSize;
        t.warp = static_cast<int>(i) / warpSize;
        block->warps[static_cast<std::size_t>(t.warp)].lanes |= 1u << t.lane;
        t.start(on[i], thread_main);
    }
}

void run_block(std::size_t shared_bytes, const std::string& order) {
    const unsigned n = blockDim.x * blockDim.y * blockDim.z;
    Block b;
    block = &b;
    b.dynamic_shared = fresh_shared(shared_bytes);
    release(&grid->begin);
    make_threads(n, grounds[(blockIdx.x + blockIdx.y + blockIdx.z) % 2]);
    std::vector<unsigned> turn(n);
    std::iota(turn.begin(), turn.end(), 0u);
    if (order == "backward") std::reverse(turn.begin(), turn.end());
    for (;;) {
        if (order == "shuffled") std::shuffle(turn.begin(), turn.end(), grid->random);
        bool alive = false;
        for (const unsigned i : turn) {
            Thread& t = b.threads[i];
            if (!t.done && t.wait == Wait::none) {
                self = &t;
                threadIdx = t.index;
                t.resume();
            }
            alive |= !t.done;
        }
        if (!alive) break;
        if (!open_warps()) open_block();
    }
    block = nullptr;
}

}  // namespace

std::mutex& one_at_a_time() {
    static std::mutex mutex;
    return mutex;
}

void wait_block(Site site) {
    stop_and_wait(Wait::block, site, block->edges.now());
}

void wait_warp(unsigned mask, Site site) {
    Warp& w = block->warps[static_cast<std::size_t>(self->warp)];
    if (!(mask >> self->lane & 1u)) fail("the mask leaves out the lane that calls: " + name(site));
    if (mask & ~w.lanes) fail("the mask names lanes that the block does not have: " + name(site));
    self->mask = mask;
    stop_and_wait(Wait::warp, site, w.edges.now());
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, int source, Site site) {
    if (!(mask >> source & 1u)) fail("the lane that is read is not in the mask: " + name(site));
    Warp& w = block->warps[static_cast<std::size_t>(self->warp)];
    w.slot[self->lane] = value;
    wait_warp(mask, site);  // all have written
    value = w.slot[source];
    wait_warp(mask, site);  // all have read
    return value;
}

int lane() {
    return self->lane;
}

void* dynamic_shared_bytes() {
    return block->dynamic_shared;
}

void* static_shared_bytes(const void* key, std::size_t bytes) {
    as_scheduler(*self, true);  // or the first thread that asks would be the one that wrote it
    void*& at = block->static_shared[key];
    if (!at) {
        at = fresh_shared(bytes);
        release(&block->shared_token);
    }
    as_scheduler(*self, false);
    acquire(&block->shared_token);
    return at;
}

void run_grid(dim3 g, dim3 b, std::size_t shared_bytes, const std::function<void()>& body) {
    const std::size_t n = std::size_t{b.x} * b.y * b.z;
    if (n == 0 || n > 1024 || b.z > 64) throw std::runtime_error("CUDA, launch: invalid configuration argument");
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        throw std::runtime_error("CUDA, launch: invalid configuration argument");
    if (shared_bytes > 227 * 1024) throw std::runtime_error("CUDA, shared memory: invalid argument");
    const char* order = std::getenv("PYATTNORG_EMULATED_ORDER");
    Grid whole;
    grid = &whole;
    whole.body = &body;
    gridDim = g;
    blockDim = b;
    become_scheduler();
    for (unsigned z = 0; z < g.z; ++z)
        for (unsigned y = 0; y < g.y; ++y)
            for (unsigned x = 0; x < g.x; ++x) {
                blockIdx = {x, y, z};
                run_block(shared_bytes, order ? order : "forward");
            }
    acquire(&whole.end);  // not before: blocks are not ordered among themselves
    grid = nullptr;
}

}  // namespace pyattnorg::emulation
