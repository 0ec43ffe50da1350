// Devices, for code that no CUDA compiler sees.
#pragma once

namespace pyattnorg::cuda {

// Makes a device the calling thread's while it lives.
class OnDevice {
public:
    explicit OnDevice(int device);
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice();

private:
    int before_ = 0;
};

int device_count();  // 0 where there is no driver

}  // namespace pyattnorg::cuda
