// Calls of libtorch for GPUs: its allocator, its settings, and events. tch does not bind them, and their interfaces are
// classes of C++. The headers declare them for every device, so that no headers of CUDA are needed.

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>

namespace {
c10::DeviceAllocator* allocator() {
  return c10::getDeviceAllocator(c10::DeviceType::CUDA);
}

// Calls a function of the driver that libtorch has loaded. Its last argument is the GPU. Returns false if there is no
// driver or no such function, or if it failed.
template <typename... Arguments>
bool call_driver(const char* name, std::int32_t device, Arguments... arguments) noexcept {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    return false;
  }
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto function = reinterpret_cast<int (*)(Arguments..., int)>(dlsym(driver, name));
  int handle = 0;
  const bool succeeds = get_device != nullptr && function != nullptr && get_device(&handle, device) == 0 &&
      function(arguments..., handle) == 0;
  dlclose(driver);
  return succeeds;
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

// Lets products of 16-bit numbers add their parts in 32 bits.
extern "C" void tandem_sum_precisely() noexcept {
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
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

// Writes the name of a GPU. Returns false if the driver does not report it.
extern "C" bool tandem_cuda_name(std::int32_t device, char* name, std::int32_t bytes) noexcept {
  return call_driver("cuDeviceGetName", device, name, static_cast<int>(bytes));
}

// Writes the major number of a GPU's compute capability. Returns false as above.
extern "C" bool tandem_cuda_major(std::int32_t device, std::int32_t* major) noexcept {
  constexpr int COMPUTE_CAPABILITY_MAJOR = 75;
  return call_driver("cuDeviceGetAttribute", device, static_cast<int*>(major), COMPUTE_CAPABILITY_MAJOR);
}

// Creates an event behind all calls to a GPU so far. Returns null, and writes the problem, if CUDA failed.
extern "C" void* tandem_cuda_record(std::int32_t device, char* problem, std::int32_t bytes) noexcept {
  try {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    auto event = std::make_unique<c10::Event>(c10::DeviceType::CUDA);
    event->record(guard.getStream(place));
    return event.release();
  } catch (const std::exception& error) {
    std::snprintf(problem, static_cast<std::size_t>(bytes), "%s", error.what());
    return nullptr;
  }
}

// Waits until the GPU reaches an event. Returns false, and writes the problem, if CUDA failed.
extern "C" bool tandem_cuda_wait(void* event, char* problem, std::int32_t bytes) noexcept {
  try {
    static_cast<c10::Event*>(event)->synchronize();
    return true;
  } catch (const std::exception& error) {
    std::snprintf(problem, static_cast<std::size_t>(bytes), "%s", error.what());
    return false;
  }
}

// Destroys an event.
extern "C" void tandem_cuda_forget(void* event) noexcept {
  delete static_cast<c10::Event*>(event);
}
