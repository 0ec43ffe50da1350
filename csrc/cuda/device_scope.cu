#include "device_scope.hpp"

#include "device.hpp"

namespace pyattnorg::cuda {

OnDevice::OnDevice(int device) {
    check(cudaGetDevice(&before_), "device");
    check(cudaSetDevice(device), "device");
}

OnDevice::~OnDevice() {
    cudaSetDevice(before_);
}

int device_count() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) cudaGetLastError();  // without a driver an error, and no device
    return code == cudaSuccess ? count : 0;
}

}  // namespace pyattnorg::cuda
