// What PyTorch's C++ asks of CUDA beside kernels: one device with one stream, for which nothing has to wait.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using namespace c10;
const Device GPU(kCUDA, 0);

struct Guard : impl::NoOpDeviceGuardImpl<kCUDA> {
  Device exchangeDevice(Device) const override { return GPU; }
  Device getDevice() const override { return GPU; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, GPU); }
};

struct CUDAHooks : at::CUDAHooksInterface {  // PyTorch looks for this name when it is loaded
  CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, CUDAHooks)
static impl::DeviceGuardImplRegistrar registrar(kCUDA, new Guard());
