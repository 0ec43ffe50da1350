// A tree's program for a device: the steps here, to lay work out by, and the addresses of what was copied there.
#pragma once

#include <cstring>

#include "addresses.hpp"

namespace pyattnorg::bind {

class DeviceWalk {
public:
    // `steps`: bytes of cuda::WalkStep, as they were copied to `there`.
    DeviceWalk(const py::array_t<std::uint8_t, py::array::c_style>& steps, Address there, Address leaf,
               Address leaf_scale, std::int64_t n_leaves, double concentration)
        : steps_(static_cast<std::size_t>(steps.size()) / sizeof(cuda::WalkStep)) {
        require(!steps_.empty() && steps_.size() * sizeof(cuda::WalkStep) == static_cast<std::size_t>(steps.size()),
                "steps must be whole");
        std::memcpy(steps_.data(), steps.data(), static_cast<std::size_t>(steps.size()));
        std::int64_t slots = 0, emitted = 0, leaves = 0;
        for (const cuda::WalkStep& s : steps_) {
            require(s.leaf >= -1 && s.leaf < n_leaves, "leaf out of range");
            require(s.slot >= (s.add ? 1 : 0) && static_cast<std::size_t>(s.slot) < steps_.size(), "slot out of range");
            require(s.emitted == emitted, "emitted must count the steps that emit");
            leaves += s.leaf >= 0;
            require(s.size > 0 && s.first >= 0 && s.first + s.size == leaves, "runs of leaves must end at their step");
            require(s.folder >= 0 && static_cast<std::size_t>(s.folder) < steps_.size(), "folder out of range");
            emitted += s.scale != 0;
            slots = std::max<std::int64_t>(slots, s.slot + 1);
        }
        require(leaves == n_leaves, "every leaf must come once");
        constexpr std::int64_t most = 48;  // of log2(leaves) open sums; they stand in shared memory
        require(slots <= most, "too many sums are open at once");
        view_ = {static_cast<std::int64_t>(steps_.size()),
                 n_leaves,
                 slots,
                 emitted,
                 steps_.data(),
                 at<const cuda::WalkStep>(there),
                 at<const std::int32_t>(leaf),
                 at<const double>(leaf_scale),
                 concentration};
    }
    DeviceWalk(const DeviceWalk&) = delete;
    DeviceWalk& operator=(const DeviceWalk&) = delete;

    cuda::Walk view() const { return view_; }

private:
    std::vector<cuda::WalkStep> steps_;
    cuda::Walk view_;
};

}  // namespace pyattnorg::bind
