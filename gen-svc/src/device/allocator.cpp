// The calls of libtorch's allocator for GPUs. tch does not bind them, and their interface is a class
// of C++. The header declares it for every device, so that no headers of CUDA are needed.

#include <c10/core/CachingDeviceAllocator.h>

#include <dlfcn.h>

#include <cstdint>

namespace {
c10::DeviceAllocator* allocator() {
  return c10::getDeviceAllocator(c10::DeviceType::CUDA);
}
} // namespace

// Returns unused memory to the GPUs. Returns false if libtorch is built without CUDA, or CUDA failed.
extern "C" bool tandem_cuda_empty_cache() noexcept {
  try {
    allocator()->emptyCache();
    return true;
  } catch (...) {
    return false;
  }
}

// Writes the free and the total memory of a GPU in bytes. Returns false as above.
extern "C" bool tandem_cuda_memory(std::int32_t device, std::uint64_t* free, std::uint64_t* total) noexcept {
  try {
    const auto [free_bytes, total_bytes] = allocator()->getMemoryInfo(static_cast<c10::DeviceIndex>(device));
    *free = free_bytes;
    *total = total_bytes;
    return true;
  } catch (...) {
    return false;
  }
}

// Writes the name of a GPU, by the driver that libtorch has loaded. Returns false as above.
extern "C" bool tandem_cuda_name(std::int32_t device, char* name, std::int32_t bytes) noexcept {
  using GetDevice = int (*)(int*, int);
  using GetName = int (*)(char*, int, int);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    return false;
  }
  const auto get_device = reinterpret_cast<GetDevice>(dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<GetName>(dlsym(driver, "cuDeviceGetName"));
  int handle = 0;
  const bool is_known = get_device != nullptr && get_name != nullptr && get_device(&handle, device) == 0 &&
      get_name(name, bytes, handle) == 0;
  dlclose(driver);
  return is_known;
}
